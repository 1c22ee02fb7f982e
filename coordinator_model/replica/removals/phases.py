"""What is known of a join phase: of the one that goes on, and of one that has ended and lost members."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class JoinPhase:
    """What is known of one join phase, see ``join_phase``."""

    after_ms: int = 0
    """The last instant at which it was known not to have begun."""
    started_ms: int | None = None
    """Its first sign; None: none was seen."""
    started_by: str = ""
    """Whose leave or JoinGroup that sign is; empty: an answer 27 or 25 to others, so somebody's session ended."""
    starter_timeout_ms: int | None = None
    """The rebalance timeout of the one whose JoinGroup that sign is, where the group's members do not have it."""
    first_join_ms: int | None = None
    """When the first of those who joined its generation asked to, as their answers show; 0: in an earlier generation,
    none of whose answers was seen; None: no answer was seen. While the phase goes on it is that of the one before."""
    last_join_ms: int = 0
    """When the last of them did; 0: no answer was seen. While the phase goes on it is that of the one before."""
    generation: int = -1
    """The generation that ended it; -1: no answer and no record has shown one."""
    ended_ms: int = 0
    """When that was first shown."""
    unanswered: list[str] = field(default_factory=list)
    """Ids of those whose JoinGroup was applied in it though it was answered 15: they are in, and no answer says so."""


@dataclass(slots=True)
class EndedPhase(JoinPhase):
    """A join phase that has ended: one object, which all removals that it caused refer to.

    Lines that trail the phase's end are noted here until all these removals are judged.
    """

    removed_ms: int = 0
    """When those whom it lost are found gone."""
    limit_ms: int | None = None
    """How long it could last, if it began with the end of a session; None: no timeout is known."""
    static_in: bool = False
    """Whether a static member was in it."""
    unjoined: list[str] = field(default_factory=list)
    """Whom it waited for who is not seen to have joined: instances that it kept in, and ids given out."""

    def is_of(self, phase: JoinPhase) -> bool:
        """Tell whether this is what is kept of a phase: its lower bound is never set anew."""
        return (self.generation, self.after_ms) == (phase.generation, phase.after_ms)
