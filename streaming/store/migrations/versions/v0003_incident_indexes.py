"""Incidents by cluster, rule or severity, newest first: at a million rows each such question looked at all of them."""

from alembic import op

revision = "0003"
down_revision = "0001"
_COLUMNS = ("cluster", "rule", "severity")


def upgrade() -> None:
    """Create the indexes."""
    for column in _COLUMNS:
        op.create_index(f"incidents_by_{column}", "incidents", [column, "opened_ms"])
