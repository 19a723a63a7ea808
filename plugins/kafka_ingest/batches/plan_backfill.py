"""Plan a backfill: find what it means, ask Kafka, decide, and claim its chunks, each a batch, under the feed's lock."""

import json
import logging
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from kafka_ingest.batches.ask_kafka import cut_off_at, reached
from kafka_ingest.batches.backfill_request import (
    NOTHING_DONE,
    BackfillRequest,
    BetweenTimestamps,
    LogAnswers,
    Mode,
    OfBatch,
    OfDagRun,
    OpenChunks,
    Times,
    partitions_meant,
    select,
)
from kafka_ingest.batches.decide_backfill import (
    BackfillDecision,
    Taken,
    decide,
    decide_replacement,
    decide_replay,
    taken_in_copy,
    taken_in_feed,
)
from kafka_ingest.batches.known_feed import batch_of_feed, plan_read
from kafka_ingest.batches.known_output import check_output_known, check_output_there, check_same_root
from kafka_ingest.batches.output_places import is_taken
from kafka_ingest.batches.plan_batch import next_batch_id
from kafka_ingest.batches.replaying import letters_to_replay
from kafka_ingest.errors import (
    FeedChangedError,
    InvalidBackfillError,
    KafkaUnavailableError,
    OutputConflictError,
    OutputNotUsableError,
    StoredOffsetBeyondLogError,
    UnknownFeedError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.foreign_json import storable_document
from kafka_ingest.model.batch import Batch, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, FeedSnapshot
from kafka_ingest.model.coverage import CoverageRows, coverage_of
from kafka_ingest.model.offsets import (
    LogBounds,
    OffsetRange,
    OffsetsPolicy,
    TopicPartition,
    Unavailable,
    intersect,
    listing,
)
from kafka_ingest.model.place import OutputLocation, Place
from kafka_ingest.model.read_again import sum_of
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.planning.limits import within
from kafka_ingest.planning.positions import held_beyond_log
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.parts import REPLACE_ROWS, Parts, role_of

log = logging.getLogger(__name__)

TRIES = 5
ADDRESS = ("conn_id", "catalog", "table")
"""Options of an output that say which table it is."""

CheckRecords = Callable[[OutputLocation, Collection[str]], object]
"""Refuses records of topics that no attempt could write into an output."""


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The chunks to work on, in order; ``decision`` is None where an earlier try planned them.

    Where a backfill was only shown, there are no chunks, and the decision says what they would be.
    """

    chunks: Sequence[BatchPlan]
    decision: BackfillDecision | None


def plan_backfill(
    request: BackfillRequest,
    settings: FeedPlanSettings,
    parts: Parts,
    *,
    actor: str | None,
    once: bool = False,
    check_records: CheckRecords = lambda _output, _topics: None,
) -> BackfillOutcome:
    """Return the chunks of a backfill, durable and claimed. ``once``: those that ``actor`` planned before, if any.

    Without an actor nothing is written: a dry run decides, and is refused, as the backfill itself is.
    As with a plan, no transaction is open while Kafka or the sink is asked, and the step is retried where another
    process wrote to the feed in the meantime. So two backfills never take the same hole.
    """
    control = parts.control
    for _ in range(TRIES):
        rows = planned_before(settings.name, control)
        if isinstance(request.selection, OpenChunks):
            return BackfillOutcome([batch.plan for batch in control.open_backfills(rows.feed.feed_id)], None)
        planned = control.backfill_of(rows.feed.feed_id, actor) if once and actor is not None else []
        known = [batch.plan for batch in planned if batch.state is not BatchState.ABANDONED]
        if actor is not None and known:
            check_same_request(request, control.backfill_request(rows.feed.feed_id, actor), actor)
            return BackfillOutcome(known, None)
        output = request.output or settings.output
        most_rows = parts.sinks(output).most_rows
        most = within(request.max_records, most_rows() if most_rows is not None else None) or request.max_records
        decision = decide_backfill(replace(request, max_records=most), rows, settings, parts)
        chunks = plans_of(decision, request, rows.feed, settings, output)
        if chunks:
            check_records(output, {topic for chunk in chunks for topic in chunk.topic_ids})
            # A copy's place is not made for a dry run; the feed's own is there.
            if actor is not None or request.output is None:
                parts.sinks(output).publisher.prepare()
        if actor is None or not (chunks or decision.gaps):
            return BackfillOutcome([], decision)
        try:
            control.record_backfill(rows.feed, BackfillRecord(chunks, decision.gaps, request.asked), actor=actor)
        except FeedChangedError as error:
            log.info("%s", error)
            continue
        return BackfillOutcome(chunks, decision)
    raise FeedChangedError(
        f"feed {settings.name}: another process wrote to it {TRIES} times while the backfill was planned; try again"
    )


def check_same_request(request: BackfillRequest, before: Mapping[str, Any] | None, actor: str) -> None:
    """Raise InvalidBackfillError where ``actor`` has chunks already that were planned for another request.

    Airflow may reuse a run's id once the run was deleted.
    """
    if before is not None and storable_document(before) != storable_document(request.asked):
        raise InvalidBackfillError(
            f"expected the request that {actor} planned its chunks for before ({shown(before)}), found another "
            f"({shown(request.asked)}). {NOTHING_DONE} Trigger the DAG with a run id that no run has had."
        )


def shown(asked: Mapping[str, Any]) -> str:
    return textwrap.shorten(json.dumps(asked, ensure_ascii=False, default=str), 300, placeholder=" …")


def planned_before(feed_name: str, control: ControlTables) -> CoverageRows:
    """Return a feed's coverage; raises UnknownFeedError where it was never planned."""
    rows = control.coverage(feed_name)
    if rows is None:
        raise UnknownFeedError(
            f"expected a feed that was planned before, found {feed_name!r}, which is not in the control tables. "
            f"{NOTHING_DONE} Run the feed first: a backfill fills what its live runs leave out."
        )
    return rows


def decide_backfill(
    request: BackfillRequest, rows: CoverageRows, settings: FeedPlanSettings, parts: Parts
) -> BackfillDecision:
    feed, control, kafka, sinks = rows.feed, parts.control, parts.kafka, parts.sinks
    check_output_known(feed, settings, control, sinks)
    check_output_there(feed.feed_id, settings.output, control, sinks, is_planned=True)
    if request.output is None:
        check_same_root(feed, settings.output, settings.relative_path, control, sinks)
    if request.mode is Mode.REPLAY:
        # Without Kafka, which may have forgotten the records and their topics.
        return decide_replay(request, letters_to_replay(request, rows, settings.output, control, sinks))
    coverage = coverage_of(rows)
    earlier = [plan_read(batch, sinks) for batch in earlier_batches(request, feed, control)]
    meant = partitions_meant(request, coverage, feed.topics, earlier)
    topic_ids = {tp.topic: coverage[tp].stored.topic_id for tp in meant}
    check_same_topics(earlier, topic_ids, rows)
    check_not_beyond(held_beyond_log(feed).keys() & set(meant), feed)  # found by a plan: without Kafka
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    check_topic_ids(topic_ids, kafka.describe_topics(topic_ids.keys()), feed.name)
    answers = ask_kafka(request, meant, feed, kafka)
    check_not_beyond(answers.cut_off, feed)
    wanted = select(request, meant, coverage, answers, settings.isolation, earlier)
    if request.mode is Mode.REPLACE:
        return replacement(request, rows, wanted, answers, settings, parts)
    if request.output is not None:
        taken = copied(request.output, rows, topic_ids, parts)
    else:
        # A gap may cover what was committed before a backward reset.
        again = intersect(wanted, [interval for partition in coverage.values() for interval in partition.rewound])
        taken = taken_in_feed(coverage, control.committed_within(feed.feed_id, again) if again else [])
    return decide(request, wanted, taken, coverage, answers.bounds, settings.isolation)


def replacement(
    request: BackfillRequest,
    rows: CoverageRows,
    wanted: Sequence[OffsetRange],
    answers: LogAnswers,
    settings: FeedPlanSettings,
    parts: Parts,
) -> BackfillDecision:
    """Ask the output, too, and decide what is replaced; raises NotOfThisFormatError where it cannot replace rows."""
    replacer = role_of(settings.output, parts.sinks(settings.output).replacer, REPLACE_ROWS)
    replacer.check_can_replace()
    held = parts.control.held_ranges(rows.feed.feed_id, wanted)
    coverage = coverage_of(rows)
    decision = decide_replacement(request, wanted, held, coverage, answers.bounds, settings.isolation, settings.output)
    # Chunk by chunk, as they are committed: one may take out some rows of a file only, and not every format can.
    found = [replacer.rows_of(chunk) for chunk in decision.replaces]
    return replace(decision, rows_replaced=sum_of(found))


def earlier_batches(request: BackfillRequest, feed: FeedSnapshot, control: ControlTables) -> list[Batch]:
    """Return the batches that a request refers to; raises UnknownBatchError where one is not the feed's."""
    match request.selection:
        case OfBatch(batch_id):
            return [batch_of_feed(batch_id, feed.name, control)]
        case OfDagRun(run_id):
            batches = control.batches_of_run(feed.feed_id, run_id)
            if not batches:
                raise InvalidBackfillError(
                    f"expected a DAG run that planned or committed a batch of feed {feed.name}, found {run_id!r}, "
                    f"which did neither. {NOTHING_DONE} `kafka-ingest batches {feed.name} --json` names the runs."
                )
            return batches
        case _:
            return []


def check_same_topics(earlier: Collection[BatchPlan], topic_ids: dict[str, str | None], rows: CoverageRows) -> None:
    """Raise InvalidBackfillError where an earlier batch read a topic that was deleted since."""
    for plan in earlier:
        for topic in plan.topic_ids.keys() & topic_ids.keys():
            if rows.id_now(topic, plan.topic_ids[topic]) != topic_ids[topic]:
                raise InvalidBackfillError(
                    f"batch {plan.batch_id} read topic {topic!r} when its id was {plan.topic_ids[topic]}; it is "
                    f"{topic_ids[topic]} now, so those offsets mean other records. {NOTHING_DONE}"
                )


def check_not_beyond(found: Collection[TopicPartition], feed: FeedSnapshot) -> None:
    """Raise StoredOffsetBeyondLogError where a log ended below its stored offset: it may now hold other records."""
    if beyond := sorted(found):
        raise StoredOffsetBeyondLogError(
            f"expected logs that hold what was read of them, found that {listing(beyond)} ended below the stored "
            f"offset. {NOTHING_DONE} Decide that first: `kafka-ingest topic-changed {feed.name}`."
        )


def ask_kafka(
    request: BackfillRequest, meant: Collection[TopicPartition], feed: FeedSnapshot, kafka: KafkaCluster
) -> LogAnswers:
    """Return what the logs hold, and the offsets at the times that are asked for; raises KafkaUnavailableError."""
    found = kafka.log_bounds(meant)
    cut_off = cut_off_at(reached(feed.stored[tp] for tp in meant), found, kafka)
    unanswered = [
        f"{tp}: {answer.reason}"
        for tp, answer in sorted({**found, **cut_off}.items())
        if isinstance(answer, Unavailable)
    ]
    if unanswered:
        raise KafkaUnavailableError(
            f"Kafka cannot answer now for {listing(unanswered)}. {NOTHING_DONE} Try again, or leave these partitions "
            "out."
        )
    starts_at: Times = {}
    ends_at: Times = {}
    if isinstance(request.selection, BetweenTimestamps) and meant:
        if request.selection.start is not None:
            starts_at = kafka.offsets_at(dict.fromkeys(meant, request.selection.start))
        if request.selection.end is not None:
            ends_at = kafka.offsets_at(dict.fromkeys(meant, request.selection.end))
    bounds = {tp: each for tp, each in found.items() if isinstance(each, LogBounds)}
    return LogAnswers(bounds, starts_at, ends_at, cut_off)


def copied(output: OutputLocation, rows: CoverageRows, topic_ids: dict[str, str | None], parts: Parts) -> Taken:
    """Return what another output holds; raises OutputConflictError where it has other batches than its copies."""
    check_own_place(output, rows.feed, parts)
    feed, there = rows.feed, parts.sinks(output).publisher.known_batches()
    # Read after the output: a copy that is committed in between is then in the tables.
    ranges = parts.control.copied_ranges(feed.feed_id, output)
    known = {str(each.batch_id) for each in ranges}
    if unknown := [batch_id for batch_id in there if batch_id not in known]:
        raise OutputConflictError(
            f"expected {output} to be empty, or to hold copies of feed {feed.name} only; found "
            f"{counted(len(unknown), 'other batch')} (the newest is {unknown[-1]}). {NOTHING_DONE} Name another output."
        )
    if not there and any(not each.state.is_open for each in ranges):
        raise OutputConflictError(
            f"expected the copies of feed {feed.name} that were committed into {output}, found none there. Is its "
            f"storage mounted? {NOTHING_DONE} If they were removed on purpose, name another output."
        )
    now = [replace(each, topic_id=rows.id_now(each.offset_range.topic, each.topic_id)) for each in ranges]
    return taken_in_copy(now, topic_ids)


def check_own_place(output: OutputLocation, feed: FeedSnapshot, parts: Parts) -> None:
    """Raise OutputConflictError where a copy's output is, is inside, or contains that of another copy."""
    for feed_id, other in parts.control.copy_outputs():
        if (feed_id, other) != (feed.feed_id, output) and (
            is_one_table(output, other) or is_taken(parts.sinks(output).places, places_of(other, parts.sinks))
        ):
            whose = "another copy of this feed" if feed_id == feed.feed_id else "a copy of another feed"
            raise OutputConflictError(
                f"expected an output for this copy alone, found {output}, which is, is inside, contains, or has the "
                f"table of {other}, the output of {whose}. {NOTHING_DONE} Name another output."
            )


def is_one_table(one: OutputLocation, other: OutputLocation) -> bool:
    """Whether two outputs are one table, wherever their directories are."""
    mine, theirs = ([dict(each.options).get(name) for name in ADDRESS] for each in (one, other))
    return one.format == other.format and mine == theirs and any(mine)


def places_of(output: OutputLocation, sinks: Sinks) -> Collection[Place]:
    """Return the places of an output; of a format that only another version of this package knows, the output alone."""
    try:
        return sinks(output).places
    except OutputNotUsableError:
        return (output.place,)


def plans_of(
    decision: BackfillDecision,
    request: BackfillRequest,
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
    output: OutputLocation,
) -> list[BatchPlan]:
    """Return a plan for each chunk, with ids in the order in which they are to be read."""
    plans: list[BatchPlan] = []
    newest = feed.newest_batch
    for number, ranges in enumerate(decision.chunks):
        is_replay = bool(decision.replays)
        newest = next_batch_id(newest)
        plans.append(
            BatchPlan(
                batch_id=newest,
                kind=request.mode.kind,
                feed_id=feed.feed_id,
                feed_name=feed.name,
                cluster_id=feed.cluster_id,
                topic_ids=decision.topic_ids[number] if is_replay else ids_of(ranges, feed),
                ranges=ranges,
                isolation=settings.isolation,
                # Between dead letters there are always offsets without one.
                offsets_policy=OffsetsPolicy.AUTO if is_replay else settings.offsets_policy,
                output=output,
                planned_at=datetime.now(UTC),
                leader_epochs=epochs_of(ranges, decision),
                replaces=decision.replaces[number] if decision.replaces else (),
                replays=decision.replays[number] if is_replay else (),
            )
        )
    return plans


def ids_of(ranges: Collection[OffsetRange], feed: FeedSnapshot) -> dict[str, str | None]:
    return {planned.topic: feed.stored[planned.topic_partition].topic_id for planned in ranges}


def epochs_of(ranges: Collection[OffsetRange], decision: BackfillDecision) -> dict[TopicPartition, int]:
    """Return the leader epochs in which the logs of ranges reached their ends, where a broker reported them."""
    partitions = {planned.topic_partition for planned in ranges}
    return {tp: epoch for tp, epoch in decision.leader_epochs.items() if tp in partitions}
