"""Which offsets batches hold in the output, without those of lost files; by topic id, as topics may be recreated."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.offset_sets import intersect, subtract, union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.published_output import FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.removal import LostRange, RemovalCause, RemovedRange

THERE = frozenset({FilesState.INTACT, FilesState.CHANGED, FilesState.STAGED})
"""Readers see a batch's files, or will as soon as its publishing is finished."""


def lost_of_batches(lost: Iterable[LostRange]) -> dict[UUID, list[LostRange]]:
    return grouped((each.batch_id, each) for each in lost)


def held(published: PublishedReceipt, lost: Mapping[UUID, Sequence[LostRange]]) -> list[RemovedRange]:
    """Return what a batch read, without what its lost files held, and what another batch holds in its place.

    A replay holds single records of ranges that others have read: no offset of its own.
    """
    plan = published.plan
    if plan.replays:
        return []
    gone = [each.offset_range for each in lost.get(plan.batch_id, ())]
    gone += [each for each in published.ranges_read if each.topic_partition in published.replaced]
    return [RemovedRange(each, plan.topic_ids[each.topic]) for each in subtract(published.ranges_read, gone)]


def is_visible(published: PublishedReceipt) -> bool:
    return published.files.state in THERE and bool(published.receipt.files)


def not_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    return combined(subtract, ranges, others)


def also_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    return combined(intersect, ranges, others)


def combined(
    how: Callable[[list[OffsetRange], Iterable[OffsetRange]], list[OffsetRange]],
    ranges: Iterable[RemovedRange],
    others: Iterable[RemovedRange],
) -> list[RemovedRange]:
    """Return ranges combined with others, topic id by topic id."""
    of_topic, of_others = (grouped((each.topic_id, each.offset_range) for each in some) for some in (ranges, others))
    return [
        RemovedRange(each, topic_id)
        for topic_id, found in of_topic.items()
        for each in how(union(found), of_others.get(topic_id, ()))
    ]


def with_replaced(receipts: Sequence[PublishedReceipt]) -> list[PublishedReceipt]:
    """Return receipts with what others have replaced of each, and with its files judged without those rows."""
    landed = [published.plan.replaces for published in receipts if has_landed(published)]
    replaced = {(each.batch_id, each.topic_partition) for replaces in landed for each in replaces}
    found: list[PublishedReceipt] = []
    for published in receipts:
        batch_id, ranges = published.plan.batch_id, published.plan.ranges if replaced else ()
        gone = {each.topic_partition for each in ranges if (batch_id, each.topic_partition) in replaced}
        found.append(without(published, gone))
    return found


def has_landed(published: PublishedReceipt) -> bool:
    """Whether a batch was published, and so has replaced what its plan names, even if its own rows are gone since."""
    if published.removal is not None:
        return published.removal.cause is RemovalCause.EXPIRED or published.files.is_marked
    files = published.files
    was_counted = files.state is FilesState.GONE and files.rows is not None
    return files.state in {FilesState.INTACT, FilesState.CHANGED} or was_counted


def without(published: PublishedReceipt, replaced: set[TopicPartition]) -> PublishedReceipt:
    """Return a receipt with the partitions whose rows were replaced; what is left of it counts as all of it."""
    if not replaced:
        return published
    found = replace(published, replaced=frozenset(replaced))
    if published.files.rows == rows_left(found):
        return replace(found, files=FoundFiles(FilesState.INTACT, rows=published.files.rows))
    return found


def rows_left(published: PublishedReceipt) -> int:
    """Return how many of a batch's rows should be in the output: those that no other batch has replaced."""
    held = (held for file in published.receipt.files for held in file.partitions)
    return sum(each.rows for each in held if each.topic_partition not in published.replaced)
