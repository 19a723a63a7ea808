"""Rebuild a feed's control rows from what its output holds: after they were lost, or restored from an older backup."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.committing.publish_dead_letters import publish_letters
from kafka_ingest.errors import NothingToAdoptError, OutputConflictError, ReceiptsDoNotFollowError
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState, sha256
from kafka_ingest.model.control_rows import AdoptedBatch, Adoption, CoverageRows, FeedSnapshot, NewFeed
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.event import Event
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, listing
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.removal import LostRange, Removal, RemovalCause, RemovedRange
from kafka_ingest.operating.held_offsets import also_in, held, is_visible, lost_of_batches, not_in
from kafka_ingest.operating.journal_rows import row_of
from kafka_ingest.operating.rebuilt_gaps import rebuilt_gaps
from kafka_ingest.operating.replaced_output import with_replaced
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sink


@dataclass(frozen=True, slots=True)
class AdoptDecision:
    """What adopting would write, next to what is stored now.

    ``to_publish`` and ``to_revoke`` are batches whose publishing or revoking was interrupted; ``known`` is how many
    batches the output holds in all.
    """

    target: FeedSnapshot | NewFeed
    adoption: Adoption
    to_publish: Sequence[PublishedReceipt] = ()
    to_revoke: Sequence[PublishedReceipt] = ()
    known: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether the control tables have everything that the output's receipts record."""
        return not (self.adoption.batches or self.adoption.expired or self.adoption.back or self.to_revoke)

    @property
    def stored_now(self) -> dict[TopicPartition, StoredOffset]:
        """The stored offsets as they are."""
        return dict(self.target.stored) if isinstance(self.target, FeedSnapshot) else {}


@dataclass(slots=True)
class Rebuilt:
    """The history of a feed, replayed from its receipts, oldest first."""

    rows: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    ledger: dict[tuple[str, datetime, str], Event] = field(default_factory=dict)
    story: list[Event | BatchPlan] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    """What lost published files held, as far as receipts record it."""

    def replay(self, published: PublishedReceipt) -> None:
        """Take one receipt in: first what was decided since the one before, then what was read."""
        for event in published.ledger:
            # Its number is of the control tables that wrote it, and those may have been rebuilt since.
            identity = (event.kind, event.at, event.actor)
            if identity in self.ledger:
                continue
            self.ledger[identity] = event
            self.story.append(event)
            if event.kind == "seeded":
                self._seed(event)
            elif event.kind == "gap":
                self._pass_gaps(event)
                self.lost += map(LostRange.from_document, event.detail.get("lost", ()))
            elif event.kind == "reset":
                self._reset(event)
            elif event.kind == "output_changed":
                self._begin_again(event)
        if published.plan.kind is BatchKind.LIVE:
            self._advance(published)
        elif published.plan.kind is BatchKind.BACKFILL:
            self.story.append(published.plan)

    def _seed(self, event: Event) -> None:
        for entry in event.detail["partitions"]:
            row = self.rows.get(TopicPartition(entry["topic"], entry["partition"]))
            if row is not None and not row.is_pending:
                self.problems.append(
                    f"{row.topic_partition} has two starts in the receipts, the second at {entry['offset']} by "
                    f"{event.actor}"
                )
            seed = row_of(entry | {"first_offset": entry["offset"], "next_offset": entry["offset"]})
            self.rows[seed.topic_partition] = seed

    def _pass_gaps(self, event: Event) -> None:
        for gap in map(Gap.from_document, event.detail["gaps"]):
            row = self.rows.get(gap.offset_range.topic_partition)
            if gap.applied_at is not None and row is not None and row.next_offset is not None:
                end_offset = max(row.next_offset, gap.offset_range.end_offset)
                self.rows[row.topic_partition] = replace(row, next_offset=end_offset, leader_epoch=None)

    def _reset(self, event: Event) -> None:
        for row in map(row_of, event.detail["removed"]):
            self.rows.pop(row.topic_partition, None)
        self.rows |= {row.topic_partition: row for row in map(row_of, event.detail["partitions"])}

    def _begin_again(self, event: Event) -> None:
        """Take the stored offsets as another output left them: its receipts are not here."""
        self.rows.clear()
        self.rows |= {row.topic_partition: row for row in map(row_of, event.detail["partitions"])}

    def _advance(self, published: PublishedReceipt) -> None:
        plan = published.plan
        for planned in published.ranges_read:
            topic_id = plan.topic_ids[planned.topic]
            row = self.rows.get(planned.topic_partition)
            if row is None:
                self.problems.append(f"batch {plan.batch_id} reads {planned}, and no receipt has its start offset")
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
                leader_epoch=plan.leader_epochs.get(planned.topic_partition),
                batch_id=plan.batch_id,
            )


def rebuilt_from(receipts: Sequence[PublishedReceipt]) -> Rebuilt:
    """Return a feed's history; raises OutputConflictError where what a receipt says was decided cannot be used."""
    rebuilt = Rebuilt()
    for published in receipts:
        try:
            with read_as_ours():
                rebuilt.replay(published)
                if published is receipts[-1]:
                    rebuilt.gaps = rebuilt_gaps(rebuilt.story)
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"batch {published.plan.batch_id}: expected in its receipt what was decided before it, found that it "
                f"cannot be used: {error}. Nothing was changed; restore the receipt from a backup."
            ) from error
    return rebuilt


