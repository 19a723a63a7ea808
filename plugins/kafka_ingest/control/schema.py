"""The control tables as they are now. Constraints carry the invariants; :mod:`.migrations` leads here.

``tests/contract/test_control_schema.py`` compares these tables with what the migrations make.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    false,
    text,
)

from kafka_ingest.foundation.foreign_json import storable, storable_document
from kafka_ingest.model.alert import AlertKind, Change
from kafka_ingest.model.batch import AttemptState, BatchKind, BatchState
from kafka_ingest.model.completion import Unit
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.hold import HoldCause

FIRST_VERSION = "0018"
"""The schema of version 0.1.0. Each later one is an upgrade of it; earlier ones were never released."""

SCHEMA_VERSION = "0022"
"""The migration that makes these tables; a test compares it with the newest one."""

VERSION_TABLE = "kafka_ingest_schema"


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Always written and read in UTC with its zone; SQLite would drop the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse an instant without a zone, and write UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected a time with a zone, found {value.isoformat()}")
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Give the zone back."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StorableText(TypeDecorator[str]):
    """Text of any origin: what a database cannot hold is escaped, so a reason or an error never stops a transaction."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Escape what cannot be stored; a name with such characters then matches none."""
        return None if value is None else storable(value)


class StorableDocument(TypeDecorator[Any]):
    """JSON with texts of any origin. Read as written: earlier versions may have stored what cannot be encoded."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002 - JSON-able data
        """Escape what cannot be stored."""
        return storable_document(value)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002 - JSON-able data
        """Escape what an earlier version stored all the same."""
        return storable_document(value)


OneOf = type[BatchState | BatchKind | AttemptState | GapCause | HoldCause | AlertKind | Change | Unit]
"""An enum whose values a column holds."""


def one_of(column: str, values: OneOf) -> str:
    return f"{column} IN ({', '.join(repr(member.value) for member in values)})"


def where(condition: str) -> dict[str, Any]:
    """Return the condition of a partial index, for both databases."""
    return {f"{dialect}_where": text(condition) for dialect in ("sqlite", "postgresql")}


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# The identity column of SQLite must be INTEGER; PostgreSQL counts events in 64 bits.
EventId = BigInteger().with_variant(Integer, "sqlite")

feed = Table(
    "feed",
    metadata,
    Column("feed_id", Uuid, primary_key=True),
    Column("name", StorableText, nullable=False, unique=True),
    Column("cluster_id", StorableText, nullable=False),
    Column("topics", JSON, nullable=False, comment="the topics of the last plan"),
    Column("revision", BigInteger, nullable=False, comment="grows with every write to the feed's control rows"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("topic_pattern", StorableText, comment="the pattern of the last plan; null where its topics were listed"),
    Column("waiting_since", UtcDateTime, comment="since when there are records, but fewer than min_records"),
    Column(
        "rows_committed",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="what its batches have committed; copies not",
    ),
    Column("planned_at", UtcDateTime, comment="when the last plan asked Kafka which topics there are"),
    Column("start_position", StorableText, comment="the stored offsets for which a start was asked for last"),
    Column("start_asked_at", UtcDateTime, comment="… and when"),
    comment="one row a feed; its lock is the lock of everything below it",
)

batch = Table(
    "batch",
    metadata,
    Column("batch_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("kind", StorableText, nullable=False),
    Column("state", StorableText, nullable=False),
    Column("plan", JSON, nullable=False, comment="frozen: what is read, from where, and where it goes"),
    Column("plan_fingerprint", StorableText, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("planned_by", StorableText, nullable=False),
    Column("pinned_attempt", Integer, comment="the attempt whose receipt counts; none other can be committed"),
    Column("rows", BigInteger, comment="from the pinned receipt"),
    Column("size_bytes", BigInteger, comment="from the pinned receipt"),
    Column("written_at", UtcDateTime),
    Column(
        "ledger_after", BigInteger, comment="its published receipt carries the seeds, gaps and resets after this event"
    ),
    Column("ledger_upto", BigInteger, comment="… up to and with this one"),
    Column("committed_at", UtcDateTime),
    Column("committed_by", StorableText),
    Column("reason", StorableText, comment="why it was abandoned"),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("abandoned_by", StorableText),
    Column(
        "to_announce",
        Boolean,
        nullable=False,
        server_default=false(),
        comment="committed by a DAG run, and its Asset event may not have been recorded",
    ),
    Column("folded_at", UtcDateTime, comment="since when its ranges are in folded_range alone, and its attempts gone"),
    Column(
        "left_out",
        JSON(none_as_null=True),
        comment="planned ranges that the pinned receipt leaves out, with their log starts; they have no batch_range",
    ),
    Column("lag", BigInteger, comment="how many offsets a live batch's feed could read when it was planned"),
    ForeignKeyConstraint(
        ["batch_id", "pinned_attempt"],
        ["attempt.batch_id", "attempt.attempt"],
        use_alter=True,
        name="fk_batch_pinned_attempt",
    ),
    CheckConstraint(one_of("kind", BatchKind), name="kind"),
    CheckConstraint(one_of("state", BatchState), name="state"),
    CheckConstraint(
        "(state = 'PLANNED' AND pinned_attempt IS NULL) OR state = 'ABANDONED' OR "
        "(state IN ('WRITTEN', 'COMMITTING', 'COMMITTED') AND rows IS NOT NULL "
        "AND (pinned_attempt IS NULL) = (folded_at IS NOT NULL))",
        name="pinned",
    ),
    CheckConstraint("folded_at IS NULL OR (state = 'COMMITTED' AND kind = 'live' AND NOT to_announce)", name="folded"),
    CheckConstraint("(state = 'COMMITTED') = (committed_at IS NOT NULL)", name="committed"),
    CheckConstraint("(state = 'ABANDONED') = (reason IS NOT NULL)", name="abandoned"),
    Index("ix_batch_feed", "feed_id", "planned_at"),
    # The newest batches of all feeds.
    Index("ix_batch_planned", "planned_at"),
    # The newest of a feed's ids, and those near it.
    Index("ix_batch_ids", "feed_id", "batch_id"),
    # The newest published one; without it, a kind without batches would be searched for in all of them.
    Index("ix_batch_published", "feed_id", "kind", "state", "batch_id"),
    # When the newest commit was.
    Index("ix_batch_sums", "feed_id", "kind", "state", "committed_at", "rows"),
    # Open and abandoned batches, among years of committed ones.
    Index("ix_batch_not_committed", "feed_id", "updated_at", **where("state <> 'COMMITTED'")),
    # Backfills among years of live batches.
    Index("ix_batch_not_live", "feed_id", "planned_at", **where("kind <> 'live'")),
    # The oldest that are to be folded, among years of those that are.
    Index(
        "ix_batch_to_fold",
        "feed_id",
        "committed_at",
        **where("kind = 'live' AND state = 'COMMITTED' AND folded_at IS NULL"),
    ),
    Index("ix_batch_to_announce", "feed_id", **where("to_announce")),
    # Invariant 2: at most one open live batch a feed.
    Index(
        "uq_batch_open_live",
        "feed_id",
        unique=True,
        **where("kind = 'live' AND state IN ('PLANNED', 'WRITTEN', 'COMMITTING')"),
    ),
)

attempt = Table(
    "attempt",
    metadata,
    Column("batch_id", ForeignKey("batch.batch_id"), primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("state", StorableText, nullable=False),
    Column("directory", Text, nullable=False, comment="absolute; receipts are found here, never by listing"),
    Column("document_sha256", StorableText, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("opened_by", StorableText, nullable=False),
    Column("receipt_sha256", StorableText),
    Column("reason", StorableText, comment="why it was discarded"),
    Column("cleaned_at", UtcDateTime, comment="since when its directory is removed"),
    CheckConstraint(one_of("state", AttemptState), name="state"),
    CheckConstraint("attempt >= 1", name="number"),
    CheckConstraint("state <> 'PINNED' OR receipt_sha256 IS NOT NULL", name="pinned"),
    CheckConstraint("(state = 'DISCARDED') = (reason IS NOT NULL)", name="discarded"),
    Index("uq_attempt_pinned", "batch_id", unique=True, **where("state = 'PINNED'")),
    # Attempts not removed yet, or only lately, among years of attempts.
    Index("ix_attempt_cleaned", "cleaned_at"),
)

stored_offset = Table(
    "stored_offset",
    metadata,
    Column("feed_id", ForeignKey("feed.feed_id"), primary_key=True),
    Column("topic", StorableText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic_id", StorableText, comment="Kafka's UUID of the topic (KIP-516); null where brokers do not know it"),
    Column("first_offset", BigInteger),
    Column("next_offset", BigInteger, comment="the next offset to read: the truth"),
    Column("seeded_by", StorableText, nullable=False, comment="the start rule that decided"),
    Column("leader_epoch", Integer),
    Column("batch_id", ForeignKey("batch.batch_id"), comment="the batch that moved it last"),
    Column("updated_at", UtcDateTime, nullable=False),
    Column(
        "rows",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="how many were committed of the topic with this id; copies not",
    ),
    Column(
        "filtered",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="how many of its records the feed has filtered; copies not",
    ),
    CheckConstraint("partition >= 0", name="partition"),
    CheckConstraint("(first_offset IS NULL) = (next_offset IS NULL)", name="pending"),
    CheckConstraint("next_offset >= 0 AND first_offset >= 0", name="offsets"),
    comment="one row a partition of a feed; null offsets: the seed is pending",
)

batch_range = Table(
    "batch_range",
    metadata,
    Column("batch_id", ForeignKey("batch.batch_id"), primary_key=True),
    Column("topic", StorableText, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic_id", StorableText),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("leader_epoch", Integer),
    Column("rows", BigInteger, comment="null before WRITTEN"),
    Column("filtered", BigInteger),
    Column("dead_letters", BigInteger),
    Column("invisible", BigInteger, comment="offsets without a record: compacted, aborted, transaction markers"),
    Column("smallest_offset", BigInteger),
    Column("largest_offset", BigInteger),
    Column(
        "replayed",
        BigInteger,
        nullable=False,
        server_default="0",
        comment="how many of its dead letters committed replays have taken up: they count there",
    ),
    CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name="offsets"),
    # Every NULL is named: a check that evaluates to NULL would pass.
    CheckConstraint(
        "(rows IS NULL AND filtered IS NULL AND dead_letters IS NULL AND invisible IS NULL) OR "
        "(rows IS NOT NULL AND filtered IS NOT NULL AND dead_letters IS NOT NULL AND invisible IS NOT NULL "
        "AND rows >= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 "
        "AND rows + filtered + dead_letters + invisible = end_offset - start_offset)",
        name="accounted",
    ),
    CheckConstraint("smallest_offset >= start_offset AND largest_offset < end_offset", name="inside"),
    # No letter is replayed twice, whatever was planned.
    CheckConstraint(
        "replayed = 0 OR (replayed > 0 AND dead_letters IS NOT NULL AND replayed <= dead_letters)", name="replayed"
    ),
    Index("ix_batch_range_dead_letters", "batch_id", **where("dead_letters > 0")),
    comment="the non-empty ranges of a batch",
)

folded_range = Table(
    "folded_range",
    metadata,
    Column("folded_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("topic", StorableText, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", StorableText),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("filtered", BigInteger, nullable=False),
    Column("dead_letters", BigInteger, nullable=False),
    Column("invisible", BigInteger, nullable=False),
    Column("batches", BigInteger, nullable=False),
    Column("oldest_commit", UtcDateTime, nullable=False),
    Column("newest_commit", UtcDateTime, nullable=False),
    CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name="offsets"),
    CheckConstraint(
        "rows >= 0 AND filtered >= 0 AND dead_letters >= 0 AND invisible >= 0 "
        "AND rows + filtered + dead_letters + invisible = end_offset - start_offset",
        name="accounted",
    ),
    CheckConstraint("batches >= 1 AND oldest_commit <= newest_commit", name="batches"),
    Index("ix_folded_range_feed", "feed_id", "topic", "partition"),
    comment="what old live batches have read, summed up: ranges that follow each other are one",
)

gap = Table(
    "gap",
    metadata,
    Column("gap_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("topic", StorableText, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", StorableText),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("cause", StorableText, nullable=False),
    Column("reason", StorableText, nullable=False),
    Column("decided_by", StorableText, nullable=False),
    Column("decided_at", UtcDateTime, nullable=False),
    Column("applied_at", UtcDateTime, comment="null while it lies ahead of the stored offset"),
    Column("closed_by_batch", ForeignKey("batch.batch_id"), comment="the batch that read it after all"),
    CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name="offsets"),
    CheckConstraint(one_of("cause", GapCause), name="cause"),
    Index("ix_gap_feed", "feed_id", "topic", "partition"),
    # What a plan has to stop at, among all that was ever passed.
    Index("ix_gap_ahead", "feed_id", **where("applied_at IS NULL")),
    comment="intervals that will not be ingested, or not yet: who or what decided it, when and why",
)

removed_range = Table(
    "removed_range",
    metadata,
    Column("range_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("topic", Text, nullable=False),
    Column("partition", Integer, nullable=False),
    Column("topic_id", Text),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name="offsets"),
    Index("ix_removed_range_feed", "feed_id", "topic", "partition"),
    comment="which committed offsets were let expire from the output; neighbours are one row",
)

lost_range = Table(
    "lost_range",
    metadata,
    Column("feed_id", ForeignKey("feed.feed_id"), primary_key=True),
    Column("batch_id", Uuid, primary_key=True),
    Column("file", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("partition", Integer, primary_key=True),
    Column("topic_id", Text),
    Column("start_offset", BigInteger, nullable=False),
    Column("end_offset", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    CheckConstraint("start_offset >= 0 AND end_offset > start_offset", name="offsets"),
    comment="what published files held that were lost; their batches were committed without it, as it turned out",
)

hold = Table(
    "hold",
    metadata,
    Column("hold_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("topic", StorableText, nullable=False),
    Column("partition", Integer, comment="null where the whole topic is held"),
    Column("cause", StorableText, nullable=False),
    Column("reason", StorableText, nullable=False),
    Column("at_offset", BigInteger),
    Column("since", UtcDateTime, nullable=False, comment="when a plan first saw it"),
    CheckConstraint(one_of("cause", HoldCause), name="cause"),
    CheckConstraint("(cause IN ('topic_missing', 'topic_changed')) = (partition IS NULL)", name="partition"),
    CheckConstraint(
        "(cause IN ('open_transaction', 'unreadable', 'beyond_log', 'offsets_lost')) = (at_offset IS NOT NULL)",
        name="at_offset",
    ),
    Index("ix_hold_feed", "feed_id"),
    comment="what takes no part in the feed's batches for now; every plan writes them anew",
)

alert = Table(
    "alert",
    metadata,
    Column("alert_id", Uuid, primary_key=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("kind", StorableText, nullable=False),
    Column("subject", StorableText, nullable=False, comment="which of several things of a kind; empty for the feed"),
    Column("text", StorableText, nullable=False, comment="what was found when it began"),
    Column("began_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, comment="null while it holds"),
    CheckConstraint(one_of("kind", AlertKind), name="kind"),
    CheckConstraint("ended_at >= began_at", name="ended"),
    # Of two checks at once one begins it.
    Index("uq_alert_current", "feed_id", "kind", "subject", unique=True, **where("ended_at IS NULL")),
    comment="what feeds ask to be notified of, as long as it holds and until its end was notified",
)

alert_notice = Table(
    "alert_notice",
    metadata,
    Column("alert_id", ForeignKey("alert.alert_id"), primary_key=True),
    Column("notifier", StorableText, primary_key=True, comment="a hash of its class and arguments"),
    Column("change", StorableText, primary_key=True),
    Column("claimed_at", UtcDateTime, comment="since when a process notifies; null where that failed"),
    Column("said_at", UtcDateTime),
    Column("error", StorableText, comment="why the newest try failed"),
    CheckConstraint(one_of("change", Change), name="change"),
    comment="what each notifier was given; a claim of a process that died expires",
)

period = Table(
    "period",
    metadata,
    Column("feed_id", ForeignKey("feed.feed_id"), primary_key=True),
    Column("unit", StorableText, primary_key=True),
    Column("began_at", UtcDateTime, primary_key=True),
    Column("completed_at", UtcDateTime, comment="null of the one that is waited for"),
    Column("completed_by", StorableText),
    Column("late_rows", BigInteger, nullable=False, server_default="0", comment="landed since it was complete"),
    Column("announced_at", UtcDateTime, comment="when Airflow had recorded its newest event"),
    Column("announced_rows", BigInteger, nullable=False, server_default="0", comment="late rows that are announced"),
    Column("success_file_at", UtcDateTime),
    Column("counted_batch", Uuid, comment="of the one that is waited for: late rows are counted up to this batch"),
    CheckConstraint(one_of("unit", Unit), name="unit"),
    CheckConstraint("(completed_at IS NULL) = (completed_by IS NULL)", name="completed"),
    # One is waited for: completing it is a compare-and-set.
    Index("uq_period_waiting", "feed_id", "unit", unique=True, **where("completed_at IS NULL")),
    # The few that are to be announced or marked, among years of hours.
    Index(
        "ix_period_to_announce",
        "feed_id",
        "unit",
        "began_at",
        **where("announced_at IS NULL OR announced_rows < late_rows"),
    ),
    Index("ix_period_to_mark", "feed_id", "unit", "began_at", **where("success_file_at IS NULL")),
    comment="hours and days that are complete, of feeds that ask for it",
)

topics_file = Table(
    "topics_file",
    metadata,
    Column("file", StorableText, primary_key=True, comment="below the folder of feed files"),
    Column("planned_at", UtcDateTime, nullable=False, comment="when its last plan asked Kafka"),
    Column("pattern", StorableText, nullable=False, comment="for_each_topic, as it was then"),
    comment="one row a file with for_each_topic",
)

file_topic = Table(
    "file_topic",
    metadata,
    Column("file", ForeignKey("topics_file.file"), primary_key=True),
    Column("topic", StorableText, primary_key=True),
    Column("conn_id", StorableText, nullable=False),
    Column("topic_id", StorableText),
    Column("feed", StorableText, comment="its feed's name; null where it has none yet, or is left out"),
    Column("found_after", UtcDateTime, comment="the plan before, which would have found it"),
    comment="the topics that plans of a file have found",
)

event = Table(
    "event",
    metadata,
    Column("event_id", EventId, primary_key=True, autoincrement=True),
    Column("feed_id", ForeignKey("feed.feed_id"), nullable=False),
    Column("batch_id", ForeignKey("batch.batch_id")),
    Column("kind", StorableText, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("who", StorableText, key="actor", nullable=False),
    Column("detail", StorableDocument, nullable=False),
    Index("ix_event_feed", "feed_id", "event_id"),
    # The newest of a kind, no matter how old.
    Index("ix_event_kind", "feed_id", "kind", "event_id"),
    comment="append-only audit journal",
)

LEDGER_KINDS = ("seeded", "gap", "reset", "output_changed")
"""Kinds of events that record where offsets came from; published receipts carry them."""

FOLDED_KINDS = ("attempts_discarded", "mirror_failed", "no_dates", "receipt_refused")
"""Kinds of events that tasks write, as often as there are batches; no decision and no rebuilding depends on them."""
