"""Copies beside backfills, gaps of forward resets, and quick ways to backfills and dead letters."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

OPEN_LIVE = "kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"


def upgrade() -> None:
    """Widen two checks and add two indexes; all rows stay. SQLite cannot alter a check: the tables are copied."""
    with op.batch_alter_table("batch", copy_from=batch_before()) as table:
        table.drop_constraint(op.f("ck_batch_kind"), type_="check")
        table.create_check_constraint(op.f("ck_batch_kind"), "kind IN ('live', 'backfill', 'copy')")
    with op.batch_alter_table("gap", copy_from=gap_before()) as table:
        table.drop_constraint(op.f("ck_gap_cause"), type_="check")
        table.create_check_constraint(op.f("ck_gap_cause"), "cause IN ('retention', 'skipped', 'behind', 'reset')")
    not_live, dead_letters = sa.text("kind <> 'live'"), sa.text("dead_letters > 0")
    op.create_index("ix_batch_not_live", "batch", ["feed_id"], sqlite_where=not_live, postgresql_where=not_live)
    op.create_index("ix_batch_sums", "batch", ["feed_id", "kind", "state", "committed_at", "rows"])
    op.create_index(
        "ix_batch_range_dead_letters",
        "batch_range",
        ["batch_id"],
        sqlite_where=dead_letters,
        postgresql_where=dead_letters,
    )


def batch_before() -> sa.Table:
    """Return ``batch`` as version 0004 has it."""
    return sa.Table(
        "batch",
        sa.MetaData(),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False, comment="frozen: what is read, from where, and where it goes"),
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
        sa.CheckConstraint("(state = 'ABANDONED') = (reason IS NOT NULL)", name=op.f("ck_batch_abandoned")),
        sa.CheckConstraint("(state = 'COMMITTED') = (committed_at IS NOT NULL)", name=op.f("ck_batch_committed")),
        sa.CheckConstraint(
            "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR "
            "(state IN ('WRITTEN', 'COMMITTING', 'COMMITTED') AND pinned_attempt IS NOT NULL AND rows IS NOT NULL)",
            name=op.f("ck_batch_pinned"),
        ),
        sa.CheckConstraint("kind IN ('live', 'backfill')", name=op.f("ck_batch_kind")),
        sa.CheckConstraint(
            "state IN ('PLANNED', 'WRITTEN', 'COMMITTING', 'COMMITTED', 'ABANDONED')", name=op.f("ck_batch_state")
        ),
        sa.ForeignKeyConstraint(
            ["batch_id", "pinned_attempt"],
            ["attempt.batch_id", "attempt.attempt"],
            name=op.f("fk_batch_pinned_attempt"),
        ),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_batch_feed")),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batch")),
        sa.Index("ix_batch_feed", "feed_id", "planned_at"),
        sa.Index("uq_batch_open_live", "feed_id", unique=True, sqlite_where=sa.text(OPEN_LIVE)),
    )


def gap_before() -> sa.Table:
    """Return ``gap`` as version 0004 has it."""
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
        sa.CheckConstraint("cause IN ('retention', 'skipped', 'behind')", name=op.f("ck_gap_cause")),
        sa.ForeignKeyConstraint(["closed_by_batch"], ["batch.batch_id"], name=op.f("fk_gap_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_gap_feed")),
        sa.PrimaryKeyConstraint("gap_id", name=op.f("pk_gap")),
        sa.Index("ix_gap_feed", "feed_id", "topic", "partition"),
    )
