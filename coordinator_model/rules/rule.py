"""``Rule``: the facts of a rule. Its module holds them beside its judge; ``registry`` lists them all."""

from dataclasses import dataclass

from coordinator_model.states import Severity

WARN_THEN_PAGE = (Severity.WARN, Severity.PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The facts of a rule, in one place: for its findings, its incidents and its page under ``docs/rules``.

    ``severities``: from least to worst. ``thresholds``: fields of ``Thresholds``. With ``evidence``, ``true_when`` and
    ``clears`` they make the facts on the rule's page (`make rules`). ``lasting``: the finding stays true until the
    member is back or the group is stable without it, so an incident does not close just because it is no longer found.
    ``superseded_by``: the rule that a risk turns into. ``violation``: a member has broken a timeout. ``unexplained``:
    the cause is unknown, so a violation of the same member supersedes the incident. ``needs_heartbeats``: a heartbeat
    may end the rule's findings. ``needs_owner``: once the member that the incident names is gone, the incident is
    superseded, not recovered. ``ends_as``: the reason with which an incident closes once it is no longer found.
    """

    id: str
    severities: tuple[Severity, ...]
    evidence: str
    true_when: str
    clears: str
    thresholds: tuple[str, ...] = ()
    lasting: bool = False
    superseded_by: str | None = None
    violation: bool = False
    unexplained: bool = False
    needs_heartbeats: bool = False
    needs_owner: bool = False
    ends_as: str = "recovered"

    @property
    def severity(self) -> Severity:
        """The only severity of a rule, or its least."""
        return self.severities[0]

    @property
    def worst(self) -> Severity:
        """The severity to which a finding may rise."""
        return self.severities[-1]
