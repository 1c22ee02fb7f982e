"""What the replica knows about one group: plain values. Nothing outside this package writes to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from coordinator_model.membership import Partition, partitions_of, subscribed, unowned, wanted
from coordinator_model.replica.member import Assignment, Member
from coordinator_model.replica.notes import (
    Divergence,
    JoiningMember,
    LoggedRemoval,
    PendingMember,
    Rebalance,
    Refusal,
    RolledBackReplacement,
    SetAside,
    UnansweredJoin,
    Violation,
    Zombie,
)
from coordinator_model.replica.removals.departure import Departure
from coordinator_model.replica.removals.phases import NO_JOIN_SEEN, EndedPhase, JoinPhase, JoinsSeen
from coordinator_model.replica.transitions import STATE_CHANGES, StateEvent
from coordinator_model.states import Cause, Evidence, GroupState, GroupType

MAX_LEAVES = 256
"""How many leaves are kept for a group: they explain removals that are seen later, and show that members come back."""
MAX_UNANSWERED_JOINS = 256
"""How many unanswered joins are kept for a group: the JoinGroup was applied, and the answer with the member id was
lost."""
MAX_DEPARTURES = 1_024
"""How many departures are kept for a group; beyond that the oldest are dropped."""
NO_RECORD = -1
FIRST_GENERATION = 1
LEAVE_MEMORY_MS = 3_600_000
JOIN_MS = 1_000
"""How much later than its last poll a member may seem to have joined, although it has not polled since."""


@dataclass(slots=True)
class Leave:
    """A member that left, kept to explain its removal and to recognise it when it comes back."""

    member: Member
    applied_ms: int
    cause: Cause
    reason: str | None
    alive_ms: int | None = None
    """When its client was first seen to be still running, without being in the group."""
    broker: str = ""
    """The broker that answered its LeaveGroup; empty: something else shows that it left."""

    @property
    def may_be_late_poll(self) -> bool:
        """Whether a poll interval had passed since the member's last known poll: a reported one, or that of its join.

        Otherwise it polled in time and left on its own, as with ``unsubscribe()``. The interval is its rebalance
        timeout less ``JOIN_MS``.
        """
        member = self.member
        reported_ms = max((member.poll_reported_ms or 0) - (member.poll_age_ms or 0), member.polled_from_ms or 0)
        interval_ms = (member.rebalance_timeout_ms or 0) - JOIN_MS
        asked_ms = member.joined_ms or 0 if member.asked_ms is None else member.asked_ms
        return self.applied_ms - max(asked_ms, reported_ms) >= interval_ms


@dataclass(slots=True)
class GroupReplica:
    """One group. ``generation`` is the group epoch for KIP-848 groups; -1 means no generation or epoch, as in Kafka."""

    group: str
    type: GroupType = GroupType.SIMPLE
    state: GroupState = GroupState.UNKNOWN
    state_evidence: Evidence = Evidence.INFERRED
    state_since_ms: int = 0
    generation: int = -1
    generation_since_ms: int = 0
    recorded_generation: int | None = None
    """The generation of the last record, while members or generation have moved on from it; None: they have not.
    ``NO_RECORD``: the group has no record."""
    recorded: dict[str, Member] = field(default_factory=dict)
    """The members of that record by member id: a coordinator that loads the log reverts to them."""
    unconverted: list[Member] = field(default_factory=list)
    """Members from before the group changed its kind that no record of the new kind has named yet, see ``conversion``.
    """
    listed_generation: int = -1
    """The generation whose leader's member list has been applied."""
    phase: JoinPhase = field(default_factory=JoinPhase)
    """The join phase that the group is in, or that led to its generation."""
    unreported_phase: EndedPhase | None = None
    """The first phase since the last list of members whose generation ended before an answer showed its members."""
    stalled_ms: int | None = None
    """When the last answer came that had waited behind a stalled write."""
    joins: JoinsSeen = NO_JOIN_SEEN
    """The JoinGroups of the generation."""
    recorded_protocol: str | None = None
    """The protocol in the last record, while ``recorded_generation`` is kept."""
    announced_by: str = ""
    """The broker whose JoinGroup answers announced the generation; empty: no such answer was seen."""
    assignment_epoch: int = -1
    regexes: dict[str, list[str]] = field(default_factory=dict)
    """Regular expression to the topics that the coordinator resolved it to (record 16)."""
    topology_epoch: int | None = None
    validated_topology_epoch: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    recorded_leader: str | None = None
    """The leader in the last record, while ``recorded_generation`` is kept."""
    incarnation: int = 0
    deleted: bool = False
    ending_ms: int | None = None
    """When its tombstone was written; what follows in the same write may turn it into a group of another kind."""
    stable_seen_ms: int | None = None
    """When telemetry last showed the group stable. It proves that telemetry was live before the removal of a member
    that is found gone later."""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, PendingMember] = field(default_factory=dict)
    """By member id: ids given out with an answer 79 that have not joined yet."""
    unanswered_joins: dict[str, UnansweredJoin] = field(default_factory=dict)
    """By instance id, or else client id: newcomers whose JoinGroup's answer was lost."""
    rolled_back_replacements: dict[str, RolledBackReplacement] = field(default_factory=dict)
    """By instance id: replacements that timed out."""
    leaves: list[Leave] = field(default_factory=list)
    undelivered_leaves: dict[str, int] = field(default_factory=dict)
    """Members by id: when their clients sent a leave to a broker that was not the coordinator. It refused a KIP-848
    leave (14, 15, 16); a classic leave was accepted by a deposed coordinator."""
    asking: dict[str, int] = field(default_factory=dict)
    """KIP-848 members by id: since when they send their join to brokers that are not the coordinator (14, 15, 16)."""
    departures: list[Departure] = field(default_factory=list)
    logged: dict[str, LoggedRemoval] = field(default_factory=dict)
    """By member id: a removal that a line of the coordinator's own log names and that no record shows yet."""
    proofs: dict[str, LoggedRemoval] = field(default_factory=dict)
    """The same, by lines of brokers that also have a request log. Such a line does not decide the cause: it proves or
    refutes what the request log shows."""
    joining: dict[str, JoiningMember] = field(default_factory=dict)
    """By member id: classic members that only the coordinator's own log has named so far."""
    unexplained: list[Departure] = field(default_factory=list)
    """Recent removals that neither answers nor a line of the coordinator's own log explain yet."""
    violations: list[Violation] = field(default_factory=list)
    """Recent violations, and recent removals whose cause is unknown."""
    unexplained_ms: int | None = None
    """When the last removal happened that no line explains."""
    unseen_generation_ms: int | None = None
    """When the last generation began without a JoinGroup that was seen: JoinGroup lines are missing."""
    seen_generation: int = -1
    """The generation of the last accepted JoinGroup that was seen; -1: none since ``unseen_generation_ms``."""
    rebalances: list[Rebalance] = field(default_factory=list)
    """Recent ones, oldest first."""
    announced: int | None = None
    """The generation that JoinGroup answers have announced and that has not been synced."""
    aborted: list[Rebalance] = field(default_factory=list)
    """The generations that were announced but never synced, since the group was last stable."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Clients that are refused, see ``refusals``; the last is the one that was refused last."""
    zombies: dict[str, Zombie] = field(default_factory=dict)
    """Former members whose commits are refused, see ``zombies``; the last is the one that was refused last."""
    diverged: Divergence | None = None
    """The last record that contradicted the replica, see ``divergence``."""
    unexpected: int = 0
    """How many contradictions, and transitions that the table does not have, were adopted."""
    set_aside: SetAside | None = None
    """This monitor's failure on the group; None: it did not fail, or long ago."""

    @property
    def ended_phases(self) -> list[EndedPhase]:
        """The ended phases that are kept, each once: those of removals, and the unreported phase."""
        kept = [departure.phase for departure in (*self.departures, *self.unexplained)]
        kept += [] if self.unreported_phase is None else [self.unreported_phase]
        return list({id(phase): phase for phase in kept}.values())

    @property
    def known_violations(self) -> list[Violation]:
        """The violations without the removals whose cause is unknown."""
        return [one for one in self.violations if one.cause != Cause.UNKNOWN]

    @property
    def stable_since_ms(self) -> int | None:
        """Since when the group is stable, None while it is not."""
        return self.state_since_ms if self.state is GroupState.STABLE else None

    @property
    def join_deadline_ms(self) -> int | None:
        """When the join phase that the group is in ends at the latest, as far as its start is known."""
        limits_ms = [m.rebalance_timeout_ms for m in self.members.values() if m.rebalance_timeout_ms]
        joining = self.state is GroupState.PREPARING_REBALANCE and self.phase.started_ms is not None
        return (self.phase.started_ms or 0) + max(limits_ms) if joining and limits_ms else None

    def enter(self, event: StateEvent, at_ms: int) -> None:
        """Change the state as the table in ``transitions`` says; a change that it does not have is adopted and counted.

        If the state stays the same, it keeps its instant, but its evidence may become OBSERVED.
        """
        change = STATE_CHANGES[event]
        if self.state not in change.sources:
            self.unexpected += 1
        if change.to is not self.state:
            self.state, self.state_since_ms, self.state_evidence = change.to, at_ms, change.evidence
        elif change.evidence is Evidence.OBSERVED:
            self.state_evidence = change.evidence

    def is_announced_elsewhere(self, broker: str) -> bool:
        """Tell whether another broker is known to have announced the generation."""
        return self.announced_by not in ("", broker)

    def note_stall(self, answer_ms: int) -> None:
        """Note that a write was still stalled just before an instant, at which the requests behind it were answered."""
        self.stalled_ms = max(self.stalled_ms or 0, answer_ms)

    def stalled_near(self, at_ms: int, within_ms: int) -> bool:
        """Tell whether a write is known to have stalled so near to an instant."""
        return self.stalled_ms is not None and abs(at_ms - self.stalled_ms) <= within_ms

    def save_last_record(self, announced: int | None = None) -> None:
        """Save what the last record says before members or generation change. KIP-848 groups record every step.

        ``announced``: the generation that follows. An unknown group has no record if its first one does; otherwise its
        records may not have been read yet.
        """
        classic = self.type in (GroupType.CLASSIC, GroupType.SIMPLE)
        is_at_rest = self.state in (GroupState.EMPTY, GroupState.DEAD)
        known = is_at_rest or self.generation != NO_RECORD or announced == FIRST_GENERATION
        if classic and self.recorded_generation is None and known:
            has_only_offsets = self.state is GroupState.EMPTY and self.generation == NO_RECORD
            self.recorded_generation = 0 if has_only_offsets else self.generation
            self.recorded = {member_id: replace(member) for member_id, member in self.members.items()}
            self.recorded_leader, self.recorded_protocol = self.leader, self.protocol

    def confirm_last_record(self) -> None:
        """Drop the saved record: a new record says the same as the replica."""
        self.recorded_generation, self.recorded = None, {}
        self.recorded_leader = self.recorded_protocol = None

    def revert_to_last_record(self, at_ms: int) -> None:
        """Revert to the last record, as a coordinator does when it loads the log. What was not written is lost."""
        if self.recorded_generation is None:
            return
        now = self.members
        self.members = {}
        for member_id, member in self.recorded.items():
            self.members[member_id] = now.get(member_id, member)
            self.members[member_id].awaiting_sync = False
            self.members[member_id].generation = self.recorded_generation
        self.generation, self.generation_since_ms = self.recorded_generation, at_ms
        self.leader, self.protocol = self.recorded_leader, self.recorded_protocol
        self.listed_generation, self.unreported_phase = self.recorded_generation, None
        self.confirm_last_record()
        self.note_loaded(at_ms)

    def note_loaded(self, at_ms: int) -> None:
        """Enter the state in which a coordinator loads the group."""
        if self.members:
            self.enter(StateEvent.LOADED_WITH_MEMBERS, at_ms)
        elif self.generation == NO_RECORD:
            self.enter(StateEvent.NOT_LOADED, at_ms)
        else:
            self.enter(StateEvent.LOADED_WITHOUT_MEMBERS, at_ms)

    def mark_tombstoned(self, at_ms: int) -> None:
        """Apply the group's tombstone: it is deleted unless the same write goes on with a group of another kind."""
        if self.state is GroupState.EMPTY and self.state_since_ms < at_ms:
            for departure in self.departures:
                departure.judge_after_ms = departure.gone_ms  # the group was empty: no late leave comes
        self.ending_ms = at_ms
        self.confirm_last_record()
        self.unconverted.clear()
        self.enter(StateEvent.TOMBSTONE_WRITTEN, at_ms)

    def begin_again(self) -> None:
        """Note that the group was deleted and created again, though its tombstone was not read.

        Removals that have been reported were those of the former group: they are dropped and not reported once more.
        """
        self.incarnation += 1
        self.departures = [departure for departure in self.departures if not departure.judged]

    def mark_deleted(self) -> None:
        """Forget the deleted group, except what distinguishes it from the next group with its id."""
        deleted = GroupReplica(
            self.group,
            self.type,
            self.state,
            self.state_evidence,
            self.state_since_ms,
            incarnation=self.incarnation + 1,
            deleted=True,
            set_aside=self.set_aside,
        )
        for known in fields(self):
            setattr(self, known.name, getattr(deleted, known.name))

    def life_of(self, member: Member) -> str:
        """Name one life of a member: by the incarnation of the group id and by the member id."""
        return f"{self.incarnation}/{member.member_id}"

    def owned(self) -> set[Partition]:
        """Return every (topic, partition) that a member holds."""
        return {place for member in self.members.values() for place in partitions_of(member.assignment)}

    @property
    def owners_known(self) -> bool:
        """Whether all assigned partitions of all members are kept. If not, an owner may be missing."""
        return not any(member.partitions_left_out for member in self.members.values())

    def unowned(self, assignment: Assignment, counts: Mapping[str, int]) -> list[Partition]:
        """Return the partitions of an assignment that somebody should read now and nobody does.

        ``counts``: topic to its number of partitions, as far as it is known. Nobody has to read a partition that does
        not exist any more or, once the group is at rest, one of a topic that no member subscribes to any more. Members
        of newer groups own topics by id and subscribe by name. But their coordinator assigns each partition that
        exists and is subscribed to. So once such a group is stable, nobody wants what has no owner.
        """
        places = [place for place in partitions_of(assignment) if place[1] < counts.get(place[0], place[1] + 1)]
        if self.state not in (GroupState.STABLE, GroupState.RECONCILING, GroupState.ASSIGNING):
            return unowned(places, ())
        is_classic = self.type is GroupType.CLASSIC
        if not self.owners_known or (self.state is GroupState.STABLE and not is_classic):
            return []
        topics = subscribed(member.topics for member in self.members.values()) if is_classic else None
        return unowned(wanted(places, topics), self.owned())
