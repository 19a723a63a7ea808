"""Mends what a table says of its files' statistics: it names the columns whose bounds all of its files have.

Readers then look for no others (:mod:`.table_fit`). One commit of the table's properties does it; no file and no
statistics change.
"""

from typing import TYPE_CHECKING

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.sinks.delta.library import brief, failures
from kafka_ingest.sinks.delta.table_fit import form_of, with_bounds
from kafka_ingest.sinks.delta.table_log import TRIES, TableLog

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaStatistics:
    """The statistics of the files of one table."""

    def __init__(self, log: TableLog) -> None:
        self._log = log

    def may_lack(self) -> list[str]:
        searched = form.searched if (form := self._log.form()) is not None else {}
        return [name for name in searched if name not in with_bounds(searched)]

    def look(self) -> TableStatistics:
        self._log.check_writable()
        return self._recorded(self._log.open())

    def _recorded(self, table: "DeltaTable | None") -> TableStatistics:
        """Return what a version records, of which some can be mended; nothing lacks where there is no table."""
        from kafka_ingest.sinks.delta.add_actions import statistics_of  # noqa: PLC0415 - pyarrow

        if table is None:
            return TableStatistics(0, {}, ())
        with self._log.named_errors():
            found = statistics_of(table, form_of(table).searched)
        if found.lacking and not found.complete:
            raise OutputNotUsableError(
                f"{self._log.output}: expected a column of which all files have bounds, found none. OPTIMIZE the "
                "table, which gives its rows other files, and run this again."
            )
        return found

    def mend(self) -> None:
        self._log.check_writable()
        failure: Exception | None = None
        for attempt in range(TRIES + 1):
            table = self._log.open()
            found = self._recorded(table)
            if table is None or not found.lacking:
                with self._log.named_errors():
                    self._log.make_durable()
                return
            if attempt < TRIES:
                try:
                    self._log.name_columns(table, found.complete)
                except failures() as error:  # it may have landed all the same: look again
                    failure = error
        raise OutputUnavailableError(
            f"{self._log.output}: {TRIES} tries to name the columns with bounds failed: {brief(failure)}. No file was "
            "changed; run this again."
        ) from failure
