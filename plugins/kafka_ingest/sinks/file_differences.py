"""Where a data file holds other partitions or offsets than its receipt says."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kafka_ingest.model.offsets import listing
from kafka_ingest.model.receipt import WrittenFile

if TYPE_CHECKING:
    from kafka_ingest.sinks.parquet_contents import FileContents


def partitions_that_differ(written: WrittenFile, contents: "FileContents") -> Iterator[str]:
    """Yield where a file holds another partition than its receipt says, or other offsets of one."""
    said = {held.topic_partition: held for held in written.partitions}
    there = {held.topic_partition: held for held in contents.partitions}
    if said.keys() != there.keys():
        in_words = [listing(sorted(partitions)) or None for partitions in (said, there)]
        yield "partition: the receipt says {}, found {}".format(*in_words)
    several = len(said) > 1
    for topic_partition in sorted(said.keys() & there.keys()):
        expected, found = said[topic_partition], there[topic_partition]
        for what, says, holds in (
            *([("rows", expected.rows, found.rows)] if several else []),
            ("smallest offset", expected.smallest_offset, found.smallest_offset),
            ("largest offset", expected.largest_offset, found.largest_offset),
        ):
            if says != holds:
                yield f"{what}{f' of {topic_partition}' if several else ''}: the receipt says {says}, found {holds}"
