"""The rows of staged files as records of the output topic. Importing this imports pyarrow."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from confluent_kafka import KafkaError, Message, Producer

from kafka_ingest.errors import OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import open_to_read
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.sinks.kafka_topic.cluster import Topic
from kafka_ingest.sinks.tables.table_format import Staged

PIECE: Final = 1_000
"""So many rows are in memory at most, all of one row group, which has 32 MB (``model/spark_settings.py``)."""
PIECE_BYTES: Final = 32_000_000
HEADERS: Final = "kafka_headers"
LARGE: Final = ("key", "value")
"""Of these, a group's rows may be more, where a dictionary holds them."""
PARTITION_UA: Final = -1
"""Of librdkafka: the partitioner decides."""
COLUMNS: Final = ["kafka_topic", "kafka_partition", "kafka_offset", "kafka_topic_id", "key", "value", HEADERS]
TIMES: Final = ["kafka_timestamp", "kafka_timestamp_ms"]
OVERHEAD_BYTES: Final = 200
"""Of a batch of one record, apart from key, value and headers; of each header 10 more."""
Place = tuple[str, int]
DeliveryCallback = Callable[[KafkaError | None, Message], None]


def check_rows(staged: Staged, topic: Topic) -> int:
    """Return how many bytes the records have, at most and before compression; nothing is produced.

    Raises OutputNotUsableError where a record cannot be in the output topic, with its offset.
    """
    total = 0
    for piece in pieces(staged):
        if topic.topic_id in set(piece["kafka_topic_id"].unique().to_pylist()):
            raise OutputNotUsableError(
                f"topic {topic.name}: expected another topic than the one that the feed reads, found the same: each "
                "record would come back. Nothing was published and no offset was moved. Correct sink.topic, and "
                "abandon the batch."
            )
        if topic.is_compacted and (number := pc.index(piece["key"].is_null(), value=True).as_py()) >= 0:
            raise refused(piece, number, topic, "it has no key, and the topic is compacted. Set its cleanup.policy")
        check_times(piece, topic, int(time.time() * 1000))
        sizes = sizes_of(piece)
        if len(sizes) and (largest := pc.max(sizes).as_py()) > topic.largest_record_bytes:
            why = f"with its headers it has {largest:,} bytes, and the topic takes {topic.largest_record_bytes:,}"
            raise refused(piece, pc.index(sizes, value=largest).as_py(), topic, f"{why}. Set its max.message.bytes")
        total += pc.sum(sizes).as_py() or 0
    return total


def check_times(piece: pa.Table, topic: Topic, now_ms: int) -> None:
    """Raise OutputNotUsableError where the topic refuses a record's time, or would soon delete all of these for theirs.

    Kafka deletes whole segments, by the newest time in each: among newer ones an old record stays.
    """
    times: Any = times_of(piece)
    # The first gets the time of its publishing, the other is none (NO_TIMESTAMP).
    times = pc.if_else(pc.is_in(times, pa.array([0, -1])), pa.scalar(None, pa.int64()), times)
    oldest, newest = pc.min(times).as_py(), pc.max(times).as_py()
    if oldest is None:
        return
    refuse = "the brokers refuse it"
    limits = [
        ("message.timestamp.before.max.ms", oldest, now_ms - oldest, refuse),
        ("message.timestamp.after.max.ms", newest, newest - now_ms, refuse),
    ]
    if topic.deletes and newest >= 0:  # segments of earlier ones are kept by the time of their files
        limits.append(("retention.ms", newest, now_ms - newest, "Kafka soon deletes it and those beside it"))
    for name, found, distance, why in limits:
        if 0 <= (allowed := int(topic.settings.get(name, "-1"))) < distance:
            text = f"its timestamp is {found:,} ms, and {why}: {name} is {allowed:,}. Set the topic's {name}"
            raise refused(piece, pc.index(times, value=found).as_py(), topic, text)


