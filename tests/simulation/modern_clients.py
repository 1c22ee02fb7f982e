"""A KIP-848 consumer's protocol side (kafka-facts 4.2, 4.6): one id for life, heartbeats for everything."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation import encoder
from tests.simulation.classic import Request
from tests.simulation.modern import (
    FENCED_MEMBER_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNRELEASED_INSTANCE_ID,
    ConsumerGroup,
    Partition,
    by_id,
    owned_of,
)
from tests.simulation.world import Connection, Timer


@dataclass(repr=False)
class ModernClient:
    """One consumer process; its background thread heartbeats, its application polls and gives partitions up."""

    group: ConsumerGroup
    who: Connection
    random: Random
    member_id: str
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    max_poll_interval_ms: int = 20_000
    heartbeat_ms: int = 5_000
    minds_polls: bool = True
    """Whether it leaves when its application polls too late; some clients do not."""
    epoch: int = 0
    alive: bool = True
    frozen: bool = False
    polling: bool = True
    asking: bool = False
    in_group: bool = False
    fenced: bool = False
    owned: set[Partition] = field(default_factory=set)
    given: set[Partition] = field(default_factory=set)
    unsaid: bool = True
    """Whether what it owns has changed since it last told."""
    resubscribed: bool = False
    _poll_timer: Timer | None = None
    _mail: list[Callable[[], None]] = field(default_factory=list)

    def __repr__(self) -> str:
        return self.who.client_id

    def __post_init__(self) -> None:
        self.join()
        self._beat()

    # -------------------------------------------------------------- what the tests do to it

    def kill(self) -> None:
        self.alive = False

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        mail, self._mail = self._mail, []
        for letter in mail:
            letter()
        self._tick()

    def stall(self) -> None:
        """No more polls: partitions are not given up, and after max.poll.interval.ms it leaves by itself."""
        self.polling = False
        if self.minds_polls:
            self._poll_timer = self.group.world.after(self.max_poll_interval_ms, self._polled_too_late)

    def wake(self) -> None:
        self.polling = True
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        if not self.in_group:
            self.join()
        self._take_up()

    def close(self) -> None:
        if self.in_group:
            self._leave(LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH)
        self.alive = False

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.topics, self.resubscribed = topics, True
        self._tick()

    # -------------------------------------------------------------- requests

    def join(self) -> None:
        if self.asking or self.fenced or not self.alive:
            return
        self.epoch, self.owned, self.given = 0, set(), set()
        self._send({"rebalanceTimeoutMs": self.max_poll_interval_ms, "topicPartitions": []}, self.topics)

    def _beat(self) -> None:
        if self.alive:
            self.group.world.after(self.heartbeat_ms, self._beat)
            self._tick()

    def _tick(self) -> None:
        if not (self.alive and self.in_group) or self.frozen or self.asking:
            return
        changed: dict[str, Any] = {"topicPartitions": self._listed() if self.unsaid else None}
        self.unsaid = False
        topics = self.topics if self.resubscribed else None
        self.resubscribed = False
        self._send({"rebalanceTimeoutMs": -1, **changed}, topics)

    def _listed(self) -> list[dict[str, Any]]:
        return [{"topicId": encoder.uuid_text(t), "partitions": ps} for t, ps in sorted(by_id(self.owned).items())]

    def _send(self, changed: dict[str, Any], topics: tuple[str, ...] | None) -> None:
        self.asking = True
        body = {
            "groupId": self.group.group,
            "memberId": self.member_id,
            "memberEpoch": self.epoch,
            "instanceId": self.instance_id if self.epoch <= 0 else None,
            "rackId": None,
            "subscribedTopicNames": None if topics is None else list(topics),
            "subscribedTopicRegex": None,
            "serverAssignor": None,
            **changed,
        }
        world = self.group.world
        request = Request(world, "CONSUMER_GROUP_HEARTBEAT", self.who, body, self._receive(), 1, 0)

        def arrive() -> None:
            if self.group.busy_ms == world.now_ms:
                world.after(1, arrive)
                return
            request.arrival_ms = self.group.busy_ms = world.now_ms
            self.group.heartbeat(request)

        world.after(self.random.randint(1, 4), arrive)

    def _receive(self) -> Callable[[int, dict[str, Any]], None]:
        def receive(error: int, body: dict[str, Any]) -> None:
            def open_it() -> None:
                self.asking = False
                if self.alive:
                    self._read(error, body)

            self.group.world.after(
                self.random.randint(1, 4), lambda: self._mail.append(open_it) if self.frozen else open_it()
            )

        return receive

    def _read(self, error: int, body: dict[str, Any]) -> None:
        if error == UNRELEASED_INSTANCE_ID:
            self.fenced = True
        elif error == FENCED_MEMBER_EPOCH or error:
            self.in_group, self.owned = False, set()
            if self.polling:
                self.group.world.after(100, self.join)
        elif body["memberEpoch"] < 0:
            self.in_group = False
            if self.polling:
                self.join()
        else:
            self.in_group, self.epoch = True, body["memberEpoch"]
            if body["assignment"] is not None:
                self.given = owned_of(body["assignment"]["topicPartitions"])
                self._take_up()

    def _take_up(self) -> None:
        """Own what is given and give up what is not; that takes a poll."""
        if self.polling and self.in_group and self.owned != self.given:
            self.owned, self.unsaid = set(self.given), True
            self.group.world.after(self.random.randint(1, 50), self._tick)

    def _polled_too_late(self) -> None:
        if self.alive and self.in_group and not self.frozen and not self.polling:
            self._leave(LEAVE_EPOCH if self.instance_id is None else STATIC_LEAVE_EPOCH)

    def _leave(self, epoch: int) -> None:
        self.in_group, self.epoch, self.owned, self.given = False, epoch, set(), set()
        self._send({"rebalanceTimeoutMs": -1, "topicPartitions": None}, None)
