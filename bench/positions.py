"""Positions of records, (partition, offset), and what a set of them amounts to, in whatever order they come."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
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
        total += int(np.sum(mixed(places_of(partitions, offsets)), dtype=np.uint64))
    return Positions(rows, f"{total % 2**64:016x}")


def places_of(partitions: Numbers, offsets: Numbers) -> Numbers:
    """Return a number for each position."""
    return (partitions << np.uint64(48)) ^ offsets


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


def positions_in(files: Iterable[Path], fields: Sequence[str] = ()) -> Positions:
    """Return the positions in Parquet files.

    With ``fields`` their values belong to the checksum. Raises BenchmarkError where a column that every contestant
    writes is not there, or a field is null.
    """
    if fields:
        return values_of(part for file in files for part in _values(file, fields))
    return positions_of(part for file in files for part in _parts(file))


def values_of(parts: Iterable[tuple[Numbers, Sequence[Numbers]]]) -> Positions:
    """Return what arrays of positions, and the hashes of the fields' values there, amount to.

    The hash of each value is mixed with its position and its field: swapped ones change the checksum.
    """
    rows, total = 0, 0
    for places, fields in parts:
        rows += len(places)
        for number, values in enumerate(fields, start=1):
            placed = mixed(places ^ np.uint64(number << 40)) ^ mixed(values)
            total += int(np.sum(mixed(placed), dtype=np.uint64))
    return Positions(rows, f"{total % 2**64:016x}")


def hashes(values: Iterable[object]) -> Numbers:
    """Return 64 bits for each value; of whole numbers, these themselves."""
    return np.array([_hash(value) for value in values], dtype=np.uint64)


def _hash(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value % 2**64
    return int.from_bytes(hashlib.blake2b(repr(value).encode(), digest_size=8).digest())


def _parts(file: Path) -> Iterable[tuple[Numbers, Numbers]]:
    with pyarrow.parquet.ParquetFile(file) as parquet:
        columns = _columns_of_positions(parquet, file, PAYLOAD)
        for batch in parquet.iter_batches(AT_ONCE, columns=columns):
            partitions, offsets = (batch.column(name).to_numpy().astype(np.uint64) for name in columns)
            yield partitions, offsets


def _values(file: Path, fields: Sequence[str]) -> Iterable[tuple[Numbers, Sequence[Numbers]]]:
    with pyarrow.parquet.ParquetFile(file) as parquet:
        columns = _columns_of_positions(parquet, file, ("key", *fields))
        for batch in parquet.iter_batches(AT_ONCE, columns=[*columns, *fields]):
            partitions, offsets = (batch.column(name).to_numpy().astype(np.uint64) for name in columns)
            if found := [name for name in fields if batch.column(name).null_count]:
                raise BenchmarkError(f"expected a value of each field in {file}, found nulls in {', '.join(found)}")
            yield places_of(partitions, offsets), [_column(batch.column(name)) for name in fields]


def _column(column: "pa.Array[Any]") -> Numbers:
    """Return the hash of each value; each of a batch's different texts is hashed once."""
    if pa.types.is_integer(column.type):
        whole: Numbers = column.to_numpy(zero_copy_only=False).astype(np.uint64)
        return whole
    encoded = column.dictionary_encode()
    hashed: Numbers = hashes(encoded.dictionary.to_pylist())[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashed


def _columns_of_positions(parquet: pyarrow.parquet.ParquetFile, file: Path, payload: Sequence[str]) -> list[str]:
    names = set(parquet.schema_arrow.names)
    prefix = next((prefix for prefix in PREFIXES if names >= {*payload, *(prefix + name for name in METADATA)}), None)
    if prefix is None:
        raise BenchmarkError(
            f"expected {', '.join((*METADATA, *payload))} in {file}, found {', '.join(sorted(names))}: all write "
            "the same"
        )
    return [f"{prefix}partition", f"{prefix}offset"]
