"""The coordinator of one KIP-848 group, in simulated time: kafka-facts 4, epochs, timers and records.

The group's state is derived, never stored; every step of a member is a record. ``removals`` is the coordinator's own
log of whom it fenced, why and when.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.simulation import encoder
from tests.simulation.classic import FENCED_INSTANCE_ID, UNKNOWN_MEMBER_ID, Removal, Request, Transition
from tests.simulation.world import Connection, Timer, World

FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID = 110, 111
STABLE, UNREVOKED, UNRELEASED = 0, 1, 2
LEAVE_EPOCH, STATIC_LEAVE_EPOCH = -1, -2
HEARTBEAT_INTERVAL_MS = 5_000
PARTITIONS = 4
TOPIC_IDS = {"t": UUID(bytes=bytes(range(1, 17))), "u": UUID(bytes=bytes(range(17, 33)))}

Partition = tuple[str, int]


def by_id(partitions: set[Partition]) -> dict[UUID, list[int]]:
    """Group partitions by topic id, as records list them."""
    return {TOPIC_IDS[t]: sorted(p for topic, p in partitions if topic == t) for t in {t for t, _ in partitions}}


@dataclass
class Member:
    member_id: str
    instance_id: str | None
    who: Connection
    topics: tuple[str, ...]
    rebalance_timeout_ms: int
    epoch: int = 0
    previous_epoch: int = 0
    state: int = STABLE
    assigned: set[Partition] = field(default_factory=set)
    revoking: set[Partition] = field(default_factory=set)
    target: set[Partition] = field(default_factory=set)
    timer: Timer | None = None
    rebalance_timer: Timer | None = None

    @property
    def deadline_ms(self) -> int | None:
        return None if self.timer is None or self.timer.action is None else self.timer.due_ms


@dataclass
class ConsumerGroup:
    """``assignment_interval_ms``: how long a new target assignment is put off (4.3+); 0: computed at once.

    With it both epochs start at an unwritten 1, so that a member can be in before there is an assignment.
    """

    world: World
    group: str
    session_timeout_ms: int = 45_000
    assignment_interval_ms: int = 0
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    known: bool = False
    assignment_written: bool = False
    removals: list[Removal] = field(default_factory=list)
    transitions: set[Transition] = field(default_factory=set)
    assigning: Timer | None = None
    busy_ms: int = 0
    _seen: str = "Dead"

    @property
    def state(self) -> str:
        """Derived exactly as 4.1 says."""
        if not self.known:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if any(m.state != STABLE or m.epoch != self.assignment_epoch for m in self.members.values()):
            return "Reconciling"
        return "Stable"

    def _note(self, event: str) -> None:
        if self.state != self._seen:
            self.transitions.add(Transition(self._seen, self.state, event))
            self._seen = self.state

    # -------------------------------------------------------------- ConsumerGroupHeartbeat

    def heartbeat(self, request: Request) -> None:
        body = request.body
        if body["memberEpoch"] == 0:
            self._join(request)
        elif body["memberEpoch"] > 0:
            self._beat(request)
        else:
            self._goodbye(request)

    def _answer(self, request: Request, member: Member, *, full: bool) -> None:
        partitions = [
            {"topicId": encoder.uuid_text(topic_id), "partitions": ps}
            for topic_id, ps in sorted(by_id(member.assigned).items())
        ]
        request.answer(
            0,
            errorMessage=None,
            memberId=member.member_id,
            memberEpoch=member.epoch,
            heartbeatIntervalMs=HEARTBEAT_INTERVAL_MS,
            assignment={"topicPartitions": partitions} if full else None,
        )

    def _refuse(self, request: Request, error: int) -> None:
        request.answer(error, errorMessage="", memberId=None, memberEpoch=0, heartbeatIntervalMs=0, assignment=None)

    def _join(self, request: Request) -> None:
        body = request.body
        member_id, instance_id = body["memberId"], body["instanceId"]
        old = next((m for m in self.members.values() if instance_id and m.instance_id == instance_id), None)
        if old is not None and old.epoch != STATIC_LEAVE_EPOCH and old.member_id != member_id:
            return self._refuse(request, UNRELEASED_INSTANCE_ID)
        if not self.known:
            self.known, self.assignment_written = True, False
            self.epoch = self.assignment_epoch = 1 if self.assignment_interval_ms else 0
        if old is not None and old.epoch == STATIC_LEAVE_EPOCH:
            member = self._return(old, member_id, request)
        else:
            member = self.members.get(member_id) or Member(member_id, instance_id, request.who, (), 0)
        subscribed, timeout_ms = tuple(body["subscribedTopicNames"]), body["rebalanceTimeoutMs"]
        changed = member.topics != subscribed or member_id not in self.members
        if changed or member.rebalance_timeout_ms != timeout_ms:
            member.topics, member.rebalance_timeout_ms = subscribed, timeout_ms
            self.members[member_id] = member
            self._write_member(member)
        if changed:
            self._bump()
        if old is not None and old.epoch == STATIC_LEAVE_EPOCH:
            member.epoch = self.assignment_epoch if not changed else 0
        self._restart(member)
        self._reconcile(member, set(), force=True)
        self._note("a member joins")
        return self._answer(request, member, full=True)

    def _return(self, old: Member, member_id: str, request: Request) -> Member:
        """A static member that left for a moment is back: its records go to its new id, usually without an epoch."""
        self._tombstones(old)
        self._stop(old)
        del self.members[old.member_id]
        member = Member(member_id, old.instance_id, request.who, old.topics, old.rebalance_timeout_ms)
        member.assigned, member.target, member.previous_epoch = old.assigned, old.target, old.previous_epoch
        self.members[member_id] = member
        self._write_member(member)
        self.world.record(encoder.key(7, self.group, member_id), encoder.target(by_id(member.target)))
        return member

    def _beat(self, request: Request) -> None:
        body = request.body
        member = self.members.get(body["memberId"])
        if member is None:
            return self._refuse(request, UNKNOWN_MEMBER_ID)
        if body["memberEpoch"] not in (member.epoch, member.previous_epoch):
            return self._refuse(request, FENCED_MEMBER_EPOCH)
        if body["subscribedTopicNames"] is not None and tuple(body["subscribedTopicNames"]) != member.topics:
            member.topics = tuple(body["subscribedTopicNames"])
            self._write_member(member)
            self._bump()
            self._note("a subscription changes")
        self._restart(member)
        owned = None if body["topicPartitions"] is None else owned_of(body["topicPartitions"])
        before = (member.epoch, member.state, set(member.assigned))
        self._reconcile(member, owned)
        self._note("a member reconciles")
        return self._answer(request, member, full=before != (member.epoch, member.state, member.assigned))

    def _goodbye(self, request: Request) -> None:
        body = request.body
        member = self.members.get(body["memberId"])
        if member is None:
            return self._refuse(request, UNKNOWN_MEMBER_ID)
        if body["memberEpoch"] == STATIC_LEAVE_EPOCH:
            if member.instance_id != body["instanceId"]:
                return self._refuse(request, FENCED_INSTANCE_ID)
            member.previous_epoch, member.epoch = member.epoch, STATIC_LEAVE_EPOCH
            member.state, member.revoking = STABLE, set()
            self._stop_rebalance(member)
            self._write_current(member)
        else:
            self._remove(member)
        self._note("a member leaves")
        return request.answer(
            0,
            errorMessage=None,
            memberId=member.member_id,
            memberEpoch=body["memberEpoch"],
            heartbeatIntervalMs=0,
            assignment=None,
        )

    # -------------------------------------------------------------- epochs, target, reconciliation

    def _bump(self) -> None:
        """A new group epoch, and the target assignment for it: at once, or after the interval (4.3+)."""
        self.epoch += 1
        self.world.record(encoder.key(3, self.group), encoder.group_epoch(self.epoch))
        if not self.assignment_interval_ms or not self.members:
            self._assign()
        elif self.assigning is None:
            self.assigning = self.world.after(self.assignment_interval_ms, self._assign_late)

    def _assign_late(self) -> None:
        self._assign()
        self._note("a target assignment is computed")

    def _assign(self) -> None:
        if self.assigning is not None:
            self.assigning.cancel()
        self.assigning = None
        dealt: dict[str, set[Partition]] = {member_id: set() for member_id in self.members}
        for topic in TOPIC_IDS:
            takers = sorted(m.member_id for m in self.members.values() if topic in m.topics)
            for partition in range(PARTITIONS if takers else 0):
                dealt[takers[partition % len(takers)]].add((topic, partition))
        for member_id, partitions in dealt.items():
            member = self.members[member_id]
            if member.target != partitions:
                member.target = partitions
                self.world.record(encoder.key(7, self.group, member_id), encoder.target(by_id(partitions)))
        self.assignment_epoch, self.assignment_written = self.epoch, True
        self.world.record(encoder.key(6, self.group), encoder.target_epoch(self.epoch))

    def _reconcile(self, member: Member, owned: set[Partition] | None, *, force: bool = False) -> None:
        """One step of ``CurrentAssignmentBuilder``; ``owned`` None: the client did not say."""
        before = (member.epoch, member.state, set(member.assigned), set(member.revoking))
        if member.state == UNREVOKED:
            if owned is not None and not owned & member.revoking:
                member.revoking = set()
                self._step(member, owned)
        elif member.epoch < self.assignment_epoch or member.state == UNRELEASED or force:
            self._step(member, owned)
        if force or before != (member.epoch, member.state, member.assigned, member.revoking):
            self._write_current(member)
            self._watch_revocation(member)

    def _step(self, member: Member, owned: set[Partition] | None) -> None:
        """Give up first, in the old epoch; what the client owns no more needs no giving up. Then the next epoch."""
        giving_up = member.assigned - member.target
        if giving_up and (owned is None or owned & giving_up):
            member.assigned, member.revoking, member.state = member.assigned - giving_up, giving_up, UNREVOKED
            return
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        held = {p for m in self.members.values() if m is not member for p in m.assigned | m.revoking}
        member.assigned = member.target - held
        member.state = UNRELEASED if member.target & held else STABLE

    def _watch_revocation(self, member: Member) -> None:
        self._stop_rebalance(member)
        if member.state == UNREVOKED:
            member.rebalance_timer = self.world.after(
                member.rebalance_timeout_ms, lambda: self._fence(member, "rebalance-timeout")
            )

    # -------------------------------------------------------------- timers and removal

    def _restart(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
        member.timer = self.world.after(self.session_timeout_ms, lambda: self._fence(member, "session-expired"))

    def _stop_rebalance(self, member: Member) -> None:
        if member.rebalance_timer is not None:
            member.rebalance_timer.cancel()

    def _stop(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()
        self._stop_rebalance(member)

    def _fence(self, member: Member, rule: str) -> None:
        if self.members.get(member.member_id) is not member:
            return
        self.removals.append(Removal(rule, member.member_id, self.world.now_ms, member.deadline_ms))
        self._remove(member)
        self._note("a session expires" if rule == "session-expired" else "a member does not revoke in time")

    def _remove(self, member: Member) -> None:
        self._stop(member)
        del self.members[member.member_id]
        self._tombstones(member)
        self._bump()

    def delete(self) -> bool:
        """DeleteGroups: only an empty group can go."""
        if not self.known or self.members:
            return False
        for type_ in (6, 3):
            self.world.record(encoder.key(type_, self.group), None)
        self.known, self.epoch, self.assignment_epoch = False, 0, 0
        if self.assigning:
            self.assigning.cancel()
            self.assigning = None
        self._note("DeleteGroups")
        return True

    # -------------------------------------------------------------- records

    def _tombstones(self, member: Member) -> None:
        for type_ in (8, 7, 5):
            self.world.record(encoder.key(type_, self.group, member.member_id), None)

    def _write_member(self, member: Member) -> None:
        value = encoder.member_metadata(
            member.who.client_id,
            "/" + member.who.host,
            member.topics,
            member.rebalance_timeout_ms,
            member.instance_id,
        )
        self.world.record(encoder.key(5, self.group, member.member_id), value)

    def _write_current(self, member: Member) -> None:
        value = encoder.current(
            member.epoch, member.previous_epoch, member.state, by_id(member.assigned), by_id(member.revoking)
        )
        self.world.record(encoder.key(8, self.group, member.member_id), value)


def shown(partitions: set[Partition]) -> dict[str, list[int]]:
    """Partitions as a reader of the log sees them: topics by id, in Kafka's text form."""
    return {encoder.uuid_text(topic_id): ps for topic_id, ps in by_id(partitions).items()}


def owned_of(listed: list[dict[str, Any]]) -> set[Partition]:
    """Read the partitions that a client says it owns."""
    names = {encoder.uuid_text(topic_id): topic for topic, topic_id in TOPIC_IDS.items()}
    return {(names[item["topicId"]], p) for item in listed for p in item["partitions"]}
