"""What one snapshot of a Delta table holds of batches: files as published, or rewritten by OPTIMIZE or similar.

A file below ``batches/`` holds one batch; rows of any other file name their batch in ``kafka_batch``.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.storage import Opened, refuse_links
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.delta.log_entry import BATCH_KEY, BATCHES, PROOF_KEY
from kafka_ingest.sinks.delta.table_fit import form_of
from kafka_ingest.sinks.tables.table_format import REMOVED_KEY, Mark, OwnFiles, RowsOfTable

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kafka_ingest.sinks.delta.table_log import TableLog
    from kafka_ingest.sinks.found_offsets import FoundOffsets

OUTSIDE = re.compile(r"^/|^[A-Za-z][A-Za-z0-9+.-]*:|(^|[/\\])\.\.?([/\\]|$)")
"""A path that is absolute, a URI, or leads out of the folder that it begins in."""


class DeltaRows(RowsOfTable):
    """A snapshot: the one given, or the newest when this is made. I/O errors are left to the caller."""

    are_newest_states = False

    def __init__(self, log: "TableLog", table: "DeltaTable | None" = None) -> None:
        self.output = log.output
        self._log = log
        self._table = table if table is not None else log.open()

    def opened(self, path: str) -> Opened:
        """Return what reads a file of the table, by its path relative to it; raises OSError on a link to elsewhere."""
        found = self._log.opened(self.output / path)
        refuse_links(found, self._log.opened(self.output))
        return found

    @property
    def searched(self) -> dict[str, object]:
        """The columns, with their types, whose bounds readers look for in each file."""
        return form_of(self._table).searched if self._table is not None else {}

    @property
    def column_types(self) -> dict[str, Any]:
        """The types of the table's columns by name, as its log has them."""
        return {field["name"]: field["type"] for field in form_of(self._table).fields} if self._table else {}

    @cached_property
    def files(self) -> dict[str, int]:
        if self._table is None:
            return {}
        with self._log.named_errors():
            actions = self._table.get_add_actions()
            paths, sizes = (actions.column(name).to_pylist() for name in ("path", "size_bytes"))
        found = {unquote(path): size for path, size in zip(paths, sizes, strict=True)}
        if outside := [path for path in found if OUTSIDE.search(path)]:
            raise OutputNotUsableError(
                f"{self.output}: expected files below the Delta table, found {outside[0]!r} in its log, which names "
                "another place. Nothing of it was read. Remove that file from the table with the program that added "
                "it, or restore an earlier version of the table."
            )
        return found

    @cached_property
    def partitions(self) -> dict[str, dict[str, Any]]:
        """The values of the columns that the table is partitioned by, by file: other programs leave them out of it."""
        if self._table is None or not (columns := self._table.metadata().partition_columns):
            return {}
        with self._log.named_errors():
            actions = self._table.get_add_actions(flatten=True)
            paths = [unquote(path) for path in actions.column("path").to_pylist()]
            values = [actions.column(f"partition.{column}").to_pylist() for column in columns]
        return {path: dict(zip(columns, of_file, strict=True)) for path, *of_file in zip(paths, *values, strict=True)}

    def partition_values(self, path: str) -> dict[str, str | None]:
        """Return a file's as the log has them."""
        return {name: None if value is None else str(value) for name, value in self.partitions.get(path, {}).items()}

    @cached_property
    def rewritten(self) -> list[str]:
        """The files that are not as they were published."""
        return sorted(path for path in self.files if not path.startswith(f"{BATCHES}/"))

    def mark(self, batch_id: UUID) -> Mark | None:
        return self._log.mark_in(self._table, batch_id) if self._table is not None else None

    def published(self) -> set[str]:
        return {path.split("/")[1] for path in self.files if path.startswith(f"{BATCHES}/")}

    def visible(self, batch_ids: set[str]) -> set[str]:
        return batch_ids & (self.published() | self.counted_elsewhere.keys())

    def is_visible(self, batch_id: UUID) -> bool:
        return str(batch_id) in self.published() or self.count_elsewhere(batch_id) > 0

    def refuse_links_of(self, batch_id: UUID) -> None:
        """Raise OSError where a batch's own files are links to elsewhere, whose rows are none of the table."""
        for path in self.files:
            if path.startswith(f"{BATCHES}/{batch_id}/"):
                self.opened(path)

    @cached_property
    def own_files_of_all(self) -> OwnFiles:
        below = f"{BATCHES}/"
        return OwnFiles(path.removeprefix(below) for path in self.files if path.startswith(below))

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        if self._table is None:
            return
        with self._log.named_errors():
            history = self._table.history()
        for each in history:
            if REMOVED_KEY in each or BATCH_KEY in each:
                yield each.get(PROOF_KEY), each.get(REMOVED_KEY)

    def add_to(self, found: "FoundOffsets") -> None:
        if self._table is not None:
            self._log.check_readable(self._table)
            for path in sorted(self.files):
                found.add_file(path, self.opened(path), self.partitions.get(path, {}))

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether the table has files of the batch, or its mark, which takes longer to find."""
        own = self.own_files(published.receipt.batch_id, published.receipt.attempt)
        return bool(own) or super().was_published(published)

    def read_elsewhere(
        self, columns: list[str], batch_id: UUID | None = None, at: tuple[TopicPartition, int] | None = None
    ) -> Iterator["pa.Table"]:
        del at
        if self._table is None or not self.rewritten:
            return
        self._log.check_readable(self._table)
        # A third of a second, for questions about rows only.
        from kafka_ingest.sinks.delta.replaced_files import rows_of_file  # noqa: PLC0415

        for path in self.rewritten:
            known = self.partitions.get(path, {})
            yield from rows_of_file(self.opened(path), columns, batch_id, known)
