"""A classic consumer's protocol side (kafka-facts 5): joins, syncs, heartbeats, polls too late, dies, freezes.

Behaves as the Java client: no heartbeat while a JoinGroup is in flight; 27 makes it rejoin at its next poll; a poll
that comes too late makes the heartbeat thread leave, with its reason, unless the member is static.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation import encoder
from tests.simulation.classic import ClassicGroup, Request
from tests.simulation.world import Connection, Timer

PARTITIONS = 4
POLL_REASON = "consumer poll timeout has expired."
CLOSE_REASON = "the consumer is being closed"


@dataclass(repr=False)
class Client:
    """One consumer process. ``says_why``: its LeaveGroup has a reason (Java); else none (librdkafka, kafka-python)."""

    group: ClassicGroup
    who: Connection
    random: Random
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    session_timeout_ms: int = 6_000
    max_poll_interval_ms: int = 20_000
    heartbeat_ms: int = 2_000
    join_version: int = 9
    says_why: bool = True
    minds_polls: bool = True
    """Whether it leaves when its application polls too late; some clients do not."""
    member_id: str = ""
    generation: int = -1
    alive: bool = True
    frozen: bool = False
    polling: bool = True
    fenced: bool = False
    joining: bool = False
    """From JoinGroup sent to SyncGroup answered."""
    parked: bool = False
    """A JoinGroup is in flight: no heartbeats."""
    joined: bool = False
    needs_rejoin: bool = False
    owned: dict[str, list[int]] | None = None
    _poll_timer: Timer | None = None
    _mail: list[Callable[[], None]] = field(default_factory=list)
    _for_poll: list[Callable[[], None]] = field(default_factory=list)
    """Answers that only a poll looks at."""

    def __repr__(self) -> str:
        return self.who.client_id

    def __post_init__(self) -> None:
        self.join()
        self._beat()

    # -------------------------------------------------------------- what the tests do to it

    def kill(self) -> None:
        """The process is gone without a word."""
        self.alive = False

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        """Go on where it stood: what was due is done at once."""
        self.frozen = False
        mail, self._mail = self._mail, []
        for letter in mail:
            letter()
        self._tick()

    def stall(self) -> None:
        """The application no longer polls; the heartbeat thread goes on until max.poll.interval.ms has passed."""
        self.polling = False
        if self.minds_polls:
            self._poll_timer = self.group.world.after(self.max_poll_interval_ms, self._polled_too_late)

    def wake(self) -> None:
        """It polls again: what waited for a poll is done."""
        self.polling = True
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        mail, self._for_poll = self._for_poll, []
        for letter in mail:
            letter()
        if self.needs_rejoin or not (self.joined or self.joining):
            self.join()

    def close(self) -> None:
        """Close properly: a static member says nothing and will be back."""
        if self.member_id and self.joined and self.instance_id is None:
            self._leave(CLOSE_REASON if self.says_why else None)
        self.alive = False

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        if self.joined and self.polling and not self.frozen:
            self.join()

    def commit(self) -> None:
        if not (self.alive and self.joined and self.owned) or self.frozen:
            return
        topic, partitions = min(self.owned.items())
        self.group.commit(self.member_id, self.generation, topic, partitions[0], self.random.randrange(1_000))

    # -------------------------------------------------------------- requests

    def _send(
        self,
        api: str,
        body: dict[str, Any],
        serve: Callable[[Request], None],
        reply: Callable[[int, dict[str, Any]], None],
        version: int | None = None,
    ) -> None:
        world = self.group.world
        request = Request(
            world, api, self.who, {"groupId": self.group.group, **body}, self._later(reply), version or 0, 0
        )
        if version is None:
            request.version = {"JOIN_GROUP": 9, "SYNC_GROUP": 5, "HEARTBEAT": 4, "LEAVE_GROUP": 5}[api]

        def arrive() -> None:
            if self.group.busy_ms == world.now_ms:  # two requests in one millisecond: no log could tell their order
                world.after(1, arrive)
                return
            request.arrival_ms = self.group.busy_ms = world.now_ms
            serve(request)

        world.after(self.random.randint(1, 4), arrive)

    def _later(self, reply: Callable[[int, dict[str, Any]], None]) -> Callable[[int, dict[str, Any]], None]:
        """An answer takes its way; one that comes to a frozen process waits there, one to a dead one is lost."""

        def receive(error: int, body: dict[str, Any]) -> None:
            def open_it() -> None:
                if self.alive:
                    reply(error, body)

            def arrive() -> None:
                if self.frozen:
                    self._mail.append(open_it)
                else:
                    open_it()

            self.group.world.after(self.random.randint(1, 4), arrive)

        return receive

    def join(self) -> None:
        """Ask to join, unless that is under way already."""
        if self.joining or self.fenced or not self.alive:
            return
        self.joining, self.parked, self.joined, self.needs_rejoin = True, True, False, False
        self.owned = None  # an eager consumer gives up all before it asks (``ConsumerCoordinator.onJoinPrepare``)
        metadata = base64.b64encode(encoder.subscription(self.topics)).decode()
        body = {
            "sessionTimeoutMs": self.session_timeout_ms,
            "rebalanceTimeoutMs": self.max_poll_interval_ms,
            "memberId": self.member_id,
            "groupInstanceId": self.instance_id,
            "protocolType": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
            "reason": "",
        }
        self._send("JOIN_GROUP", body, self.group.join, self._on_join, self.join_version)

    def _on_join(self, error: int, body: dict[str, Any]) -> None:
        self.joining = self.parked = False
        if error == 79:
            self.member_id = body["memberId"]
            return self.join()
        if error == 82:
            self.fenced = True
            return None
        if error:
            self.member_id = "" if error == 25 else self.member_id
            self.group.world.after(100, self.join)
            return None
        self.member_id, self.generation = body["memberId"], body["generationId"]
        self.joining = self.joined = True
        if not self.polling:  # the heartbeat thread is on again, but only a poll goes on to SyncGroup
            return self._for_poll.append(lambda: self._sync(body))
        return self._sync(body)

    def _sync(self, body: dict[str, Any]) -> None:
        assignments = (
            self._assign(body["members"]) if body["leader"] == self.member_id and not body["skipAssignment"] else []
        )
        self._send(
            "SYNC_GROUP",
            {
                "generationId": self.generation,
                "memberId": self.member_id,
                "groupInstanceId": self.instance_id,
                "protocolType": "consumer",
                "protocolName": "range",
                "assignments": assignments,
            },
            self.group.sync,
            self._on_sync,
        )

    def _assign(self, members: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Deal every topic's partitions to those who subscribe to it, as the leader does."""
        wants = {m["memberId"]: base64.b64decode(m["metadata"]) for m in members}
        dealt: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wants}
        for topic in ("t", "u"):
            takers = [m for m, blob in sorted(wants.items()) if topic.encode() in blob]
            for partition in range(PARTITIONS if takers else 0):
                dealt[takers[partition % len(takers)]].setdefault(topic, []).append(partition)
        return [
            {"memberId": m, "assignment": base64.b64encode(encoder.assignment(ps)).decode()} for m, ps in dealt.items()
        ]

    def _on_sync(self, error: int, body: dict[str, Any]) -> None:
        self.joining = False
        if error == 0:
            self.owned = parse_assignment(base64.b64decode(body["assignment"]))
        else:
            self._trouble(error)

    def _trouble(self, error: int) -> None:
        self.joining = False
        self._for_poll.clear()
        if error == 82:
            self.fenced, self.joined = True, False
            return
        if error in (22, 25):
            self.joined, self.owned = False, None
            self.member_id = "" if error == 25 else self.member_id
        if self.polling:
            self.join()
        else:
            self.needs_rejoin = True

    def _beat(self) -> None:
        if self.alive:
            self.group.world.after(self.heartbeat_ms, self._beat)
            if not self.frozen:
                self._tick()

    def _tick(self) -> None:
        if not (self.alive and self.joined) or self.parked or self.fenced:
            return
        body = {"generationId": self.generation, "memberId": self.member_id, "groupInstanceId": self.instance_id}
        self._send("HEARTBEAT", body, self.group.heartbeat, self._on_heartbeat)

    def _on_heartbeat(self, error: int, _body: dict[str, Any]) -> None:
        if error and self.joined and not (self.joining and self.polling):
            self._trouble(error)

    def _polled_too_late(self) -> None:
        if not self.alive or self.frozen or self.polling or not self.joined:
            return
        if self.instance_id is None:
            self._leave(POLL_REASON if self.says_why else None)
            self.member_id = ""
        self.joined, self.joining, self.owned = False, False, None
        self._for_poll.clear()

    def _leave(self, reason: str | None) -> None:
        who = {"memberId": self.member_id, "groupInstanceId": self.instance_id, "reason": reason}
        self._send("LEAVE_GROUP", {"members": [who]}, self.group.leave, lambda _error, _body: None)


def parse_assignment(blob: bytes) -> dict[str, list[int]]:
    """Read back what ``encoder.assignment`` wrote; no bytes: nothing assigned."""
    if not blob:
        return {}
    at, result = 2, {}

    def number(size: int) -> int:
        nonlocal at
        at += size
        return int.from_bytes(blob[at - size : at], "big", signed=True)

    for _ in range(number(4)):
        size = number(2)
        topic = blob[at : at + size].decode()
        at += size
        result[topic] = [number(4) for _ in range(number(4))]
    return result
