"""Hold staged Parquet files against their receipt: names, sizes, and the rows that their footers count."""

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import Opened, remote_sizes
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.written_columns import KAFKAS_OWN, WrittenColumns, side_by_side, written_columns


def file_sizes(directory: Path, folders: Collection[str] = ()) -> dict[str, int]:
    """Return name → size in bytes of everything in a directory; empty where there is none.

    ``folders`` are read, and names of files in them begin with the folder's.
    """
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return {}
    sizes: dict[str, int] = {}
    for entry in entries:
        if entry.name in folders and entry.is_dir(follow_symlinks=False):
            below = [name.removeprefix(f"{entry.name}/") for name in folders if name.startswith(f"{entry.name}/")]
            inside = file_sizes(Path(entry.path), below)
            sizes |= {f"{entry.name}/{name}": size for name, size in inside.items()}
        else:
            sizes[entry.name] = entry.stat().st_size
    return sizes


def folders_in(receipt: Receipt) -> list[str]:
    parents = {str(folder) for file in receipt.files for folder in PurePosixPath(file.name).parents}
    return sorted(parents - {"."})


def batch_sizes(directory: Path, receipt: Receipt | None) -> dict[str, int]:
    return file_sizes(directory, folders_in(receipt) if receipt is not None else ())


def folders_of(data: Opened, receipt: Receipt) -> list[Opened]:
    """Return the directories that hold a receipt's files, the innermost first; none where it has no files."""
    return [*(data / name for name in reversed(folders_in(receipt))), data] if receipt.files else []


def check_listing(data: Opened, receipt: Receipt, *others: Path) -> None:
    """Raise StagedOutputUnusableError unless exactly the receipt's files exist, with their sizes.

    Some of them may be in ``others``, which need not exist.
    """
    expected, found = {file.name: file.size_bytes for file in receipt.files}, staged_sizes(data, receipt)
    for other in others:
        found |= batch_sizes(other, receipt)
    if found != expected:
        raise StagedOutputUnusableError(
            f"attempt {receipt.attempt} of batch {receipt.batch_id}: {difference(expected, found)} in {data}"
        )


def staged_sizes(data: Opened, receipt: Receipt) -> dict[str, int]:
    return batch_sizes(data, receipt) if isinstance(data, Path) else remote_sizes(data)


def difference(expected: dict[str, int], found: dict[str, int]) -> str:
    problems = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    problems += [f"{name} is not in the receipt" for name in sorted(found.keys() - expected.keys())]
    problems += [
        f"{name} has {found[name]:,} bytes instead of {expected[name]:,}"
        for name in sorted(expected.keys() & found.keys())
        if found[name] != expected[name]
    ]
    return listing(problems)


def verify_footer(path: Opened, expected: WrittenFile, columns: WrittenColumns | None) -> None:
    """Raise StagedOutputUnusableError where a file's footer cannot be read, counts other rows or has other types.

    ``columns``: those of decoded rows; None where they are not known. A file may have more, of the table's partitions.
    """
    # A third of a second for pyarrow, which only a commit should pay.
    from kafka_ingest.sinks.parquet_contents import staged_footer, struct_of  # noqa: PLC0415

    with staged_footer(path) as footer:
        rows, found = footer.num_rows, written_columns(struct_of(footer.schema.to_arrow_schema()))
    if rows != expected.rows:
        raise StagedOutputUnusableError(f"{path}: expected {counted(expected.rows, 'row')}, its footer says {rows:,}")
    promised = {**{name: kind for name, kind in KAFKAS_OWN.items() if name in found}, **(columns or {})}
    if wrong := [name for name, kind in promised.items() if found.get(name) != kind]:
        raise StagedOutputUnusableError(
            f"{path}: expected the types that were decided when the attempt was opened, found others:\n"
            f"{side_by_side(promised, found, wrong, before_is='decided')}"
        )
