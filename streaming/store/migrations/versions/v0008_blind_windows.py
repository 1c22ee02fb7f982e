"""Blind windows: when lines of a broker are missing."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make their table."""
    op.create_table(
        "blind_windows",
        sa.Column("cluster", sa.String(255), primary_key=True),
        sa.Column("broker", sa.String(255), primary_key=True),
        sa.Column("from_ms", sa.BigInteger(), primary_key=True),
        sa.Column("until_ms", sa.BigInteger()),
        sa.Column("why", sa.String(32), nullable=False),
    )
