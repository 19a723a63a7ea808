"""Which logs were truncated below known offsets: found by leader epochs, even after they have grown again (KIP-320)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offsets import LogBounds, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.ports.cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class Counted:
    """An offset up to which a log reached, and the leader epoch at that time, None where unknown."""

    offset: int
    leader_epoch: int | None


def counted(rows: Iterable[StoredOffset]) -> dict[TopicPartition, Counted]:
    """Return how far the logs of stored offsets reached."""
    return {
        row.topic_partition: Counted(row.next_offset, row.leader_epoch) for row in rows if row.next_offset is not None
    }


def cut_off_at(
    known: Mapping[TopicPartition, Counted],
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    kafka: KafkaCluster,
) -> dict[TopicPartition, int | Unavailable]:
    """Return where logs were truncated below known offsets, or why that is unknown; the others are left out.

    Logs are only truncated when the leader changes, so nothing is asked where the epoch is the same. Where the epoch
    went back, the log comes from an older copy of unknown end: all of it may be other records.
    """
    epochs: dict[TopicPartition, int] = {}
    for tp, was in known.items():
        log = bounds.get(tp)
        if was.leader_epoch is None or not isinstance(log, LogBounds) or log.leader_epoch is None:
            continue
        if log.leader_epoch != was.leader_epoch and log.log_start_offset < was.offset:
            epochs[tp] = was.leader_epoch
    found: dict[TopicPartition, int | Unavailable] = {}
    for tp, end in (kafka.epoch_ends(epochs) if epochs else {}).items():
        log = bounds[tp]
        if isinstance(end, Unavailable) or (end is not None and end < known[tp].offset):
            found[tp] = end
        elif end is None and isinstance(log, LogBounds) and (log.leader_epoch or 0) < epochs[tp]:
            found[tp] = log.log_start_offset
    return found


def bounds_as_planned(
    plan: BatchPlan, bounds: Mapping[TopicPartition, LogBounds | Unavailable], kafka: KafkaCluster
) -> dict[TopicPartition, LogBounds | Unavailable]:
    """Return the bounds of a plan's logs; one truncated below its range's end ends there: other records follow."""
    ends = {
        planned.topic_partition: Counted(planned.end_offset, plan.leader_epochs.get(planned.topic_partition))
        for planned in plan.ranges
    }
    cut_off = cut_off_at(ends, bounds, kafka)
    return {tp: ending_at(log, cut_off[tp]) if tp in cut_off else log for tp, log in bounds.items()}


def ending_at(log: LogBounds | Unavailable, end: int | Unavailable) -> LogBounds | Unavailable:
    """Return a log's bounds as if it ended at an offset."""
    if isinstance(log, Unavailable) or isinstance(end, Unavailable):
        return end if isinstance(end, Unavailable) else log
    return replace(
        log,
        log_start_offset=min(log.log_start_offset, end),
        last_stable_offset=min(log.last_stable_offset, end),
        high_watermark=min(log.high_watermark, end),
    )
