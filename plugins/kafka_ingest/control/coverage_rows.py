"""Where each offset is, from the control rows. None of these queries reads the ranges of live batches."""

from uuid import UUID

from sqlalchemy import ColumnElement, Connection, bindparam, literal, select

from kafka_ingest.control.log_cuts import PLANNED_ON, Cuts, PlannedOn, ids_before, resets, rewinds_of
from kafka_ingest.control.output_rows import folded_ranges, lost_ranges, removed_ranges
from kafka_ingest.control.read_again import replacements, replays
from kafka_ingest.control.rows import COUNTS, OF_THE_FEED, OUTPUT, SINK, gaps_of, not_live_of, output_of
from kafka_ingest.control.schema import batch, batch_range, stored_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import CommittedBatch, CommittedRange, FeedSnapshot
from kafka_ingest.model.coverage import BackfillRange, CoverageRows, DeadLetters
from kafka_ingest.model.documents import read_row
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, place
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import RangeCount

# Written out, not bound: SQLite takes a partial index only where it sees that its condition holds.
HAS_DEAD_LETTERS = batch_range.c.dead_letters > literal(0, literal_execute=True)
BATCHES_AT_ONCE = 100


def coverage_rows(connection: Connection, feed: FeedSnapshot) -> CoverageRows:
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
        replacements=replacements(connection, feed.feed_id),
        replays=replays(connection, feed.feed_id),
        filtered=filtered_by_partition(connection, feed.feed_id),
        ids_before=ids_before(decided),
    )


def filtered_by_partition(connection: Connection, feed_id: UUID) -> dict[TopicPartition, int]:
    """Return how many records of the topics' current ids were filtered, by partition; backfills and replays included.

    Commits keep the sums: summing up the ranges of years takes long.
    """
    query = select(stored_offset.c.topic, stored_offset.c.partition, stored_offset.c.filtered)
    found = connection.execute(query.where(stored_offset.c.feed_id == feed_id, stored_offset.c.filtered > 0))
    return {TopicPartition(topic, number): filtered for topic, number, filtered in found}


def copied_ranges(connection: Connection, feed_id: UUID, output: OutputLocation) -> list[BackfillRange]:
    into_output = (SINK["format"].as_string() == output.format) & (SINK["path"].as_string() == output.uri)
    return backfill_ranges(connection, feed_id, batch.c.kind == BatchKind.COPY.value, into_output)


def copy_outputs(connection: Connection) -> list[tuple[UUID, OutputLocation]]:
    query = select(batch.c.feed_id, *OUTPUT).where(batch.c.kind == BatchKind.COPY.value, COUNTS)
    return [(row["feed_id"], output_of(row)) for row in connection.execute(query.distinct()).mappings()]


def backfill_ranges(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[BackfillRange]:
    """Return the ranges of some of a feed's backfills, sorted."""
    of_feed = select(batch.c.batch_id, batch.c.state, *PLANNED_ON).where(not_live_of(feed_id), COUNTS, *conditions)
    cuts = Cuts.of(resets(connection, feed_id))
    names = ("topic", "partition", "start_offset", "end_offset", "topic_id")
    # Batch by batch, and no column twice: a backfill of 1,000 partitions in 100 chunks has 100,000 of them.
    of_batch = select(*(batch_range.c[name] for name in names)).where(batch_range.c.batch_id == bindparam("id"))
    places: dict[tuple[str, int], TopicPartition] = {}
    found: list[BackfillRange] = []
    for row in connection.execute(of_feed).mappings().all():
        batch_id, state, planned = row["batch_id"], BatchState(row["state"]), PlannedOn.of_row(row)
        for topic, partition, start, end, topic_id in connection.execute(of_batch, {"id": batch_id}):
            at = places.get((topic, partition)) or places.setdefault(
                (topic, partition), TopicPartition(topic, partition)
            )
            cut = cuts.at(at, topic_id, planned)
            found.append(BackfillRange(batch_id, state, OffsetRange(at, start, end), topic_id, cut))
    return sorted(found, key=lambda each: (*place(each.offset_range), each.batch_id))


def dead_letters(connection: Connection, feed_id: UUID) -> list[DeadLetters]:
    """Return how many dead letters the committed ranges have that have any."""
    committed = select(batch.c.batch_id).where(
        batch.c.batch_id == batch_range.c.batch_id,
        batch.c.feed_id == feed_id,
        OF_THE_FEED,
        batch.c.state == BatchState.COMMITTED.value,
    )
    # Not joined: the ranges with dead letters lead, and not years of batches.
    query = select(batch_range).where(HAS_DEAD_LETTERS, committed.exists())
    found = [read_row(DeadLetters, row, count=row["dead_letters"]) for row in connection.execute(query).mappings()]
    return sorted(found, key=lambda each: (each.offset_range, each.batch_id))


def committed_batches_after(connection: Connection, feed_id: UUID, newest: UUID | None) -> list[CommittedBatch]:
    """Return the next of a feed's committed batches, in the order of their ids, without copies."""
    columns = (batch.c.batch_id, batch.c.kind, batch.c.plan_fingerprint, batch.c.folded_at.is_not(None).label("folded"))
    query = select(*columns, *OUTPUT).where(
        batch.c.feed_id == feed_id,
        batch.c.state == BatchState.COMMITTED.value,
        OF_THE_FEED,
        *([batch.c.batch_id > newest] if newest is not None else []),
    )
    found = connection.execute(query.order_by(batch.c.batch_id).limit(BATCHES_AT_ONCE)).mappings().all()
    ranges: dict[UUID, list[CommittedRange]] = {row["batch_id"]: [] for row in found}
    of_batches = select(batch_range).where(batch_range.c.batch_id.in_(list(ranges)))
    for row in connection.execute(of_batches).mappings():
        ranges[row["batch_id"]].append(CommittedRange(read_row(RangeCount, row), row["topic_id"]))
    return [
        CommittedBatch(
            row["batch_id"],
            BatchKind(row["kind"]),
            output_of(row),
            ranges[row["batch_id"]],
            row["plan_fingerprint"] if row["folded"] else None,
        )
        for row in found
    ]
