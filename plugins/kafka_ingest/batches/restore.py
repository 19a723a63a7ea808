"""An operator restores an abandoned batch: its staged files, perhaps the last copy, are published after all.

The batch stays ABANDONED, and a revoked one stays revoked: offsets may have moved since. Its records go into new
batches, which claim their offsets and are pinned and committed like any other:

1. what is below the stored offsets and in no other batch becomes chunks of a backfill, which close the gaps;
2. what begins at a stored offset becomes a live batch, which moves it.

What other batches hold is left out, and so is what a truncated log has lost: other records are at its offsets now. A
crash in between leaves open batches that the next call continues.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.batches.decide_backfill import MOST_CHUNKS, cut_into_chunks, taken_in_feed
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.batches.open_attempt import attempt_and_document
from kafka_ingest.batches.pin_receipt import pin_attempt, valid_receipt
from kafka_ingest.batches.plan_backfill import ids_of
from kafka_ingest.batches.plan_batch import next_batch_id
from kafka_ingest.errors import BatchStateError, InvalidReceiptError
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import RESTORED_BY, BackfillRecord, FeedSnapshot, PlanRecord
from kafka_ingest.model.coverage import LAST_OFFSET, CoverageRows, coverage_of
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect, listing, subtract
from kafka_ingest.model.receipt import Filtered, Receipt, WrittenFile
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.ports.parts import Parts

NOTHING_DONE = "Nothing was changed."


@dataclass(frozen=True, slots=True)
class RestoreDecision:
    """What is restored of an abandoned batch. ``begun`` are batches that an earlier call planned and did not finish.

    ``live`` begins at stored offsets, ``fill`` is below them; ``held`` is what other batches hold or will hold;
    ``cut_off`` is what was read of a log that was truncated since, where other records are now.
    """

    rows: CoverageRows
    batch: Batch
    attempt: Attempt
    receipt: Receipt
    live: Sequence[OffsetRange]
    fill: Sequence[OffsetRange]
    held: Sequence[OffsetRange]
    cut_off: Sequence[OffsetRange]
    begun: Sequence[Batch]

    @property
    def is_nothing(self) -> bool:
        return not (self.live or self.fill or self.begun)


def planner_of(batch_id: UUID) -> str:
    """Return the ``planned_by`` of a batch's restored batches, by which the next call finds them."""
    return f"{RESTORED_BY}{batch_id}"


def decide_restore(batch_id: UUID, parts: Parts) -> RestoreDecision:
    """Return what is restored of an abandoned batch; nothing is written.

    Raises BatchStateError where it is not abandoned or has no receipt any more, StagedOutputUnusableError where its
    files differ from the receipt, OutputUnavailableError where its storage is not available, and what pinning raises
    where Kafka does not answer, or topic ids differ from those of the stored offsets.
    """
    control, sinks = parts.control, parts.sinks
    batch = control.batch(batch_id)
    check_can_come_back(batch)
    rows = control.coverage(batch.feed_name)
    if rows is None:
        raise BatchStateError(f"batch {batch_id}: its feed {batch.feed_name} is not known any more. {NOTHING_DONE}")
    check_output_there(rows.feed.feed_id, batch.plan.output, control, sinks)
    attempt, receipt = staged_attempt(batch, control, sinks(batch.plan.output))
    feed, open_live = rows.feed, rows.feed.open_batch
    begun = [each for each in control.backfill_of(feed.feed_id, planner_of(batch_id)) if each.state.is_open]
    if open_live is not None and open_live.planned_by == planner_of(batch_id):
        begun.append(open_live)
    read = ranges_of_topics_now(batch.plan, receipt.ranges_read(batch.plan), rows)
    # Asked after the feed's rows: whatever is decided in between changes the feed, and planning refuses that.
    cut_off = intersect(read, [OffsetRange(tp, end, LAST_OFFSET) for tp, end in control.cut_off(batch_id).items()])
    mine = subtract(read, cut_off)
    live = live_ranges(batch.plan, mine, feed) if open_live not in begun else []
    coverage = coverage_of(rows)
    passed = intersect(
        mine, [OffsetRange(tp, 0, row.next_offset) for tp, row in feed.stored.items() if row.next_offset]
    )
    again = intersect(passed, [interval for partition in coverage.values() for interval in partition.rewound])
    taken = taken_in_feed(coverage, control.committed_within(feed.feed_id, again) if again else [])
    fill = subtract(passed, [*taken.committed, *taken.claimed])
    if live and open_live is not None:
        raise BatchStateError(
            f"batch {batch_id}: {listing(live)} begin at stored offsets, but batch {open_live.batch_id} is "
            f"{open_live.state}. {NOTHING_DONE} Finish that one (run the feed) or abandon it, then restore."
        )
    held = subtract(intersect(mine, [*taken.committed, *taken.claimed]), [*live, *fill])
    decision = RestoreDecision(rows, batch, attempt, receipt, live, fill, held, cut_off, begun)
    check_can_be_pinned(decision, parts.kafka)
    return decision


