"""The coordinator of one classic group, in simulated time: kafka-facts 3, state by state, timer by timer.

It answers requests, keeps its timers, and writes exactly the records of 3.7. Beside that it keeps what the tests need:
``removals``, its own log of who was removed, why and when; ``told``, whether a reader of both logs can know the state
it is in (a rebalance shows only with the first answer that betrays it).
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tests.simulation import encoder
from tests.simulation.world import Connection, Timer, World

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS = 25, 22, 27
INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, FENCED_INSTANCE_ID = 23, 79, 82
OLDEST_WITH_ID_REQUIRED, OLDEST_WITH_SKIP = 4, 9


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_FROM = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.DEAD: {State.STABLE, State.PREPARING, State.COMPLETING, State.EMPTY},
}
"""kafka-facts 3.1."""


@dataclass(frozen=True)
class Transition:
    """One step between states, and the event that made it."""

    before: str
    after: str
    event: str


@dataclass(frozen=True)
class Removal:
    """The coordinator let a member go by itself. ``rule`` is what a monitor should call it."""

    rule: str
    member_id: str
    deadline_ms: int
    session_deadline_ms: int | None = None
    """Where its session would have ended, had the rebalance timeout not come first."""
    exact: bool = True
    """Whether the logs tell the instant; else only that it happened, with the next generation."""


@dataclass(frozen=True)
class Goodbye:
    """A member left by its own word; ``reason`` as its LeaveGroup gave it."""

    member_id: str
    reason: str | None
    at_ms: int
    who: Connection


@dataclass
class Request:
    """A request in the coordinator's hands, until it is answered."""

    world: World
    api: str
    who: Connection
    body: dict[str, Any]
    reply: Callable[[int, dict[str, Any]], None]
    version: int
    arrival_ms: int
    answered: bool = False

    def answer(self, error: int, **response: Any) -> None:
        assert not self.answered, "a request is answered once"
        self.answered = True
        body = {"errorCode": error, **response}
        self.world.answer(self.api, self.who, self.body, body, self.arrival_ms, self.version)
        self.reply(error, body)


@dataclass
class Member:
    member_id: str
    instance_id: str | None
    who: Connection
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    is_new: bool = True
    assignment: bytes = b""
    join: Request | None = None
    sync: Request | None = None
    timer: Timer | None = None
    announced: bool = False
    """Whether an answer or a record has shown it to the outside."""

    @property
    def deadline_ms(self) -> int | None:
        return None if self.timer is None or self.timer.action is None else self.timer.due_ms


