"""The first control tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "feed",
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cluster_id", sa.Text(), nullable=False),
        sa.Column("topics", sa.JSON(), nullable=False, comment="the topics of the last plan"),
        sa.Column(
            "revision", sa.BigInteger(), nullable=False, comment="grows with every write to the feed's control rows"
        ),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("feed_id", name=op.f("pk_feed")),
        sa.UniqueConstraint("name", name=op.f("uq_feed_name")),
        comment="one row a feed; its lock is the lock of everything below it",
    )
    op.create_table(
        "batch",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False, comment="frozen: what is read, from where, and where it goes"),
        sa.Column("plan_fingerprint", sa.Text(), nullable=False),
        sa.Column("planned_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("planned_by", sa.Text(), nullable=False),
        sa.Column(
            "pinned_attempt",
            sa.Integer(),
            nullable=True,
            comment="the attempt whose receipt counts; none other can be committed",
        ),
        sa.Column("rows", sa.BigInteger(), nullable=True, comment="from the pinned receipt"),
        sa.Column("size_bytes", sa.BigInteger(), nullable=True, comment="from the pinned receipt"),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "ledger_after",
            sa.BigInteger(),
            nullable=True,
            comment="its published receipt carries the seeds, gaps and resets after this event",
        ),
        sa.Column("ledger_upto", sa.BigInteger(), nullable=True, comment="… up to and with this one"),
        sa.Column("committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("committed_by", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it was abandoned"),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
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
            name="fk_batch_pinned_attempt",
            use_alter=True,
        ),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_batch_feed")),
        sa.PrimaryKeyConstraint("batch_id", name=op.f("pk_batch")),
    )
    op.create_index("ix_batch_feed", "batch", ["feed_id", "planned_at"], unique=False)
    op.create_index(
        "uq_batch_open_live",
        "batch",
        ["feed_id"],
        unique=True,
        sqlite_where=sa.text("kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"),
        postgresql_where=sa.text("kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"),
    )
    op.create_table(
        "attempt",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column(
            "directory", sa.Text(), nullable=False, comment="absolute; receipts are found here, never by listing"
        ),
        sa.Column("document_sha256", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("opened_by", sa.Text(), nullable=False),
        sa.Column("receipt_sha256", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True, comment="why it was discarded"),
        sa.CheckConstraint("(state = 'DISCARDED') = (reason IS NOT NULL)", name=op.f("ck_attempt_discarded")),
        sa.CheckConstraint("state <> 'PINNED' OR receipt_sha256 IS NOT NULL", name=op.f("ck_attempt_pinned")),
        sa.CheckConstraint("state IN ('OPEN', 'PINNED', 'DISCARDED')", name=op.f("ck_attempt_state")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_attempt_number")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_attempt_batch")),
        sa.PrimaryKeyConstraint("batch_id", "attempt", name=op.f("pk_attempt")),
    )
    if (
        op.get_bind().dialect.name != "sqlite"
    ):  # SQLite took it above: it cannot add one later, nor needs the other table
        op.create_foreign_key(
            "fk_batch_pinned_attempt", "batch", "attempt", ["batch_id", "pinned_attempt"], ["batch_id", "attempt"]
        )
    op.create_index(
        "uq_attempt_pinned",
        "attempt",
        ["batch_id"],
        unique=True,
        sqlite_where=sa.text("state = 'PINNED'"),
        postgresql_where=sa.text("state = 'PINNED'"),
    )
    op.create_table(
        "batch_range",
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=True),
        sa.Column("start_offset", sa.BigInteger(), nullable=False),
        sa.Column("end_offset", sa.BigInteger(), nullable=False),
        sa.Column("leader_epoch", sa.Integer(), nullable=True),
        sa.Column("rows", sa.BigInteger(), nullable=True, comment="null before WRITTEN"),
        sa.Column("filtered", sa.BigInteger(), nullable=True),
        sa.Column("dead_letters", sa.BigInteger(), nullable=True),
        sa.Column(
            "invisible",
            sa.BigInteger(),
            nullable=True,
            comment="offsets without a record: compacted, aborted, transaction markers",
        ),
        sa.Column("smallest_offset", sa.BigInteger(), nullable=True),
        sa.Column("largest_offset", sa.BigInteger(), nullable=True),
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
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_batch_range_offsets")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_batch_range_batch")),
        sa.PrimaryKeyConstraint("batch_id", "topic", "partition", name=op.f("pk_batch_range")),
        comment="the non-empty ranges of a batch",
    )
    op.create_table(
        "event",
        sa.Column("event_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_event_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_event_feed")),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_event")),
        comment="append-only audit journal",
    )
    op.create_index("ix_event_feed", "event", ["feed_id", "event_id"], unique=False)
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
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_by_batch", sa.Uuid(), nullable=True),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_gap_offsets")),
        sa.ForeignKeyConstraint(["closed_by_batch"], ["batch.batch_id"], name=op.f("fk_gap_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_gap_feed")),
        sa.PrimaryKeyConstraint("gap_id", name=op.f("pk_gap")),
        comment="intervals that will not be ingested, or not yet: who or what decided it, when and why",
    )
    op.create_index("ix_gap_feed", "gap", ["feed_id", "topic", "partition"], unique=False)
    op.create_table(
        "stored_offset",
        sa.Column("feed_id", sa.Uuid(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.Integer(), nullable=False),
        sa.Column(
            "topic_id",
            sa.Text(),
            nullable=True,
            comment="Kafka's UUID of the topic (KIP-516); null where brokers do not know it",
        ),
        sa.Column("first_offset", sa.BigInteger(), nullable=True),
        sa.Column("next_offset", sa.BigInteger(), nullable=True, comment="the next offset to read: the truth"),
        sa.Column("seeded_by", sa.Text(), nullable=False, comment="the start rule that decided"),
        sa.Column("leader_epoch", sa.Integer(), nullable=True),
        sa.Column("batch_id", sa.Uuid(), nullable=True, comment="the batch that moved it last"),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(first_offset IS NULL) = (next_offset IS NULL)", name=op.f("ck_stored_offset_pending")),
        sa.CheckConstraint("next_offset >= 0 AND first_offset >= 0", name=op.f("ck_stored_offset_offsets")),
        sa.CheckConstraint("partition >= 0", name=op.f("ck_stored_offset_partition")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_stored_offset_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_stored_offset_feed")),
        sa.PrimaryKeyConstraint("feed_id", "topic", "partition", name=op.f("pk_stored_offset")),
        comment="one row a partition of a feed; null offsets: the seed is pending",
    )
