"""A comparison of what brokers say about every group's offsets with what the monitor has.

Brokers are asked before and after the monitor's round. What did not change in between is compared exactly. If a
partition was committed or produced to meanwhile, the monitor's figures have to lie between the two answers.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from streaming.store.lags import partitions_of

Place = tuple[str, str, int]
"""Group, topic, partition."""
Found = TypeVar("Found")
PATIENCE_S = 90.0


class Told(NamedTuple):
    """The committed offset and the end offset, according to a broker."""

    committed: int
    end: int


class Shown(NamedTuple):
    """The same according to the monitor, and its lag."""

    committed: int | None
    end: int | None
    lag: int | None


class Comparison(NamedTuple):
    """One partition at one quiet point."""

    place: Place
    before: Told | None
    after: Told | None
    shown: Shown | None

    @property
    def is_exact(self) -> bool:
        """Whether nothing happened between the two answers."""
        return self.before == self.after

    @property
    def agrees(self) -> bool:
        """Whether the monitor has what the brokers say."""
        before, after, shown = self.before, self.after, self.shown
        if before is None or after is None or shown is None or None in shown:
            return False
        return (
            before.committed <= shown.committed <= after.committed
            and before.end <= shown.end <= after.end
            and shown.lag == shown.end - shown.committed
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it for people and for JSON."""
        group, topic, partition = self.place
        return {
            "group": group, "topic": topic, "partition": partition, "agrees": self.agrees, "exact": self.is_exact,
            "before": self.before, "after": self.after, "shown": self.shown,
        }  # fmt: skip


class Brokers:
    """The brokers, asked by confluent-kafka's AdminClient."""

    def __init__(self, bootstrap: str) -> None:
        self._config = {"bootstrap.servers": bootstrap, "socket.timeout.ms": 6_000, "log_level": 0}

    def offsets(self, groups: Iterable[str]) -> dict[Place, Told]:
        """Return what each group has committed, and where those partitions end; ask until everything is answered."""
        return patiently(lambda: self._offsets(self._admin(), groups))

    def answer(self, topics: Mapping[str, int]) -> None:
        """Wait until each partition of some topics has a leader that answers."""
        places = {(topic, partition) for topic, count in topics.items() for partition in range(count)}
        patiently(lambda: _ends(self._admin(), places))

    def _admin(self) -> AdminClient:
        """Return a new client: an old one keeps the epoch of a leader that was restarted, and is refused ever after."""
        return AdminClient(self._config)

    def _offsets(self, admin: AdminClient, groups: Iterable[str]) -> dict[Place, Told]:
        committed: dict[Place, int] = {}
        for group in groups:
            (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
            listed = asked.result(10).topic_partitions
            committed |= {(group, p.topic, p.partition): p.offset for p in listed if p.offset >= 0}
        ends = _ends(admin, {place[1:] for place in committed})
        return {place: Told(offset, ends[place[1:]]) for place, offset in committed.items()}


def _ends(admin: AdminClient, places: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    latest = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    asked = admin.list_offsets(latest, request_timeout=6) if latest else {}
    return {(p.topic, p.partition): future.result(10).offset for p, future in asked.items()}


def patiently(ask: Callable[[], Found]) -> Found:
    """Ask again while brokers are away."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def shown_by(rows: Iterable[tuple[str, str]]) -> dict[Place, Shown]:
    """Read rows of the table `lags`: group and body; partitions without a commit are left out."""
    shown = {}
    for group, body in rows:
        for p in partitions_of(json.loads(body)):
            if p["committed_offset"] is not None:
                place = (group, p["topic"], p["partition"])
                shown[place] = Shown(p["committed_offset"], p["end_offset"], p["lag"])
    return shown


def compare(
    before: Mapping[Place, Told], after: Mapping[Place, Told], shown: Mapping[Place, Shown]
) -> Iterator[Comparison]:
    """Yield each partition that either side knows."""
    for place in sorted({*before, *shown}):  # a first commit meanwhile may be shown or not
        yield Comparison(place, before.get(place, after.get(place)), after.get(place), shown.get(place))
