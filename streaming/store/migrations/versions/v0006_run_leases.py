"""Which `run` writes a cluster: two at once closed each other's incidents."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Make the table of leases."""
    op.create_table(
        "run_leases",
        sa.Column("cluster", sa.String(length=255), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("acquired_ms", sa.BigInteger(), nullable=False),
        sa.Column("renewed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("cluster"),
    )
