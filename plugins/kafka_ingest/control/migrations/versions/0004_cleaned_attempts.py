"""Attempts whose directories were removed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add a column; null: not removed, as far as the control tables know."""
    cleaned_at = sa.Column(
        "cleaned_at", sa.DateTime(timezone=True), nullable=True, comment="since when its directory is removed"
    )
    op.add_column("attempt", cleaned_at)
