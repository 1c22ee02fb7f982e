"""What is known of a join phase: of the group's current one, and of one that has ended and lost members."""

from dataclasses import dataclass, field
from typing import NamedTuple


class PhaseStart(NamedTuple):
    """The first sign of a join phase that was seen."""

    at_ms: int
    by: str | None
    """Whose leave or JoinGroup that was; None: it was an answer 27 or 25 to others, so some session had ended."""
    timeout_ms: int | None = None
    """The rebalance timeout of the client whose JoinGroup that was, if it is none of the group's members."""


class PhaseEnd(NamedTuple):
    """The end of a join phase: a new generation."""

    generation: int
    at_ms: int
    """When an answer or a record first showed it."""


class JoinsSeen(NamedTuple):
    """When the JoinGroups of one generation arrived, by those answers that were seen."""

    first_ms: int | None = None
    """None: no answer was seen, or generations were skipped."""
    last_ms: int | None = None
    """Of those that the join phase waited for; None: no answer was seen."""
    skipped: bool = False
    """Whether generations were skipped: the first may have arrived in one of which no answer was seen."""


NO_JOIN_SEEN = JoinsSeen()


@dataclass(slots=True)
class JoinPhase:
    """What is known of one join phase, see ``join_phase``."""

    began_after_ms: int = 0
    """The last instant at which it had certainly not begun."""
    started: PhaseStart | None = None
    """Its first sign; None: none was seen."""
    ended: PhaseEnd | None = None
    """None: it goes on, or the group was upgraded in it."""
    unanswered: list[str] = field(default_factory=list)
    """Ids of members whose JoinGroup was applied in it but answered 15: they joined, though no answer says so."""

    @property
    def started_ms(self) -> int | None:
        """When its first sign was; None: none was seen."""
        return None if self.started is None else self.started.at_ms


@dataclass(slots=True)
class EndedPhase(JoinPhase):
    """A join phase that has lost members. All removals that it caused refer to one object.

    Late lines of the phase are noted here until all these removals are judged.
    """

    joins: JoinsSeen = NO_JOIN_SEEN
    """The JoinGroups of the generation that ended it; until one has, of the generation before."""
    removed_ms: int = 0
    """When the members that it lost were found gone."""
    limit_ms: int | None = None
    """The longest that it could last, if it began with the end of a session; None: no timeout is known."""
    static_in: bool = False
    """Whether a static member was in it."""
    unjoined: list[str] = field(default_factory=list)
    """Whom it waited for and who is not seen to have joined: static members by instance id, and ids given out (79)."""

    def is_of(self, phase: JoinPhase) -> bool:
        """Tell whether this is what is kept of a phase: its end and ``began_after_ms`` identify it."""
        return (self.ended, self.began_after_ms) == (phase.ended, phase.began_after_ms)
