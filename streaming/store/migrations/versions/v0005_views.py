"""Views of groups in a table of their own: each heartbeat of a group wrote its view, kilobytes, to the log again."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Move what the groups show."""
    op.create_table(
        "views",
        sa.Column("group_key", sa.String(length=64), nullable=False),
        sa.Column("view", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_key"], ["groups.group_key"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("group_key"),
    )
    op.execute("INSERT INTO views (group_key, view) SELECT group_key, view FROM groups")
    op.drop_column("groups", "view")
