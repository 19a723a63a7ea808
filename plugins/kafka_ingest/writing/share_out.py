"""What one Spark task reads, and how much of it at a time.

A task reads one range, a part of a large one, or several small ones. A partition that holds most of a batch is shared
out over the processors. Where many ranges are small they share tasks and files: starting a task and writing a file
takes longer than reading some thousand records.

All tasks at once have to fit into the heap, whatever records hold. Nothing says how large a record is before it is
read, and what is fetched is compressed: a megabyte on the wire may be a hundred in memory. So what one task holds is
bounded twice, by bytes on the wire and by a number of records.
"""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.spark_settings import DEFAULT_HEAP, MIB, heap_bytes

TASKS_PER_PROCESSOR = 2
"""More of them even out what takes longer than its number of records says; each one is a file."""

TOLERATED = 1.5
"""A range of up to this many times its share is still one file."""

WORTH_A_TASK = 100_000

SMALL = 10_000
"""A range of fewer offsets may share its file with others."""

WORTH_A_FILE_EACH = 32
"""Up to this number of small ranges are one file each, which suits readers that look for one partition."""

RANGES_A_TASK = 50
"""Spark keeps a consumer for each range of a task until the task ends."""

CONSUMERS_METADATA = 100_000
"""How many partitions all running consumers together may know: each knows its whole topic's, in 0.6 kB a partition."""


def records_per_task(spans: Collection[int], processors: int) -> int | None:
    """Return how many records a task reads at most, None where every range is read by one task.

    ``spans`` are the numbers of offsets of the planned ranges. Where no range has much more than its share, none is
    cut: a file a partition is what readers like best.
    """
    share = max(WORTH_A_TASK, math.ceil(sum(spans) / (TASKS_PER_PROCESSOR * processors)))
    return share if max(spans) > TOLERATED * share else None


def shared_out(ranges: Sequence[OffsetRange], at_most: int | None) -> list[OffsetRange]:
    """Return the ranges, those longer than ``at_most`` cut into equal parts that are not."""
    return [part for offset_range in ranges for part in parts_of(offset_range, at_most)]


def parts_of(offset_range: OffsetRange, at_most: int | None) -> list[OffsetRange]:
    """Return a range in the smallest number of equal parts of at most ``at_most`` offsets."""
    count = math.ceil(offset_range.span / at_most) if at_most is not None else 1
    bounds = [offset_range.start_offset + offset_range.span * number // count for number in range(count + 1)]
    return [OffsetRange(offset_range.topic_partition, *part) for part in itertools.pairwise(bounds)]


def small_ranges(ranges: Sequence[OffsetRange], *, alone: bool) -> list[OffsetRange]:
    """Return the ranges that share tasks and files; none where those that could are few.

    ``alone``: Spark has no other attempt than theirs.
    """
    small = [offset_range for offset_range in ranges if offset_range.span < SMALL]
    return small if len(small) > (WORTH_A_FILE_EACH if alone else 1) else []


def shared_tasks(small: Collection[OffsetRange], processors: int) -> int:
    """Return by how many tasks small ranges are read, each of which writes one file."""
    ranges_a_task = min(RANGES_A_TASK, max(1, CONSUMERS_METADATA // (processors * len(small))))
    records = sum(offset_range.span for offset_range in small)
    return max(processors, math.ceil(len(small) / ranges_a_task), math.ceil(records / WORTH_A_TASK))


MOST_FETCHED = 16 * MIB
LEAST_FETCHED = MIB
"""Kafka's own default; a record that is larger is fetched alone (KIP-74)."""

MOST_POLLED = 10_000
"""Each poll costs two questions for the log's bounds, too: fewer records a poll take longer (bench/README.md)."""

POLLS = 8
"""This number of polls of a range costs nothing measurable compared with the start of Spark."""

LARGEST_BY_DEFAULT = MIB
"""Producers and brokers accept no larger records by default (``max.request.size``, ``message.max.bytes``)."""

MOST_ROWS_KEPT = 32 * MIB
"""So many bytes of rows the driver's own consumer keeps at most, and sends to the task that writes them."""

PART_OF_HEAP = 8
"""What the driver's consumer fetches, and what it polls at once, is each below this part of the driver's memory."""

LEAST_OF_A_PARTITION = 16 * 1024
"""A larger batch of records is fetched all the same, alone (KIP-74)."""

CORES_OF_AN_EXECUTOR = 16
"""Taken where no setting says how many: an executor of a standalone cluster gets all of its machine."""

SIZES_OF_HEAPS = ("spark.driver.memory", "spark.executor.memory", "spark.executor.cores")


def memory_per_task(conf: Mapping[str, str], processors: int, *, is_local: bool) -> int:
    """Return how many bytes of heap one task has where as many run at once as may; ``conf`` is Spark's own.

    With a local master all tasks share the driver's heap.
    """
    if is_local:
        return heap_bytes(conf.get("spark.driver.memory", DEFAULT_HEAP)) // max(1, processors)
    cores = int(conf.get("spark.executor.cores", CORES_OF_AN_EXECUTOR))
    return heap_bytes(conf.get("spark.executor.memory", DEFAULT_HEAP)) // max(1, cores)


def read_sizes(memory: int, largest_range: int) -> dict[str, str]:
    """Return the consumer's settings for tasks of ``memory`` bytes each; the largest reads ``largest_range`` offsets.

    A thirty-second of a task's memory is fetched at a time. A range of few records is polled in parts, which all may
    be as large as Kafka's default lets them be; one of many has small ones.
    """
    fetched = min(max(memory // 32, LEAST_FETCHED), MOST_FETCHED)
    always_fit = max(1, memory // 4 // LARGEST_BY_DEFAULT)
    polled = min(max(math.ceil(largest_range / POLLS), always_fit), MOST_POLLED)
    return {"max.poll.records": str(polled), "max.partition.fetch.bytes": str(fetched)}


def shared_read_sizes(heap: int, partitions: int, longest_range: int) -> dict[str, str]:
    """Return the settings of the driver's own consumer, which reads many partitions; ``heap`` is in bytes.

    It keeps what it has fetched of each partition until that is polled, also records after a range's end. So all
    partitions' fetches together are bounded, and one poll fits where every record has Kafka's default maximum size.
    """
    part = heap // PART_OF_HEAP
    return {
        "max.poll.records": str(max(1, min(part // LARGEST_BY_DEFAULT, longest_range))),
        "max.partition.fetch.bytes": str(min(max(part // partitions, LEAST_OF_A_PARTITION), LEAST_FETCHED)),
        "fetch.max.bytes": str(MOST_FETCHED),
    }


def most_rows_kept(heap: int, message: int) -> int:
    """Return how many bytes of rows the driver keeps; ``message`` is what Spark lets a task's message hold.

    The rows are in its memory several times when they are sent (``spark.rpc.message.maxSize``).
    """
    return min(MOST_ROWS_KEPT, heap // 16, message // 4)
