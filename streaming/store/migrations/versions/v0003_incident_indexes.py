"""Incidents by cluster, rule or severity, transitions by group, newest first.

At a million rows each such question looked at all of them, or of a group's.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
_COLUMNS = ("cluster", "rule", "severity")
_OF_THE_INCIDENT = "SELECT group_key FROM incidents WHERE incidents.incident_id = transitions.incident_id"


def upgrade() -> None:
    """Create the indexes, and what one of them is of."""
    for column in _COLUMNS:
        op.create_index(f"incidents_by_{column}", "incidents", [column, "opened_ms"])
    op.add_column("transitions", sa.Column("group_key", sa.String(length=64), nullable=True))
    op.execute(f"UPDATE transitions SET group_key = ({_OF_THE_INCIDENT})")  # noqa: S608 - our own words
    op.create_index("transitions_of_group", "transitions", ["group_key", "at_ms"])
