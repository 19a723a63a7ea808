"""Take batches out of a Delta table: one commit that deletes their rows. VACUUM deletes the files later."""

from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.sinks.delta.columns import BATCH_COLUMN
from kafka_ingest.sinks.delta.parts import DeltaParts
from kafka_ingest.sinks.delta.table_log import TRIES, brief, failures
from kafka_ingest.sinks.storage_errors import storage_errors


class DeltaRemover:
    """Removes what was published in a Delta table."""

    def __init__(self, parts: DeltaParts) -> None:
        self._parts = parts
        self._log = parts.log

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError on a table that cannot be written, or only appended to."""
        self._log.check_writable()
        if self._log.configuration().get("delta.appendOnly", "false").lower() == "true":
            raise OutputNotUsableError(
                f"{self._parts.output}: expected a Delta table whose rows may be deleted, found delta.appendOnly=true. "
                "Nothing was changed; unset that property where rows are to be removed."
            )

    def hide(self, batch_id: UUID) -> None:
        """Delete a removed batch's rows in one commit; does nothing where there are none.

        Its own files are removed from the table. A file that OPTIMIZE made of several batches is rewritten without its
        rows.
        """
        if self._parts.archive.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self._parts.output):
            self._parts.staging.check_mounted()
            self.check_can_remove()
            failure: Exception | None = None
            for _ in range(TRIES):
                if not self._parts.rows().is_visible(batch_id):
                    if self._log.is_there():
                        self._log.sync()
                    return
                table = self._log.open()
                if table is None:
                    return
                try:
                    # An id in its canonical form holds no quote.
                    table.delete(f"{BATCH_COLUMN} = '{batch_id}'")
                except failures() as error:
                    failure = error
            if self._parts.rows().is_visible(batch_id):
                raise OutputUnavailableError(
                    f"{self._parts.output}: {TRIES} tries to delete the rows of batch {batch_id} failed: "
                    f"{brief(failure)}. It is recorded as removed; run this again."
                ) from failure
            self._log.sync()

    def unfinished(self) -> list[str]:
        """Return the removed batches that readers still see."""
        archive = self._parts.archive
        with storage_errors(self._parts.output):
            removals = [archive.removal(UUID(batch_id)) for batch_id in archive.removed_batches()]
            expired = [each for each in removals if each is not None and each.cause is RemovalCause.EXPIRED]
            if not expired:
                return []
            rows = self._parts.rows()
            return sorted(str(each.batch_id) for each in expired if rows.is_visible(each.batch_id))

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: VACUUM deletes files that the table no longer names; readers of older versions may need them."""
