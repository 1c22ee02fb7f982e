"""What members put into a classic group's `subscription` and `assignment` bytes.

To Kafka these blobs are opaque: only the members agree on their format. Two formats are read here: the consumer's
(`ConsumerProtocol`, protocol type "consumer") and Kafka Connect's (protocol type "connect"). Of the user data that
Kafka Streams adds to the consumer's format, only the tasks are read. Callers must not pass blobs of any other protocol
type.

A blob is an int16 version and a struct without tags. Every version adds fields at the end of the one before, so a newer
version is read with the newest known layout, and bytes after that are allowed. The functions return None for a blob
that cannot be read, and never raise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from coordinator_model.decode.records.schema import (
    Array,
    Field,
    Fields,
    Primitive,
    Read,
    Struct,
    compile_struct,
    struct,
)
from coordinator_model.decode.wire import Reader

TopicPartitions = tuple[tuple[str, tuple[int, ...]], ...]
"""((topic, (partition, ...)), ...) in the order written. A member may name a topic twice."""
ConnectorTasks = tuple[tuple[str, tuple[int, ...]], ...]
"""((connector, (task, ...)), ...); task -1 is the connector itself."""
REMEMBERED_SUBSCRIPTIONS = 1_024
"""How many decoded subscriptions are remembered."""
REMEMBERED_BYTES = 1_024
"""Larger subscriptions are not remembered: any client may send one of a megabyte."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A consumer's subscription (`ConsumerProtocolSubscription`)."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned: TopicPartitions
    """The partitions that it says it owns; since version 1 (2.4, cooperative rebalancing)."""
    generation: int
    """The generation in which they were assigned to it, -1: unknown; since version 2 (3.4)."""
    rack: str | None
    """Since version 3 (3.4)."""


Task = tuple[int, int]
"""Kafka Streams: (subtopology, partition)."""


@dataclass(frozen=True, slots=True)
class StreamsTasks:
    """The tasks that the leader of a Kafka Streams application assigns to one of its consumers (`AssignmentInfo`)."""

    active: tuple[Task, ...]
    standby: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class ConnectAssignment:
    """What the leader of a Connect cluster assigns to one worker."""

    version: int
    error: int
    """0; or 1: the workers' views of the configuration differ, so the worker has to join again."""
    leader: str
    leader_url: str
    config_offset: int
    assigned: ConnectorTasks
    revoked: ConnectorTasks
    """Since version 1 (2.3, incremental cooperative rebalancing)."""
    delay_ms: int
    """How long the tasks of a lost worker are kept for it, in case it returns; since version 1."""


@dataclass(frozen=True, slots=True)
class ConnectWorker:
    """What a Connect worker says about itself when it joins."""

    version: int
    url: str
    config_offset: int
    allocation: ConnectAssignment | None
    """The connectors and tasks that it runs now; since version 1."""


COMMON_VERSION_SINCE, NAMED_TOPOLOGIES_SINCE = 3, 10
"""Versions of Kafka Streams' `AssignmentInfo` that added these fields."""
TASK_BYTES = 8
"""The least number of bytes that one task takes."""

_TOPIC_PARTITIONS = Array(
    struct(Field("topic", Primitive.STRING), Field("partitions", Array(Primitive.INT32))),
)
_CONNECTOR_TASKS = Array(
    struct(Field("connector", Primitive.STRING), Field("tasks", Array(Primitive.INT32))),
)


def _versions(layout: Struct, latest: int) -> tuple[Read, ...]:
    return tuple(compile_struct(layout, version, flexible=False) for version in range(latest + 1))


_SUBSCRIPTION = _versions(
    struct(
        Field("topics", Array(Primitive.STRING)),
        Field("userData", Primitive.BYTES, nullable=True),
        Field("ownedPartitions", _TOPIC_PARTITIONS, since=1),
        Field("generationId", Primitive.INT32, since=2),
        Field("rackId", Primitive.STRING, since=3, nullable=True),
    ),
    latest=3,
)
_ASSIGNMENT = _versions(
    struct(
        Field("assignedPartitions", _TOPIC_PARTITIONS),
        Field("userData", Primitive.BYTES, nullable=True),
    ),
    latest=3,
)
_CONNECT_WORKER = _versions(
    struct(
        Field("url", Primitive.STRING),
        Field("configOffset", Primitive.INT64),
        Field("allocation", Primitive.BYTES, since=1, nullable=True),
    ),
    latest=1,
)
_CONNECT_ASSIGNMENT = _versions(
    struct(
        Field("error", Primitive.INT16),
        Field("leader", Primitive.STRING),
        Field("leaderUrl", Primitive.STRING),
        Field("configOffset", Primitive.INT64),
        Field("assignment", _CONNECTOR_TASKS, nullable=True),
        Field("revoked", _CONNECTOR_TASKS, since=1, nullable=True),
        Field("delay", Primitive.INT32, since=1),
    ),
    latest=1,
)


