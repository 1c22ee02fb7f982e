"""Every table. Instants are epoch milliseconds; JSON is text, written with ASCII escapes.

A group id may be 32 kB long and contain any character (Kafka checks neither). PostgreSQL cannot index values beyond
2.7 kB or store a NUL. So rows are found by `group_key`, a hash of cluster and group id; `group_id` is a cleaned copy
for people, and the JSON beside it has the exact text.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)

metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite increments only an INTEGER PRIMARY KEY

# The newest batch of a checkpoint: Spark replays a batch after a crash, its numbers only grow.
applied_batches = Table(
    "applied_batches",
    metadata,
    Column("checkpoint_id", String(200), primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("applied_ms", BigInteger, nullable=False),
)

# One row per cluster: whether its `run` is alive, and whether it has caught up.
runs = Table(
    "runs",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("checkpoint_id", String(200), nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("alive_ms", BigInteger, nullable=False),
    Column("caught_up", Boolean, nullable=False),  # as of the last batch
    Column("starts", Boolean, nullable=False, server_default=false()),  # since then `run` began to read again
)

groups = Table(
    "groups",
    metadata,
    Column("group_key", String(64), primary_key=True),
    Column("cluster", String(255), nullable=False, index=True),
    Column("group_id", Text, nullable=False),
    Column("type", String(32), nullable=False),
    Column("state", String(32), nullable=False),
    Column("generation", BigInteger),
    Column("members", Integer, nullable=False),
    Column("members_violated", Integer, nullable=False),
    Column("members_unknown", Integer, nullable=False),
    Column("worst_headroom", Float),  # the least heartbeat headroom of its members, 1 = just heard
    Column("worst_poll_headroom", Float),  # the same for max.poll.interval.ms, if clients report it
    Column("at_ms", BigInteger, nullable=False),
    Column("checkpoint_id", String(200), nullable=False),  # of the last write: see `store._vanished`
    Column("heartbeats", Text),  # JSON: the last heartbeats of the members, in the view's order; NULL: as in the view
)

# The complete view of a group. It has its own table, because it is twenty times as long as the group's row and stays
# the same while only heartbeats come: SQLite rewrites all pages of a row.
views = Table(
    "views",
    metadata,
    Column("group_key", ForeignKey("groups.group_key", ondelete="CASCADE"), primary_key=True),
    Column("view", Text, nullable=False),
)

# The lag of a group, as last judged. No foreign key: a judgement may come before the group's first view. It is shown
# only together with its group.
lags = Table(
    "lags",
    metadata,
    Column("group_key", String(64), primary_key=True),
    Column("cluster", String(255), nullable=False, index=True),
    Column("group_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),  # when the end offsets were requested
    Column("lag", BigInteger),  # the sum of all partitions whose lag is known; NULL: none
    Column("status", String(16), nullable=False),  # the worst known status of its partitions
    Column("complete", Boolean, nullable=False),  # the lag of every partition with a commit is known
    Column("partitions", Integer, nullable=False),
    Column("checkpoint_id", String(200), nullable=False),
    Column("body", Text, nullable=False),  # JSON: one row per partition, in columns, see `store.lags`
)

# The members of a group when it was last Stable or Empty; its next generation is compared with them.
settled = Table(
    "settled",
    metadata,
    Column("group_key", String(64), primary_key=True),
    Column("cluster", String(255), nullable=False, index=True),
    Column("generation", BigInteger, nullable=False),
    Column("members", Text, nullable=False),
)

generations = Table(
    "generations",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("group_key", String(64), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("at_ms", BigInteger, nullable=False, index=True),
    Column("body", Text, nullable=False),
    UniqueConstraint("group_key", "generation", "at_ms"),
    Index("generations_of_group", "group_key", "at_ms"),
)

incidents = Table(
    "incidents",
    metadata,
    Column("incident_id", String(64), primary_key=True),
    Column("group_key", String(64), nullable=False),
    Column("cluster", String(255), nullable=False),
    Column("group_id", Text, nullable=False),
    Column("rule", String(64), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("opened_ms", BigInteger, nullable=False, index=True),
    Column("closed_ms", BigInteger, index=True),
    Column("reason", String(64)),
    Column("detected_ms", BigInteger, nullable=False),  # wall clock of the transaction that opened it
    Column("late", Boolean, nullable=False),  # happened while nobody watched: before this `run` started
    Column("notify", Boolean, nullable=False),  # its newest step was told; each receiver has its min_severity
    Column("labels", Text, nullable=False),
    Column("runbook_url", Text),
    Column("body", Text, nullable=False),  # `Incident.as_dict`
    Column("contract", Text, nullable=False),  # as `replay` prints it
    Column("transition", String(16), nullable=False),  # the newest one, except updates
    Index("incidents_of_group", "group_key", "opened_ms"),
    Index("incidents_by_cluster", "cluster", "opened_ms"),
    Index("incidents_by_rule", "rule", "opened_ms"),
    Index("incidents_by_severity", "severity", "opened_ms"),
)

transitions = Table(
    "transitions",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("incident_id", ForeignKey("incidents.incident_id", ondelete="CASCADE"), nullable=False, index=True),
    Column("group_key", String(64)),  # the incident's; to find a group's history
    Column("transition", String(16), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("written_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("transitions_of_group", "group_key", "at_ms"),
)

# Messages to deliver. `run` writes one row per transition (with an empty receiver); only `serve` knows the receivers,
# and replaces the row by one for each of them.
outbox = Table(
    "outbox",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("incident_id", String(64), nullable=False, index=True),
    Column("transition", String(16), nullable=False),
    Column("severity", String(16), nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("receiver", String(255), nullable=False),
    Column("payload", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_ms", BigInteger, nullable=False),
    Column("delivered_ms", BigInteger),
    Column("dead", Boolean, nullable=False),
    Column("last_error", Text),
    Column("dismissed_ms", BigInteger, index=True),  # not sent, because too late: see `notify_reason.outdated`
    Index("outbox_pending", "receiver", "delivered_ms", "dead", "incident_id"),
)

# Which `serve` delivers messages if several share the database: see `serve.leader`.
leases = Table(
    "leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("renewals", BigInteger, nullable=False),
)

# Which `run` writes a cluster: see `store.lease`. Instants by the database's clock.
run_leases = Table(
    "run_leases",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("acquired_ms", BigInteger, nullable=False),
    Column("renewed_ms", BigInteger, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("cluster", String(255), nullable=False),
    Column("source", String(32), nullable=False),
    Column("topic", String(255), nullable=False),
    Column("partition", Integer, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("timestamp_ms", BigInteger, nullable=False),
    Column("reason", String(200), nullable=False),
    Column("head", LargeBinary, nullable=False),
    UniqueConstraint("cluster", "topic", "partition", "offset"),
)

shards = Table(
    "shards",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("shard", Integer, primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("held", Integer, nullable=False),  # rows that wait for a slower source
)

brokers = Table(
    "brokers",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("broker", String(255), primary_key=True),
    Column("progress_ms", BigInteger, nullable=False),
    Column("covered", Boolean, nullable=False),
    Column("delay_ms", BigInteger),
)

# When lines of a broker are missing, so that it is not known why its members left: see
# `coordinator_model.brokers.blindness`.
blind_windows = Table(
    "blind_windows",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("broker", String(255), primary_key=True),
    Column("from_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger),  # NULL: they still are
    Column("why", String(32), nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# The results of the newest check of data quality, one row per expectation: see `streaming.quality`.
quality = Table(
    "quality",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("suite", String(64), primary_key=True),
    Column("expectation", String(200), primary_key=True),
    Column("success", Boolean, nullable=False),
    Column("checked_ms", BigInteger, nullable=False),
    Column("unexpected", Integer, nullable=False),  # how many values in the sample
    Column("sample", Text, nullable=False),  # JSON: some of them
)
