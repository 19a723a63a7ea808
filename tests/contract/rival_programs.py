"""Another program that has a table, too: it appends, compacts, expires and vacuums for as long as it is let.

In a process of its own, with the libraries that other programs use, of which nothing is this project's.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from multiprocessing.synchronize import Event, Lock
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId
from tests.contract.prepared_processes import prepared_processes
from tests.contract.sink_outputs import OUTPUTS, IcebergOutput, Output, raw_rows

if TYPE_CHECKING:
    import multiprocessing

RIVAL = "rival"
"""What the rows of the rival have for their batch."""

PATIENCE_S = 120.0
WORKS = {"delta": ("append", "compact", "clean"), "iceberg": ("append", "compact", "expire")}

Does = tuple[Callable[[], object], ...]


@contextmanager
def rival_of(output: Output) -> Iterator["Rival"]:
    """Let a rival work on an output's table, which exists, until this ends."""
    rival = Rival(output)
    try:
        yield rival
    finally:
        rival.end()


class Rival:
    """The process, and what it has done."""

    def __init__(self, output: Output) -> None:
        processes = prepared_processes()
        self._over, self._said = processes.Event(), processes.Queue()
        self._may_work, self._works = processes.Event(), processes.Lock()
        self._may_work.set()
        self._format = output.format
        self.did: Counter[str] = Counter()
        arguments = (output.name, output.path, self._over, self._said, self._may_work, self._works)
        self._process = processes.Process(target=work, args=arguments, daemon=True)
        self._process.start()

    def wait_for_one_more(self) -> None:
        """Wait until it has done one more of its works; fails where it has failed."""
        self._take(self._said.get(timeout=PATIENCE_S))

    @contextmanager
    def between_works(self) -> Iterator[None]:
        """Let it begin no work within this: a reader whose log is cleaned up at once may lose what it reads."""
        self._may_work.clear()
        try:
            with self._works:
                yield
        finally:
            self._may_work.set()

    def has_done_all(self, times: int) -> bool:
        """Whether it did each of its works so often."""
        while not self._said.empty():
            self._take(self._said.get())
        return all(self.did[each] >= times for each in WORKS[self._format])

    def _take(self, said: str) -> None:
        assert said in WORKS[self._format], said
        self.did[said] += 1

    def end(self) -> None:
        self._over.set()
        self._process.join(PATIENCE_S)
        assert self._process.exitcode == 0
        self.has_done_all(0)


def work(
    kind: str,
    path: Path,
    over: Event,
    said: "multiprocessing.Queue[str]",
    may_work: Event,
    works: Lock,
) -> None:
    """Do one work after the other; a conflict with another writer is this one's, who tries it again later."""
    output: Any = next(each for each in OUTPUTS if each.name == kind)(path)
    each_work = dict(
        zip(WORKS[output.format], of_iceberg(output) if output.format == "iceberg" else of_delta(output), strict=True)
    )
    try:
        while not over.is_set():
            for name, do in each_work.items():
                may_work.wait()
                try:
                    with works:
                        do()
                except (CommitFailedException, deltalake.exceptions.CommitFailedError):
                    continue
                said.put(name)
    except BaseException:
        said.put(traceback.format_exc())
        raise


def own_rows() -> pa.Table:
    return raw_rows("part-7.parquet", batch_id=RIVAL)


def of_delta(output: Any) -> Does:
    """Return what Delta's maintenance does, as often as it is asked to."""

    def table() -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(output.path))

    def compact() -> None:
        table().optimize.compact()

    def clean() -> None:
        table().vacuum(dry_run=False)
        table().create_checkpoint()
        table().cleanup_metadata()

    return (
        lambda: deltalake.write_deltalake(table(), own_rows(), mode="append"),
        compact,
        clean,
    )


def of_iceberg(output: IcebergOutput) -> Does:
    """Return what engines do to an Iceberg table."""

    def expire() -> None:
        now = datetime.now()  # noqa: DTZ005 - as the library compares it
        output.table().maintenance.expire_snapshots().older_than(now - timedelta(milliseconds=1)).commit()

    return lambda: output.table().append(own_rows()), lambda: compact_files(output.table()), expire


def compact_files(table: Table) -> None:
    """Put the rows of all files into one, or do nothing where another commit came first, as Spark's procedure does.

    Not by the library's own commit, which would take out what others have added since.
    """
    files = [task.file for task in table.scan().plan_files()]
    rows = table.scan().to_arrow()
    path = f"{table.location()}/data/compacted-{datetime.now().timestamp():.6f}.parquet"  # noqa: DTZ005 - a name
    with table.io.new_output(path).create(overwrite=True) as sink, pa.parquet.ParquetWriter(sink, rows.schema) as file:
        file.write_table(rows)
    change = table.transaction()
    with change.update_snapshot().overwrite() as update:
        for each in files:
            update.delete_data_file(each)
        update.append_data_file(parquet_file_to_data_file(table.io, change.table_metadata, path))
    newest = AssertRefSnapshotId(ref="main", snapshot_id=table.metadata.current_snapshot_id)
    table.catalog.commit_table(table, (newest,), change._updates)
