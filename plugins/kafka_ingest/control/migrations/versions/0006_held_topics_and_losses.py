"""Holds on topics that were made again, and on partitions that lost records."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

CAUSES = "'no_answer', 'topic_missing', 'open_transaction', 'unreadable', 'beyond_log'"
CAUSES_NOW = (
    "'no_answer', 'topic_missing', 'topic_changed', 'open_transaction', 'unreadable', 'beyond_log', 'offsets_lost'"
)


def upgrade() -> None:
    """Widen the checks of ``hold``; its rows stay. SQLite cannot alter a check, so there the table is copied."""
    before = sa.Table(
        "hold",
        sa.MetaData(),
        sa.Column("hold_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=True, comment="null where the whole topic is held"),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_offset", sa.BigInteger(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False, comment="when a plan first saw it"),
        sa.CheckConstraint("(cause = 'topic_missing') = (partition IS NULL)", name=op.f("ck_hold_partition")),
        sa.CheckConstraint(
            "(cause IN ('open_transaction', 'unreadable', 'beyond_log')) = (at_offset IS NOT NULL)",
            name=op.f("ck_hold_at_offset"),
        ),
        sa.CheckConstraint(f"cause IN ({CAUSES})", name=op.f("ck_hold_cause")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_hold_feed")),
        sa.PrimaryKeyConstraint("hold_id", name=op.f("pk_hold")),
        sa.Index("ix_hold_feed", "feed_id"),
        comment="what takes no part in the feed's batches for now; every plan writes them anew",
    )
    with op.batch_alter_table("hold", copy_from=before) as table:
        table.drop_constraint(op.f("ck_hold_partition"), type_="check")
        table.create_check_constraint(
            op.f("ck_hold_partition"), "(cause IN ('topic_missing', 'topic_changed')) = (partition IS NULL)"
        )
        table.drop_constraint(op.f("ck_hold_at_offset"), type_="check")
        table.create_check_constraint(
            op.f("ck_hold_at_offset"),
            "(cause IN ('open_transaction', 'unreadable', 'beyond_log', 'offsets_lost')) = (at_offset IS NOT NULL)",
        )
        table.drop_constraint(op.f("ck_hold_cause"), type_="check")
        table.create_check_constraint(op.f("ck_hold_cause"), f"cause IN ({CAUSES_NOW})")
