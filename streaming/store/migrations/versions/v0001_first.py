"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    _create_progress()
    _create_groups()
    _create_incidents()
    _create_outbox()
    _create_checks()


def _create_progress() -> None:
    op.create_table(
        "applied_batches",
        sa.Column("checkpoint_id", sa.String(length=200), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("applied_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("checkpoint_id"),
    )
    op.create_table(
        "brokers",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("broker", sa.String(length=255), nullable=False),
        sa.Column("progress_ms", sa.BigInteger(), nullable=False),
        sa.Column("covered", sa.Boolean(), nullable=False),
        sa.Column("delay_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("cluster", "broker"),
    )
    op.create_table(
        "shards",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "shard"),
    )
    op.create_table(
        "runs",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=200), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=False),
        sa.Column("alive_ms", sa.BigInteger(), nullable=False),
        sa.Column("caught_up", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
    )
    op.create_table(
        "counters",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "name"),
    )
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _create_groups() -> None:
    op.create_table(
        "groups",
        sa.Column("group_key", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=True),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("members_violated", sa.Integer(), nullable=False),
        sa.Column("members_unknown", sa.Integer(), nullable=False),
        sa.Column("worst_headroom", sa.Float(), nullable=True),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_id", sa.String(length=200), nullable=False),
        sa.Column("view", sa.Text(), nullable=False),
        sa.Column("heartbeats", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("group_key"),
    )
    op.create_index(op.f("ix_groups_cluster"), "groups", ["cluster"], unique=False)
    op.create_table(
        "settled",
        sa.Column("group_key", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("group_key"),
    )
    op.create_index(op.f("ix_settled_cluster"), "settled", ["cluster"], unique=False)
    op.create_table(
        "generations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("group_key", sa.String(length=64), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("group_key", "generation", "at_ms"),
    )
    op.create_index("generations_of_group", "generations", ["group_key", "at_ms"], unique=False)
    op.create_index(op.f("ix_generations_at_ms"), "generations", ["at_ms"], unique=False)


def _create_incidents() -> None:
    op.create_table(
        "incidents",
        sa.Column("incident_id", sa.String(length=64), nullable=False),
        sa.Column("group_key", sa.String(length=64), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.String(length=64), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.String(length=64), nullable=True),
        sa.Column("detected_ms", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.Boolean(), nullable=False),
        sa.Column("notify", sa.Boolean(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("runbook_url", sa.Text(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("contract", sa.Text(), nullable=False),
        sa.Column("transition", sa.String(length=16), nullable=False),
        sa.PrimaryKeyConstraint("incident_id"),
    )
    op.create_index(op.f("ix_incidents_closed_ms"), "incidents", ["closed_ms"], unique=False)
    op.create_index(op.f("ix_incidents_group_key"), "incidents", ["group_key"], unique=False)
    op.create_index(op.f("ix_incidents_opened_ms"), "incidents", ["opened_ms"], unique=False)
    op.create_table(
        "transitions",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("incident_id", sa.String(length=64), nullable=False),
        sa.Column("transition", sa.String(length=16), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("written_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["incident_id"], ["incidents.incident_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(op.f("ix_transitions_incident_id"), "transitions", ["incident_id"], unique=False)


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("incident_id", sa.String(length=64), nullable=False),
        sa.Column("transition", sa.String(length=16), nullable=False),
        sa.Column("severity", sa.String(length=16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("receiver", sa.String(length=255), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("next_attempt_ms", sa.BigInteger(), nullable=False),
        sa.Column("delivered_ms", sa.BigInteger(), nullable=True),
        sa.Column("dead", sa.Boolean(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("outbox_pending", "outbox", ["receiver", "delivered_ms", "dead", "incident_id"], unique=False)


def _create_checks() -> None:
    op.create_table(
        "quarantine",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("source", sa.String(length=32), nullable=False),
        sa.Column("topic", sa.String(length=255), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("timestamp_ms", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("head", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("cluster", "topic", "partition", "offset"),
    )
    op.create_table(
        "quality",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("suite", sa.String(length=64), nullable=False),
        sa.Column("expectation", sa.String(length=200), nullable=False),
        sa.Column("success", sa.Boolean(), nullable=False),
        sa.Column("checked_ms", sa.BigInteger(), nullable=False),
        sa.Column("unexpected", sa.Integer(), nullable=False),
        sa.Column("sample", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("cluster", "suite", "expectation"),
    )
