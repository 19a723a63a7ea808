"""Take batches out of an Iceberg table: one commit takes out their files. Expiring snapshots deletes the files."""

from uuid import UUID

from kafka_ingest.model.removal import RemovalCause
from kafka_ingest.sinks.iceberg.parts import IcebergParts
from kafka_ingest.sinks.storage_errors import storage_errors


class IcebergRemover:
    """Removes what was published in an Iceberg table."""

    def __init__(self, parts: IcebergParts) -> None:
        self._parts = parts

    def check_can_remove(self) -> None:
        """Raise OutputNotUsableError on a table that cannot be written."""
        self._parts.table.check_writable()

    def hide(self, batch_id: UUID) -> None:
        """Delete a removed batch's rows in one commit; does nothing where there are none.

        Raises OutputNotUsableError where a compaction has put its rows into files of several batches: PyIceberg 0.12.0
        reads a null list of headers as an empty one, so it must not copy other batches' rows.
        """
        if self._parts.archive.removal(batch_id) is None:
            raise ValueError(f"expected batch {batch_id} to be noted as removed before it is hidden")
        with storage_errors(self._parts.output):
            self._parts.staging.check_mounted()
            self._parts.table.delete_rows(batch_id)

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
        """Do nothing: expiring snapshots deletes files that no snapshot names; readers of older ones may need them."""
