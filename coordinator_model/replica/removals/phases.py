"""What is known of a join phase: of the group's current one, and of one that has ended and lost members."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class JoinPhase:
    """What is known of one join phase, see ``join_phase``."""

    after_ms: int = 0
    """The last instant at which it had certainly not begun."""
    started_ms: int | None = None
    """Its first sign; None: none was seen."""
    started_by: str = ""
    """Whose leave or JoinGroup was that sign; empty: it was an answer 27 or 25 to others, so some session had ended."""
    starter_timeout_ms: int | None = None
    """The rebalance timeout of the client whose JoinGroup was that sign, if it is none of the group's members."""
    first_join_ms: int | None = None
    """When the first JoinGroup of its generation arrived, by the answers; None: no answer was seen; 0: generations were
    skipped, so it may have arrived in one of which no answer was seen. Until the phase ends this is the former
    phase's."""
    last_join_ms: int = 0
    """When the last JoinGroup of its generation arrived; 0: no answer was seen.

    Until the phase ends this is the former phase's.
    """
    generation: int = -1
    """The generation that ended it; -1: no answer and no record has shown one."""
    ended_ms: int = 0
    """When that was first shown."""
    unanswered: list[str] = field(default_factory=list)
    """Ids of members whose JoinGroup was applied in it but answered 15: they joined, though no answer says so."""


@dataclass(slots=True)
class EndedPhase(JoinPhase):
    """A join phase that has ended. All removals that it caused refer to one object.

    Late lines of the phase are noted here until all these removals are judged.
    """

    removed_ms: int = 0
    """When the members that it lost were found gone."""
    limit_ms: int | None = None
    """The longest that it could last, if it began with the end of a session; None: no timeout is known."""
    static_in: bool = False
    """Whether a static member was in it."""
    unjoined: list[str] = field(default_factory=list)
    """Whom it waited for and who is not seen to have joined: static members by instance id, and ids given out (79)."""

    def is_of(self, phase: JoinPhase) -> bool:
        """Tell whether this is what is kept of a phase: generation and ``after_ms`` identify it, as neither changes."""
        return (self.generation, self.after_ms) == (phase.generation, phase.after_ms)
