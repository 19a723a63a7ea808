"""The control tables of one database, composed of stores. Each store has one purpose, each method is a transaction.

The rest of the package uses the ports of :mod:`kafka_ingest.ports.control`, and no store.
"""

from sqlalchemy import Engine

from kafka_ingest.control.adoption_store import AdoptionStore
from kafka_ingest.control.alert_store import AlertStore
from kafka_ingest.control.attempt_store import AttemptStore
from kafka_ingest.control.batch_life import BatchLife
from kafka_ingest.control.batch_store import BatchStore
from kafka_ingest.control.completion_store import CompletionStore
from kafka_ingest.control.coverage_store import CoverageStore
from kafka_ingest.control.database import check_version
from kafka_ingest.control.feed_store import FeedStore
from kafka_ingest.control.folding_store import FoldingStore
from kafka_ingest.control.gap_store import GapStore
from kafka_ingest.control.journal_store import JournalStore
from kafka_ingest.control.offset_store import OffsetStore
from kafka_ingest.control.output_store import OutputStore
from kafka_ingest.control.overview_store import OverviewStore
from kafka_ingest.control.plan_store import PlanStore
from kafka_ingest.control.topic_store import TopicStore


class SqlControlTables(
    AdoptionStore,
    AlertStore,
    AttemptStore,
    BatchLife,
    BatchStore,
    CompletionStore,
    CoverageStore,
    FeedStore,
    FoldingStore,
    GapStore,
    JournalStore,
    OffsetStore,
    OutputStore,
    OverviewStore,
    PlanStore,
    TopicStore,
):
    """The control tables in a database. Its schema's version is checked once, before the first use."""

    def __init__(self, engine: Engine) -> None:
        check_version(engine)
        super().__init__(engine)
