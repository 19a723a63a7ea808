"""The control tables of version 0.1.0, the first that is upgraded for ever: frozen, to try upgrades of them."""

from typing import Any

import sqlalchemy as sa
from alembic import command, op
from alembic.migration import MigrationContext
from alembic.operations import Operations

from kafka_ingest.control.database import transaction
from kafka_ingest.control.schema import FIRST_VERSION
from kafka_ingest.control.upgrade import alembic_config

UUID, TEXT, NUMBER, LONG = sa.Uuid(), sa.Text(), sa.Integer(), sa.BigInteger()
DOCUMENT, TIME = sa.JSON(), sa.DateTime(timezone=True)


def where(condition: str) -> dict[str, Any]:
    """Return the condition of a partial index, for both databases."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


def make_first_schema(engine: sa.Engine) -> None:
    """Make the tables of version 0.1.0 in an empty database."""
    config = alembic_config()
    with transaction(engine, "upgrade") as connection:
        config.attributes["connection"] = connection
        with Operations.context(MigrationContext.configure(connection)):
            make_first_tables()
        command.stamp(config, FIRST_VERSION)


def make_first_tables() -> None:
    op.create_table(
        "feed",
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("cluster_id", TEXT, nullable=False),
        sa.Column("topics", DOCUMENT, nullable=False, comment="the topics of the last plan"),
        sa.Column("revision", LONG, nullable=False, comment="grows with every write to the feed's control rows"),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("topic_pattern", TEXT, comment="the pattern of the last plan; null where its topics were listed"),
        sa.Column("waiting_since", TIME, comment="since when there are records, but fewer than min_records"),
        sa.Column(
            "rows_committed",
            LONG,
            server_default="0",
            nullable=False,
            comment="what its batches have committed; copies not",
        ),
        sa.Column("planned_at", TIME, comment="when the last plan asked Kafka which topics there are"),
        sa.PrimaryKeyConstraint("feed_id", name=op.f("pk_feed")),
        sa.UniqueConstraint("name", name=op.f("uq_feed_name")),
        comment="one row a feed; its lock is the lock of everything below it",
    )
    op.create_table(
        "alert",
        sa.Column("alert_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("subject", TEXT, nullable=False, comment="which of several things of a kind; empty for the feed"),
        sa.Column("text", TEXT, nullable=False, comment="what was found when it began"),
        sa.Column("began_at", TIME, nullable=False),
        sa.Column("ended_at", TIME, comment="null while it holds"),
        sa.CheckConstraint(
            "kind IN ('lag', 'behind', 'headroom', 'open_batch', 'held', 'gap', 'stopped', 'unusable', 'unreachable')",
            name=op.f("ck_alert_kind"),
        ),
        sa.CheckConstraint("ended_at >= began_at", name=op.f("ck_alert_ended")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_alert_feed")),
        sa.PrimaryKeyConstraint("alert_id", name=op.f("pk_alert")),
        comment="what feeds ask to be notified of, as long as it holds and until its end was notified",
    )
    op.create_index(
        "uq_alert_current", "alert", ["feed_id", "kind", "subject"], unique=True, **where("ended_at IS NULL")
    )
    op.create_table(
        "batch",
        sa.Column("batch_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("plan", DOCUMENT, nullable=False, comment="frozen: what is read, from where, and where it goes"),
        sa.Column("plan_fingerprint", TEXT, nullable=False),
        sa.Column("planned_at", TIME, nullable=False),
        sa.Column("planned_by", TEXT, nullable=False),
        sa.Column("pinned_attempt", NUMBER, comment="the attempt whose receipt counts; none other can be committed"),
        sa.Column("rows", LONG, comment="from the pinned receipt"),
        sa.Column("size_bytes", LONG, comment="from the pinned receipt"),
        sa.Column("written_at", TIME),
        sa.Column(
            "ledger_after", LONG, comment="its published receipt carries the seeds, gaps and resets after this event"
        ),
        sa.Column("ledger_upto", LONG, comment="… up to and with this one"),
        sa.Column("committed_at", TIME),
        sa.Column("committed_by", TEXT),
        sa.Column("reason", TEXT, comment="why it was abandoned"),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column("abandoned_by", TEXT),
        sa.Column(
            "to_announce",
            sa.Boolean(),
            server_default=sa.false(),
            nullable=False,
            comment="committed by a DAG run, and its Asset event may not have been recorded",
        ),
        sa.Column("folded_at", TIME, comment="since when its ranges are in folded_range alone, and its attempts gone"),
        sa.Column(
            "left_out",
            DOCUMENT,
            comment="planned ranges that the pinned receipt leaves out, with their log starts; they have no "
            "batch_range",
        ),
        sa.Column("lag", LONG, comment="how many offsets a live batch's feed could read when it was planned"),
        sa.CheckConstraint("(state = 'ABANDONED') = (reason IS NOT NULL)", name=op.f("ck_batch_abandoned")),
        sa.CheckConstraint("(state = 'COMMITTED') = (committed_at IS NOT NULL)", name=op.f("ck_batch_committed")),
        sa.CheckConstraint(
            "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR (state IN ('WRITTEN', "
            "'COMMITTING', 'COMMITTED') AND rows IS NOT NULL AND (pinned_attempt IS NULL) = (folded_at IS NOT "
            "NULL))",
            name=op.f("ck_batch_pinned"),
        ),
        sa.CheckConstraint(
            "folded_at IS NULL OR (state = 'COMMITTED' AND kind = 'live' AND NOT to_announce)",
            name=op.f("ck_batch_folded"),
        ),
        sa.CheckConstraint("kind IN ('live', 'backfill', 'copy', 'replace', 'replay')", name=op.f("ck_batch_kind")),
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
    op.create_index("ix_batch_feed", "batch", ["feed_id", "planned_at"])
    op.create_index("ix_batch_ids", "batch", ["feed_id", "batch_id"])
    op.create_index("ix_batch_not_committed", "batch", ["feed_id", "updated_at"], **where("state <> 'COMMITTED'"))
    op.create_index("ix_batch_not_live", "batch", ["feed_id", "planned_at"], **where("kind <> 'live'"))
    op.create_index("ix_batch_planned", "batch", ["planned_at"])
    op.create_index("ix_batch_published", "batch", ["feed_id", "kind", "state", "batch_id"])
    op.create_index("ix_batch_sums", "batch", ["feed_id", "kind", "state", "committed_at", "rows"])
    op.create_index("ix_batch_to_announce", "batch", ["feed_id"], **where("to_announce"))
    op.create_index(
        "ix_batch_to_fold",
        "batch",
        ["feed_id", "committed_at"],
        **where("kind = 'live' AND state = 'COMMITTED' AND folded_at IS NULL"),
    )
    op.create_index(
        "uq_batch_open_live",
        "batch",
        ["feed_id"],
        unique=True,
        **where("kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"),
    )
    op.create_table(
        "folded_range",
        sa.Column("folded_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT),
        sa.Column("start_offset", LONG, nullable=False),
        sa.Column("end_offset", LONG, nullable=False),
        sa.Column("rows", LONG, nullable=False),
        sa.Column("filtered", LONG, nullable=False),
        sa.Column("dead_letters", LONG, nullable=False),
        sa.Column("invisible", LONG, nullable=False),
        sa.Column("batches", LONG, nullable=False),
        sa.Column("oldest_commit", TIME, nullable=False),
        sa.Column("newest_commit", TIME, nullable=False),
        sa.CheckConstraint("batches >= 1 AND oldest_commit <= newest_commit", name=op.f("ck_folded_range_batches")),
        sa.CheckConstraint(
            "rows >= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 AND rows + filtered + "
            "dead_letters + invisible = end_offset - start_offset",
            name=op.f("ck_folded_range_accounted"),
        ),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_folded_range_offsets")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_folded_range_feed")),
        sa.PrimaryKeyConstraint("folded_id", name=op.f("pk_folded_range")),
        comment="what old live batches have read, summed up: ranges that follow each other are one",
    )
    op.create_index("ix_folded_range_feed", "folded_range", ["feed_id", "topic", "partition"])
    op.create_table(
        "hold",
        sa.Column("hold_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, comment="null where the whole topic is held"),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("at_offset", LONG),
        sa.Column("since", TIME, nullable=False, comment="when a plan first saw it"),
        sa.CheckConstraint(
            "(cause IN ('open_transaction', 'unreadable', 'beyond_log', 'offsets_lost')) = (at_offset IS NOT NULL)",
            name=op.f("ck_hold_at_offset"),
        ),
        sa.CheckConstraint(
            "(cause IN ('topic_missing', 'topic_changed')) = (partition IS NULL)", name=op.f("ck_hold_partition")
        ),
        sa.CheckConstraint(
            "cause IN ('no_answer', 'topic_missing', 'topic_changed', 'open_transaction', 'unreadable', "
            "'beyond_log', 'offsets_lost', 'new_or_older')",
            name=op.f("ck_hold_cause"),
        ),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_hold_feed")),
        sa.PrimaryKeyConstraint("hold_id", name=op.f("pk_hold")),
        comment="what takes no part in the feed's batches for now; every plan writes them anew",
    )
    op.create_index("ix_hold_feed", "hold", ["feed_id"])
    op.create_table(
        "lost_range",
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("batch_id", UUID, nullable=False),
        sa.Column("file", TEXT, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT),
        sa.Column("start_offset", LONG, nullable=False),
        sa.Column("end_offset", LONG, nullable=False),
        sa.Column("rows", LONG, nullable=False),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_lost_range_offsets")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_lost_range_feed")),
        sa.PrimaryKeyConstraint("feed_id", "batch_id", "file", "topic", "partition", name=op.f("pk_lost_range")),
        comment="what published files held that were lost; their batches were committed without it, as it turned out",
    )
    op.create_table(
        "removed_range",
        sa.Column("range_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT),
        sa.Column("start_offset", LONG, nullable=False),
        sa.Column("end_offset", LONG, nullable=False),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_removed_range_offsets")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_removed_range_feed")),
        sa.PrimaryKeyConstraint("range_id", name=op.f("pk_removed_range")),
        comment="which committed offsets were let expire from the output; neighbours are one row",
    )
    op.create_index("ix_removed_range_feed", "removed_range", ["feed_id", "topic", "partition"])
    op.create_table(
        "alert_notice",
        sa.Column("alert_id", UUID, nullable=False),
        sa.Column("notifier", TEXT, nullable=False, comment="a hash of its class and arguments"),
        sa.Column("change", TEXT, nullable=False),
        sa.Column("claimed_at", TIME, comment="since when a process notifies; null where that failed"),
        sa.Column("said_at", TIME),
        sa.Column("error", TEXT, comment="why the newest try failed"),
        sa.CheckConstraint("change IN ('begun', 'ended')", name=op.f("ck_alert_notice_change")),
        sa.ForeignKeyConstraint(["alert_id"], ["alert.alert_id"], name=op.f("fk_alert_notice_alert")),
        sa.PrimaryKeyConstraint("alert_id", "notifier", "change", name=op.f("pk_alert_notice")),
        comment="what each notifier was given; a claim of a process that died expires",
    )
    op.create_table(
        "attempt",
        sa.Column("batch_id", UUID, nullable=False),
        sa.Column("attempt", NUMBER, nullable=False),
        sa.Column("state", TEXT, nullable=False),
        sa.Column("directory", TEXT, nullable=False, comment="absolute; receipts are found here, never by listing"),
        sa.Column("document_sha256", TEXT, nullable=False),
        sa.Column("opened_at", TIME, nullable=False),
        sa.Column("opened_by", TEXT, nullable=False),
        sa.Column("receipt_sha256", TEXT),
        sa.Column("reason", TEXT, comment="why it was discarded"),
        sa.Column("cleaned_at", TIME, comment="since when its directory is removed"),
        sa.CheckConstraint("(state = 'DISCARDED') = (reason IS NOT NULL)", name=op.f("ck_attempt_discarded")),
        sa.CheckConstraint("state <> 'PINNED' OR receipt_sha256 IS NOT NULL", name=op.f("ck_attempt_pinned")),
        sa.CheckConstraint("state IN ('OPEN', 'PINNED', 'DISCARDED')", name=op.f("ck_attempt_state")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_attempt_number")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_attempt_batch")),
        sa.PrimaryKeyConstraint("batch_id", "attempt", name=op.f("pk_attempt")),
    )
    op.create_index("ix_attempt_cleaned", "attempt", ["cleaned_at"])
    op.create_index("uq_attempt_pinned", "attempt", ["batch_id"], unique=True, **where("state = 'PINNED'"))
    op.create_table(
        "batch_range",
        sa.Column("batch_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT),
        sa.Column("start_offset", LONG, nullable=False),
        sa.Column("end_offset", LONG, nullable=False),
        sa.Column("leader_epoch", NUMBER),
        sa.Column("rows", LONG, comment="null before WRITTEN"),
        sa.Column("filtered", LONG),
        sa.Column("dead_letters", LONG),
        sa.Column("invisible", LONG, comment="offsets without a record: compacted, aborted, transaction markers"),
        sa.Column("smallest_offset", LONG),
        sa.Column("largest_offset", LONG),
        sa.Column(
            "replayed",
            LONG,
            server_default="0",
            nullable=False,
            comment="how many of its dead letters committed replays have taken up: they count there",
        ),
        sa.CheckConstraint(
            "(rows IS NULL AND filtered IS NULL AND dead_letters IS NULL AND invisible IS NULL) OR (rows IS "
            "NOT NULL AND filtered IS NOT NULL AND dead_letters IS NOT NULL AND invisible IS NOT NULL AND rows "
            ">= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 AND rows + filtered + "
            "dead_letters + invisible = end_offset - start_offset)",
            name=op.f("ck_batch_range_accounted"),
        ),
        sa.CheckConstraint(
            "replayed = 0 OR (replayed > 0 AND dead_letters IS NOT NULL AND replayed <= dead_letters)",
            name=op.f("ck_batch_range_replayed"),
        ),
        sa.CheckConstraint(
            "smallest_offset >= start_offset AND largest_offset < end_offset", name=op.f("ck_batch_range_inside")
        ),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_batch_range_offsets")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_batch_range_batch")),
        sa.PrimaryKeyConstraint("batch_id", "topic", "partition", name=op.f("pk_batch_range")),
        comment="the non-empty ranges of a batch",
    )
    op.create_index("ix_batch_range_dead_letters", "batch_range", ["batch_id"], **where("dead_letters > 0"))
    op.create_table(
        "event",
        sa.Column("event_id", LONG.with_variant(NUMBER, "sqlite"), nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("batch_id", UUID),
        sa.Column("kind", TEXT, nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.Column("who", TEXT, nullable=False),
        sa.Column("detail", DOCUMENT, nullable=False),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_event_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_event_feed")),
        sa.PrimaryKeyConstraint("event_id", name=op.f("pk_event")),
        comment="append-only audit journal",
    )
    op.create_index("ix_event_feed", "event", ["feed_id", "event_id"])
    op.create_index("ix_event_kind", "event", ["feed_id", "kind", "event_id"])
    op.create_table(
        "gap",
        sa.Column("gap_id", UUID, nullable=False),
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT),
        sa.Column("start_offset", LONG, nullable=False),
        sa.Column("end_offset", LONG, nullable=False),
        sa.Column("cause", TEXT, nullable=False),
        sa.Column("reason", TEXT, nullable=False),
        sa.Column("decided_by", TEXT, nullable=False),
        sa.Column("decided_at", TIME, nullable=False),
        sa.Column("applied_at", TIME, comment="null while it lies ahead of the stored offset"),
        sa.Column("closed_by_batch", UUID, comment="the batch that read it after all"),
        sa.CheckConstraint(
            "cause IN ('retention', 'skipped', 'behind', 'reset', 'output_lost')", name=op.f("ck_gap_cause")
        ),
        sa.CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name=op.f("ck_gap_offsets")),
        sa.ForeignKeyConstraint(["closed_by_batch"], ["batch.batch_id"], name=op.f("fk_gap_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_gap_feed")),
        sa.PrimaryKeyConstraint("gap_id", name=op.f("pk_gap")),
        comment="intervals that will not be ingested, or not yet: who or what decided it, when and why",
    )
    op.create_index("ix_gap_ahead", "gap", ["feed_id"], **where("applied_at IS NULL"))
    op.create_index("ix_gap_feed", "gap", ["feed_id", "topic", "partition"])
    op.create_table(
        "stored_offset",
        sa.Column("feed_id", UUID, nullable=False),
        sa.Column("topic", TEXT, nullable=False),
        sa.Column("partition", NUMBER, nullable=False),
        sa.Column("topic_id", TEXT, comment="Kafka's UUID of the topic (KIP-516); null where brokers do not know it"),
        sa.Column("first_offset", LONG),
        sa.Column("next_offset", LONG, comment="the next offset to read: the truth"),
        sa.Column("seeded_by", TEXT, nullable=False, comment="the start rule that decided"),
        sa.Column("leader_epoch", NUMBER),
        sa.Column("batch_id", UUID, comment="the batch that moved it last"),
        sa.Column("updated_at", TIME, nullable=False),
        sa.Column(
            "rows",
            LONG,
            server_default="0",
            nullable=False,
            comment="how many were committed of the topic with this id; copies not",
        ),
        sa.Column(
            "filtered",
            LONG,
            server_default="0",
            nullable=False,
            comment="how many of its records the feed has filtered; copies not",
        ),
        sa.CheckConstraint("(first_offset IS NULL) = (next_offset IS NULL)", name=op.f("ck_stored_offset_pending")),
        sa.CheckConstraint("next_offset >= 0 AND first_offset >= 0", name=op.f("ck_stored_offset_offsets")),
        sa.CheckConstraint("partition >= 0", name=op.f("ck_stored_offset_partition")),
        sa.ForeignKeyConstraint(["batch_id"], ["batch.batch_id"], name=op.f("fk_stored_offset_batch")),
        sa.ForeignKeyConstraint(["feed_id"], ["feed.feed_id"], name=op.f("fk_stored_offset_feed")),
        sa.PrimaryKeyConstraint("feed_id", "topic", "partition", name=op.f("pk_stored_offset")),
        comment="one row a partition of a feed; null offsets: the seed is pending",
    )
    if op.get_context().dialect.name != "sqlite":
        # SQLite took it above: it cannot add one later, nor needs the other table.
        op.create_foreign_key(
            "fk_batch_pinned_attempt", "batch", "attempt", ["batch_id", "pinned_attempt"], ["batch_id", "attempt"]
        )
