"""The control tables of one database, composed of stores. Each store has one purpose, each method is a transaction.

The rest of the package uses the ports of :mod:`kafka_ingest.ports.control`, and no store.
"""

import secrets
from typing import Final

from sqlalchemy import Connection, Engine, func, select, text

from kafka_ingest.control.adoption_store import AdoptionStore
from kafka_ingest.control.alert_store import AlertStore
from kafka_ingest.control.batch_life import BatchLife
from kafka_ingest.control.batch_store import BatchStore
from kafka_ingest.control.completion_store import CompletionStore
from kafka_ingest.control.coverage_store import CoverageStore
from kafka_ingest.control.database import check_version, transaction
from kafka_ingest.control.feed_store import FeedStore, TopicStore
from kafka_ingest.control.folding_store import FoldingStore
from kafka_ingest.control.gap_store import GapStore, JournalStore, OutputStore
from kafka_ingest.control.offset_store import OffsetStore
from kafka_ingest.control.overview_store import OverviewStore
from kafka_ingest.control.plan_store import AttemptStore, PlanStore
from kafka_ingest.control.schema import metadata

RIGHTS: Final = text(
    "SELECT bool_and(has_table_privilege(name, each)) FROM unnest(CAST(:names AS text[])) AS name, "
    "unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS each"
)
TABLES: Final = text("SELECT array_agg(to_regclass(name)::oid::bigint) FROM unnest(CAST(:names AS text[])) AS name")


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

    def are_in(self, transaction_elsewhere: object) -> bool:
        """Whether the names of the control tables mean these tables in an output's open transaction.

        Host names prove nothing: pools, aliases, restored copies and standbys lie between. A lock does: PostgreSQL
        keeps advisory locks in the memory of one server, for one of its databases. This connection takes one that is
        named by a random number; then the other one cannot have it.
        """
        other, here = transaction_elsewhere, self._engine
        if not isinstance(other, Connection) or {other.dialect.name, here.dialect.name} != {"postgresql"}:
            return False
        token, names = secrets.randbits(63), {"names": sorted(metadata.tables)}
        with transaction(here, "read") as own:
            own.execute(select(func.pg_advisory_xact_lock(token)))
            if other.execute(select(func.pg_try_advisory_xact_lock(token))).scalar_one():
                return False
            return bool(other.execute(TABLES, names).scalar_one() == own.execute(TABLES, names).scalar_one())

    def may_be_written_in(self, transaction_elsewhere: object) -> bool:
        """Whether the role of an output's open transaction, which they are in, has all rights that a commit needs."""
        assert isinstance(transaction_elsewhere, Connection)  # noqa: S101 - one that these tables are in
        return bool(transaction_elsewhere.execute(RIGHTS, {"names": sorted(metadata.tables)}).scalar_one())
