"""What has to hold of a feed at rest.

Every record that was produced is in the output, once, and all the books agree.
"""

import io
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import deltalake
import polars as pl
import pyarrow.parquet
from tests.contract.whole_feed import Record, WholeFeed, is_decodable
from tests.fakes import GROUP
from tests.iceberg_lake import has_table, table_at

from kafka_ingest.foundation.storage import files_below, opened, read_whole
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.dead_letters import IN_DELTA, IN_ICEBERG, output_of_dead_letters
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.tables.table_format import folder_of_table

RECORD = ("kafka_topic", "kafka_partition", "kafka_offset", "value")


def assert_every_record_is_there_once(feed: WholeFeed) -> int:
    """Hold output, receipts, control tables and Kafka against what was produced.

    Return how many records were compared.
    """
    output_format = feed.settings.output.format
    in_output = {"delta": records_in_table, "iceberg": records_in_iceberg}.get(output_format, records_in_output)
    dead_letters = dead_letters_of(feed) if feed.letters else []
    assert sorted([*in_output(feed.output, feed.access), *dead_letters]) == sorted(feed.log.records)
    assert not dead_letters or not feed.decoding.is_raw
    assert not any(map(is_decodable, dead_letters))
    snapshot, ends = feed.snapshot(), feed.log.end_offsets
    assert {tp: row.next_offset for tp, row in snapshot.stored.items()} == ends
    assert snapshot.open_batch is None
    committed = [batch_id for batch_id, state in feed.states().items() if state is BatchState.COMMITTED]
    published = list(feed.sink.publisher.published_receipts())
    assert [each.plan.batch_id for each in published] == committed
    if output_format == "parquet":
        batches = {f"kafka_batch={each.plan.batch_id}" for each in published if each.receipt.files}
        assert set(directories_in(feed.output)) == batches
    assert_dead_letters_are_counted(feed, published)
    assert_ranges_follow(feed, [planned for each in published for planned in each.plan.ranges])
    ledger = [event.event_id for event in feed.control.ledger_of_feed(snapshot.feed_id)]
    assert [event.event_id for each in published for event in each.ledger] == ledger
    return len(feed.log.records)


def assert_dead_letters_are_counted(feed: WholeFeed, published: Sequence[PublishedReceipt]) -> None:
    """Hold what is published of dead letters against the batches' receipts and the control tables."""
    written = {each.plan.batch_id: each.receipt for each in published if each.receipt.dead_letters}
    letters = list(feed.letters.publisher.published_receipts()) if written else []
    assert {each.plan.batch_id: each.receipt for each in letters} == {
        batch_id: receipt.of_dead_letters() for batch_id, receipt in written.items()
    }
    counted = {
        batch_id: sum(count.dead_letters for count in feed.control.range_counts(batch_id)) for batch_id in written
    }
    assert counted == {batch_id: receipt.of_dead_letters().rows for batch_id, receipt in written.items()}


def assert_group_follows(feed: WholeFeed) -> None:
    """Hold the consumer group against the stored offsets."""
    assert feed.kafka.groups[GROUP] == {tp: row.next_offset for tp, row in feed.snapshot().stored.items()}


def assert_ranges_follow(feed: WholeFeed, ranges: Sequence[OffsetRange]) -> None:
    """Raise unless published ranges cover each log from its first to its last offset, each once."""
    for topic_partition, of_partition in groupby(sorted(ranges), key=lambda planned: planned.topic_partition):
        spans = [(planned.start_offset, planned.end_offset) for planned in of_partition]
        starts, ends = map(list, zip(*spans, strict=True))
        assert starts == [0, *ends[:-1]], topic_partition
        assert ends[-1] == feed.log.end_offsets[topic_partition]


def dead_letters_of(feed: WholeFeed) -> list[Record]:
    """Return every record that readers of the output's dead letters see."""
    output = output_of_dead_letters(feed.settings.output)
    folder, local = opened(output.place, feed.access), feed.output.with_name(f"{feed.output.name}_dead_letters")
    if output.format == IN_ICEBERG:
        return records_in_iceberg(local, feed.access)
    if output.format == IN_DELTA:
        return records_in_table(local, feed.access) if folder_of_table(folder) else []
    if isinstance(folder, Path):
        return records_in_output(folder)
    return [record for name in files_below(folder) for record in records_of(read_whole(folder / name))]


def records_in_output(output: Path, _access: S3Access | None = None) -> list[Record]:
    """Return every record that readers see, sorted; one that is there twice comes twice."""
    return sorted(record for path in sorted(output.rglob("*")) if path.is_file() for record in records_in(path))


def records_in_table(output: Path, access: S3Access | None = None) -> list[Record]:
    """Return every record that readers of a Delta table see, sorted. ``access`` leads to its store."""
    if access is None:
        return sorted(pl.read_delta(str(output)).select(RECORD).rows())
    table = deltalake.DeltaTable(f"s3://lake{output}", storage_options=access.for_delta())
    return sorted(pl.DataFrame(table.to_pyarrow_table(columns=list(RECORD))).rows())


def records_in_iceberg(output: Path, access: S3Access | None = None) -> list[Record]:
    """Return every record that readers of an Iceberg table see, sorted. ``access`` leads to its store."""
    if not has_table(output, access):
        return []
    rows = table_at(output, access).scan(selected_fields=RECORD).to_arrow().to_pydict()
    return sorted(zip(*itemgetter(*RECORD)(rows), strict=True))


def records_in(path: Path) -> Iterator[Record]:
    """Yield the records of a file below the output, which is a Parquet file of a batch."""
    assert path.suffix == ".parquet"
    assert not path.name.startswith((".", "_"))
    yield from records_of(path.read_bytes())


@lru_cache(maxsize=1_000)
def records_of(content: bytes) -> tuple[Record, ...]:
    """Return the records of a Parquet file; of equal ones, which hundreds of lives of a feed write, they are equal."""
    columns = pyarrow.parquet.ParquetFile(io.BytesIO(content)).read(use_threads=False).to_pydict()
    return tuple(zip(*itemgetter(*RECORD)(columns), strict=True))


def directories_in(output: Path) -> list[str]:
    """Return the names of what lies directly below the output."""
    return [path.name for path in output.iterdir()]
