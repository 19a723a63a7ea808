"""What of an output expired, what of it was lost, and the gaps of what was lost."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Widen a check and add two tables; all rows stay. SQLite cannot alter a check, so there the table is copied."""
    with op.batch_alter_table("gap", copy_from=gap_before()) as table:
        table.drop_constraint(op.f("ck_gap_cause"), type_="check")
        table.create_check_constraint(
            op.f("ck_gap_cause"), "cause IN ('retention', 'skipped', 'behind', 'reset', 'output_lost')"
        )
    op.create_table(
        "removed_range",
        sa.Column("range_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_removed_range_offsets")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_removed_range_feed")),
        sa.PrimaryKeyConstraint("range_id", name=op.f("pk_removed_range")),
        comment="which committed offsets were let expire from the output; neighbours are one row",
    )
    op.create_index("ix_removed_range_feed", "removed_range", ["feed_id", "topic", "partition"])
    op.create_table(
        "lost_range",
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_lost_range_offsets")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_lost_range_feed")),
        sa.PrimaryKeyConstraint("feed_id", "batch_id", "file", "topic", "partition", name=op.f("pk_lost_range")),
        comment="what published files held that were lost; their batches were committed without it, as it turned out",
    )


def gap_before() -> sa.Table:
    """Return ``gap`` as version 0006 has it."""
    return sa.Table(
        "gap",
        sa.MetaData(),
        sa.Column("gap_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("closed_by_batch", sa.Uuid(), nullable=True),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_gap_offsets")),
        sa.CheckConstraint("cause IN ('retention', 'skipped', 'behind', 'reset')", name=op.f("ck_gap_cause")),
        sa.ForeignKeyConstraint(["closed_by_batch"], ["batch.batch_id"], name=op.f("fk_gap_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_gap_feed")),
        sa.PrimaryKeyConstraint("gap_id", name=op.f("pk_gap")),
        sa.Index("ix_gap_feed", "feed_id", "topic", "partition"),
    )
