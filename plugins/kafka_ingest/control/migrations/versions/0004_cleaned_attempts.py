"""Attempts whose directories were removed, and who gave a batch up."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add columns; null: not removed, or not abandoned, as far as the control tables know."""
    cleaned_at = sa.Column(
        "cleaned_at", sa.DateTime(timezone=True), nullable=True, comment="since when its directory is removed"
    )
    op.add_column("attempt", cleaned_at)
    op.add_column("batch", sa.Column("abandoned_by", sa.Text(), nullable=True))
