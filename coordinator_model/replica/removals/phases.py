"""The types of a join phase: ``JoinPhase`` is the group's current one, ``EndedPhase`` is kept for removals."""

from dataclasses import dataclass, field
from typing import NamedTuple

NEWCOMER = ""
"""A join phase may have begun with the JoinGroup of a newcomer that had been given a member id (79). Such a request is
answered only when the phase ends, so it is not seen before."""


class PhaseStart(NamedTuple):
    """The first sign of a join phase that was seen."""

    at_ms: int
    by: str | None
    """Whose leave or JoinGroup that was; None: it was an answer 27 or 25 to others, so some session had ended;
    ``NEWCOMER``: it was such an answer, too, but a newcomer may have begun the phase."""
    timeout_ms: int | None = None
    """The rebalance timeout of the client that began the phase: it counts even if that is a newcomer.

    It is noted once the answers that show it have come (``note_starter_timeout``, ``note_timeout_if_starter``).
    """


class PhaseEnd(NamedTuple):
    """The end of a join phase: a new generation."""

    generation: int
    at_ms: int
    """When an answer or a record first showed it."""
    emptied: bool = False
    """Whether a record shows that nobody is in that generation."""


class JoinsSeen(NamedTuple):
    """When the JoinGroups of one generation arrived, by the answers that were seen."""

    first_ms: int | None = None
    """None: no answer was seen, or generations were skipped."""
    last_ms: int | None = None
    """The last that arrived before the join phase ended; None: no answer was seen."""
    skipped: bool = False
    """Whether generations were skipped: the first JoinGroup may have arrived in one of which no answer was seen."""


NO_JOIN_SEEN = JoinsSeen()


@dataclass(slots=True)
class JoinPhase:
    """What is known about the group's current join phase, see ``join_phase``."""

    began_after_ms: int = 0
    """The last instant at which it had certainly not begun."""
    started: PhaseStart | None = None
    """Its first sign; None: no sign was seen."""
    ended: PhaseEnd | None = None
    """None: it goes on, or the group was upgraded to KIP-848 while it went on."""
    unanswered: list[str] = field(default_factory=list)
    """Ids of members of the generation that it leads to, though no answer lists them. Their JoinGroup was applied in it
    but answered 15, or their heartbeat was answered 22 after it had ended."""

    @property
    def started_ms(self) -> int | None:
        """When its first sign was; None: no sign was seen."""
        return None if self.started is None else self.started.at_ms

    @property
    def downgraded_ms(self) -> int | None:
        """When the group's downgrade from KIP-848 began the phase; None: something else did."""
        return self.began_after_ms if self.started_ms == self.began_after_ms else None


@dataclass(slots=True)
class EndedPhase(JoinPhase):
    """What is kept of a join phase in which members were found gone. All removals in the phase refer to one object.

    Usually the phase has ended. It goes on if a static member is replaced in it. It never ends (``ended`` stays None)
    if the group is upgraded to KIP-848 in it. Late lines of the phase are noted here until all these removals are
    judged.
    """

    joins: JoinsSeen = NO_JOIN_SEEN
    """The JoinGroups of the generation that ended it; none if it has not ended."""
    removed_ms: int = 0
    """When its members were removed, as far as that is known."""
    limit_ms: int | None = None
    """How long it could last: the longest rebalance timeout of its members; None: no timeout is known.

    If a newcomer's JoinGroup began it, ``started.timeout_ms`` counts too.
    """
    static_in: bool = False
    """Whether a static member was in it."""
    unjoined: list[str] = field(default_factory=list)
    """The members for which it waited and that are not seen to have joined: static ones by instance id, pending ones
    (79) by member id."""
    written_by: str = ""
    """The broker that wrote the record of the generation that ended it, as its answer to the leader's SyncGroup shows.
    It is noted of a former coordinator, and of the broker whose answer showed the removals. If the phase never ended,
    it is the coordinator that died in it."""

    def is_of(self, phase: JoinPhase) -> bool:
        """Tell whether this is what is kept of the given phase: its end and ``began_after_ms`` identify it."""
        return (self.ended, self.began_after_ms) == (phase.ended, phase.began_after_ms)
