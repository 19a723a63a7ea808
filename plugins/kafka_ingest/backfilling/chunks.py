"""Split ranges into chunks of a size that one Spark run handles well. Pure."""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping

from kafka_ingest.model.offset_sets import by_partition, union
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


def cut_into_chunks(
    ranges: Iterable[OffsetRange], max_records: int, most: int
) -> tuple[list[tuple[OffsetRange, ...]], list[OffsetRange]]:
    """Return the first ``most`` chunks of at most ``max_records`` each, in reading order, and what is left then.

    A chunk takes at most one range per partition, as a batch does, and covers as many partitions as it can: they are
    read in parallel.
    """
    left = {tp: deque(pieces) for tp, pieces in by_partition(union(ranges)).items()}
    chunks: list[tuple[OffsetRange, ...]] = []
    while left and len(chunks) < most:
        shares = share({tp: pieces[0].span for tp, pieces in left.items()}, max_records)
        chunk: list[OffsetRange] = []
        for topic_partition, taken in shares.items():
            head = left[topic_partition].popleft()
            cut = head.start_offset + taken
            chunk.append(OffsetRange(topic_partition, head.start_offset, cut))
            if cut < head.end_offset:
                left[topic_partition].appendleft(OffsetRange(topic_partition, cut, head.end_offset))
            if not left[topic_partition]:
                del left[topic_partition]
        chunks.append(tuple(sorted(chunk)))
    return chunks, sorted(itertools.chain.from_iterable(left.values()))


def share(spans: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Return how much each partition takes of a budget: the same for all, and what small ones leave goes to the others.

    Where there are more partitions than the budget is large, the first ones take one each.
    """
    shares: dict[TopicPartition, int] = {}
    smallest_first = sorted(sorted(spans)[:budget], key=lambda tp: spans[tp])
    for number, topic_partition in enumerate(smallest_first):
        # Never 0: there are no more partitions than records in the budget, and none before this one took more than its
        # share.
        taken = min(spans[topic_partition], budget // (len(smallest_first) - number))
        shares[topic_partition] = taken
        budget -= taken
    return shares
