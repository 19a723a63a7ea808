"""Take batches out of a table by one commit. The files go with the format's own clean-up, such as VACUUM."""

from uuid import UUID

from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.sinks.storage_errors import storage_errors
from kafka_ingest.sinks.tables.parts import TableParts


class TableRemover:
    """Removes what was published in a table."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError on a table whose rows cannot be taken out."""
        self._parts.table.check_can_remove()

    def hide(self, batch_id: UUID) -> None:
        """Delete a removed batch's rows in one commit; does nothing where there are none."""
        if self._parts.archive.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self._parts.output):
            self._parts.staging.check_mounted()
            self.check_can_remove()
            self._parts.table.delete_rows(batch_id)
            self._parts.table.make_durable()

    def unfinished(self) -> list[str]:
        """Return the removed batches that readers still see."""
        archive = self._parts.archive
        with storage_errors(self._parts.output):
            removals = [archive.removal(UUID(batch_id)) for batch_id in archive.removed_batches()]
            expired = [each for each in removals if each is not None and each.cause is RemovalCause.EXPIRED]
            if not expired:
                return []
            visible = self._parts.table.rows().visible()
            return sorted(str(each.batch_id) for each in expired if str(each.batch_id) in visible)

    def delete_hidden(self, batch_id: UUID) -> None:
        """Do nothing: the format's clean-up deletes them later; readers of older versions may need them."""
