"""How open gaps change when stored offsets move back: offsets above the new one are read after all."""

from collections.abc import Collection
from uuid import UUID

from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import StoredOffset


def ended_gaps(
    gaps: Collection[Gap], was: Collection[StoredOffset], now: Collection[StoredOffset]
) -> dict[UUID, Gap | None]:
    """Return the open gaps that end, by id, with what remains of each below the new stored offset; None for nothing.

    Only within the same topic id: a smaller offset of another topic means nothing.
    """
    before = {(row.topic_partition, row.topic_id): row.next_offset for row in was}
    back = {
        (row.topic_partition, row.topic_id): row.next_offset
        for row in now
        if row.next_offset is not None
        and (old := before.get((row.topic_partition, row.topic_id))) is not None
        and row.next_offset < old
    }
    ended: dict[UUID, Gap | None] = {}
    for gap in gaps:
        offset = back.get((gap.offset_range.topic_partition, gap.topic_id))
        if offset is not None and gap.is_open and (left := gap.below(offset)) != gap:
            ended[gap.gap_id] = left
    return ended
