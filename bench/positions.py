"""Positions of records, (partition, offset), and what a set of them amounts to, in whatever order they come."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.parquet
from talking import BenchmarkError

Numbers: TypeAlias = npt.NDArray[np.uint64]

AT_ONCE = 1_000_000
PREFIXES = ("", "kafka_")
"""Before the names of metadata: the peers' are Spark's own, this project's say whose they are."""
METADATA = ("topic", "topic_id", "partition", "offset", "timestamp", "headers")
PAYLOAD = ("key", "value")


@dataclass(frozen=True, slots=True)
class Positions:
    """How many positions, and a checksum over them.

    The checksum is the sum, modulo 2^64, of a hash of each position: a position that is missing, twice, or another one
    changes it, and the order does not.
    """

    rows: int
    checksum: str


def positions_of(parts: Iterable[tuple[Numbers, Numbers]]) -> Positions:
    """Return what arrays of partitions and arrays of offsets, pair by pair, amount to."""
    rows, total = 0, 0
    for partitions, offsets in parts:
        rows += len(offsets)
        total += int(np.sum(mixed((partitions << np.uint64(48)) ^ offsets), dtype=np.uint64))
    return Positions(rows, f"{total % 2**64:016x}")


def mixed(numbers: Numbers) -> Numbers:
    """Return a hash of each number: the finalizer of SplitMix64, so that sums of neighbours have no pattern."""
    numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def data_files(directory: Path) -> list[Path]:
    """Return the visible Parquet files: names that begin with a dot or underscore are not output yet."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.suffix in {".parquet", ""})
    return sorted(path for path in found if not any(part[0] in "._" for part in path.relative_to(directory).parts))


def positions_in(files: Iterable[Path]) -> Positions:
    """Return the positions in Parquet files.

    Raises BenchmarkError where a column that every contestant writes is not there.
    """
    return positions_of(part for file in files for part in _parts(file))


def _parts(file: Path) -> Iterable[tuple[Numbers, Numbers]]:
    with pyarrow.parquet.ParquetFile(file) as parquet:
        names = set(parquet.schema_arrow.names)
        prefix = next(
            (prefix for prefix in PREFIXES if names >= {*PAYLOAD, *(prefix + name for name in METADATA)}), None
        )
        if prefix is None:
            raise BenchmarkError(
                f"expected {', '.join((*METADATA, *PAYLOAD))} in {file}, found {', '.join(sorted(names))}: all write "
                "the same"
            )
        columns = [f"{prefix}partition", f"{prefix}offset"]
        for batch in parquet.iter_batches(AT_ONCE, columns=columns):
            partitions, offsets = (batch.column(name).to_numpy().astype(np.uint64) for name in columns)
            yield partitions, offsets
