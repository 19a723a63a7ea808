"""What is in a file of dead letters."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.foundation.storage import Opened, open_to_read
from kafka_ingest.model.dead_letters import PREVIEW_BYTES, DeadLetter, DeadLettersOfFile, DecodingError
from kafka_ingest.model.offsets import TopicPartition

CAUSE = ("error_part", "error_class")
POSITION = ("kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp")
RECORDS_AT_ONCE = 10_000
LARGE_RECORDS_AT_ONCE = 10


def dead_letters_in(path: Opened, *, samples: int) -> DeadLettersOfFile:
    """Return how many records a file holds of each cause, with the first ones of each.

    Read in parts, since values may be large. Raises NotADataFileError where the file is damaged or holds no dead
    letters, OSError where it cannot be read.
    """
    counts: Counter[DecodingError] = Counter()
    found: list[DeadLetter] = []
    columns = [*POSITION, "key", "value", *CAUSE, "error"]
    try:
        with open_to_read(path) as file, pyarrow.parquet.ParquetFile(file) as letters:
            for batch in letters.iter_batches(RECORDS_AT_ONCE, columns=list(CAUSE)):
                table = pa.table(batch).group_by(list(CAUSE)).aggregate([([], "count_all")])
                for row in table.to_pylist():
                    counts[DecodingError(row["error_part"], row["error_class"])] += row["count_all"]
            wanted = Counter(dict.fromkeys(counts, samples))
            for batch in letters.iter_batches(LARGE_RECORDS_AT_ONCE, columns=columns):
                if not +wanted:
                    break
                found += taken(pa.table(batch), wanted)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise NotADataFileError(f"expected a file of dead letters, found {path}: {error}") from error
    return DeadLettersOfFile(counts, found)


def taken(rows: pa.Table, wanted: Counter[DecodingError]) -> list[DeadLetter]:
    """Return rows of the causes of which samples are wanted, and count them down."""
    found: list[DeadLetter] = []
    for cause in +wanted:
        of_cause = rows.filter(
            (pc.field("error_part") == cause.part) & (pc.field("error_class") == cause.error_class)
        ).slice(0, wanted[cause])
        for name in ("key", "value"):
            beginning = pc.binary_slice(of_cause[name], 0, PREVIEW_BYTES + 1)
            of_cause = of_cause.set_column(of_cause.schema.get_field_index(name), name, beginning)
        wanted[cause] -= len(of_cause)
        found += [
            DeadLetter(
                TopicPartition(row["kafka_topic"], row["kafka_partition"]),
                row["kafka_offset"],
                row["kafka_timestamp"],
                cause,
                row["error"],
                row["key"],
                row["value"],
            )
            for row in of_cause.to_pylist()
        ]
    return found
