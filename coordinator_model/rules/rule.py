"""``Rule``: the facts of a rule. Its module holds them beside its judge; ``registry`` lists them all."""

from dataclasses import dataclass

from coordinator_model.states import Severity

WARN_THEN_PAGE = (Severity.WARN, Severity.PAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is said of a rule in one place: its findings, its incidents and its page under ``docs/rules`` read it here.

    ``severities``: from least to worst. ``thresholds``: fields of ``Thresholds``; with ``evidence``, ``true_when`` and
    ``clears`` they make the facts of the rule's page (`make rules`).
    ``lasting``: what happened stays true until somebody came back or the group is well without: silence does not close
    it. ``superseded_by``: the rule that a risk turns into. ``violation``: it says that a member has broken a timeout.
    ``unexplained``: it does not say why a member went, so a violation of the same member supersedes it.
    ``needs_heartbeats``: a heartbeat may end its findings. ``needs_owner``: it is over, and not better, once the member
    that it names has gone. ``ends_as``: the reason with which an incident closes that is no longer found.
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
        """The severity of a rule that has one; else the least."""
        return self.severities[0]

    @property
    def worst(self) -> Severity:
        """What it may become."""
        return self.severities[-1]
