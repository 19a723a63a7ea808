"""Which offsets batches hold in the output, without those of lost files; by topic id, as topics may be recreated."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from kafka_ingest.model.offset_sets import intersect, subtract, union
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.removal import LostRange, RemovedRange

THERE = frozenset({FilesState.INTACT, FilesState.CHANGED, FilesState.STAGED})
"""Readers see a batch's files, or will as soon as its publishing is finished."""


def lost_of_batches(lost: Iterable[LostRange]) -> dict[UUID, list[LostRange]]:
    """Return what was lost by the batch that held it."""
    found: dict[UUID, list[LostRange]] = {}
    for each in lost:
        found.setdefault(each.batch_id, []).append(each)
    return found


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
    """Whether readers see files of a batch."""
    return published.files.state in THERE and bool(published.receipt.files)


def not_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    """Return what remains of ranges after others are taken out of them."""
    taken = by_topic_id(others)
    return [
        RemovedRange(each, topic_id)
        for topic_id, found in by_topic_id(ranges).items()
        for each in subtract(union(found), taken.get(topic_id, ()))
    ]


def also_in(ranges: Iterable[RemovedRange], others: Iterable[RemovedRange]) -> list[RemovedRange]:
    """Return the offsets of ranges that are also in others."""
    taken = by_topic_id(others)
    return [
        RemovedRange(each, topic_id)
        for topic_id, found in by_topic_id(ranges).items()
        for each in intersect(union(found), taken.get(topic_id, ()))
    ]


def by_topic_id(ranges: Iterable[RemovedRange]) -> dict[str | None, list[OffsetRange]]:
    """Return ranges by the id of their topic."""
    found: dict[str | None, list[OffsetRange]] = {}
    for each in ranges:
        found.setdefault(each.topic_id, []).append(each.offset_range)
    return found
