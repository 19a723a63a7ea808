"""Asset events: each batch that a DAG run commits is announced at least once."""

from collections.abc import Sequence
from pathlib import Path

from airflow.sdk import Asset, AssetAlias, Context

from kafka_ingest.assembly import FeedParts
from kafka_ingest.committing.announcement import announcement
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.settings.feed import Feed


class Announcements:
    """The events of one task by an alias, a feed's or that of many, and the note that they were recorded.

    Airflow records a task's events with its success, so the control tables note them only then: if a task dies in
    between, the feed's next run announces its batch. Consumers distinguish batches by their id.
    """

    def __init__(self, name: str = "backfills") -> None:
        # A plain outlet would announce every success of the task; the alias only what is added to it.
        self.alias = AssetAlias(name=f"kafka_ingest/{name}")
        self._added: list[tuple[FeedParts, Batch]] = []

    def add(self, context: Context, batch: Batch, counts: Sequence[RangeCount], parts: FeedParts) -> None:
        """Add a batch's event to the task's."""
        self._added.append((parts, batch))
        context["outlet_events"][self.alias].add(
            asset_of(batch.plan, parts.feed), extra=announcement(batch.plan, counts)
        )

    def add_lost(self, context: Context, parts: FeedParts) -> int:
        """Add the events of batches whose tasks died before they announced them, and return their number."""
        feed = parts.control.feed(parts.feed.name)
        found = parts.control.to_announce(feed.feed_id) if feed is not None else []
        for batch in found:
            self.add(context, batch, parts.control.range_counts(batch.batch_id), parts)
        return len(found)

    def note(self, context: Context) -> None:  # noqa: ARG002 - the signature of Airflow's ``on_success_callback``
        """Note what was announced, now that Airflow has recorded the success of the task and its events."""
        for feed_id, parts in {batch.plan.feed_id: parts for parts, batch in self._added}.items():
            batch_ids = [batch.batch_id for _, batch in self._added if batch.plan.feed_id == feed_id]
            parts.control.note_announced(feed_id, batch_ids)


def asset_of(plan: BatchPlan, feed: Feed) -> Asset:
    """Return the output as Airflow knows it: the feed's, or that of its copies."""
    place = plan.output.place
    uri = place.as_uri() if isinstance(place, Path) else str(place.without_connection)
    return Asset(uri) if plan.kind is BatchKind.COPY else Asset(name=f"kafka_ingest/{feed.name}", uri=uri)
