"""What a shard notices about its coordinator: members that lost sessions through a pause or a move, silence, no log.

The findings about brokers are made of this. Every method that changes a finding returns the instants at which to report
it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator_model.events import ConsumerHeartbeat, JoinAnswered
from coordinator_model.rules import coordinator_unavailable, refused_unknown
from coordinator_model.rules.coordinator_unavailable import RefusalSpell
from coordinator_model.rules.findings import Finding
from coordinator_model.rules.refused_unknown import RefusedClient
from coordinator_model.states import Cause, Evidence
from coordinator_model.thresholds import Thresholds

BLAMED = (Cause.COORDINATOR_PAUSE, Cause.COORDINATOR_MOVED)
SAME_MEMBER_MS = 600_000


class AffectedMember(NamedTuple):
    """A member that lost its session because its coordinator paused or moved."""

    cause: str
    """The value of a ``Cause``."""
    broker: str
    at_ms: int
    group: str
    subject: str
    evidence: str = Evidence.OBSERVED.value
    """The value of an ``Evidence``: inferred as long as only a timer shows that the session ended."""


class SteppedClock(NamedTuple):
    """A broker's clock that stepped."""

    at_ms: int
    """When it stepped, by the other clocks."""
    apart_ms: int
    lasting: bool


class UnloggedLeader(NamedTuple):
    """A leader without a request log."""

    since_ms: int
    node: int


