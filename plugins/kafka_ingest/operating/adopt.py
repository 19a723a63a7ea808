"""Rebuild a feed's control rows from what its output holds: after they were lost, or restored from an older backup."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from kafka_ingest.batch import BatchKind, BatchPlan, BatchState, sha256
from kafka_ingest.boundaries import (
    AdoptedBatch,
    Adoption,
    Event,
    FeedSnapshot,
    NewFeed,
    OperatorTables,
    PublishedReceipt,
    Sink,
)
from kafka_ingest.errors import NothingToAdoptError, OutputConflictError, ReceiptsDoNotFollowError
from kafka_ingest.gap import Gap
from kafka_ingest.offsets import StoredOffset, TopicPartition, listing
from kafka_ingest.operating.journal_rows import row_of
from kafka_ingest.operating.rebuilt_gaps import rebuilt_gaps
from kafka_ingest.planning.settings import FeedPlanSettings


@dataclass(frozen=True, slots=True)
class AdoptDecision:
    """What adopting would write, beside what is stored now."""

    target: FeedSnapshot | NewFeed
    adoption: Adoption

    @property
    def stored_now(self) -> dict[TopicPartition, StoredOffset]:
        """The stored offsets as they are."""
        return dict(self.target.stored) if isinstance(self.target, FeedSnapshot) else {}


@dataclass(slots=True)
class Rebuilt:
    """The history of a feed, told again by its receipts from the oldest to the newest."""

    rows: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    ledger: dict[tuple[str, datetime, str], Event] = field(default_factory=dict)
    story: list[Event | BatchPlan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def tell(self, published: PublishedReceipt) -> None:
        """Take one receipt in: first what was decided since the one before, then what was read."""
        for event in published.ledger:
            # Its number is of the control tables that wrote it, and those may have been rebuilt since.
            told = (event.kind, event.at, event.who)
            if told in self.ledger:
                continue
            self.ledger[told] = event
            self.story.append(event)
            if event.kind == "seeded":
                self._seed(event)
            elif event.kind == "gap":
                self._pass_gaps(event)
            elif event.kind == "reset":
                self._reset(event)
            elif event.kind == "output_changed":
                self._begin_again(event)
        if published.plan.kind is BatchKind.LIVE:
            self._advance(published.plan)
        elif published.plan.kind is BatchKind.BACKFILL:
            self.story.append(published.plan)

    def _seed(self, event: Event) -> None:
        for entry in event.detail["partitions"]:
            row = self.rows.get(TopicPartition(entry["topic"], entry["partition"]))
            if row is not None and not row.is_pending:
                self.problems.append(
                    f"{row.topic_partition} is said to begin twice, at {entry['offset']} by {event.who}"
                )
            seed = row_of(entry | {"first_offset": entry["offset"], "next_offset": entry["offset"]})
            self.rows[seed.topic_partition] = seed

    def _pass_gaps(self, event: Event) -> None:
        for gap in map(Gap.from_document, event.detail["gaps"]):
            row = self.rows.get(gap.offset_range.topic_partition)
            if gap.applied_at is not None and row is not None and row.next_offset is not None:
                end_offset = max(row.next_offset, gap.offset_range.end_offset)
                self.rows[row.topic_partition] = replace(row, next_offset=end_offset)

    def _reset(self, event: Event) -> None:
        for row in map(row_of, event.detail["removed"]):
            self.rows.pop(row.topic_partition, None)
        self.rows |= {row.topic_partition: row for row in map(row_of, event.detail["partitions"])}

    def _begin_again(self, event: Event) -> None:
        """Take the stored offsets as another output left them: its receipts are not here."""
        self.rows.clear()
        self.rows |= {row.topic_partition: row for row in map(row_of, event.detail["partitions"])}

    def _advance(self, plan: BatchPlan) -> None:
        for planned in plan.ranges:
            topic_id = plan.topic_ids[planned.topic]
            row = self.rows.get(planned.topic_partition)
            if row is None:
                self.problems.append(f"batch {plan.batch_id} reads {planned}, of which no receipt says where it began")
                continue
            if (row.next_offset, row.topic_id) != (planned.start_offset, topic_id):
                self.problems.append(
                    f"batch {plan.batch_id} reads {planned} of topic id {topic_id}, the receipts before it end at "
                    f"{row.next_offset} of topic id {row.topic_id}"
                )
            self.rows[planned.topic_partition] = replace(
                row,
                next_offset=planned.end_offset,
                first_offset=row.first_offset if row.first_offset is not None else planned.start_offset,
                topic_id=topic_id,
                leader_epoch=plan.leader_epochs.get(planned.topic_partition, row.leader_epoch),
                batch_id=plan.batch_id,
            )


def decide_adoption(settings: FeedPlanSettings, control: OperatorTables, sink: Sink) -> AdoptDecision:
    """Return what the output tells of a feed; nothing is written.

    Raises NothingToAdoptError where it tells nothing new, OutputConflictError where it is not this feed's or a receipt is
    damaged, ReceiptsDoNotFollowError where one is missing.
    """
    receipts = list(sink.published_receipts())
    if not receipts:
        raise NothingToAdoptError(
            f"feed {settings.name}: its output {settings.output_path} holds no published batch, so there is nothing to adopt. Is "
            "its storage mounted?"
        )
    feed_id = the_only_feed(receipts, settings)
    feed = control.feed(settings.name)
    renamed = control.feed_of_id(feed_id)
    if feed is not None and feed.feed_id != feed_id:
        raise OutputConflictError(
            f"feed {settings.name} is {feed.feed_id} in the control tables, but {settings.output_path} was written by feed "
            f"{feed_id}: two feeds share this output, or it was moved here. Nothing was changed; correct sink.path."
        )
    if feed is None and renamed is not None:
        raise OutputConflictError(
            f"{settings.output_path} was written by the feed that the control tables know as {renamed.name!r}. To keep "
            f"its history under the new name: `kafka-ingest rename-feed {renamed.name} {settings.name} --reason …`."
        )
    rebuilt = Rebuilt()
    for published in receipts:
        rebuilt.tell(published)
    if all(published.plan.kind is not BatchKind.LIVE for published in receipts):
        rebuilt.problems.append("there are backfills only, and no live batch's receipt says how far the feed had come")
    if rebuilt.problems:
        raise ReceiptsDoNotFollowError(
            f"the receipts beside {settings.output_path} do not follow each other: {listing(rebuilt.problems)}. One is missing "
            "or was put there by hand. Nothing was changed; restore it from a backup."
        )
    states = control.batch_states(feed_id)
    new = [published for published in receipts if states.get(published.plan.batch_id) is not BatchState.COMMITTED]
    if not new:
        raise NothingToAdoptError(
            f"feed {settings.name}: the control tables know all {len(receipts):,} batches of {settings.output_path} as committed"
        )
    newest = receipts[-1].plan
    reset = reset_since(rebuilt, control.ledger_of_feed(feed_id))
    return AdoptDecision(
        target=feed or NewFeed(feed_id, settings.name),
        adoption=Adoption(
            cluster_id=newest.cluster_id,
            topics=sorted({topic_partition.topic for topic_partition in rebuilt.rows}),
            # As if unchanged: a topic that it matches and no receipt knows is taken for new, and read from its beginning.
            topic_pattern=settings.topic_pattern,
            stored=stored_after(rebuilt, feed, new, reset),
            removed=removed_after(rebuilt, feed, new, reset),
            reset=sorted(reset),
            batches=[adopted(published, sink) for published in new],
            gaps=rebuilt_gaps(rebuilt.story),
            ledger=sorted(rebuilt.ledger.values(), key=lambda event: event.at),
            abandoned=overtaken(feed, rebuilt, {published.plan.batch_id for published in new}, reset),
        ),
    )


def the_only_feed(receipts: Iterable[PublishedReceipt], settings: FeedPlanSettings) -> UUID:
    """Return the id of the feed that wrote an output."""
    feeds = {published.plan.feed_id for published in receipts}
    if len(feeds) != 1:
        raise OutputConflictError(
            f"expected the batches of one feed in {settings.output_path}, found those of {len(feeds)}: {listing(sorted(feeds))}. "
            "Nothing was changed."
        )
    return feeds.pop()


def reset_since(rebuilt: Rebuilt, known: Iterable[Event]) -> set[str]:
    """Return the topics that were decided on after the control tables were copied: there a smaller offset may be the newer."""
    told = {(event.kind, event.at, event.who) for event in known}
    return {
        entry["topic"]
        for identity, event in rebuilt.ledger.items()
        if event.kind == "reset" and identity not in told
        for entry in (*event.detail["removed"], *event.detail["partitions"])
    }


def stored_after(
    rebuilt: Rebuilt, feed: FeedSnapshot | None, new: Iterable[PublishedReceipt], reset: Collection[str]
) -> list[StoredOffset]:
    """Return the stored offsets that change.

    What the control tables know and no receipt tells (a seed, a gap since the newest batch) stays: a row that is further than
    the receipts is kept, unless batches that are new to the tables read another topic under its name, or its topic was
    decided on since.
    """
    known = feed.stored if feed is not None else {}
    topics_read = {planned.topic for published in new for planned in published.plan.ranges}
    changed: list[StoredOffset] = []
    for topic_partition, row in sorted(rebuilt.rows.items()):
        stored = known.get(topic_partition)
        if stored is None or topic_partition.topic in reset:
            changed.append(row)
        elif stored.topic_id != row.topic_id:
            changed += [row] if topic_partition.topic in topics_read else []
        elif stored.next_offset is None or (row.next_offset is not None and row.next_offset > stored.next_offset):
            changed.append(row)
    return changed


def removed_after(
    rebuilt: Rebuilt, feed: FeedSnapshot | None, new: Iterable[PublishedReceipt], reset: Collection[str]
) -> list[TopicPartition]:
    """Return the stored offsets of an older copy that end: partitions that a topic has no more since it was made again."""
    read = {
        (planned.topic, published.plan.topic_ids[planned.topic])
        for published in new
        for planned in published.plan.ranges
    }
    ids = {topic_partition.topic: row.topic_id for topic_partition, row in rebuilt.rows.items()}
    return [
        topic_partition
        for topic_partition, row in sorted((feed.stored if feed is not None else {}).items())
        if topic_partition not in rebuilt.rows
        and (
            topic_partition.topic in reset
            or (
                row.topic_id != ids.get(topic_partition.topic, row.topic_id)
                and (topic_partition.topic, ids[topic_partition.topic]) in read
            )
        )
    ]


def overtaken(feed: FeedSnapshot | None, rebuilt: Rebuilt, published: set[UUID], reset: Collection[str]) -> UUID | None:
    """Return the open batch of older control tables whose ranges were read, left behind, or lost their topic, since."""
    batch = feed.open_batch if feed is not None else None
    if batch is None or batch.batch_id in published:
        return None
    for planned in batch.plan.ranges:
        row = rebuilt.rows.get(planned.topic_partition)
        if row is None or row.next_offset is None:
            continue
        is_elsewhere = row.next_offset > planned.start_offset or (
            planned.topic in reset and row.next_offset != planned.start_offset
        )
        if row.topic_id != batch.plan.topic_ids[planned.topic] or is_elsewhere:
            return batch.batch_id
    return None


def adopted(published: PublishedReceipt, sink: Sink) -> AdoptedBatch:
    """Return a batch as the control tables will know it."""
    return AdoptedBatch(
        plan=published.plan,
        receipt=published.receipt,
        receipt_sha256=sha256(published.receipt.as_bytes()),
        attempt_directory=sink.attempt_directory(published.plan.batch_id, published.receipt.attempt),
    )