def decide_adoption(settings: FeedPlanSettings, control: OperatorTables, sink: Sink) -> AdoptDecision:
    """Return a feed's control rows as its output's receipts record them; nothing is written.

    Files that receipts name and the output lacks do not prevent it: they are shown and recorded. Nor does the lack of a
    published live batch: the receipts of backfills planned before the first one carry the whole ledger.

    Raises NothingToAdoptError where the output is empty, OutputConflictError where it is not this feed's or a receipt
    is damaged, ReceiptsDoNotFollowError where a receipt is missing.
    """
    found = with_replaced(list(sink.publisher.published_receipts()))
    # Without the revoked ones, which miss only their mark: others have read their ranges since, or will.
    receipts = [published for published in found if published.files.state is not FilesState.REVOKED]
    if not receipts:
        raise NothingToAdoptError(
            f"feed {settings.name}: its output {settings.output} holds no published batch, so there is nothing to "
            "adopt. Is its storage mounted?"
        )
    feed_id = the_only_feed(receipts, settings)
    refuse_broken(receipts)
    feed = control.feed(settings.name)
    renamed = control.feed_of_id(feed_id)
    if feed is not None and feed.feed_id != feed_id:
        raise OutputConflictError(
            f"feed {settings.name} is {feed.feed_id} in the control tables, but {settings.output} was written by feed "
            f"{feed_id}: two feeds share this output, or it was moved here. Nothing was changed; correct sink.path."
        )
    if feed is None and renamed is not None:
        raise OutputConflictError(
            f"{settings.output} was written by the feed that is {renamed.name!r} in the control tables. To keep its "
            f"history under the new name: `kafka-ingest rename-feed {renamed.name} {settings.name} --reason …`."
        )
    rebuilt = rebuilt_from(receipts)
    if all(published.plan.kind is not BatchKind.LIVE for published in receipts):
        rebuilt.problems += [
            f"batch {published.plan.batch_id} is a backfill of {planned}, and no receipt has the feed's stored offset "
            "there"
            for published in receipts
            for planned in (published.ranges_read if not published.plan.replays else ())
            if planned.topic_partition not in rebuilt.rows
        ]
    if rebuilt.problems:
        raise ReceiptsDoNotFollowError(
            f"the receipts beside {settings.output} do not follow each other: {listing(rebuilt.problems)}. One is "
            "missing or was put there by hand. Nothing was changed; restore it from a backup."
        )
    states = control.batch_states(feed_id)
    new = [published for published in receipts if states.get(published.plan.batch_id) is not BatchState.COMMITTED]
    rows = control.coverage(settings.name)
    lost = lost_of_batches([*rebuilt.lost, *(rows.lost if rows is not None else ())])
    expired, back = removed_since(receipts, {published.plan.batch_id for published in new}, lost, rows)
    newest = receipts[-1].plan
    target = feed or NewFeed(feed_id, settings.name)
    to_revoke = [published for published in found if published.files.state is FilesState.REVOKED]
    if not new:
        adoption = Adoption(newest.cluster_id, feed.topics if feed else (), [], [], [], [], expired=expired, back=back)
        return AdoptDecision(target, adoption, to_revoke=to_revoke, known=len(receipts))
    reset = reset_since(rebuilt, control.ledger_of_feed(feed_id))
    return AdoptDecision(
        target=target,
        to_publish=[published for published in new if published.files.state is FilesState.STAGED],
        to_revoke=to_revoke,
        known=len(receipts),
        adoption=Adoption(
            cluster_id=newest.cluster_id,
            topics=sorted({topic_partition.topic for topic_partition in rebuilt.rows}),
            # As if unchanged: a matching topic that is in no receipt counts as new and is read from its beginning.
            topic_pattern=settings.topic_pattern,
            stored=stored_after(rebuilt, feed, new, reset),
            removed=removed_after(rebuilt, feed, new, reset),
            reset=sorted(reset),
            batches=[adopted(published, sink) for published in new],
            gaps=rebuilt.gaps,
            ledger=sorted(rebuilt.ledger.values(), key=lambda event: event.at),
            abandoned=overtaken(feed, rebuilt, {published.plan.batch_id for published in new}, reset),
            expired=expired,
            back=back,
            lost=rebuilt.lost,
            files={
                published.plan.batch_id: published.files
                for published in new
                if published.files.state is not FilesState.INTACT and not is_known_to_be_lost(published, lost)
            },
        ),
    )


