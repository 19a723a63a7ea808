"""``adopt``: rebuild a feed's control rows from its output's receipts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

from kafka_ingest.batches.commit_batch import publish_letters
from kafka_ingest.errors import NothingToAdoptError, OutputConflictError, ReceiptsDoNotFollowError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind, BatchState, sha256
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed
from kafka_ingest.model.coverage import CoverageRows
from kafka_ingest.model.dead_letters import output_of_dead_letters, staged_dead_letters
from kafka_ingest.model.gap import Event, LostRange, Removal, RemovalCause, RemovedRange
from kafka_ingest.model.offsets import StoredOffset, TopicPartition, listing
from kafka_ingest.model.published_output import AdoptedBatch, Adoption, FilesState, PublishedReceipt
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, mirror_lines, number, row_document
from kafka_ingest.verbs.from_receipts import (
    Rebuilt,
    also_in,
    held,
    is_visible,
    lost_of_batches,
    not_in,
    rebuilt_from,
    with_replaced,
)
from kafka_ingest.verbs.request import Call, Request


class Adopt(Request):
    """Rebuild a feed's control rows from its output's receipts: after they were lost, or restored from a backup."""

    verb = command = "adopt"
    does = "rebuilds control rows from the output's receipts"

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        output = parts.plan_settings.output
        sink = parts.sinks(output)
        decision = decide_adoption(parts.plan_settings, parts.control, sink)
        mirror_failure = None
        if decided is not None and not decision.is_nothing:
            letters = parts.sinks(output_of_dead_letters(output))
            adopt(decision, parts.control, sink, reason=decided.reason, actor=decided.actor, letters=letters)
            mirror_failure = parts.mirror(actor=decided.actor).failure
        executed = decided is not None and not decision.is_nothing
        return Answer(
            adoption_document(parts.feed.name, decision, executed=executed) | {"mirror_failure": mirror_failure},
            chain(lines_of(parts.feed.name, decision, executed=executed), mirror_lines(mirror_failure)),
            only_shown=not decision.is_nothing and not executed,
        )


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
        return dict(self.target.stored) if isinstance(self.target, FeedSnapshot) else {}


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
        sink.publisher.revoke(directory, published.plan.batch_id)
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
    files = {each.file for each in lost.get(published.plan.batch_id, ())}
    if published.files.state is FilesState.GONE:
        return files.issuperset(file.name for file in published.receipt.files)
    return bool(files) and published.files.state is FilesState.CHANGED


def the_only_feed(receipts: Iterable[PublishedReceipt], settings: FeedPlanSettings) -> UUID:
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
    return AdoptedBatch(
        plan=published.plan,
        receipt=published.receipt,
        receipt_sha256=sha256(published.receipt.as_bytes()),
        attempt_directory=sink.staging.attempt_directory(published.plan.batch_id, published.receipt.attempt),
    )


def adoption_document(feed_name: str, decision: AdoptDecision, *, executed: bool) -> dict[str, Any]:
    adoption = decision.adoption
    return {
        "feed": feed_name,
        "feed_id": str(decision.target.feed_id),
        "cluster_id": adoption.cluster_id,
        "batches": [str(batch.plan.batch_id) for batch in adoption.batches],
        "gaps": [gap.as_document() for gap in adoption.gaps],
        "abandoned": str(adoption.abandoned) if adoption.abandoned else None,
        "partitions": [
            row_document(row) | {"stored_offset_now": now.next_offset if now is not None else None}
            for row in adoption.stored
            for now in [decision.stored_now.get(row.topic_partition)]
        ],
        "files": [
            {"batch_id": str(batch_id), "state": found.state.value, "difference": found.difference}
            for batch_id, found in adoption.files.items()
        ],
        "nothing_new": decision.is_nothing,
        "executed": executed,
    }


def adoption_table(feed: str, decision: AdoptDecision) -> FittingTable:
    numbers = ("partition", "stored now", "from the output")
    made = FittingTable(f"feed {feed}, from its output's receipts", "topic", *numbers, numbers=numbers)
    now = decision.stored_now
    for row in decision.adoption.stored:
        tp = row.topic_partition
        stored = now[tp].next_offset if tp in now else None
        made.add_line(tp.topic, str(tp.partition), number(stored), number(row.next_offset))
    return made


def lines_of(feed_name: str, decision: AdoptDecision, *, executed: bool) -> Iterator[Line | FittingTable]:
    if decision.is_nothing:
        yield Line(f"nothing to adopt: the control tables know all {counted(decision.known, 'batch')} of the output")
        return
    yield adoption_table(feed_name, decision)
    adoption = decision.adoption
    yield Line(
        f"{'adopted' if executed else 'would adopt'} {counted(len(adoption.batches), 'batch')} and "
        f"{counted(len(adoption.gaps), 'gap')} "
        f"of feed {decision.target.feed_id}"
    )
    if adoption.abandoned is not None:
        yield Line(
            f"{'abandoned' if executed else 'would abandon'} open batch {adoption.abandoned}: later batches read its "
            "ranges"
        )
    fates = {
        FilesState.CHANGED: "taken as it is: `kafka-ingest coverage --verify` counts it",
        FilesState.GONE: f"{'' if executed else 'would be '}recorded as removed",
        FilesState.EXPIRED: "it expired",
        FilesState.STAGED: f"{'' if executed else 'would be '}published now: its commit ended half way",
    }
    for batch_id, found in adoption.files.items():
        yield Line(f"batch {batch_id}: {found.difference}; {fates[found.state]}", "yellow", aside=True)
