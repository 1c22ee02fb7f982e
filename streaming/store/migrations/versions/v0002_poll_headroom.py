"""The least poll headroom of a group's members: members worst off are found without reading every view."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; a group's row fills it when it is next written."""
    op.add_column("groups", sa.Column("worst_poll_headroom", sa.Float(), nullable=True))
