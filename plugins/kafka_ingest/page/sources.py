"""Where the page's answers come from: control tables, feed files, and Kafka beside them with a time limit."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from kafka_ingest.assembly import control_tables, feed_files, sinks_of
from kafka_ingest.batches.complete_periods import Waiting, complete_periods
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.model.batch import Attempt, Batch, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import Isolation, StoredOffset, TopicPartition
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs
from kafka_ingest.observing.feed_status import Answers, ask
from kafka_ingest.observing.group_drift import GroupDrifts, Mirrored
from kafka_ingest.observing.record_ages import newest_committed_ages, oldest_ages
from kafka_ingest.page.kept_answers import Answer, KeptAnswers
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection, find_connection_from_shell, kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

FILES_SHOWN: Final = 100
FAILURES_SHOWN: Final = 3
END_OF_FAILURE: Final = 64 * 1024
"""How many bytes of Spark's output are read and shown: the cause is at its end."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of what Spark said of an attempt that failed. ``is_cut``: it said more before that."""

    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The first of a batch's files, how many there are, and what the newest failed attempts said, by their number.

    ``is_lost``: the batch is committed, and no receipt beside its output says which files are its own.
    """

    files: Sequence[WrittenFile]
    total: int
    failures: Mapping[int, LastWords]
    is_lost: bool = False


def batch_files(batch: Batch, attempts: Sequence[Attempt], sinks: Sinks) -> BatchFiles:
    """Look at a batch's receipt and its attempts' directories; raises OutputUnavailableError, InvalidReceiptError."""
    sink = sinks(batch.plan.output)
    receipt: Receipt | None = None
    if batch.state is BatchState.COMMITTED:
        receipt = sink.archive.receipt(batch.batch_id)
    else:
        pinned = next((each for each in attempts if each.attempt == batch.pinned_attempt), None)
        content = sink.staging.read_receipt(pinned.directory) if pinned is not None else None
        receipt = valid_receipt(batch.plan, pinned, content) if pinned is not None and content is not None else None
    failures: dict[int, LastWords] = {}
    for each in reversed(attempts):
        if each.cleaned_at is not None or each.attempt == batch.pinned_attempt or len(failures) == FAILURES_SHOWN:
            continue
        if said := sink.staging.end_of_failure(each.directory, END_OF_FAILURE):
            text, is_cut = said
            failures[each.attempt] = LastWords(storable(text), is_cut)
    files = receipt.files if receipt is not None else ()
    return BatchFiles(
        files[:FILES_SHOWN], len(files), failures, is_lost=receipt is None and batch.state is BatchState.COMMITTED
    )


BACKFILL_DAG: Final = "backfill_offsets"
OPERATE_DAG: Final = "operate_feed"


@dataclass(frozen=True, slots=True)
class DagNow:
    """What Airflow's scheduler does with a DAG: nothing by itself while it is paused."""

    is_paused: bool
    next_run_at: datetime | None


KAFKA_TIMEOUT_S: Final = 5.0
"""The longest that one question to Kafka may take."""
PARTITIONS_OF_A_FEED: Final = 3
PARTITIONS_OF_ONE_FEED: Final = 20
"""Of how many partitions ages are asked for among all feeds, and of one: those with the most to read."""
WAIT_S: Final = 0.3
"""The longest that a page waits for an answer before it shows what is stored."""

Places = Mapping[TopicPartition, tuple[int, int]]
"""Where reading continues in partitions with something to read, and how many offsets that is."""


