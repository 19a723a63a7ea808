"""What a feed makes of real records, before any of them is ingested: a batch of a few records that is never committed.

It is written like any other, by the same Spark job, but into a directory of its own, and no control table knows it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from kafka_ingest.batches.fitting_columns import ComparedColumns, FittingColumns
from kafka_ingest.batches.freeze_schemas import Freeze, found_ids
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import ColumnsChangedError, KafkaUnavailableError, UnknownTopicError
from kafka_ingest.model.batch import NOBODY, Attempt, AttemptDocument, AttemptState, BatchKind, BatchPlan, sha256
from kafka_ingest.model.control_rows import NEVER_PLANNED
from kafka_ingest.model.dead_letters import DeadLetter, staged_dead_letters
from kafka_ingest.model.decoding import Decoding
from kafka_ingest.model.offsets import Isolation, LogBounds, OffsetRange, TopicPartition, Unavailable, listing
from kafka_ingest.model.omissions import NeverFound
from kafka_ingest.model.place import DATA, OutputLocation
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.topics import topics_wanted
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.outputs import ColumnsOfFile, DeadLetterFiles, RowsOfFile, Sinks

MOST_RECORDS = 1_000
"""How many records can be asked for."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The result of the records: rows as readers would see them, those that cannot be decoded, how many filtered."""

    rows: list[dict[str, Any]]
    dead_letters: list[DeadLetter]
    columns: WrittenColumns = field(default_factory=dict)
    filtered: int = 0
    never_found: tuple[NeverFound, ...] = ()


def preview_plan(settings: FeedPlanSettings, kafka: KafkaCluster, directory: Path, records: int) -> BatchPlan | None:
    """Return the plan of a batch with the newest records of the feed's topics; None where they have none.

    Raises UnknownTopicError where a topic does not exist, KafkaUnavailableError where Kafka does not answer.
    """
    there = kafka.topic_names() if settings.topic_pattern is not None else []
    wanted = topics_wanted(NEVER_PLANNED, settings, there)
    described = kafka.describe_topics(wanted)
    if missing := [topic for topic in wanted if topic not in described]:
        raise UnknownTopicError(f"feed {settings.name}: expected its topics in Kafka, found no {listing(missing)}")
    partitions = [tp for description in described.values() for tp in description.topic_partitions()]
    ranges = newest_ranges(kafka.log_bounds(partitions), settings.isolation, records)
    if not ranges:
        return None
    return BatchPlan(
        batch_id=uuid4(),
        kind=BatchKind.COPY,
        feed_id=NOBODY,
        feed_name=settings.name,
        cluster_id=kafka.cluster_id(),
        topic_ids={each.topic: described[each.topic].topic_id for each in ranges},
        ranges=ranges,
        isolation=settings.isolation,
        offsets_policy=settings.offsets_policy,
        output=OutputLocation.local("parquet", directory / "preview"),
        planned_at=datetime.now(UTC),
    )


def newest_ranges(
    bounds: Mapping[TopicPartition, LogBounds | Unavailable], isolation: Isolation, records: int
) -> tuple[OffsetRange, ...]:
    """Return the newest offsets of as many partitions as hold some, about as many of each, ``records`` in all."""
    spans: dict[TopicPartition, tuple[int, int]] = {}
    for topic_partition, found in sorted(bounds.items()):
        if isinstance(found, Unavailable):
            raise KafkaUnavailableError(f"{topic_partition}: {found.reason}")
        if found.log_start_offset < (end := found.readable_end(isolation)):
            spans[topic_partition] = found.log_start_offset, end
    left, ranges = records, []
    for number, (topic_partition, (start, end)) in enumerate(sorted(spans.items())[:records]):
        share = -(-left // (min(len(spans), records) - number))
        taken = min(share, end - start)
        ranges.append(OffsetRange(topic_partition, end - taken, end))
        left -= taken
    return tuple(ranges)


Compare = Callable[[Decoding], ComparedColumns]


def open_preview(
    plan: BatchPlan, decoding: Decoding, sinks: Sinks, freeze: Freeze, failed: Sequence[Attempt], compare: Compare
) -> tuple[Attempt, ComparedColumns]:
    """Make the directory of an attempt, with the document for Spark in it; ``failed`` are those before it.

    It decodes as an attempt at a real batch would, new fields left out where the feed says so; and as the feed says
    where that one would be refused. Returns with it how the columns go with those of the feed's output.
    """
    sink = sinks(plan.output)
    failures = [sink.staging.read_failure(attempt.directory) or "" for attempt in failed]
    if decoding.has_sources:
        decoding = freeze(decoding, {each.topic for each in plan.ranges}, found_ids(failures))
    try:
        compared = compare(decoding)
    except ColumnsChangedError as error:
        compared = ComparedColumns(FittingColumns(decoding), refused=str(error))
    sink.publisher.prepare()
    number = len(failed) + 1
    directory = sink.staging.attempt_directory(plan.batch_id, number)
    fitting = compared.fitting
    document = AttemptDocument(plan, number, fitting.decoding, columns=fitting.columns).as_bytes()
    sink.staging.open_attempt(directory, document)
    opened_at = plan.planned_at
    attempt = Attempt(plan.batch_id, number, AttemptState.OPEN, directory, sha256(document), opened_at, "preview")
    return attempt, compared


def preview_of(
    attempt: Attempt, sinks: Sinks, plan: BatchPlan, rows: RowsOfFile, columns: ColumnsOfFile, letters: DeadLetterFiles
) -> Preview:
    receipt = valid_receipt(plan, attempt, sinks(plan.output).staging.read_receipt(attempt.directory))
    data, dead = attempt.directory / DATA, staged_dead_letters(attempt.directory) / DATA
    return Preview(
        rows=[row for file in receipt.files for row in rows(data / file.name)],
        dead_letters=[
            letter
            for file in receipt.dead_letters
            for letter in letters(dead / file.name, samples=receipt.rows_read).samples
        ],
        columns=columns(data / receipt.files[0].name) if receipt.files else {},
        filtered=receipt.filtered_records,
        never_found=receipt.never_found,
    )
