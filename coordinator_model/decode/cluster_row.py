"""What the brokers' metadata says about a cluster at an instant: a *cluster row* of a capture, or what `run` fetched.

Some facts are neither in the offsets topic nor in the request log: the leaders of the partitions of the offsets topic,
the telemetry key of each broker, session timeouts of the newer types of groups, names of topic ids, and partition
counts. A row has some or all of them (docs/capture.md). What it leaves out has not changed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator_model.decode.telemetry.fields import (
    INT32,
    LATEST_MS,
    BadField,
    a_dict,
    a_list,
    an_int,
    clean,
    parse_object,
    str_or_none,
)
from coordinator_model.events import TELEMETRY_RANK, LeaderNamed

GROUP_KINDS = ("consumer", "share", "streams")
INT64 = 2**63
MAX_ENTRIES = 1_000_000
"""No cluster has more brokers, groups or topics. A row with more is rejected."""


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """One validated row. ``leaders`` has the leader of each partition of the offsets topic, None where there is none.

    ``leader_epochs`` has their leader epochs, None where unknown.
    """

    timestamp_ms: int
    leaders: tuple[int | None, ...] = ()
    leader_epochs: tuple[int | None, ...] = ()
    keys: Mapping[int, str | None] = field(default_factory=dict)
    """By node id: the broker's telemetry key; None: no line of the broker has been seen."""
    session_timeouts_ms: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By type of group and group id: milliseconds. Group id "" has the brokers' default."""
    topic_partitions: Mapping[str, int] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    """By topic id, in Kafka's text form: the name."""
    end_offsets: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """By topic: end offsets by partition, None: unknown. Together they are one round, asked at ``timestamp_ms``."""
    start_offsets: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    stable_offsets: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The last stable offsets, where a consumer with ``read_committed`` stops."""

    def named(self, shard: int) -> LeaderNamed | None:
        """Return the leader of a shard's partition as an event; None: the row does not name it."""
        if shard >= len(self.leaders) or (node := self.leaders[shard]) is None:
            return None
        key = self.keys.get(node)
        others = tuple(sorted({other for other in self.keys.values() if other is not None and other != key}))
        epoch = self.leader_epochs[shard] if shard < len(self.leader_epochs) else None
        at_ms, unknown = self.timestamp_ms, -1
        told = (node, key or "", others, unknown if epoch is None else epoch)
        return LeaderNamed(at_ms, TELEMETRY_RANK, "", shard, at_ms, "", *told)


def read_cluster_row(text: bytes) -> ClusterRow:
    """Read a row's JSON. Raises ``BadField``, nothing else."""
    values = parse_object(text.decode("utf-8", "replace"))
    timestamp_ms = an_int(values, "timestamp_ms", limit=LATEST_MS)
    if timestamp_ms < 0:
        raise BadField("timestamp_ms: negative")
    brokers = _map(values, "brokers", _broker)
    return ClusterRow(
        timestamp_ms=timestamp_ms,
        leaders=tuple(_number_or_none("leaders", node) for node in a_list(values, "leaders")),
        leader_epochs=tuple(_number_or_none("leader_epochs", epoch) for epoch in a_list(values, "leader_epochs")),
        keys={_node_id(node): key for node, key in brokers.items()},
        session_timeouts_ms={
            kind: _map(timeouts, kind, _natural)
            for timeouts in [_map(values, "session_timeouts_ms", _as_it_is)]
            for kind in GROUP_KINDS
        },
        topic_partitions=_map(values, "topic_partitions", _natural),
        topic_names=_map(values, "topic_names", _text),
        end_offsets=_map(values, "end_offsets", _offsets),
        start_offsets=_map(values, "start_offsets", _offsets),
        stable_offsets=_map(values, "stable_offsets", _offsets),
    )


def _map(parent: Mapping[str, Any], name: str, read: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return a nested object with each of its values read; empty if it is left out."""
    if parent.get(name) is None:
        return {}
    values = a_dict(dict(parent), name)
    if len(values) > MAX_ENTRIES:
        raise BadField(f"{name}: too many entries")
    return {clean(key): read(f"{name}.{key}", value) for key, value in values.items()}


def _as_it_is(_: str, value: Any) -> Any:
    return value


def _natural(name: str, value: Any) -> int:
    number = an_int({name: value}, name)
    if number < 0:
        raise BadField(f"{name}: negative")
    return number


def _offsets(name: str, value: Any) -> tuple[int | None, ...]:
    """Read the offsets of a topic. Kafka writes a negative one if there is none."""
    name = name.partition(".")[0]  # without the topic, so that there are only a few different reasons
    offsets = a_list({name: value}, name)
    if len(offsets) > MAX_ENTRIES:
        raise BadField(f"{name}: too many entries")
    read = (None if offset is None else an_int({name: offset}, name, limit=INT64) for offset in offsets)
    return tuple(None if offset is None or offset < 0 else offset for offset in read)


def _text(name: str, value: Any) -> str:
    text = str_or_none({name: value}, name)
    if not text:
        raise BadField(f"{name}: no text")
    return text


def _number_or_none(name: str, value: Any) -> int | None:
    return None if value is None else _natural(name, value)


def _node_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(INT32))):
        raise BadField("brokers: not a node id")
    return int(text)


def _broker(name: str, value: Any) -> str | None:
    if not isinstance(value, dict):
        raise BadField(f"{name}: not an object")
    return str_or_none(value, "key") or None
