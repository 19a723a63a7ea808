"""Asks for starts of feeds by the records that wait, in a task or in the triggerer: see :mod:`.start_trigger`."""

import contextlib
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import AssetAlias, BaseOperator, Context
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_ingest.airflow_tasks.asset_events import asset_of_starts, awaited_feeds
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow
from kafka_ingest.assembly import control_tables, feed_files
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import InvalidFeedError, KafkaIngestError
from kafka_ingest.model.waiting import AwaitedFeed, position_of
from kafka_ingest.observing.due_feeds import DeniedTopics, due_feeds
from kafka_ingest.settings.connections import FindConnection, find_connection_in_task, kafka_settings

KAFKA_TIMEOUT_S: Final = 10.0
"""The longest that one question to Kafka may take."""
READ_FILES_EVERY: Final = timedelta(minutes=5)
"""Plans alone find feeds of topics, and to read a thousand files takes a second."""


class StartCheck:
    """Looks at the feeds of one Kafka connection. Used by one thread, and made anew after an error."""

    def __init__(self, conn_id: str, find_connection: FindConnection = find_connection_in_task) -> None:
        self._conn_id = conn_id
        self._find_connection = find_connection
        self._of_topics: list[AwaitedFeed] = []
        self._read_at: datetime | None = None
        self._denied = DeniedTopics()

    @cached_property
    def _control(self) -> SqlControlTables:
        return control_tables(self._find_connection)

    @cached_property
    def _kafka(self) -> ConfluentKafkaCluster:
        settings = kafka_settings(self._find_connection(self._conn_id))
        return ConfluentKafkaCluster(lambda: settings, at_most_s=KAFKA_TIMEOUT_S)

    def close(self) -> None:
        """Close its Kafka client, in the thread that asks; it is not used any more."""
        if "_kafka" in self.__dict__:
            self._kafka.close()

    def feeds_of_topics(self, dag_ids: Collection[str], now: datetime) -> list[AwaitedFeed]:
        """Return the feeds that files for many topics of these fleets came to at their last plans.

        What is wrong with the folder of feed files is shown by its DAG, and must not keep other feeds waiting.
        """
        if dag_ids and (self._read_at is None or now - self._read_at >= READ_FILES_EVERY):
            self._read_at = now
            with contextlib.suppress(InvalidFeedError):
                files = [file for file in feed_files(self._find_connection) if file.topic is not None]
                self._of_topics = awaited_feeds(files).get(self._conn_id, [])
        return [each for each in self._of_topics if each.dag_id in dag_ids]

    def starts(self, feeds: Collection[AwaitedFeed], now: datetime) -> dict[str, str]:
        """Return the DAGs that are to be started, and why.

        Each start is returned once, by one process. Raises KafkaUnavailableError and what else keeps Kafka or the
        control tables from answering.
        """
        overviews = {each.name: each for each in self._control.feed_standings()}
        known = {feed: overviews.get(feed.name) for feed in feeds}
        decided = due_feeds(self._kafka, known, now, self._denied)
        due = [feed for feed, each in decided.items() if each.is_due]
        busy = {dag_id for dag_id in {feed.dag_id for feed in due} if has_active_run(dag_id)}
        due = [feed for feed in due if feed.dag_id not in busy]
        positions = {overviews[feed.name].feed_id: position_of(overviews[feed.name].stored.values()) for feed in due}
        claimed = self._control.claim_starts(positions, now) if positions else set()
        first = {feed.dag_id: feed for feed in due if overviews[feed.name].feed_id in claimed}
        return {dag_id: f"{feed.name}: {decided[feed].why}" for dag_id, feed in first.items()}


def has_active_run(dag_id: str, states: Collection[str] = ("queued", "running")) -> bool:
    """Whether a DAG has a run that waits or runs; asked through Airflow's API, as neither may use its database."""
    return RuntimeTaskInstance.get_dr_count(dag_id=dag_id, states=list(states)) > 0


class StartFeedsOperator(BaseOperator):
    """Asks for starts as the triggerer does: for where there is none, and for what it has missed."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        # A plain outlet would start feeds at every success of the task; the alias only those that are added.
        self.alias = AssetAlias(name="kafka_ingest/starts")
        super().__init__(outlets=[self.alias], **kwargs)

    def execute(self, context: Context) -> list[str]:
        """Return the DAGs that are started; Airflow starts them with this task's success.

        So it fails only where no DAG is to be started, and a cluster did not answer.
        """
        with errors_for_airflow():
            of_connection = awaited_feeds(feed_files(find_connection_in_task))
        started: dict[str, str] = {}
        failures = []
        for conn_id, awaited in of_connection.items():
            try:
                started |= StartCheck(conn_id).starts(awaited, datetime.now(UTC))
            except KafkaIngestError as error:
                failures.append(f"connection {conn_id}: {error.code}: {error}")
                self.log.error("%s", failures[-1])  # noqa: TRY400 - its message says what to do
        for dag_id, why in started.items():
            self.log.info("DAG %s is started: %s", dag_id, why)
            context["outlet_events"][self.alias].add(asset_of_starts(dag_id), extra={"why": why})
        if failures and not started:
            raise AirflowFailException("schedules alone start some feeds: " + "; ".join(failures))
        return sorted(started)
