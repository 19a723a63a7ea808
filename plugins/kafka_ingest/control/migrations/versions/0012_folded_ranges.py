"""What old live batches have read, summed up; such a batch has neither ranges nor attempts of its own any more."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

OPEN_LIVE = "kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"
FOLDED_AT = "since when its ranges are in folded_range alone, and its attempts gone"
TO_FOLD = "kind = 'live' AND state = 'COMMITTED' AND folded_at IS NULL"


def upgrade() -> None:
    """Add a table, a column and two checks; nothing is folded yet. SQLite cannot alter a check: ``batch`` is copied."""
    with op.batch_alter_table("batch", copy_from=batch_before()) as table:
        folded_at = sa.Column("folded_at", sa.DateTime(timezone=True), nullable=True, comment=FOLDED_AT)
        table.add_column(folded_at)
        table.drop_constraint(op.f("ck_batch_pinned"), type_="check")
        table.create_check_constraint(
            op.f("ck_batch_pinned"),
            "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR "
            "(state IN ('WRITTEN', 'COMMITTING', 'COMMITTED') AND rows IS NOT NULL "
            "AND (pinned_attempt IS NULL) = (folded_at IS NOT NULL))",
        )
        table.create_check_constraint(
            op.f("ck_batch_folded"),
            "folded_at IS NULL OR (state = 'COMMITTED' AND kind = 'live' AND NOT to_announce)",
        )
    op.create_index(
        "ix_batch_to_fold",
        "batch",
        ["feed_id", "committed_at"],
        sqlite_where=sa.text(TO_FOLD),
        postgresql_where=sa.text(TO_FOLD),
    )
    op.create_table(
        "folded_range",
        sa.Column("folded_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in (
                *("start_offset", "end_offset"),
                *("rows", "filtered", "dead_letters", "invisible", "batches"),
            )
        ),
        sa.Column("oldest_commit", sa.DateTime(timezone=True), nullable=False),
        sa.Column("newest_commit", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_folded_range_offsets")),
        sa.CheckConstraint(
            "rows >= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 "
            "AND rows + filtered + dead_letters + invisible = end_offset - start_offset",
            name=op.f("ck_folded_range_accounted"),
        ),
        sa.CheckConstraint("batches >= 1 AND oldest_commit <= newest_commit", name=op.f("ck_folded_range_batches")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_folded_range_feed")),
        sa.PrimaryKeyConstraint("folded_id", name=op.f("pk_folded_range")),
        comment="what old live batches have read, summed up: ranges that follow each other are one",
    )
    op.create_index("ix_folded_range_feed", "folded_range", ["feed_id", "topic", "partition"])


def batch_before() -> sa.Table:
    """Return ``batch`` as version 0011 has it."""
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
        sa.CheckConstraint("(state = 'ABANDONED') = (reason IS NOT NULL)", name=op.f("ck_batch_abandoned")),
        sa.CheckConstraint("(state = 'COMMITTED') = (committed_at IS NOT NULL)", name=op.f("ck_batch_committed")),
        sa.CheckConstraint(
            "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR "
            "(state IN ('WRITTEN', 'COMMITTING', 'COMMITTED') AND pinned_attempt IS NOT NULL AND rows IS NOT NULL)",
            name=op.f("ck_batch_pinned"),
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
        sa.Index("ix_batch_to_announce", "feed_id", sqlite_where=sa.text("to_announce")),
        sa.Index("uq_batch_open_live", "feed_id", unique=True, sqlite_where=sa.text(OPEN_LIVE)),
    )
