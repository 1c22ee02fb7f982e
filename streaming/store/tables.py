"""Every table. Instants are epoch milliseconds; JSON is text, written with ASCII escapes.

A group id may be 32 kB long and hold any character (Kafka checks neither), PostgreSQL indexes no value beyond
2.7 kB and stores no NUL: so rows are found by `group_key`, a hash of cluster and group id, while `group_id` is a
cleaned copy for people and the JSON beside it has the true text.
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
)

metadata = MetaData()
_Id = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only an INTEGER PRIMARY KEY

# The newest batch of a checkpoint: Spark replays a batch after a crash, its numbers only grow.
applied_batches = Table(
    "applied_batches",
    metadata,
    Column("checkpoint_id", String(200), primary_key=True),
    Column("batch_id", BigInteger, nullable=False),
    Column("applied_ms", BigInteger, nullable=False),
)

# One row a cluster: is its `run` alive, and has it caught up?
runs = Table(
    "runs",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("checkpoint_id", String(200), nullable=False),
    Column("batch_id", BigInteger, nullable=False),
    Column("alive_ms", BigInteger, nullable=False),
    Column("caught_up", Boolean, nullable=False),
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
    Column("worst_poll_headroom", Float),  # likewise of max.poll.interval.ms, of those whose clients tell
    Column("at_ms", BigInteger, nullable=False),
    Column("checkpoint_id", String(200), nullable=False),  # whoever wrote it last: see `store.vanished`
    Column("heartbeats", Text),  # JSON: the members' last ones as of at_ms, in the view's order; NULL: as in the view
)

# What a group's row is about, whole. Of its own, for it is twenty times as long as the row and stays the same while
# only heartbeats come: SQLite writes all pages of a row anew.
views = Table(
    "views",
    metadata,
    Column("group_key", ForeignKey("groups.group_key", ondelete="CASCADE"), primary_key=True),
    Column("view", Text, nullable=False),
)

# How far behind a group is, as it was judged last. No foreign key: a judgement may come before the group's first view.
# It is shown only together with its group.
lags = Table(
    "lags",
    metadata,
    Column("group_key", String(64), primary_key=True),
    Column("cluster", String(255), nullable=False, index=True),
    Column("group_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),  # when the end offsets were asked
    Column("lag", BigInteger),  # of all partitions whose lag is known; NULL: of none
    Column("status", String(16), nullable=False),  # the worst that is known of its partitions
    Column("complete", Boolean, nullable=False),  # the lag of every partition with a commit is known
    Column("partitions", Integer, nullable=False),
    Column("checkpoint_id", String(200), nullable=False),
    Column("body", Text, nullable=False),  # JSON: a row a partition, in columns, see `store.lags`
)

# Who was in a group when it last was Stable or Empty: what its next generation is compared with.
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
    Column("notify", Boolean, nullable=False),  # somebody was told of it
    Column("labels", Text, nullable=False),
    Column("runbook_url", Text),
    Column("body", Text, nullable=False),  # `Incident.as_dict`
    Column("contract", Text, nullable=False),  # as `replay` prints it
    Column("transition", String(16), nullable=False),  # the newest one that people were told
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
    Column("group_key", String(64)),  # the incident's: what a group's history is found by
    Column("transition", String(16), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("written_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Index("transitions_of_group", "group_key", "at_ms"),
)

# What still has to be said. `run` writes one row a transition (receiver empty); `serve` alone knows the receivers
# and replaces it by one row for each.
outbox = Table(
    "outbox",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("incident_id", String(64), nullable=False),
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
    Column("dismissed_ms", BigInteger, index=True),  # not sent, for it came too late: see `notify_reason.outdated`
    Index("outbox_pending", "receiver", "delivered_ms", "dead", "incident_id"),
)

# Which `serve` delivers, where several share the database: see `serve.leader`.
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

# When lines of a broker are missing, so that nobody can say why its members went: see
# `coordinator_model.brokers.blindness`.
blind_windows = Table(
    "blind_windows",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("broker", String(255), primary_key=True),
    Column("from_ms", BigInteger, primary_key=True),
    Column("until_ms", BigInteger),  # None: they still are
    Column("why", String(32), nullable=False),
)

counters = Table(
    "counters",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("value", BigInteger, nullable=False),
)

# What the newest check of data quality said, one row an expectation: see `streaming.quality`.
quality = Table(
    "quality",
    metadata,
    Column("cluster", String(255), primary_key=True),
    Column("suite", String(64), primary_key=True),
    Column("expectation", String(200), primary_key=True),
    Column("success", Boolean, nullable=False),
    Column("checked_ms", BigInteger, nullable=False),
    Column("unexpected", Integer, nullable=False),  # how many values of the sample
    Column("sample", Text, nullable=False),  # JSON: some of them
)