@dataclass
class ClassicGroup:
    world: World
    group: str
    initial_delay_ms: int = 0
    append_ms: int = 0
    state: State = State.EMPTY
    state_ms: int = 0
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    known: bool = False
    """Whether the group exists at all."""
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, Timer] = field(default_factory=dict)
    pending_sync: set[str] = field(default_factory=set)
    told: bool = True
    told_ms: int = 0
    removals: list[Removal] = field(default_factory=list)
    goodbyes: list[Goodbye] = field(default_factory=list)
    joined_ms: dict[Connection, list[int]] = field(default_factory=dict)
    """When a connection's JoinGroups were accepted."""
    deleted_ms: list[int] = field(default_factory=list)
    transitions: set[Transition] = field(default_factory=set)
    new_member_added: bool = False
    initial: bool = False
    join_timer: Timer | None = None
    sync_timer: Timer | None = None
    ids: int = 0
    busy_ms: int = 0
    """When the last request arrived."""

    # -------------------------------------------------------------- states

    def _enter(self, state: State, event: str, told: bool = False) -> None:
        assert self.state in VALID_FROM[state], f"{self.state} -> {state}"
        self.transitions.add(Transition(self.state, state, event))
        self.state, self.state_ms, self.told = state, self.world.now_ms, False
        if told:
            self._tell()

    def _tell(self) -> None:
        if not self.told:
            self.told, self.told_ms = True, self.world.now_ms

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -------------------------------------------------------------- JoinGroup

    def join(self, request: Request) -> None:
        body = request.body
        member_id, instance_id = body["memberId"], body["groupInstanceId"]
        if not self.known:
            if member_id:
                return request.answer(UNKNOWN_MEMBER_ID, **_refusal(member_id))
            self.known, self.state, self.state_ms = True, State.EMPTY, self.world.now_ms
            self.world.record(encoder.key(2, self.group), encoder.group_metadata("", 0, None, None, self.state_ms, []))
            self.told, self.told_ms = True, self.world.now_ms
        if self.members and not self._compatible(body):
            return request.answer(INCONSISTENT_GROUP_PROTOCOL, **_refusal(member_id))
        if not member_id:
            return self._join_unknown(request)
        if member_id in self.pending:
            self.pending.pop(member_id).cancel()
            return self._add(request, member_id)
        error = self._validate(member_id, instance_id)
        if error or self.state is State.EMPTY:
            return request.answer(error or UNKNOWN_MEMBER_ID, **_refusal(member_id))
        return self._rejoin(request, self.members[member_id])

    def _compatible(self, body: dict[str, Any]) -> bool:
        common = set.intersection(*(set(m.protocols) for m in self.members.values()))
        return bool(common & {p["name"] for p in body["protocols"]})

    def _join_unknown(self, request: Request) -> None:
        instance_id = request.body["groupInstanceId"]
        self.ids += 1
        member_id = f"{instance_id or request.who.client_id}-{self.ids:08x}-0000-4000-8000-000000000000"
        if instance_id is not None:
            old = self._by_instance(instance_id)
            return self._add(request, member_id) if old is None else self._replace(request, old, member_id)
        if request.version < OLDEST_WITH_ID_REQUIRED:
            return self._add(request, member_id)
        timeout_ms = request.body["sessionTimeoutMs"]
        self.pending[member_id] = self.world.after(timeout_ms, lambda: self._forget_pending(member_id))
        return request.answer(MEMBER_ID_REQUIRED, **_refusal(member_id))

    def _forget_pending(self, member_id: str) -> None:
        self.pending.pop(member_id)
        if self.state is State.PREPARING:
            self._maybe_complete("a pending member id expired")

    def _add(self, request: Request, member_id: str) -> None:
        body = request.body
        member = Member(member_id, body["groupInstanceId"], request.who, 0, 0, {})
        _update(member, body)
        if not self.members:
            self.protocol_type = body["protocolType"]
        self.members[member_id] = member
        self.leader = self.leader or member_id
        self.new_member_added = True
        member.join = request
        member.timer = self.world.after(NEW_MEMBER_JOIN_TIMEOUT_MS, lambda: self._expire(member))
        self._rebalance_or_complete("a member joins")

    def _rejoin(self, request: Request, member: Member) -> None:
        changed = {p["name"]: base64.b64decode(p["metadata"]) for p in request.body["protocols"]} != member.protocols
        is_leader = member.member_id == self.leader
        settled = self.state in (State.COMPLETING, State.STABLE)
        if settled and not changed and not (is_leader and self.state is State.STABLE):
            return self._answer_join(request, member, listed=is_leader)
        _update(member, request.body)
        if member.join is not None:
            member.join.answer(REBALANCE_IN_PROGRESS, **_refusal(member.member_id))
        member.join = request
        return self._rebalance_or_complete("the leader rejoins" if is_leader else "a subscription changed")

    def _replace(self, request: Request, old: Member, member_id: str) -> None:
        """A static member came back: it inherits what its former self held (3.6)."""
        for parked in (old.join, old.sync):
            if parked is not None:
                parked.answer(FENCED_INSTANCE_ID, **_refusal(old.member_id))
        self._stop(old)
        member = Member(member_id, old.instance_id, request.who, 0, 0, {}, is_new=False, assignment=old.assignment)
        _update(member, request.body)
        self.members = {(member_id if k == old.member_id else k): m for k, m in self.members.items()}
        self.members[member_id] = member
        was_leader = self.leader == old.member_id
        if was_leader:
            self.leader = member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
        self._restart(member)
        if self.state is State.STABLE and self._select_protocol() == self.protocol:
            self._write()
            new_way = request.version >= OLDEST_WITH_SKIP
            named = old.member_id if was_leader and not new_way else self.leader
            return self._answer_join(request, member, listed=was_leader and new_way, leader=named, skip=was_leader)
        member.join = request
        return self._rebalance_or_complete("a static member came back")

    def _answer_join(
        self, request: Request, member: Member, *, listed: bool, leader: str | None = None, skip: bool = False
    ) -> None:
        members = [
            {
                "memberId": m.member_id,
                "groupInstanceId": m.instance_id,
                "metadata": base64.b64encode(m.protocols[self.protocol or ""]).decode(),
            }
            for m in self.members.values()
            if listed
        ]
        member.announced = True
        self.joined_ms.setdefault(request.who, []).append(self.world.now_ms)
        if listed:
            for m in self.members.values():
                m.announced = True
        self._tell()
        request.answer(
            0,
            generationId=self.generation,
            protocolType=self.protocol_type,
            protocolName=self.protocol,
            leader=leader or self.leader,
            skipAssignment=skip,
            memberId=member.member_id,
            members=members,
        )

    # -------------------------------------------------------------- the join phase

    def _rebalance_or_complete(self, reason: str) -> None:
        if self.state in (State.STABLE, State.COMPLETING, State.EMPTY):
            self._prepare(reason)
        else:
            self._maybe_complete(reason)

    def _prepare(self, reason: str) -> None:
        if self.state is State.COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.sync is not None:
                    parked, member.sync = member.sync, None
                    self._restart(member)
                    parked.answer(REBALANCE_IN_PROGRESS, assignment="")
        if self.sync_timer:
            self.sync_timer.cancel()
        self.pending_sync.clear()
        was_empty = self.state is State.EMPTY
        self._enter(State.PREPARING, reason)
        if was_empty:
            self.initial, self.new_member_added = True, False
            remaining_ms = max(self.rebalance_timeout_ms - self.initial_delay_ms, 0)
            self._wait_initial(self.initial_delay_ms, remaining_ms)
        else:
            self.join_timer = self.world.after(self.rebalance_timeout_ms, self._complete)
            self._maybe_complete(reason)

    def _wait_initial(self, delay_ms: int, remaining_ms: int) -> None:
        def fire() -> None:
            if self.new_member_added and remaining_ms:
                self.new_member_added = False
                again_ms = min(self.initial_delay_ms, remaining_ms)
                self._wait_initial(again_ms, max(remaining_ms - again_ms, 0))
            else:
                self._complete()

        self.join_timer = self.world.after(delay_ms, fire)

    def _maybe_complete(self, _reason: str) -> None:
        waiting = self.pending or any(m.join is None for m in self.members.values())
        if self.state is State.PREPARING and not waiting and not self.initial:
            self._complete()

    def _complete(self) -> None:
        if self.join_timer:
            self.join_timer.cancel()
        self.initial = False
        for member in [m for m in self.members.values() if m.join is None and m.instance_id is None]:
            self._let_go(member, "rebalance-timeout")
        joined = [m for m in self.members.values() if m.join is not None]
        if self.members and not joined:
            self.join_timer = self.world.after(self.rebalance_timeout_ms, self._complete)
            return
        if joined and (self.leader is None or self.members[self.leader].join is None):
            self.leader = joined[0].member_id
        self.generation += 1
        if not self.members:
            self.protocol = None
            self._enter(State.EMPTY, "the join phase ends with nobody", told=True)
            self._write()
            return
        self.protocol = self._select_protocol()
        self._enter(State.COMPLETING, "the join phase ends")
        generation = self.generation
        self.sync_timer = self.world.after(self.rebalance_timeout_ms, lambda: self._expire_sync(generation))
        self.pending_sync = set(self.members)
        for member in self.members.values():
            member.is_new = False
            self._restart(member)
        for member in joined:
            parked, member.join = member.join, None
            assert parked is not None
            self._answer_join(parked, member, listed=member.member_id == self.leader)

    def _select_protocol(self) -> str:
        common = set.intersection(*(set(m.protocols) for m in self.members.values()))
        votes = [next(name for name in m.protocols if name in common) for m in self.members.values()]
        return max(votes, key=votes.count)

    def _expire_sync(self, generation: int) -> None:
        if generation != self.generation or self.state not in (State.COMPLETING, State.STABLE) or not self.pending_sync:
            return
        for member_id in [m for m in self.members if m in self.pending_sync]:
            self._let_go(self.members[member_id], "rebalance-timeout", exact=False)
        self._prepare("members did not sync in time")

    # -------------------------------------------------------------- SyncGroup

    def sync(self, request: Request) -> None:
        body = request.body
        error = self._validate(body["memberId"], body["groupInstanceId"])
        if not error and body["generationId"] != self.generation:
            error = ILLEGAL_GENERATION
        if not error and self.state is State.PREPARING:
            error = REBALANCE_IN_PROGRESS
        if error:
            return request.answer(error, assignment="")
        member = self.members[body["memberId"]]
        self.pending_sync.discard(member.member_id)
        if self.state is State.STABLE:
            return self._answer_sync(request, member)
        member.sync = request
        if member.member_id == self.leader:
            given = {a["memberId"]: base64.b64decode(a["assignment"]) for a in body["assignments"]}
            for m in self.members.values():
                m.assignment = given.get(m.member_id, b"")
            self._write()
            generation = self.generation
            if self.append_ms:
                self.world.after(self.append_ms, lambda: self._stored(generation))
            else:
                self._stored(generation)
        return None

    def _stored(self, generation: int) -> None:
        if self.state is not State.COMPLETING or generation != self.generation:
            return
        self._enter(State.STABLE, "the leader's assignment is stored", told=True)
        for member in self.members.values():
            if member.sync is not None:
                parked, member.sync = member.sync, None
                self._restart(member)
                self._answer_sync(parked, member)

    def _answer_sync(self, request: Request, member: Member) -> None:
        request.answer(
            0,
            protocolType=self.protocol_type,
            protocolName=self.protocol,
            assignment=base64.b64encode(member.assignment).decode(),
        )

    # -------------------------------------------------------------- the other requests

    def heartbeat(self, request: Request) -> None:
        body = request.body
        error = self._validate(body["memberId"], body["groupInstanceId"])
        if not error and body["generationId"] != self.generation:
            error = ILLEGAL_GENERATION
        if not error:
            self._restart(self.members[body["memberId"]])
            if self.state is State.PREPARING:
                error = REBALANCE_IN_PROGRESS
                self._tell()
        request.answer(error)

    def leave(self, request: Request) -> None:
        answers = []
        gone: list[Member] = []
        for asked in request.body["members"]:
            member_id, instance_id = asked["memberId"], asked["groupInstanceId"]
            member = self.members.get(member_id)
            if not member_id and instance_id is not None:
                member = self._by_instance(instance_id)  # an administrator names the instance only
                error = 0 if member else UNKNOWN_MEMBER_ID
            elif member_id in self.pending:
                self.pending.pop(member_id).cancel()
                error = 0
            else:
                error = self._validate(member_id, instance_id)
            if member is not None and not error:
                gone.append(member)
                self._remove(member)
                self.goodbyes.append(Goodbye(member.member_id, asked["reason"], self.world.now_ms, request.who))
            answers.append({"memberId": member_id, "groupInstanceId": instance_id, "errorCode": error})
        request.answer(0, members=answers)
        if gone and self.state in (State.STABLE, State.COMPLETING):
            self._prepare("a member leaves")
            self._tell()
        elif self.state is State.PREPARING:
            self._maybe_complete("a member leaves")

    def commit(self, member_id: str, generation: int, topic: str, partition: int, offset: int) -> int:
        """An offset commit that is not transactional; its line is not of the APIs that are shipped."""
        error = self._validate(member_id, None, by_id_only=True)
        if not error and generation != self.generation:
            error = ILLEGAL_GENERATION
        if not error and self.state is State.COMPLETING:
            error = REBALANCE_IN_PROGRESS
        if not error:
            at_ms = self.world.now_ms
            self.world.record(encoder.commit_key(self.group, topic, partition), encoder.commit_value(offset, at_ms))
            self._restart(self.members[member_id])
        return error

    def delete(self) -> bool:
        """DeleteGroups: only an empty group can go."""
        if not self.known or self.state is not State.EMPTY:
            return False
        self.world.record(encoder.key(2, self.group), None)
        self._enter(State.DEAD, "DeleteGroups", told=True)
        self.deleted_ms.append(self.world.now_ms)
        for timer in self.pending.values():
            timer.cancel()
        self.pending.clear()
        self.known, self.generation, self.leader, self.protocol, self.protocol_type = False, 0, None, None, ""
        return True

    # -------------------------------------------------------------- members

    def _by_instance(self, instance_id: str) -> Member | None:
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def _validate(self, member_id: str, instance_id: str | None, *, by_id_only: bool = False) -> int:
        if instance_id is not None and not by_id_only:
            holder = self._by_instance(instance_id)
            if holder is None:
                return UNKNOWN_MEMBER_ID
            if holder.member_id != member_id:
                return FENCED_INSTANCE_ID
        return 0 if member_id in self.members else UNKNOWN_MEMBER_ID

    def _restart(self, member: Member) -> None:
        self._stop(member)
        member.timer = self.world.after(member.session_timeout_ms, lambda: self._expire(member))

    def _stop(self, member: Member) -> None:
        if member.timer is not None:
            member.timer.cancel()

    def _expire(self, member: Member) -> None:
        if self.members.get(member.member_id) is not member:
            return
        if not member.is_new and (member.join is not None or member.sync is not None):
            member.timer = None
            return
        self._let_go(member, "session-expired")
        if self.state in (State.STABLE, State.COMPLETING):
            self._prepare("a session expired")
        elif self.state is State.PREPARING:
            self._maybe_complete("a session expired")

    def _let_go(self, member: Member, rule: str, *, exact: bool = True) -> None:
        """The coordinator removes a member by itself."""
        if member.announced:
            self.removals.append(Removal(rule, member.member_id, self.world.now_ms, member.deadline_ms, exact))
        self._remove(member)

    def _remove(self, member: Member) -> None:
        self._stop(member)
        del self.members[member.member_id]
        self.pending_sync.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)
        if member.join is not None:
            parked, member.join = member.join, None
            parked.answer(UNKNOWN_MEMBER_ID, **_refusal(member.member_id))

    def _write(self) -> None:
        """Write the whole group (3.7); ``currentStateTimestamp`` is of the last transition."""
        listed = [
            encoder.ListedMember(
                m.member_id,
                m.instance_id,
                m.who.client_id,
                "/" + m.who.host,
                m.rebalance_timeout_ms,
                m.session_timeout_ms,
                m.protocols[self.protocol or ""],
                m.assignment,
            )
            for m in self.members.values()
        ]
        for member in self.members.values():
            member.announced = True
        leader = self.leader if listed else None
        value = encoder.group_metadata(
            self.protocol_type, self.generation, self.protocol, leader, self.state_ms, listed
        )
        self.world.record(encoder.key(2, self.group), value)


def _update(member: Member, body: dict[str, Any]) -> None:
    member.session_timeout_ms = body["sessionTimeoutMs"]
    member.rebalance_timeout_ms = body["rebalanceTimeoutMs"]
    member.protocols = {p["name"]: base64.b64decode(p["metadata"]) for p in body["protocols"]}


def _refusal(member_id: str) -> dict[str, Any]:
    """What a refused JoinGroup says beside its error."""
    return {
        "generationId": -1,
        "protocolType": None,
        "protocolName": None,
        "leader": "",
        "skipAssignment": False,
        "memberId": member_id,
        "members": [],
    }
