"""Batches that replace the rows of earlier ones."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

OPEN_LIVE = "kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"
TO_FOLD = "kind = 'live' AND state = 'COMMITTED' AND folded_at IS NULL"


def upgrade() -> None:
    """Widen a check; all rows stay. SQLite cannot alter a check: ``batch`` is copied."""
    with op.batch_alter_table("batch", copy_from=batch_before()) as table:
        table.drop_constraint(op.f("ck_batch_kind"), type_="check")
        table.create_check_constraint(op.f("ck_batch_kind"), "kind IN ('live', 'backfill', 'copy', 'replace')")


def batch_before() -> sa.Table:
    """Return ``batch`` as version 0013 has it."""
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
        sa.CheckConstraint("kind IN ('live', 'backfill', 'copy')", name=op.f("ck_batch_kind")),
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
