"""What is folded of a feed, and the step that folds the next old batches."""

from dataclasses import replace
from datetime import datetime
from uuid import UUID

from kafka_ingest.control.database import Store, transaction
from kafka_ingest.control.feed_statements import lock_feed
from kafka_ingest.control.folded_rows import folded_batches, folded_feed
from kafka_ingest.control.folding import fold_batches, fold_events, foldable
from kafka_ingest.model.control_rows import Foldable, FoldCut, Folded, FoldedBatch, FoldedFeed


class FoldingStore(Store):
    """Folded batches and their ranges."""

    def folded(self, feed_id: UUID) -> FoldedFeed:
        """Return which of the feed's batches are folded, and what they have read."""
        with transaction(self._engine, "read") as connection:
            return folded_feed(connection, feed_id)

    def folded_batches(self, feed_id: UUID, oldest: datetime, newest: datetime) -> list[FoldedBatch]:
        """Return the folded batches that were committed between two times, in the order of their commits."""
        with transaction(self._engine, "read") as connection:
            return folded_batches(connection, feed_id, oldest, newest)

    def foldable(self, feed_id: UUID, cut: FoldCut) -> Foldable:
        """Return what may be folded now, and what is old enough but stays."""
        with transaction(self._engine, "read") as connection:
            return foldable(connection, feed_id, cut)

    def fold(self, feed_id: UUID, cut: FoldCut) -> Folded:
        """Fold the next old live batches and lines of the journal, and return how many; zero where none is left."""
        with transaction(self._engine, "write") as connection:
            lock_feed(connection, feed_id)
            # The feed's revision stays: a concurrent decision on its rows rests on the same facts.
            return replace(fold_batches(connection, feed_id, cut), events=fold_events(connection, feed_id, cut))