def times_of(piece: pa.Table) -> Any:  # noqa: ANN401 - Arrow's own
    """Return the records' timestamps in milliseconds since 1970."""
    milliseconds: Any = piece["kafka_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return pc.coalesce(piece["kafka_timestamp_ms"], milliseconds)


def refused(piece: pa.Table, number: int, topic: Topic, why: str) -> OutputNotUsableError:
    """Return the error that names the record in a row."""
    topic_name, partition, offset = (piece[name][number].as_py() for name in COLUMNS[:3])
    return OutputNotUsableError(
        f"topic {topic.name} cannot take record {topic_name}-{partition}@{offset}: {why}, and run the commit again. "
        "Nothing was published and no offset was moved."
    )


def sizes_of(piece: pa.Table) -> Any:  # noqa: ANN401 - Arrow's own
    """Return how many bytes each record takes in a batch of its own, at most and before compression."""
    sizes: Any = pc.add(filled(pc.binary_length(piece["key"])), filled(pc.binary_length(piece["value"])))
    sizes = pc.add(sizes.cast(pa.int64()).combine_chunks(), OVERHEAD_BYTES)
    headers = piece[HEADERS].combine_chunks()
    if headers.null_count == len(headers):
        return sizes
    of_headers = [
        sum(10 + len(each["key"].encode()) + len(each["value"] or b"") for each in found or ())
        for found in headers.to_pylist()
    ]
    return pc.add(sizes, pa.array(of_headers, pa.int64()))


def filled(lengths: Any) -> Any:  # noqa: ANN401 - Arrow's own
    """Return lengths with 0 for what is null."""
    return pc.fill_null(lengths, 0)


def produce_rows(
    producer: Producer, staged: Staged, topic: Topic, note: DeliveryCallback, *, same_partitions: bool
) -> tuple[Counter[int], int]:
    """Produce all rows in the order of their offsets; return how many each partition had, and how many bytes.

    ``note`` is called with the first and the last record of each partition in a piece at least: it takes a tenth of the
    time, if it is called with each. Raises StagedOutputUnusableError where the files are not in this order.
    """
    produced: Counter[int] = Counter()
    size_bytes = 0
    last: dict[Place, int] = {}
    for piece in pieces(staged):
        partitions: Any = piece["kafka_partition"].to_pylist()
        produced.update(partitions)
        noted = ends_of(partitions) if same_partitions else range(len(partitions))
        for number, (partition, offset, source, record) in enumerate(records(piece)):
            if number in noted:
                record["on_delivery"] = note
            place = (source, partition)
            if last.get(place, -1) >= offset:
                raise StagedOutputUnusableError(
                    f"{staged.data}: expected the records of {source}-{partition} in the order of their offsets, found "
                    f"{offset:,} after {last[place]:,}"
                )
            last[place] = offset
            place_there = partition if same_partitions else PARTITION_UA
            while True:
                try:
                    producer.produce(topic.name, partition=place_there, **record)
                    break
                except BufferError:
                    producer.poll(1)
        size_bytes += sum(piece[name].nbytes for name in (*LARGE, HEADERS)) + OVERHEAD_BYTES * len(piece)
        producer.poll(0)
    return produced, size_bytes


def ends_of(partitions: Sequence[int]) -> set[int]:
    """Return the numbers of the rows that are the first or the last one of their partition."""
    numbers = range(len(partitions))
    if partitions and partitions.count(partitions[0]) == len(partitions):  # as nearly always
        return {0, len(partitions) - 1}
    last, first = (dict(zip(partitions[::step], numbers[::step], strict=True)) for step in (1, -1))
    return {*first.values(), *last.values()}


def records(piece: pa.Table) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Yield each row's partition, offset and topic, and its record."""
    columns = [piece[name] for name in ("kafka_partition", "kafka_offset", "kafka_topic", "key", "value")]
    rows = zip(*(column.to_pylist() for column in (*columns, times_of(piece), piece[HEADERS])), strict=True)
    for partition, offset, source, key, value, timestamp, headers in rows:
        record: dict[str, Any] = {"key": key, "value": value, "timestamp": timestamp}
        if headers:
            record["headers"] = [(each["key"], each["value"]) for each in headers]
        yield partition, offset, source, record


def pieces(staged: Staged) -> Iterator[pa.Table]:
    """Yield all rows of an attempt, a piece at a time; the parts of a range that was cut come in their order."""
    for file in sorted(staged.receipt.files, key=first_offset):
        path = staged.data / file.name
        try:
            with open_to_read(path) as source, pyarrow.parquet.ParquetFile(source) as found:
                for group in range(found.num_row_groups):
                    rows = rows_at_once(found, source, group)
                    for batch in found.iter_batches(rows, row_groups=[group], columns=COLUMNS + TIMES):
                        yield pa.Table.from_batches([batch])
        except pa.ArrowException as error:
            raise StagedOutputUnusableError(f"{path} is damaged: {error}") from error


def rows_at_once(found: pyarrow.parquet.ParquetFile, source: Any, group: int) -> int:  # noqa: ANN401 - an open file
    """Return how many rows of a group are read at once: fewer where many of them may be one large value."""
    columns = map(found.metadata.row_group(group).column, range(found.metadata.num_columns))
    named = [each.path_in_schema for each in columns if each.has_dictionary_page]
    large = [name for name in named if name in LARGE]
    of_headers = [name for name in named if name.startswith(f"{HEADERS}.")]
    if not (large or of_headers) or not found.metadata.row_group(group).num_rows:
        return PIECE
    coded = pyarrow.parquet.ParquetFile(source, read_dictionary=large + of_headers)
    largest = 0
    if large:
        first: Any = next(coded.iter_batches(1, row_groups=[group], columns=large))
        largest += sum(longest(first[name]) for name in large)
    if of_headers:  # without any in its first row, there is no dictionary yet
        batches: Any = coded.iter_batches(PIECE, row_groups=[group], columns=of_headers)
        largest += max(largest_headers(each[HEADERS]) for each in batches)
    return max(1, min(PIECE, PIECE_BYTES // (largest + 1)))


def largest_headers(lists: Any) -> int:  # noqa: ANN401 - Arrow's own
    """Return how many bytes the headers of one record have at most, of those that a dictionary holds."""
    bytes_of_one = sum(longest(each) for each in lists.values.flatten() if pa.types.is_dictionary(each.type))
    return (pc.max(pc.list_value_length(lists)).as_py() or 0) * bytes_of_one


def longest(coded: Any) -> int:  # noqa: ANN401 - Arrow's own
    """Return the length of the longest value of a dictionary."""
    return pc.max(pc.binary_length(coded.dictionary)).as_py() or 0


def first_offset(file: WrittenFile) -> int:
    """Return the smallest offset in a file; of a range that was cut each part is a file of its own."""
    return min(held.smallest_offset for held in file.partitions)
