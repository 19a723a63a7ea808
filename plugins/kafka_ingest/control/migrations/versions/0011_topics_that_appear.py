"""When a feed was planned last, and holds on topics that appeared since, of which nobody knows whether they are new."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

CAUSES = "'no_answer', 'topic_missing', 'topic_changed', 'open_transaction', 'unreadable', 'beyond_log', 'offsets_lost'"
CAUSES_NOW = f"{CAUSES}, 'new_or_older'"


def upgrade() -> None:
    """Add a column, which the next plan fills, and widen a check; SQLite cannot alter one: the table is copied."""
    op.add_column(
        "feed",
        sa.Column(
            "planned_at",
            sa.DateTime(timezone=True),
            nullable=True,
            comment="when the last plan asked Kafka which topics there are",
        ),
    )
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
        sa.CheckConstraint(
            "(cause IN ('topic_missing', 'topic_changed')) = (partition IS NULL)", name=op.f("ck_hold_partition")
        ),
        sa.CheckConstraint(
            "(cause IN ('open_transaction', 'unreadable', 'beyond_log', 'offsets_lost')) = (at_offset IS NOT NULL)",
            name=op.f("ck_hold_at_offset"),
        ),
        sa.CheckConstraint(f"cause IN ({CAUSES})", name=op.f("ck_hold_cause")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_hold_feed")),
        sa.PrimaryKeyConstraint("hold_id", name=op.f("pk_hold")),
        sa.Index("ix_hold_feed", "feed_id"),
        comment="what takes no part in the feed's batches for now; every plan writes them anew",
    )
    with op.batch_alter_table("hold", copy_from=before) as table:
        table.drop_constraint(op.f("ck_hold_cause"), type_="check")
        table.create_check_constraint(op.f("ck_hold_cause"), f"cause IN ({CAUSES_NOW})")