def subscription(data: bytes) -> Subscription | None:
    """Read a consumer's subscription. Members of a group nearly always send the same bytes, so they are remembered."""
    return _remembered_subscription(data) if len(data) <= REMEMBERED_BYTES else _subscription(data)


def _subscription(data: bytes) -> Subscription | None:
    read = _read(_SUBSCRIPTION, data)
    if read is None:
        return None
    version, fields = read
    return Subscription(
        version,
        topics=tuple(fields["topics"]),
        user_data=fields["userData"],
        owned=_pairs(fields.get("ownedPartitions"), "topic", "partitions"),
        generation=fields.get("generationId", -1),
        rack=fields.get("rackId"),
    )


_remembered_subscription = lru_cache(REMEMBERED_SUBSCRIPTIONS)(_subscription)


def assignment(data: bytes) -> TopicPartitions | None:
    """Read a consumer's assignment. It has no bytes at all if the leader assigned no partitions to the member."""
    if not data:
        return ()
    read = _read(_ASSIGNMENT, data)
    return None if read is None else _pairs(read[1]["assignedPartitions"], "topic", "partitions")


def streams_tasks(data: bytes) -> StreamsTasks | None:
    """Read the tasks in the user data of a Kafka Streams consumer's assignment (versions 1 to 11 begin alike).

    Return None if there is no user data or it cannot be read. What follows the tasks (hosts, error code) is not read.
    """
    read = _read(_ASSIGNMENT, data)
    user_data = read[1]["userData"] if read is not None else None
    if not user_data:
        return None
    reader = Reader(user_data)
    version = reader.int32()
    if version >= COMMON_VERSION_SINCE:
        reader.int32()  # the version that all of the application's instances understand
    named = version >= NAMED_TOPOLOGIES_SINCE
    active = tuple(_task(reader, named=named) for _ in range(_task_count(reader)))
    standby = []
    for _ in range(_task_count(reader)):
        standby.append(_task(reader, named=named))
        for _ in range(reader.array_count() or 0):  # the partitions of its changelogs
            reader.raw(reader.uint16())
            reader.int32()
    return StreamsTasks(active, tuple(standby)) if reader.failure is None and version >= 1 else None


def _task_count(reader: Reader) -> int:
    count = reader.array_count() or 0
    if count > reader.remaining_bytes // TASK_BYTES:
        reader.fail(f"{count} tasks")
        return 0
    return count


def _task(reader: Reader, *, named: bool) -> Task:
    task = (reader.int32(), reader.int32())
    if named:
        reader.raw(reader.int32())  # the name of its topology, nearly always empty
    return task


def connect_worker(data: bytes) -> ConnectWorker | None:
    """Read the metadata with which a Connect worker joins."""
    read = _read(_CONNECT_WORKER, data)
    if read is None:
        return None
    version, fields = read
    return ConnectWorker(
        version,
        url=fields["url"],
        config_offset=fields["configOffset"],
        allocation=connect_assignment(fields.get("allocation") or b""),
    )


def connect_assignment(data: bytes) -> ConnectAssignment | None:
    """Read a Connect worker's assignment. Return None for no bytes at all, too."""
    read = _read(_CONNECT_ASSIGNMENT, data)
    if read is None:
        return None
    version, fields = read
    return ConnectAssignment(
        version,
        error=fields["error"],
        leader=fields["leader"],
        leader_url=fields["leaderUrl"],
        config_offset=fields["configOffset"],
        assigned=_pairs(fields["assignment"], "connector", "tasks"),
        revoked=_pairs(fields.get("revoked"), "connector", "tasks"),
        delay_ms=fields.get("delay", 0),
    )


def _read(layouts: Sequence[Read], data: bytes) -> tuple[int, Fields] | None:
    """Read (version, fields) with the layout of the version, or else with that of version 0.

    The second try is for old Go clients (bsm/sarama-cluster), which wrote version 1 in front of the contents of version
    0. The broker does the same to learn the topics.
    """
    reader = Reader(data)
    version = reader.int16()
    if reader.failure is not None or version < 0:
        return None
    for layout in (layouts[min(version, len(layouts) - 1)], layouts[0]):
        reader = Reader(data)
        reader.int16()
        fields: Fields = layout(reader)
        if reader.failure is None:
            return version, fields
    return None


def _pairs(rows: list[Fields] | None, name: str, numbers: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((row[name], tuple(row[numbers])) for row in rows or ())