def check_can_come_back(batch: Batch) -> None:
    """Raise BatchStateError unless a batch was abandoned and is of the feed's own output."""
    if batch.state is not BatchState.ABANDONED:
        raise BatchStateError(
            f"batch {batch.batch_id} is {batch.state}: expected an ABANDONED one to restore. {NOTHING_DONE}"
        )
    instead = {
        BatchKind.COPY: f"is a copy into {batch.plan.output}: copy its ranges again",
        BatchKind.REPLACE: "was to replace rows that are still in the output: replace its ranges again",
        BatchKind.REPLAY: f"was to replay dead letters, which are still there: `kafka-ingest replay {batch.feed_name}`",
    }
    if batch.plan.kind in instead:
        raise BatchStateError(f"batch {batch.batch_id} {instead[batch.plan.kind]}. {NOTHING_DONE}")


def staged_attempt(batch: Batch, control: OperatorTables, sink: Sink) -> tuple[Attempt, Receipt]:
    """Return the attempt whose receipt is valid, the pinned one first, after its files were held against it."""
    attempts = control.attempts(batch.batch_id)
    problems: list[str] = []
    for attempt in sorted(attempts, key=lambda each: each.attempt != batch.pinned_attempt):
        if attempt.state is AttemptState.DISCARDED:
            problems.append(f"attempt {attempt.attempt} was discarded: {attempt.reason}")
            continue
        try:
            receipt = valid_receipt(batch.plan, attempt, sink.staging.read_receipt(attempt.directory))
        except InvalidReceiptError as error:
            problems.append(str(error))
        else:
            sink.staging.check_restageable(attempt.directory, receipt)
            if receipt.dead_letters:
                sink.staging.check_restageable(staged_dead_letters(attempt.directory), receipt.of_dead_letters())
            return attempt, receipt
    raise BatchStateError(
        f"batch {batch.batch_id}: expected an attempt with a valid receipt, found none: "
        f"{listing(problems) or 'none opened'}. {NOTHING_DONE}"
    )


def ranges_of_topics_now(plan: BatchPlan, read: Sequence[OffsetRange], rows: CoverageRows) -> list[OffsetRange]:
    """Return what was read of a plan, of topics that are the ones the offsets are stored of now."""
    return [
        planned
        for planned in read
        if (row := rows.feed.stored.get(planned.topic_partition)) is not None
        and row.topic_id == rows.id_now(planned.topic, plan.topic_ids[planned.topic])
    ]


def live_ranges(plan: BatchPlan, mine: Sequence[OffsetRange], feed: FeedSnapshot) -> list[OffsetRange]:
    """Return which of a live batch's ranges begin at the stored offset now, up to the next gap ahead."""
    found: list[OffsetRange] = []
    for planned in mine if plan.kind is BatchKind.LIVE else ():
        start = feed.stored[planned.topic_partition].next_offset
        if start is None or not planned.start_offset <= start < planned.end_offset:
            continue
        ahead = [
            gap.offset_range.start_offset
            for gap in feed.gaps_ahead
            if gap.offset_range.topic_partition == planned.topic_partition and gap.offset_range.start_offset >= start
        ]
        end = min([planned.end_offset, *ahead])
        found += [OffsetRange(planned.topic_partition, start, end)] if start < end else []
    return found


def restore(decision: RestoreDecision, parts: Parts, *, reason: str, actor: str) -> list[UUID]:
    """Plan and write what is restored, and return its batches, WRITTEN, in the order in which to commit them.

    Raises FeedChangedError where the feed changed since the decision.
    """
    control = parts.control
    planner = planner_of(decision.batch.batch_id)
    feed, begun = decision.rows.feed, decision.begun
    newest = feed.newest_batch
    chunks: list[BatchPlan] = []
    most = max((each.span for each in decision.fill), default=1) * len(decision.fill)
    for ranges in cut_into_chunks(decision.fill, max(most, 1), MOST_CHUNKS)[0]:
        newest = next_batch_id(newest)
        chunks.append(plan_again(decision.batch.plan, newest, BatchKind.BACKFILL, ranges, feed))
    live = None
    if decision.live:
        live = plan_again(decision.batch.plan, next_batch_id(newest), BatchKind.LIVE, tuple(decision.live), feed)
    plans = [*(each.plan for each in begun), *chunks, *([live] if live is not None else [])]
    if chunks:
        request = {"restored": str(decision.batch.batch_id), "reason": reason}
        control.record_backfill(feed, BackfillRecord(chunks, [], request), actor=planner)
        feed = control.feed(feed.name) or feed
    if live is not None:
        record = PlanRecord(
            feed.cluster_id, feed.topics, topic_pattern=feed.topic_pattern, holds=tuple(feed.holds), plan=live
        )
        control.record_plan(feed, record, actor=planner)
    if plans:
        # Only now, so that no batch is logged that was not recorded. After a crash the next call logs those that were
        # begun.
        detail = {"reason": reason, "into": [str(plan.batch_id) for plan in plans]}
        control.record_event(feed.feed_id, "restored", actor=actor, batch_id=decision.batch.batch_id, detail=detail)
    for plan in plans:
        stage_again(control.batch(plan.batch_id), decision, parts, actor=actor)
    return [plan.batch_id for plan in plans]


