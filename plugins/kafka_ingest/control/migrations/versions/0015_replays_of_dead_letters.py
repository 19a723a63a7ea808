"""Batches that replay dead letters of earlier ones, and how many of each range they have taken up."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

OPEN_LIVE = "kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"
TO_FOLD = "kind = 'live' AND state = 'COMMITTED' AND folded_at IS NULL"


def upgrade() -> None:
    """Widen a check and add a column with one; all rows stay. SQLite cannot alter a check: both tables are copied."""
    with op.batch_alter_table("batch", copy_from=batch_before()) as table:
        table.drop_constraint(op.f("ck_batch_kind"), type_="check")
        table.create_check_constraint(
            op.f("ck_batch_kind"), "kind IN ('live', 'backfill', 'copy', 'replace', 'replay')"
        )
    with op.batch_alter_table("batch_range", copy_from=batch_range_before()) as table:
        table.add_column(
            sa.Column(
                "replayed",
                sa.BigInteger(),
                nullable=False,
                server_default="0",
                comment="how many of its dead letters committed replays have taken up: they count there",
            )
        )
        table.create_check_constraint(
            op.f("ck_batch_range_replayed"),
            "replayed = 0 OR (replayed > 0 AND dead_letters IS NOT NULL AND replayed <= dead_letters)",
        )


def batch_before() -> sa.Table:
    """Return ``batch`` as version 0014 has it."""
    not_committed, not_live = sa.text("state <> 'COMMITTED'"), sa.text("kind <> 'live'")
    return sa.Table(
        "batch",
        sa.MetaData(),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("plan_fingerprint", sa.Text(), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("planned_by", sa.Text(), nullable=False),
        sa.Column("pinned_attempt", sa.Integer(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ledger_after", sa.BigInteger(), nullable=True),
        sa.Column("ledger_upto", sa.BigInteger(), nullable=True),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("committed_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("abandoned_by", sa.Text(), nullable=True),
        sa.Column("to_announce", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("folded_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("left_out", sa.JSON(), nullable=True),
        sa.CheckConstraint("(state = 'ABANDONED') = (reason IS NOT NULL)", name=op.f("ck_batch_abandoned")),
        sa.CheckConstraint("(state = 'COMMITTED') = (committed_at IS NOT NULL)", name=op.f("ck_batch_committed")),
        sa.CheckConstraint(
            "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR "
            "(state IN ('WRITTEN', 'COMMITTING', 'COMMITTED') AND rows IS NOT NULL "
            "AND (pinned_attempt IS NULL) = (folded_at IS NOT NULL))",
            name=op.f("ck_batch_pinned"),
        ),
        sa.CheckConstraint(
            "folded_at IS NULL OR (state = 'COMMITTED' AND kind = 'live' AND NOT to_announce)",
            name=op.f("ck_batch_folded"),
        ),
        sa.CheckConstraint("kind IN ('live', 'backfill', 'copy', 'replace')", name=op.f("ck_batch_kind")),
        sa.CheckConstraint(
            "state IN ('PLANNED', 'WRITTEN', 'COMMITTING', 'COMMITTED', 'ABANDONED')", name=op.f("ck_batch_state")
        ),
        sa.ForeignKeyConstraint(
            ["batch_id", "pinned_attempt"],
            ["attempt.batch_id", "attempt.attempt"],
            name="fk_batch_pinned_attempt",
        ),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_batch_feed")),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batch")),
        sa.Index("ix_batch_feed", "feed_id", "planned_at"),
        sa.Index("ix_batch_planned", "planned_at"),
        sa.Index("ix_batch_ids", "feed_id", "batch_id"),
        sa.Index("ix_batch_published", "feed_id", "kind", "state", "batch_id"),
        sa.Index("ix_batch_sums", "feed_id", "kind", "state", "committed_at", "rows"),
        sa.Index("ix_batch_not_committed", "feed_id", "updated_at", sqlite_where=not_committed),
        sa.Index("ix_batch_not_live", "feed_id", "planned_at", sqlite_where=not_live),
        sa.Index("ix_batch_to_fold", "feed_id", "committed_at", sqlite_where=sa.text(TO_FOLD)),
        sa.Index("ix_batch_to_announce", "feed_id", sqlite_where=sa.text("to_announce")),
        sa.Index("uq_batch_open_live", "feed_id", unique=True, sqlite_where=sa.text(OPEN_LIVE)),
    )


def batch_range_before() -> sa.Table:
    """Return ``batch_range`` as version 0014 has it."""
    return sa.Table(
        "batch_range",
        sa.MetaData(),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("filtered", sa.BigInteger(), nullable=True),
        sa.Column("dead_letters", sa.BigInteger(), nullable=True),
        sa.Column("invisible", sa.BigInteger(), nullable=True),
        sa.Column("smallest_offset", sa.BigInteger(), nullable=True),
        sa.Column("largest_offset", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_batch_range_offsets")),
        sa.CheckConstraint(
            "(rows IS NULL AND filtered IS NULL AND dead_letters IS NULL AND invisible IS NULL) OR "
            "(rows IS NOT NULL AND filtered IS NOT NULL AND dead_letters IS NOT NULL AND invisible IS NOT NULL "
            "AND rows >= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 "
            "AND rows + filtered + dead_letters + invisible = end_offset - start_offset)",
            name=op.f("ck_batch_range_accounted"),
        ),
        sa.CheckConstraint(
            "smallest_offset >= start_offset AND largest_offset < end_offset", name=op.f("ck_batch_range_inside")
        ),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_batch_range_batch")),
        sa.PrimaryKeyConstraint("batch_id", "topic", "partition", name=op.f("pk_batch_range")),
        sa.Index("ix_batch_range_dead_letters", "batch_id", sqlite_where=sa.text("dead_letters > 0")),
    )
