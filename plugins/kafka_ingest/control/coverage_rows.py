"""Where each offset is, from the control rows. None of these queries reads the ranges of live batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, RowMapping, bindparam, literal, select

from kafka_ingest.control.batch_conditions import COUNTS, NOT_LIVE, OF_THE_FEED
from kafka_ingest.control.folded_rows import folded_ranges
from kafka_ingest.control.removed_output import lost_ranges, removed_ranges
from kafka_ingest.control.rows import event_of, gaps_of
from kafka_ingest.control.schema import batch, batch_range, event
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import (
    BackfillRange,
    CommittedBatch,
    CommittedRange,
    CoverageRows,
    DeadLetters,
    FeedSnapshot,
    Rewind,
)
from kafka_ingest.model.event import Event
from kafka_ingest.model.offset_sets import place
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.receipt import RangeCount

# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
HAS_DEAD_LETTERS = batch_range.c.dead_letters > literal(0, literal_execute=True)
BATCHES_AT_ONCE = 100


def coverage_rows(connection: Connection, feed: FeedSnapshot) -> CoverageRows:
    """Return what a feed's control rows say about where each offset is."""
    decided = resets(connection, feed.feed_id)
    return CoverageRows(
        feed=feed,
        gaps=gaps_of(connection, feed.feed_id),
        backfills=backfill_ranges(connection, feed.feed_id, batch.c.kind == BatchKind.BACKFILL.value),
        rewinds=[rewind for reset in decided for rewind in rewinds_of(reset)],
        dead_letters=dead_letters(connection, feed.feed_id),
        lost=lost_ranges(connection, feed.feed_id),
        removed=removed_ranges(connection, feed.feed_id),
        folded=folded_ranges(connection, feed.feed_id),
        ids_before=ids_before(decided),
    )


