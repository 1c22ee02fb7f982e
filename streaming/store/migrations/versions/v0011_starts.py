"""Whether `run` begins a query that has much to read: until its first batch ends, it may be silent for longer."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Note it beside whether the last batch had caught up."""
    op.add_column("runs", sa.Column("starts", sa.Boolean(), nullable=False, server_default=sa.false()))