@dataclass(frozen=True)
class Sources:
    """What the page asks. Connections are looked up as Airflow does in its own processes."""

    find_connection: FindConnection = find_connection_from_shell
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    kept: KeptAnswers = field(default_factory=KeptAnswers)
    drifts: GroupDrifts = field(default_factory=GroupDrifts)
    kept_views: KeptAnswers = field(default_factory=KeptAnswers)
    """What single feeds' views ask, apart from what is asked once for all feeds, for the metrics too."""
    kept_files: KeptAnswers = field(default_factory=KeptAnswers)
    """Apart from Kafka's: storage that hangs takes the threads that look at it."""

    def control(self) -> ControlObserver:
        """Return the control tables; raises the named errors of a connection, a database or a schema's version."""
        return control_tables(self.find_connection)

    def feed_files(self, *, wait_s: float = WAIT_S) -> Answer[dict[str, FeedFile]]:
        """Return the feed files by their feeds' names, which may not be there: an API server needs no DAG files."""
        return self.kept.answer("feed files", self._read_feed_files, wait_s=wait_s)

    def dags_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the DAG of each feed: its own, or its fleet's where a file for many topics made it."""
        files = self.feed_files().value or {}
        return {name: (files[name].fleet if name in files else None) or name for name in names}

    def logs(self, conn_id: str, feeds: list[FeedOverview], *, wait_s: float = WAIT_S) -> Answer[ClusterLogs]:
        """Return the bounds of all logs that these feeds read over one connection: a few questions for all of them."""
        partitions = {partition for feed in feeds for partition in feed.stored}
        return self.kept.answer(("logs", conn_id), lambda: ask_logs(self._kafka(conn_id), partitions), wait_s=wait_s)

    def oldest_ages(
        self, conn_id: str, feeds: Mapping[str, Places], *, of: str = "", wait_s: float = WAIT_S
    ) -> Answer[dict[str, timedelta | None]]:
        """Return how old the oldest record is that waits in each feed of a connection, or in the one that is named."""
        kept, most = (self.kept_views, PARTITIONS_OF_ONE_FEED) if of else (self.kept, PARTITIONS_OF_A_FEED)
        return kept.answer(
            ("ages", conn_id, of),
            lambda: oldest_ages(self._kafka(conn_id), feeds, datetime.now(UTC), most=most),
            wait_s=wait_s,
        )

    def newest_ages(
        self, conn_id: str, feeds: Mapping[str, Collection[StoredOffset]], *, of: str = "", wait_s: float = WAIT_S
    ) -> Answer[dict[str, timedelta | None]]:
        """Return how old the newest committed record is of each feed of a connection, or of the one that is named."""

        def ask_newest() -> dict[str, timedelta | None]:
            return newest_committed_ages(self._kafka(conn_id), feeds, datetime.now(UTC), most=PARTITIONS_OF_A_FEED)

        return (self.kept_views if of else self.kept).answer(("newest", conn_id, of), ask_newest, wait_s=wait_s)

    def look_for_drift(
        self, conn_id: str, feeds: Mapping[str, Mirrored], shown: Collection[str], *, wait_s: float = WAIT_S
    ) -> Answer[None]:
        """Ask about consumer groups, those of the feeds first that are shown; ``drifts`` has what was found."""
        return self.kept.answer(
            ("drifts", conn_id), lambda: self.drifts.look(self._kafka(conn_id), feeds, shown), wait_s=wait_s
        )

    def answers(self, snapshot: FeedSnapshot, feed: Feed) -> Answer[Answers]:
        question = ("feed", snapshot.feed_id, snapshot.revision, feed.kafka.conn_id, feed.kafka.group)
        return self.kept_views.answer(
            question, lambda: ask(snapshot, self._kafka(feed.kafka.conn_id), feed.kafka.group), wait_s=WAIT_S
        )

    def waiting(self, snapshot: FeedSnapshot, feed: Feed) -> Answer[Waiting]:
        rules, conn_id = feed.complete_rules(), feed.kafka.conn_id

        def look() -> Waiting:
            control, now = control_tables(self.find_connection), datetime.now(UTC)
            return complete_periods(snapshot, rules, control, self._kafka(conn_id), actor=None, now=now)

        question = ("complete", snapshot.feed_id, snapshot.revision, conn_id, rules)
        return self.kept_views.answer(question, look, wait_s=WAIT_S)

    def batch_files(self, batch: Batch, attempts: Sequence[Attempt]) -> Answer[BatchFiles]:
        """Return what is in a batch's output and staging, which may be where the API server cannot look."""
        sinks = sinks_of(self.find_connection)
        question = (batch.batch_id, batch.state, len(attempts))
        return self.kept_files.answer(question, lambda: batch_files(batch, attempts, sinks), wait_s=WAIT_S)

    def _kafka(self, conn_id: str) -> ConfluentKafkaCluster:
        # Made and dropped by the thread that asks: see FeedParts.kafka.
        return ConfluentKafkaCluster(lambda: kafka_settings(self.find_connection(conn_id)), at_most_s=KAFKA_TIMEOUT_S)

    def _read_feed_files(self) -> dict[str, FeedFile]:
        files = feed_files(self.find_connection, self.environment)
        files.sort(key=lambda file: file.feed is not None)  # a feed that one file left may be another's now
        return {storable(file.name or (file.path.name if file.topic else file.path.stem)): file for file in files}


@cache
def sources_of_server() -> Sources:
    """Return what the page and the metrics of one API server share: Kafka is asked once for both."""
    return Sources()


def settings_of(file: FeedFile | None) -> Feed | None:
    return None if file is None else file.feed or file.contested


def isolation_of(feed: Feed | None) -> Isolation:
    """Return which records a feed reads; those of committed transactions where its file is not known."""
    return Isolation.READ_COMMITTED if feed is None else feed.kafka.isolation