def check_can_be_pinned(decision: RestoreDecision, kafka: KafkaCluster) -> None:
    """Raise what pinning would raise, before it leaves an open batch: the feed would stop at it."""
    feed = decision.rows.feed
    # Batches that are written already do not need their topics any more, only the commit.
    to_write = [
        (each.plan.cluster_id, each.plan.topic_ids) for each in decision.begun if each.state is BatchState.PLANNED
    ]
    if planned := [*decision.live, *decision.fill]:
        to_write.append((feed.cluster_id, ids_of(planned, feed)))
    if not to_write:
        return
    described = kafka.describe_topics({topic for _, topic_ids in to_write for topic in topic_ids})
    found = kafka.cluster_id()
    for cluster_id, topic_ids in to_write:
        check_cluster(cluster_id, found, feed.name)
        check_topic_ids(topic_ids, described, feed.name)


def plan_again(
    was: BatchPlan, batch_id: UUID, kind: BatchKind, ranges: tuple[OffsetRange, ...], feed: FeedSnapshot
) -> BatchPlan:
    """Return the plan of a batch that takes over some of another's ranges."""
    return BatchPlan(
        batch_id=batch_id,
        kind=kind,
        feed_id=feed.feed_id,
        feed_name=feed.name,
        cluster_id=feed.cluster_id,
        topic_ids=ids_of(ranges, feed),
        ranges=tuple(sorted(ranges)),
        isolation=was.isolation,
        offsets_policy=was.offsets_policy,
        output=was.output,
        planned_at=datetime.now(UTC),
        leader_epochs={
            planned.topic_partition: was.leader_epochs[planned.topic_partition]
            for planned in ranges
            if kind is BatchKind.LIVE and planned.topic_partition in was.leader_epochs
        },
    )


def stage_again(batch: Batch, decision: RestoreDecision, parts: Parts, *, actor: str) -> None:
    """PLANNED → WRITTEN from the files that the abandoned batch's attempt has staged; does nothing if it is written."""
    if batch.state is not BatchState.PLANNED:
        return
    sink = parts.sinks(batch.plan.output)
    attempt, document = attempt_and_document(batch, parts, actor)
    parts.control.open_attempt(attempt)
    sink.staging.open_attempt(attempt.directory, document)
    files = sink.staging.restage(decision.attempt.directory, decision.receipt, attempt.directory, batch.plan.ranges)
    letters = restaged_dead_letters(decision, attempt, batch.plan, sink)
    filtered = filtered_of_ranges(decision, batch.plan, [*files, *letters])
    receipt = Receipt(
        batch_id=batch.batch_id,
        attempt=attempt.attempt,
        plan_fingerprint=batch.plan.fingerprint,
        document_sha256=attempt.document_sha256,
        rows_read=sum(file.rows for file in (*files, *letters)) + sum(each.records for each in filtered),
        files=tuple(files),
        dead_letters=tuple(letters),
        filtered=filtered,
        in_any_order=decision.receipt.in_any_order,
        columns=decision.receipt.columns,
        written_at=datetime.now(UTC),
        written_by=planner_of(decision.batch.batch_id),
    )
    sink.staging.write_receipt(attempt.directory, receipt.as_bytes())
    pin_attempt(batch.batch_id, attempt.attempt, parts)


def filtered_of_ranges(
    decision: RestoreDecision, plan: BatchPlan, files: Sequence[WrittenFile]
) -> tuple[Filtered, ...]:
    """Return how many records the abandoned batch had filtered of the plan's ranges.

    Known of whole ranges, and of parts of ranges in which each offset had a record. Of others, offsets without a row
    count as offsets without a record.
    """
    counts = {count.offset_range.topic_partition: count for count in decision.receipt.range_counts(decision.batch.plan)}
    stored: Counter[TopicPartition] = Counter()
    for held in (each for file in files for each in file.partitions):
        stored[held.topic_partition] += held.rows
    found: list[Filtered] = []
    for planned in plan.ranges:
        count = counts[planned.topic_partition]
        if planned == count.offset_range:
            number = count.filtered
        else:
            number = planned.span - stored[planned.topic_partition] if count.filtered and not count.invisible else 0
        found += [Filtered(planned.topic_partition, number)] if number else []
    return tuple(found)


def restaged_dead_letters(
    decision: RestoreDecision, attempt: Attempt, plan: BatchPlan, sink: Sink
) -> Sequence[WrittenFile]:
    """Stage the dead letters of the plan's ranges again, too, and return their files."""
    if not decision.receipt.dead_letters:
        return ()
    source, target = (staged_dead_letters(each.directory) for each in (decision.attempt, attempt))
    return sink.staging.restage(source, decision.receipt.of_dead_letters(), target, plan.ranges)
