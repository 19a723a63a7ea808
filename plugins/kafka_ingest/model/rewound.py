"""What becomes of open gaps when stored offsets go back: what lies above is read after all."""

from collections.abc import Collection
from uuid import UUID

from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import StoredOffset


def ended_gaps(
    gaps: Collection[Gap], was: Collection[StoredOffset], now: Collection[StoredOffset]
) -> dict[UUID, Gap | None]:
    """Return the open gaps that end, by their id, with what stays of each below the new stored offset; None: nothing.

    Only in the topic that the offsets were counted in: of another one a smaller offset says nothing.
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
