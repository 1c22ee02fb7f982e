"""Messages that came too late to be sent: an opening of days ago was sent just before its closing."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Note when a message was dismissed."""
    op.add_column("outbox", sa.Column("dismissed_ms", sa.BigInteger()))
    op.create_index("ix_outbox_dismissed_ms", "outbox", ["dismissed_ms"])