@dataclass(slots=True)
class BrokerWatch:
    """What a shard has noticed about its coordinator, and about clients that belong to no known group."""

    affected_members: dict[tuple[str, str], AffectedMember] = field(default_factory=dict)
    """By group and subject. Each evaluation of a group looks for its members here."""
    stalled_ms: int | None = None
    """When a silence began: the coordinator's last line, or when it became the coordinator."""
    refusals: RefusalSpell | None = None
    """The answers 14, 15 and 16 since the last other answer, see ``coordinator_unavailable``."""
    refused_joins: dict[str, RefusedClient] = field(default_factory=dict)
    """Clients that ask to join unknown groups, see ``refused_unknown``."""
    clocks: dict[str, SteppedClock] = field(default_factory=dict)
    """By broker."""
    silent_broker: str = ""
    """The broker that ``stalled_ms`` is about."""
    unlogged: UnloggedLeader | None = None
    overdue_ms: int | None = None
    """When a silence began that only this machine's clock shows, as the batch before saw it."""

    @property
    def blind(self) -> bool:
        """Whether no lines of the coordinator are seen now, so that no member is known to be alive."""
        return self.stalled_ms is not None or self.unlogged is not None

    def refused_join(self, event: JoinAnswered | ConsumerHeartbeat) -> list[int]:
        """Note a refused join of a group that is not known."""
        return refused_unknown.note(self.refused_joins, event)

    def stepped(self, broker: str, at_ms: int, apart_ms: int, *, lasting: bool) -> bool:
        """Note that a broker's clock stepped, perhaps back to the right time. Return whether that changes a finding."""
        known = self.clocks.pop(broker, None)
        if apart_ms:
            self.clocks[broker] = SteppedClock(at_ms if known is None else known.at_ms, apart_ms, lasting)
        return bool(apart_ms or known)

    def _forget_old_steps(self, progress_ms: int, thresholds: Thresholds) -> list[int]:
        """Forget old steps that no other clock confirms."""
        unsure = {name: step.at_ms for name, step in self.clocks.items() if not step.lasting}
        ends = {name: at_ms + thresholds.resolve_after_ms for name, at_ms in unsure.items()}
        over = [name for name, end_ms in ends.items() if progress_ms >= end_ms]
        for name in over:
            del self.clocks[name]
        return sorted(ends[name] for name in over)

    def moved(self, at_ms: int, unlogged: UnloggedLeader | None) -> list[int]:
        """Note that another broker leads the shard; ``unlogged`` if its telemetry has never been seen."""
        before = (self.unlogged, self.stalled_ms)
        self.unlogged, self.stalled_ms = unlogged, None
        return [at_ms] if before != (unlogged, None) else []

    def refused(self, broker: str, error: int, at_ms: int, answered_ms: int, thresholds: Thresholds) -> list[int]:
        """Note that a broker answered 14, 15 or 16. ``answered_ms``: when the last other answer was."""
        before, instants = self.refusals, self.end_if_not_repeated(at_ms, thresholds)
        window = self.refusals = coordinator_unavailable.refused(self.refusals, broker, error, at_ms, answered_ms)
        if before is not None and before.reported and not window.reported and not instants:
            instants.append(at_ms)
        if not window.reported and coordinator_unavailable.lasts(window, thresholds):
            self.refusals = window._replace(reported=True)
            instants.append(at_ms)
        return instants

    def end_if_not_repeated(self, at_ms: int, thresholds: Thresholds) -> list[int]:
        """End the refusals once no client has been refused for ``resolve_after_ms``."""
        if self.refusals is None or at_ms < self.refusals.last_ms + thresholds.resolve_after_ms:
            return []
        end_ms, reported = self.refusals.last_ms + thresholds.resolve_after_ms, self.refusals.reported
        self.refusals = None
        return [end_ms] if reported else []

    def answered(self, at_ms: int, thresholds: Thresholds) -> list[int]:
        """End the refusals, because another answer came."""
        instants = self.end_if_not_repeated(at_ms, thresholds)
        if self.refusals is not None:
            instants += [at_ms] if self.refusals.reported else []
            self.refusals = None
        return instants

    def attribute(
        self, findings: list[Finding], progress_ms: int, thresholds: Thresholds, unnamed: str = ""
    ) -> Iterator[int]:
        """Attribute lost sessions to the pause or move of the coordinator, so that they make one incident.

        Yield the instants at which to report, each before the next change. A finding may last for hours. Once its loss
        is so old that the incident has ended, it makes no other. ``unnamed``: what to call a broker whose lines do not
        name it.
        """
        recent_ms = progress_ms - thresholds.resolve_after_ms
        blamed = (f for f in findings if f.cause in BLAMED and f.deadline_ms is not None and f.at_ms > recent_ms)
        new = [finding for finding in blamed if self._is_new(finding)]
        if new:
            yield from self._end_losses(progress_ms, thresholds)
            for loss in new:
                key = (loss.group, loss.subject)
                self.affected_members[key] = AffectedMember(
                    loss.cause.value, loss.broker or unnamed, loss.at_ms, *key, loss.evidence.value
                )
            yield max(loss.at_ms for loss in new)

    def _is_new(self, loss: Finding) -> bool:
        """Tell whether a lost session is not attributed yet, or was only inferred when it was."""
        known = self.affected_members.get((loss.group, loss.subject))
        if known is None or abs(known.at_ms - loss.at_ms) >= SAME_MEMBER_MS:
            return True
        return known.evidence == Evidence.INFERRED and loss.evidence is Evidence.OBSERVED

    def refute(self, group: str, heard_ms: Mapping[str, int], coordinator: str, at_ms: int) -> list[int]:
        """Take out the members that their broker accepted since their sessions seemed to have ended there.

        ``heard_ms``: when each member of a group was last heard, by its subject. Another coordinator that accepts a
        member refutes nothing: it has loaded the member from the log.
        """
        alive = [
            (group, subject)
            for subject, last_ms in heard_ms.items()
            if (known := self.affected_members.get((group, subject))) is not None
            and known.evidence == Evidence.INFERRED
            and known.broker == coordinator
            and last_ms > known.at_ms
        ]
        for key in alive:
            del self.affected_members[key]
        return [at_ms] if alive else []

    def _end_losses(self, progress_ms: int, thresholds: Thresholds) -> list[int]:
        """End ``coordinator-paused`` once nobody has lost a session for ``resolve_after_ms``."""
        last_ms = max((member.at_ms for member in self.affected_members.values()), default=None)
        if last_ms is None or progress_ms < last_ms + thresholds.resolve_after_ms:
            return []
        self.affected_members.clear()
        return [last_ms + thresholds.resolve_after_ms]

    def expire(self, progress_ms: int, thresholds: Thresholds) -> list[int]:
        """End old findings."""
        instants = refused_unknown.expire(self.refused_joins, progress_ms)
        instants += self._forget_old_steps(progress_ms, thresholds)
        return sorted(instants + self._end_losses(progress_ms, thresholds))

    def silent(self, since_ms: int, silence_ms: int, thresholds: Thresholds) -> list[int]:
        """Note a silence of the coordinator that still lasts."""
        if self.stalled_ms is not None or silence_ms <= thresholds.telemetry_stalled_ms:
            return []
        self.stalled_ms = since_ms
        return [since_ms + thresholds.telemetry_stalled_ms]

    def is_confirmed(self, since_ms: int) -> bool:
        """Tell whether the batch before has shown the same silence.

        One batch is not enough: if Spark starts a batch late, such as the first one, the wall clock is far ahead of
        what the batch has read.
        """
        before_ms, self.overdue_ms = self.overdue_ms, since_ms
        return before_ms == since_ms

    def lines_resumed(self, line_ms: int) -> list[int]:
        """Note that lines of the coordinator have resumed, perhaps by a clock that is behind the silence."""
        if self.stalled_ms is None:
            return []
        resumed_ms, self.stalled_ms = max(line_ms, self.stalled_ms), None
        return [resumed_ms]
