"""Share a batch's size over its partitions."""

from collections.abc import Collection, Mapping
from datetime import datetime

from kafka_ingest.model.offsets import TopicPartition


def share_fairly(
    lags: Mapping[TopicPartition, int],
    headroom: Mapping[TopicPartition, int],
    unmoved_since: Mapping[TopicPartition, datetime],
    max_records: int | None,
    max_records_per_partition: int | None,
) -> dict[TopicPartition, int]:
    """Return how many offsets to take of each partition, 0 left out.

    Where the limit is too small for all, one each, so that a small partition next to a huge one is not starved (of as
    many as it allows: see ``some_of``); of the rest one half in order of headroom (offsets between log start and
    stored offset), least first, since retention reaches those partitions first; the other half, and all of it where
    the headroom is the same everywhere, proportional to lag, so that all reach their ends together. The shares add up
    to exactly ``max_records`` whenever there is that much to read, and do not depend on the order of the input.
    """
    wanted = {
        topic_partition: min(lag, max_records_per_partition or lag)
        for topic_partition, lag in sorted(lags.items())
        if lag > 0
    }
    if max_records is None or sum(wanted.values()) <= max_records:
        return wanted
    if max_records <= len(wanted):
        return dict.fromkeys(some_of(wanted, headroom, unmoved_since, max_records), 1)

    shares = dict.fromkeys(wanted, 1)
    spare = max_records - len(wanted)
    by_headroom: dict[int, list[TopicPartition]] = {}
    for topic_partition in wanted:
        by_headroom.setdefault(headroom[topic_partition], []).append(topic_partition)
    for_the_urgent = spare // 2 if len(by_headroom) > 1 else 0
    for level in sorted(by_headroom):
        of_level = {topic_partition: wanted[topic_partition] - 1 for topic_partition in by_headroom[level]}
        for topic_partition, share in in_proportion(of_level, for_the_urgent).items():
            shares[topic_partition] += share
        for_the_urgent -= min(for_the_urgent, sum(of_level.values()))
        if not for_the_urgent:
            break
    left = {topic_partition: wanted[topic_partition] - share for topic_partition, share in shares.items()}
    for topic_partition, share in in_proportion(left, max_records - sum(shares.values())).items():
        shares[topic_partition] += share
    return shares


def some_of(
    partitions: Collection[TopicPartition],
    headroom: Mapping[TopicPartition, int],
    unmoved_since: Mapping[TopicPartition, datetime],
    count: int,
) -> list[TopicPartition]:
    """Return ``count`` of the partitions: half by headroom, half those that waited longest.

    Each partition has its turn, whatever the others' headroom is. One without a stored offset has waited longest.
    """
    by_headroom = sorted(partitions, key=lambda topic_partition: (headroom[topic_partition], topic_partition))
    most_urgent = set(by_headroom[: count // 2])
    by_waiting = sorted(
        set(partitions) - most_urgent,
        key=lambda topic_partition: (
            unmoved_since[topic_partition].timestamp() if topic_partition in unmoved_since else 0.0,
            headroom[topic_partition],
            topic_partition,
        ),
    )
    return sorted(most_urgent.union(by_waiting[: count - len(most_urgent)]))


def in_proportion(amounts: Mapping[TopicPartition, int], budget: int) -> dict[TopicPartition, int]:
    """Return a share of each amount, together exactly the budget or all there is; rounded by largest remainder."""
    total = sum(amounts.values())
    if total <= budget:
        return dict(amounts)
    shares: dict[TopicPartition, int] = {}
    remainders: list[tuple[int, TopicPartition]] = []
    for topic_partition, amount in amounts.items():
        shares[topic_partition], remainder = divmod(budget * amount, total)
        remainders.append((-remainder, topic_partition))
    for _, topic_partition in sorted(remainders)[: budget - sum(shares.values())]:
        shares[topic_partition] += 1
    return shares
