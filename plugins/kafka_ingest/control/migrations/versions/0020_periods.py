"""Complete hours and days of feeds that ask for them."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add an empty table."""
    op.create_table(
        "period",
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("began_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("completed_at", sa.DateTime(timezone=True), comment="null of the one that is waited for"),
        sa.Column("completed_by", sa.Text()),
        sa.Column(
            "late_rows",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="landed since it was complete",
        ),
        sa.Column("announced_at", sa.DateTime(timezone=True), comment="when Airflow had recorded its newest event"),
        sa.Column(
            "announced_rows",
            sa.BigInteger(),
            nullable=False,
            server_default="0",
            comment="late rows that are announced",
        ),
        sa.Column("success_file_at", sa.DateTime(timezone=True)),
        sa.Column(
            "counted_batch", sa.Uuid(), comment="of the one that is waited for: late rows are counted up to this batch"
        ),
        sa.CheckConstraint("unit IN ('hour', 'day')", name=op.f("ck_period_unit")),
        sa.CheckConstraint("(completed_at IS NULL) = (completed_by IS NULL)", name=op.f("ck_period_completed")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_period_feed")),
        sa.PrimaryKeyConstraint("feed_id", "unit", "began_at", name=op.f("pk_period")),
        comment="hours and days that are complete, of feeds that ask for it",
    )
    op.create_index(
        "uq_period_waiting",
        "period",
        ["feed_id", "unit"],
        unique=True,
        sqlite_where=sa.text("completed_at IS NULL"),
        postgresql_where=sa.text("completed_at IS NULL"),
    )
    op.create_index(
        "ix_period_to_announce",
        "period",
        ["feed_id", "unit", "began_at"],
        sqlite_where=sa.text("announced_at IS NULL OR announced_rows < late_rows"),
        postgresql_where=sa.text("announced_at IS NULL OR announced_rows < late_rows"),
    )
    op.create_index(
        "ix_period_to_mark",
        "period",
        ["feed_id", "unit", "began_at"],
        sqlite_where=sa.text("success_file_at IS NULL"),
        postgresql_where=sa.text("success_file_at IS NULL"),
    )
