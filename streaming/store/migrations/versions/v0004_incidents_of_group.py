"""Incidents of a group, newest first: of a group with 10,000 all were put in order for a page of 200."""

from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Widen the index of the group by the instant that the answer is ordered by."""
    op.create_index("incidents_of_group", "incidents", ["group_key", "opened_ms"])
    op.drop_index("ix_incidents_group_key", "incidents")