def copied_ranges(connection: Connection, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
    """Return what the feed's copies into another output hold, or will hold."""
    sink = batch.c.plan["sink"]
    into_output = (sink["format"].as_string() == output.format) & (sink["path"].as_string() == output.uri)
    return backfill_ranges(connection, feed_id, batch.c.kind == BatchKind.COPY.value, into_output)


def copy_outputs(connection: Connection) -> list[tuple[UUID, OutputLocation]]:
    """Return the outputs of all feeds' copies, open ones included, with the feeds' ids."""
    sink = batch.c.plan["sink"]
    query = select(batch.c.feed_id, sink["format"].as_string(), sink["path"].as_string()).where(
        batch.c.kind == BatchKind.COPY.value, COUNTS
    )
    found = connection.execute(query.distinct()).all()
    return [(feed_id, OutputLocation(sink_format, path)) for feed_id, sink_format, path in found]


def backfill_ranges(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[BackfillRange]:
    """Return the ranges of some of a feed's backfills, sorted."""
    of_feed = select(batch.c.batch_id, batch.c.state, batch.c.planned_at).where(
        batch.c.feed_id == feed_id, NOT_LIVE, COUNTS, *conditions
    )
    cuts = Cuts.of(resets(connection, feed_id))
    names = ("topic", "partition", "start_offset", "end_offset", "topic_id")
    # Batch by batch, and no column twice: a backfill of 1,000 partitions in 100 chunks has 100,000 of them.
    of_batch = select(*(batch_range.c[name] for name in names)).where(batch_range.c.batch_id == bindparam("id"))
    places: dict[tuple[str, int], TopicPartition] = {}
    found: list[BackfillRange] = []
    for batch_id, state, planned_at in connection.execute(of_feed).all():
        state_of_batch = BatchState(state)
        for topic, partition, start, end, topic_id in connection.execute(of_batch, {"id": batch_id}):
            at = places.get((topic, partition)) or places.setdefault(
                (topic, partition), TopicPartition(topic, partition)
            )
            cut = cuts.at(at, topic_id, planned_at)
            found.append(BackfillRange(batch_id, state_of_batch, OffsetRange(at, start, end), topic_id, cut))
    return sorted(found, key=lambda each: (*place(each.offset_range), each.batch_id))


def dead_letters(connection: Connection, feed_id: UUID) -> list[DeadLetters]:
    """Return which committed ranges have another number of dead letters than the 0 that every version writes."""
    committed = select(batch.c.batch_id).where(
        batch.c.batch_id == batch_range.c.batch_id,
        batch.c.feed_id == feed_id,
        OF_THE_FEED,
        batch.c.state == BatchState.COMMITTED.value,
    )
    # Not joined: the ranges with dead letters lead, and not years of batches.
    query = select(batch_range).where(HAS_DEAD_LETTERS, committed.exists())
    found = [
        DeadLetters(row["batch_id"], span_of_row(row), row["topic_id"], row["dead_letters"])
        for row in connection.execute(query).mappings()
    ]
    return sorted(found, key=lambda each: (each.offset_range, each.batch_id))


def committed_batches_after(connection: Connection, feed_id: UUID, newest: UUID | None) -> list[CommittedBatch]:
    """Return the next of a feed's committed batches, in the order of their ids, without copies."""
    sink = batch.c.plan["sink"]
    output = (sink["format"].as_string(), sink["path"].as_string())
    query = select(
        batch.c.batch_id, batch.c.kind, batch.c.plan_fingerprint, batch.c.folded_at.is_not(None), *output
    ).where(
        batch.c.feed_id == feed_id,
        batch.c.state == BatchState.COMMITTED.value,
        OF_THE_FEED,
        *([batch.c.batch_id > newest] if newest is not None else []),
    )
    found = connection.execute(query.order_by(batch.c.batch_id).limit(BATCHES_AT_ONCE)).all()
    ranges: dict[UUID, list[CommittedRange]] = {row[0]: [] for row in found}
    of_batches = select(batch_range).where(batch_range.c.batch_id.in_(list(ranges)))
    for row in connection.execute(of_batches).mappings():
        count = RangeCount(span_of_row(row), row["rows"] or 0, row["smallest_offset"], row["largest_offset"])
        ranges[row["batch_id"]].append(CommittedRange(count, row["topic_id"]))
    return [
        CommittedBatch(
            batch_id,
            BatchKind(kind),
            OutputLocation(sink_format, path),
            ranges[batch_id],
            fingerprint if is_folded else None,
        )
        for batch_id, kind, fingerprint, is_folded, sink_format, path in found
    ]


def span_of_row(row: RowMapping) -> OffsetRange:
    """Return the range that a row describes."""
    return OffsetRange(TopicPartition(row["topic"], row["partition"]), row["start_offset"], row["end_offset"])


def resets(connection: Connection, feed_id: UUID) -> list[Event]:
    """Return operators' resets of stored offsets, oldest first."""
    query = select(event).where(event.c.feed_id == feed_id, event.c.kind == "reset").order_by(event.c.event_id)
    return [event_of(row) for row in connection.execute(query).mappings()]


def ids_before(decided: Sequence[Event]) -> dict[tuple[str, str | None], str | None]:
    """Return the current topic id of each earlier one where an operator confirmed that the records are the same."""
    found: dict[tuple[str, str | None], str | None] = {}
    for reset in decided:
        ids = {entry["topic"]: entry["topic_id"] for entry in reset.detail["partitions"]}
        for entry in reset.detail["removed"]:
            topic, before = entry["topic"], entry["topic_id"]
            if topic in reset.detail.get("same_records", ()) and ids.get(topic, before) != before:
                found |= {key: ids[topic] for key, id_then in found.items() if key[0] == topic and id_then == before}
                found[topic, before] = ids[topic]
    return found


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where logs were cut off, as operators decided, and when; under the topic ids that the same records have now."""

    by_log: Mapping[tuple[TopicPartition, str | None], Sequence[Rewind]]
    ids: Mapping[tuple[str, str | None], str | None]

    @classmethod
    def of(cls, decided: Sequence[Event]) -> "Cuts":
        """Return the cuts among what operators decided on stored offsets."""
        ids = ids_before(decided)
        by_log: dict[tuple[TopicPartition, str | None], list[Rewind]] = {}
        for rewind in (rewind for reset in decided for rewind in rewinds_of(reset) if not rewind.same_records):
            topic_partition = rewind.offset_range.topic_partition
            topic_id = ids.get((topic_partition.topic, rewind.topic_id), rewind.topic_id)
            by_log.setdefault((topic_partition, topic_id), []).append(rewind)
        return cls(by_log, ids)

    def at(self, topic_partition: TopicPartition, topic_id: str | None, planned_at: datetime) -> int | None:
        """Return from which offset on a log holds other records than a batch planned then, None for nowhere."""
        if not self.by_log:
            return None
        id_now = self.ids.get((topic_partition.topic, topic_id), topic_id)
        since = [each for each in self.by_log.get((topic_partition, id_now), ()) if each.at > planned_at]
        return min((each.offset_range.start_offset for each in since), default=None)


def rewinds_of(reset: Event) -> list[Rewind]:
    """Return where one reset moved stored offsets back in the topic that they were counted in."""
    was = {(entry["topic"], entry["partition"], entry["topic_id"]): entry for entry in reset.detail["removed"]}
    found: list[Rewind] = []
    for entry in reset.detail["partitions"]:
        before = was.get((entry["topic"], entry["partition"], entry["topic_id"]))
        if before is None or before["next_offset"] is None or entry["next_offset"] is None:
            continue
        if entry["next_offset"] < before["next_offset"]:
            topic_partition = TopicPartition(entry["topic"], entry["partition"])
            interval = OffsetRange(topic_partition, entry["next_offset"], before["next_offset"])
            same = entry["topic"] in reset.detail["same_records"]
            found.append(Rewind(interval, entry["topic_id"], reset.at, reset.actor, reset.detail["reason"], same))
    return found
