"""The control tables, with the step that folds what is old."""

from dataclasses import replace
from uuid import UUID

from kafka_ingest.control.database import transaction
from kafka_ingest.control.feed_statements import lock_feed
from kafka_ingest.control.folding import fold_batches, fold_events, foldable
from kafka_ingest.control.writer import SqlControlTables
from kafka_ingest.model.control_rows import Foldable, FoldCut, Folded


class SqlFoldingTables(SqlControlTables):
    """The control tables, with the step that folds what is old."""

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        """Fold the next old live batches and lines of the journal, and return how many; nothing where none is left."""
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            # The feed's revision stays: whoever decides on its rows at this moment decides on the same facts.
            return replace(fold_batches(connection, feed_id, cut), events=fold_events(connection, feed_id, cut))

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        """Return what may be folded now, and what stays that is as old."""
        with transaction(self._engine, "read") as connection:
            return foldable(connection, feed_id, cut)
