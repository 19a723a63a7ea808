"""What becomes of open gaps when stored offsets go back: what lies above is read after all."""

from collections.abc import Collection
from uuid import UUID

from kafka_ingest.gap import Gap
from kafka_ingest.offsets import StoredOffset, TopicPartition


def rewound(was: Collection[StoredOffset], now: Collection[StoredOffset]) -> dict[TopicPartition, StoredOffset]:
    """Return the rows that went back in the topic that they were counted in; of another topic a smaller offset says nothing."""
    before = {row.topic_partition: row for row in was}
    return {
        row.topic_partition: row
        for row in now
        if (old := before.get(row.topic_partition)) is not None
        and old.topic_id == row.topic_id
        and old.next_offset is not None
        and row.next_offset is not None
        and row.next_offset < old.next_offset
    }


def ended_gaps(
    gaps: Collection[Gap], was: Collection[StoredOffset], now: Collection[StoredOffset]
) -> dict[UUID, Gap | None]:
    """Return the open gaps that end, by their id, with what stays of each below the new stored offset; None: nothing."""
    back = rewound(was, now)
    ended: dict[UUID, Gap | None] = {}
    for gap in gaps:
        row = back.get(gap.offset_range.topic_partition)
        if row is None or row.next_offset is None or not gap.is_open or gap.topic_id != row.topic_id:
            continue
        if (left := gap.below(row.next_offset)) != gap:
            ended[gap.gap_id] = left
    return ended
