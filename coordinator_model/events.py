"""The events that the core consumes, one named tuple for each kind.

The first five fields of every event are its place in time and in its source, so that events sort as tuples:
``(order_ms, rank, topic, partition, offset)``. *order_ms* is the instant by which events are applied, in the
coordinator's clock: a record's timestamp, or a telemetry line's Kafka timestamp. For a LeaveGroup it is the instant at
which it was applied, because its answer may wait seconds behind a stalled write while its record does not. *rank* puts
a record before a line of the same instant. Events are named tuples because a busy cluster makes tens of thousands of
them a second.
"""

from typing import Any, NamedTuple, TypeVar, cast

RECORD_RANK = 0
TELEMETRY_RANK = 1
FAR_MS = 2**61
"""Later than any instant and longer than any duration: it stands for "never"."""


class RecordRead(NamedTuple):
    """A decoded record of ``__consumer_offsets`` other than an offset commit."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    record_type: int
    key: dict[str, Any]
    value: dict[str, Any] | None


class OffsetCommitted(NamedTuple):
    """An offset commit (record type 0 or 1) or its tombstone; it names no member."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    committed_topic: str
    committed_partition: int
    tombstone: bool
    committed_offset: int = 0
    commit_ms: int = 0
    """The instant in the value: the coordinator's clock, or what an old client asked for."""
    leader_epoch: int = -1
    metadata: str = ""
    """The first characters of the metadata."""
    topic_id: str | None = None
    """As Kafka prints it; None: the commit has no topic id."""


class Heartbeat(NamedTuple):
    """An answered HEARTBEAT, or a CONSUMER_GROUP_HEARTBEAT that changes nothing.

    ``generation`` is the generation, or for KIP-848 the member epoch in the answer. ``applied_ms`` is the instant at
    which the coordinator restarted the session timer, if it accepted the heartbeat (answer minus remote time).
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    member_id: str
    generation: int
    error: int
    applied_ms: int
    arrival_ms: int
    broker: str
    remote_ms: int
    kip848: bool


class JoinAnswered(NamedTuple):
    """An answered JOIN_GROUP. ``members`` is the leader's list ``(member id, instance id, metadata base64)``."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    error: int
    answer_ms: int
    arrival_ms: int
    member_id: str
    request_member_id: str
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str
    members: tuple[tuple[str, str | None, str], ...]
    subscription: str
    client_id: str
    client_host: str
    connection: str
    software: str | None
    api_version: int
    reason: str | None = None
    """Why the client joins, in its own words (KIP-800, JoinGroup version 8)."""
    listener: str | None = None
    principal: str | None = None


class SyncAnswered(NamedTuple):
    """An answered SYNC_GROUP; ``from_leader`` if the request carried assignments. ``assignment`` is base64."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    error: int
    answer_ms: int
    arrival_ms: int
    member_id: str
    instance_id: str | None
    generation: int
    from_leader: bool
    assignment: str


class LeaveAnswered(NamedTuple):
    """One member of an answered LEAVE_GROUP. A batch makes one event for each member."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    error: int
    applied_ms: int
    member_id: str
    instance_id: str | None
    reason: str | None
    connection: str
    client_id: str
    client_host: str
    remote_ms: int = 0


class ConsumerHeartbeat(NamedTuple):
    """An answered CONSUMER_GROUP_HEARTBEAT that joins (epoch 0), leaves (-1, -2), changes epoch, or was refused."""

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    error: int
    applied_ms: int
    arrival_ms: int
    remote_ms: int
    member_id: str
    instance_id: str | None
    request_epoch: int
    epoch: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    connection: str
    software: str | None
    listener: str | None = None
    principal: str | None = None


class CommitRefused(NamedTuple):
    """An OFFSET_COMMIT or TXN_OFFSET_COMMIT that was refused because its sender is no longer the member it names.

    ``partitions`` are the partitions that were refused, up to a limit; ``left_out`` counts the rest.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    error: int
    member_id: str
    instance_id: str | None
    generation: int
    client_id: str
    client_host: str
    connection: str
    transactional: bool
    partitions: tuple[tuple[str, int], ...]
    left_out: int


class ClientPoll(NamedTuple):
    """A client's report of how long ago it polled. The client's clock does not matter: it sends only an age.

    ``order_ms`` is the append time of the topic.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    member_id: str
    instance_id: str | None
    client_id: str
    poll_age_ms: int
    max_poll_interval_ms: int
    client_host: str | None = None


