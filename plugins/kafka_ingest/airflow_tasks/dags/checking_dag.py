"""Looks at all feeds every five minutes, and notifies as their files' `alerts` ask.

Each thing is said once when it begins, and once when it ends. A feed that cannot be used, a cluster that does not
answer and a notifier that fails keep nothing else from being said; the task fails then, after all the rest was done.
The task `start` starts feeds with `start_when` by what waits, where the triggerer has not.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final
from uuid import UUID

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator, Context, get_parsing_context
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow
from kafka_ingest.airflow_tasks.notifying import notify_with
from kafka_ingest.airflow_tasks.start_checks import StartFeedsOperator
from kafka_ingest.assembly import control_tables, feed_files
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.errors import InvalidFeedError, KafkaIngestError
from kafka_ingest.model.alert import Stops
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.alert_life import changes_of, note_changes, say
from kafka_ingest.observing.alert_rules import ClusterAnswers, WatchedFeed, ask_cluster, look
from kafka_ingest.observing.due_feeds import due_times
from kafka_ingest.ports.control import AlertTables
from kafka_ingest.settings.connections import FindConnection, find_connection_in_task, kafka_settings
from kafka_ingest.settings.defaults import defaults_of
from kafka_ingest.settings.feed import CHECKING_DAG, DEFAULT_POOL, Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feed_folders, feed_paths, feeds_directory, texts_of

log = logging.getLogger(__name__)

KAFKA_TIMEOUT_S: Final = 10.0
"""The longest that one question to Kafka may take: others wait for their turn."""
CLUSTERS_AT_ONCE: Final = 8
MOST_REPORTED: Final = 20


class CheckFeedsOperator(BaseOperator):
    """Looks at all feeds whose files ask for alerts, with a few questions over each connection, and notifies."""

    def execute(self, context: Context) -> dict[str, int]:
        """Return how many alerts have begun and ended; fails at the end where something could not be said or seen."""
        with errors_for_airflow():
            files = feed_files(find_connection_in_task)
            control = control_tables(find_connection_in_task)
            watched = watched_feeds(files, control.feed_overviews())
            checked = check(watched, control, find_connection_in_task, datetime.now(UTC))
            failures = [*watched.problems, *say(control, watched.feeds, notify_with(context))]
            failures += waiting_for_pools(files, datetime.now(UTC))
        counts = {"feeds": len(watched.feeds), "begun": checked.begun, "ended": checked.ended}
        self.log.info("checked %s feeds: %s alerts have begun, %s ended", *(f"{each:,}" for each in counts.values()))
        for note in checked.notes[:MOST_REPORTED]:
            self.log.warning("%s", note)
        for failure in failures:
            self.log.error("%s", failure)
        if failures:
            more = len(failures) - MOST_REPORTED
            shown = failures[:MOST_REPORTED] + ([f"and {more:,} more"] if more > 0 else [])
            raise AirflowFailException("everything else was checked and notified: " + "; ".join(shown))
        return counts


@dataclass(frozen=True, slots=True)
class WatchedFeeds:
    """The feeds that ask for alerts; what ``kept`` ones ask for is unknown, as ``problems`` say."""

    feeds: Mapping[UUID, WatchedFeed]
    kept: frozenset[UUID] = frozenset()
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """How many alerts have begun and ended, and what was judged by less than it should."""

    begun: int
    ended: int
    notes: Sequence[str]


def watched_feeds(files: Sequence[FeedFile], overviews: Sequence[FeedOverview]) -> WatchedFeeds:
    """Return the planned feeds whose files ask for alerts. An unusable file may still say what it asks for."""
    planned = {each.name: each for each in overviews}
    feeds: dict[UUID, WatchedFeed] = {}
    kept: set[UUID] = set()
    problems: list[str] = []
    # A file that cannot be read may be that of any feed that has no other.
    named = {file.name or file.path.stem for file in files}
    orphans = {each.feed_id for each in overviews if each.name not in named}
    for file in files:
        feed = file.feed or file.contested
        error = str(file.error) if file.error is not None else None
        overview = planned.get(feed.name if feed is not None else file.name or file.path.stem)
        if feed is None and error is not None and not file.alerts_are_read:
            # What it asks for is not known, so what was said of it stays, and the failing task says what it cannot.
            problems.append(error)
            kept |= {overview.feed_id} if overview is not None else orphans
        elif overview is None or file.alerts is None:
            continue
        elif feed is None:
            feeds[overview.feed_id] = WatchedFeed(
                overview, file.alerts.rules(Stops()), file.alerts.notifiers(), error=error
            )
        elif (rules := feed.alert_rules()) is not None:
            feeds[overview.feed_id] = WatchedFeed(
                overview, rules, file.alerts.notifiers(), feed.kafka.isolation, feed.kafka.conn_id, error
            )
    return WatchedFeeds(feeds, frozenset(kept), problems)


def check(watched: WatchedFeeds, control: AlertTables, find_connection: FindConnection, now: datetime) -> Checked:
    answers = ask_all(list(watched.feeds.values()), find_connection, now)
    gaps = control.gap_decisions() if any(feed.rules.gap for feed in watched.feeds.values()) else {}
    looks = {
        feed_id: look(feed, answers.get(feed.conn_id) if feed.asks_kafka else None, gaps.get(feed_id, ()), now)
        for feed_id, feed in watched.feeds.items()
    }
    changes = changes_of(control.alerts(), watched.feeds, looks, watched.kept)
    note_changes(control, changes, now)
    notes = [note for each in looks.values() for note in each.notes]
    return Checked(len(changes.begun), len(changes.ended), notes)


def ask_all(
    feeds: Sequence[WatchedFeed], find_connection: FindConnection, now: datetime
) -> dict[str, ClusterAnswers | str]:
    """Ask over each connection once, some at a time; a text where Kafka could not be asked, or did not answer."""
    of_connection: dict[str, list[WatchedFeed]] = {}
    for feed in feeds:
        if feed.asks_kafka:
            of_connection.setdefault(feed.conn_id, []).append(feed)
    # Here, as only this thread may speak to the task's supervisor.
    looked_up = {conn_id: settings_or_error(conn_id, find_connection) for conn_id in of_connection}
    settings = {conn_id: found for conn_id, found in looked_up.items() if not isinstance(found, str)}
    answers: dict[str, ClusterAnswers | str] = {
        conn_id: error for conn_id, error in looked_up.items() if isinstance(error, str)
    }

    def ask(conn_id: str) -> ClusterAnswers | str:
        # Made and dropped by the thread that asks: see FeedParts.kafka.
        kafka = ConfluentKafkaCluster(lambda: settings[conn_id], at_most_s=KAFKA_TIMEOUT_S)
        try:
            return ask_cluster(kafka, of_connection[conn_id], now)
        except KafkaIngestError as error:
            return f"{error.code}: {error}"
        except Exception:
            log.exception("the questions over connection %s failed", conn_id)
            return "an unexpected error; the log of check_feeds says which"

    if settings:
        with ThreadPoolExecutor(min(CLUSTERS_AT_ONCE, len(settings))) as threads:
            answers |= dict(zip(settings, threads.map(ask, settings), strict=True))
    return answers


def settings_or_error(conn_id: str, find_connection: FindConnection) -> KafkaClientSettings | str:
    try:
        return kafka_settings(find_connection(conn_id))
    except KafkaIngestError as error:
        return f"{error.code}: {error}"


PLAN: Final = "plan"
MOST_RUNS: Final = 50
"""How many of the newest runs are asked for: while one waits, Airflow makes no other."""


def waiting_for_pools(files: Sequence[FeedFile], now: datetime) -> Iterator[str]:
    """Yield which feeds with a pool of their own have a run whose plan should have begun and has no slot."""
    for file in files:
        feed = file.feed
        if feed is not None and feed.airflow.pool != DEFAULT_POOL and waits(feed, now):
            pool = feed.airflow.pool
            yield (
                f"feed {feed.name}: expected its plan to begin within its schedule, found it waiting for a slot of "
                f"pool {pool!r}, which may not exist: `airflow pools get {pool}`. Make it, give it more slots, or "
                "correct airflow.pool"
            )


def waits(feed: Feed, now: datetime) -> bool:
    due = [each.astimezone(UTC) for each in islice(due_times(feed.schedule, now), MOST_RUNS)]
    count: Any = RuntimeTaskInstance.get_ti_count
    return (
        bool(due)
        and count(dag_id=feed.fleet or feed.name, task_ids=[PLAN], logical_dates=due, states=["scheduled"]) > 0
    )


START = "start"


def some_start_by_what_waits() -> bool:
    """Whether a feed may say ``start_when``; a task that is started says itself what there is.

    By the texts alone, in a fifth of the time: Airflow asks every half minute, and there may be thousands of feeds.
    """
    started = get_parsing_context().task_id
    if started is not None:
        return started == START
    try:
        folders = feed_folders(feeds_directory())
        in_defaults = any("start_when" in (defaults_of(folder).document or ()) for folder in folders)
        return in_defaults or any("start_when" in text for _, text in texts_of(feed_paths(folders[0])))
    except (InvalidFeedError, OSError):
        return False


def checking_dag() -> DAG:
    with DAG(
        dag_id=CHECKING_DAG,
        description="Alerts of all feeds: lag, records that wait for too long, headroom, holds, gaps",
        doc_md=__doc__,
        schedule="*/5 * * * *",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["kafka_ingest", "alerts"],
        # The next run tries again what failed.
        default_args={"retries": 0, "execution_timeout": timedelta(hours=1)},
    ) as dag:
        CheckFeedsOperator(task_id="check")
        if some_start_by_what_waits():
            StartFeedsOperator(task_id=START)
    return dag
