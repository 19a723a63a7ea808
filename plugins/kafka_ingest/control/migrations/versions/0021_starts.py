"""Starts that were asked for of feeds with start_when."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add two empty columns."""
    for column in (
        sa.Column("start_position", sa.Text(), comment="the stored offsets for which a start was asked for last"),
        sa.Column("start_asked_at", sa.DateTime(timezone=True), comment="… and when"),
    ):
        op.add_column("feed", column)