class MetricsPushed(NamedTuple):
    """Metrics that a client pushed to any broker (KIP-714).

    ``poll_age_ms`` is the least age of the client's last poll at ``order_ms``; None: the client does not push it. The
    true age may be greater, because the client counts whole seconds and the request takes time to reach the broker.
    ``polled``: whether it polled in the ``interval_ms`` before; None: it does not say.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    member_id: str
    client_id: str
    client_host: str
    poll_age_ms: int | None
    client_instance_id: str = ""
    polled: bool | None = None
    interval_ms: int = 0
    instance_id: str | None = None
    poll_interval_ms: int | None = None
    """The longest time between two polls that is in the metrics."""
    shown: tuple[tuple[str, float], ...] = ()
    """Other metrics by name, for display."""
    waited_ms: int = 0
    """How long it may have waited at its broker, because the broker stood still (``BrokerClock.waited_ms``)."""


class ClientSeen(NamedTuple):
    """A client is alive: it asked any broker who coordinates its group, or pushed metrics without polls.

    librdkafka asks every ten minutes (``coordinator.query.interval.ms``), also while it is in no group.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    client_id: str
    client_host: str


class MetricsExported(NamedTuple):
    """The same as ``MetricsPushed``, but from an OpenTelemetry collector.

    Any application may write such a record, so it does not count as a broker's line.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    member_id: str
    client_id: str
    client_host: str
    poll_age_ms: int | None
    client_instance_id: str = ""
    polled: bool | None = None
    interval_ms: int = 0
    instance_id: str | None = None
    poll_interval_ms: int | None = None
    shown: tuple[tuple[str, float], ...] = ()


class Tick(NamedTuple):
    """A line that only moves the broker's clock, such as a probe's. ``group`` is empty: a tick is for all shards.

    ``probe`` is the number in the probe's states filter: a jump shows that lines were lost. None: not a probe's line.
    ``lost``: offsets are missing before the line, so lines are. ``connection`` distinguishes two probes, such as those
    of `run` and `capture`. ``asked`` is the probe's own name for the broker that it asked, which shows whose line it
    is.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    probe: int | None
    lost: bool = False
    connection: str = ""
    asked: str = ""


class LeaderNamed(NamedTuple):
    """The leader of a shard, that is, of its partition of the offsets topic, according to metadata: node ``node``.

    ``key`` is the telemetry key of that broker, empty while it is unknown; ``others`` are the keys of known brokers
    that do not lead. ``topic`` and ``group`` are empty, ``partition`` is the shard, ``offset`` the instant at which
    metadata was asked. ``epoch`` is the leader epoch: a broker that does not know the newest leader yet has a smaller
    one; -1: unknown.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    node: int
    key: str
    others: tuple[str, ...]
    epoch: int = -1


LEFT = "left"
LEFT_FOR_A_WHILE = "left-for-a-while"
PENDING_GONE = "pending-gone"
REPLACED = "replaced"
FENCED = "fenced"
JOINED = "joined"
REBALANCE = "rebalance"
GENERATION = "generation"
EMPTIED = "emptied"
LOADED = "loaded"
UNLOADED = "unloaded"


class CoordinatorLine(NamedTuple):
    """A line of the group coordinator's own log (INFO). No tick is made of it: it does not move the broker's clock.

    ``what`` is one of the words above, or ``SESSION_EXPIRED`` or ``REBALANCE_TIMEOUT``. ``members`` are the members
    that the line says were removed, left, replaced, fenced or joined. ``broker`` is the record's key, empty if it has
    none. ``shard`` is the partition of the offsets topic that the line names, -1: none. ``reason`` is why a client left
    or a rebalance began.
    """

    order_ms: int
    rank: int
    topic: str
    partition: int
    offset: int
    group: str
    broker: str
    what: str
    members: tuple[str, ...] = ()
    shard: int = -1
    instance_id: str | None = None
    reason: str = ""
    client_id: str = ""
    client_host: str = ""
    beside_requests: bool = False
    """Whether the request log of its broker covers this instant. If so, the request log decides."""


Answer = Heartbeat | JoinAnswered | SyncAnswered | LeaveAnswered | ConsumerHeartbeat
"""An answered request about a group, from a broker's request log."""
ClientSign = MetricsPushed | ClientSeen
"""A request that a client sends to any broker, not only to its group's coordinator."""
BrokerLine = Answer | CommitRefused | ClientSign | Tick
"""A line of a broker's request log."""
ClientWord = ClientPoll | MetricsExported
"""A client's report about itself, in a topic that any application may write to."""
Event = BrokerLine | RecordRead | OffsetCommitted | ClientWord | LeaderNamed | CoordinatorLine
"""A consumed event."""


Request = TypeVar("Request", bound=Answer | CommitRefused | ClientSign)
"""A line about a request."""


def moved(line: Request, by_ms: int) -> Request:
    """Return a line as a clock that differs by ``by_ms`` would have dated it."""
    instants = [name for name in ("order_ms", "applied_ms", "answer_ms", "arrival_ms") if name in line._fields]
    return cast("Request", line._replace(**{name: getattr(line, name) + by_ms for name in instants}))


def parked_ms(event: JoinAnswered | SyncAnswered | LeaveAnswered) -> int:
    """Return how long an answer was parked: the remote time, or answer minus arrival if that is not in the event."""
    return event.remote_ms if isinstance(event, LeaveAnswered) else max(0, event.answer_ms - event.arrival_ms)
