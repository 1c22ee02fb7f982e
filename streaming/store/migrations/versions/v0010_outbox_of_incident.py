"""Messages of an incident: who got one also gets its end, and the whole outbox was read to find them."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Index the incident."""
    op.create_index("ix_outbox_incident_id", "outbox", ["incident_id"])
