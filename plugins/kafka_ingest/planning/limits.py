"""Share a batch's size over its partitions."""

from collections.abc import Mapping

from kafka_ingest.offsets import TopicPartition


def share_fairly(
    lags: Mapping[TopicPartition, int],
    headroom: Mapping[TopicPartition, int],
    max_records: int | None,
    max_records_per_partition: int | None,
) -> dict[TopicPartition, int]:
    """Return how many offsets to take of each partition, 0 left out.

    Proportional to lag, so that all partitions reach their ends together, but never less than one where the limit allows
    it, so that a small partition beside a huge one is not starved. Where not even that fits, partitions with the least
    headroom (records between log start and stored offset) come first, since retention reaches them first. The shares add
    up to exactly ``max_records`` whenever there is that much to read, and do not depend on the order of the input.
    """
    capped = {
        topic_partition: min(lag, max_records_per_partition or lag)
        for topic_partition, lag in sorted(lags.items())
        if lag > 0
    }
    total = sum(capped.values())
    if max_records is None or total <= max_records:
        return capped
    if max_records <= len(capped):
        most_urgent = sorted(capped, key=lambda topic_partition: (headroom[topic_partition], topic_partition))
        return dict.fromkeys(sorted(most_urgent[:max_records]), 1)

    # One each, then the rest in proportion to what is left of each lag, by largest remainder.
    spare = max_records - len(capped)
    spare_total = total - len(capped)
    shares: dict[TopicPartition, int] = {}
    remainders: list[tuple[int, TopicPartition]] = []
    for topic_partition, lag in capped.items():
        whole, remainder = divmod(spare * (lag - 1), spare_total)
        shares[topic_partition] = 1 + whole
        remainders.append((-remainder, topic_partition))
    for _, topic_partition in sorted(remainders)[: max_records - sum(shares.values())]:
        shares[topic_partition] += 1
    return shares
