"""A feed whose file asks for alerts."""

from dataclasses import dataclass

from kafka_ingest.model.alert import AlertRules, Notifier
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.model.summaries import FeedOverview


@dataclass(frozen=True, slots=True)
class WatchedFeed:
    """A feed that was planned, what it asks to be notified of, and by whom. ``error`` is that of its file."""

    overview: FeedOverview
    rules: AlertRules
    notifiers: tuple[Notifier, ...] = ()
    isolation: Isolation = Isolation.READ_COMMITTED
    conn_id: str = ""
    error: str | None = None

    @property
    def name(self) -> str:
        """The feed's name."""
        return self.overview.name

    @property
    def asks_kafka(self) -> bool:
        """Whether Kafka is asked about it; not where its file cannot be used, so that its connection is not known."""
        return self.rules.need_kafka and bool(self.conn_id)