def adopt(
    decision: AdoptDecision,
    control: OperatorTables,
    sink: Sink,
    *,
    reason: str,
    actor: str,
    letters: Sink | None = None,
) -> None:
    """Finish interrupted steps, mark missing files, write the control rows; safe to repeat after a crash at any line.

    A batch that was being published rolls forward, as its commit would have. Missing files without a mark get one, so
    that it is on record when that was noticed. ``letters`` is the output of dead letters: those that are staged still
    are published, too.
    """
    for published in decision.to_revoke:
        directory = sink.staging.attempt_directory(published.plan.batch_id, published.receipt.attempt)
        sink.publisher.revoke(directory, published.plan.batch_id, rows=published.receipt.rows)
    for published in decision.to_publish:
        sink.publisher.publish(
            sink.staging.attempt_directory(published.plan.batch_id, published.receipt.attempt), published
        )
    for batch in decision.adoption.batches:
        staged = staged_dead_letters(batch.attempt_directory)
        if letters is not None and batch.receipt.dead_letters and sink.staging.size_bytes(staged):
            publish_letters(batch.plan, staged, batch.receipt, letters)
    for batch_id, files in decision.adoption.files.items():
        if files.state is FilesState.GONE:
            sink.archive.note_removal(Removal(batch_id, RemovalCause.GONE, datetime.now(UTC), actor, reason))
    control.adopt(decision.target, decision.adoption, reason=reason, actor=actor)


def removed_since(
    receipts: Sequence[PublishedReceipt],
    new: Collection[UUID],
    lost: Mapping[UUID, Sequence[LostRange]],
    rows: CoverageRows | None,
) -> tuple[list[RemovedRange], list[RemovedRange]]:
    """Return what readers no longer see of the output, where the control tables lack some of it, and what is back.

    With receipts alone, files missing without a mark count as removed. Those of a batch that the control tables have
    were lost, and ``coverage --verify`` names them.
    """
    visible = [each for published in receipts if is_visible(published) for each in held(published, lost)]
    removed = [
        each
        for published in receipts
        if published.files.state is FilesState.EXPIRED
        or (
            published.files.state is FilesState.GONE
            and published.plan.batch_id in new
            and not is_known_to_be_lost(published, lost)
        )
        for each in held(published, lost)
    ]
    known = rows.removed if rows is not None else ()
    found = not_in(removed, visible)
    return found if not_in(found, known) else [], also_in(known, visible)


def is_known_to_be_lost(published: PublishedReceipt, lost: Mapping[UUID, Sequence[LostRange]]) -> bool:
    """Whether a batch's missing files were recorded as lost."""
    files = {each.file for each in lost.get(published.plan.batch_id, ())}
    if published.files.state is FilesState.GONE:
        return files.issuperset(file.name for file in published.receipt.files)
    return bool(files) and published.files.state is FilesState.CHANGED


def the_only_feed(receipts: Iterable[PublishedReceipt], settings: FeedPlanSettings) -> UUID:
    """Return the id of the feed that wrote an output."""
    feeds = {published.plan.feed_id for published in receipts}
    if len(feeds) != 1:
        raise OutputConflictError(
            f"expected the batches of one feed in {settings.output}, found those of {len(feeds)}: "
            f"{listing(sorted(feeds))}. Nothing was changed."
        )
    return feeds.pop()


def refuse_broken(receipts: Iterable[PublishedReceipt]) -> None:
    """Raise OutputConflictError where a batch was being published and cannot be: its records are not in the output."""
    for published in receipts:
        if published.files.state is FilesState.BROKEN:
            raise OutputConflictError(
                f"batch {published.plan.batch_id} was being published, but {published.files.difference}. Nothing was "
                "changed. Restore those files from a backup. If it was published and removed since, move the staged "
                "files elsewhere."
            )


def reset_since(rebuilt: Rebuilt, known: Iterable[Event]) -> set[str]:
    """Return the topics that were reset after the control tables were copied: a smaller offset may be the newer one."""
    recorded = {(event.kind, event.at, event.actor) for event in known}
    return {
        entry["topic"]
        for identity, event in rebuilt.ledger.items()
        if event.kind == "reset" and identity not in recorded
        for entry in (*event.detail["removed"], *event.detail["partitions"])
    }


def stored_after(
    rebuilt: Rebuilt, feed: FeedSnapshot | None, new: Iterable[PublishedReceipt], reset: Collection[str]
) -> list[StoredOffset]:
    """Return the stored offsets that change.

    Control rows that no receipt has yet (a seed, a gap since the newest batch) stay: a row that is ahead of the
    receipts is kept, unless batches missing from the tables read another topic of its name, or its topic was reset
    since.
    """
    known = feed.stored if feed is not None else {}
    # Of a replay's topics one may have been deleted since.
    of_kafka = [published for published in new if published.plan.kind.reads_kafka]
    topics_read = {planned.topic for published in of_kafka for planned in published.ranges_read}
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
    """Return the stored offsets of an older copy that end: partitions that a recreated topic no longer has."""
    read = {
        (planned.topic, published.plan.topic_ids[planned.topic])
        for published in new
        if published.plan.kind.reads_kafka
        for planned in published.ranges_read
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
    """Return a batch as the control tables will have it."""
    return AdoptedBatch(
        plan=published.plan,
        receipt=published.receipt,
        receipt_sha256=sha256(published.receipt.as_bytes()),
        attempt_directory=sink.staging.attempt_directory(published.plan.batch_id, published.receipt.attempt),
    )
