"""Gaps that lie ahead, holds, topics by pattern, and batches that wait for more records."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Change the tables. Nothing wrote gaps before this version, so that table is created again, with its checks."""
    op.add_column(
        "feed",
        sa.Column(
            "topic_pattern",
            sa.Text(),
            nullable=True,
            comment="the pattern of the last plan; null where its topics were listed",
        ),
    )
    op.add_column(
        "feed",
        sa.Column(
            "waiting_since",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="since when there are records, but fewer than min_records",
        ),
    )
    op.drop_table("gap")
    op.create_table(
        "gap",
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
        sa.Column(
            "applied_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="null while it lies ahead of the stored offset",
        ),
        sa.Column("closed_by_batch", sa.Uuid(), nullable=True, comment="the batch that read it after all"),
        sa.CheckConstraint("cause IN ('retention', 'skipped', 'behind')", name=op.f("ck_gap_cause")),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_gap_offsets")),
        sa.ForeignKeyConstraint(["closed_by_batch"], ["batch.batch_id"], name=op.f("fk_gap_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_gap_feed")),
        sa.PrimaryKeyConstraint("gap_id", name=op.f("pk_gap")),
        comment="intervals that will not be ingested, or not yet: who or what decided it, when and why",
    )
    op.create_index("ix_gap_feed", "gap", ["feed_id", "topic", "partition"], unique=False)
    op.create_table(
        "hold",
        sa.Column("hold_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=True, comment="null where the whole topic is held"),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_offset", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False, comment="when a plan first saw it"),
        sa.CheckConstraint(
            "(cause IN ('open_transaction', 'unreadable')) = (at_offset IS NOT NULL)", name=op.f("ck_hold_at_offset")
        ),
        sa.CheckConstraint(
            "cause IN ('no_answer', 'topic_missing', 'open_transaction', 'unreadable')", name=op.f("ck_hold_cause")
        ),
        sa.CheckConstraint("(cause = 'topic_missing') = (partition IS NULL)", name=op.f("ck_hold_partition")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_hold_feed")),
        sa.PrimaryKeyConstraint("hold_id", name=op.f("pk_hold")),
        comment="what takes no part in the feed's batches for now; every plan writes them anew",
    )
    op.create_index("ix_hold_feed", "hold", ["feed_id"], unique=False)
