"""Lags: how far behind groups are."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "lags",
        sa.Column("group_key", sa.String(64), primary_key=True),
        sa.Column("cluster", sa.String(255), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("lag", sa.BigInteger()),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("partitions", sa.Integer(), nullable=False),
        sa.Column("checkpoint_id", sa.String(200), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_index("ix_lags_cluster", "lags", ["cluster"])
