"""The view of one feed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.model.alert import Alert
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import ACKNOWLEDGED, Gap
from kafka_ingest.model.summaries import BatchLine, FeedOverview, OpenGaps
from kafka_ingest.observing.due_feeds import is_late
from kafka_ingest.observing.feed_lines import ClusterLogs, FeedLine, line_of
from kafka_ingest.observing.feed_status import Answers, FeedStatus, status_of
from kafka_ingest.observing.group_drift import drift_of
from kafka_ingest.observing.journal import HistoryLine, history
from kafka_ingest.observing.record_ages import waiting
from kafka_ingest.page.all_feeds import without_others
from kafka_ingest.page.drawings import Plot, plot
from kafka_ingest.page.feed_view import (
    CompleteView,
    PartitionRow,
    TopicRow,
    complete_view,
    duration_columns,
    lag_columns,
    partition_rows,
    rows_columns,
    topic_rows,
)
from kafka_ingest.page.kept_answers import REFRESH_PENDING_S, REFRESH_S, Answer
from kafka_ingest.page.rendering import PageOf
from kafka_ingest.page.sources import Sources, isolation_of, settings_of
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory
from kafka_ingest.settings.files_for_dags import file_of_feed

BATCHES_A_PAGE: Final = 20
BATCHES_PLOTTED: Final = 100
GAPS_A_PAGE: Final = 20
GAPS_ACKNOWLEDGED: Final = 10_000
"""As many of the newest are read."""
EVENTS_A_PAGE: Final = 20

NO_FILE: Final = (
    "The API server has no usable file of this feed, so Kafka was not asked. Where the feed files are elsewhere, set "
    "KAFKA_INGEST_FEEDS for the API server."
)


class FeedAsked(BaseModel):
    """What the address may ask for: a topic, and where each list continues."""

    model_config = ConfigDict(extra="ignore")

    topic: str | None = None
    page: int = 1
    gaps: int = 1
    batches_before: UUID | None = None
    complete_before: AwareDatetime | None = None
    events_before: int | None = Field(default=None, ge=0, lt=2**63)


@dataclass(frozen=True, slots=True)
class OneFeed:
    """What the view shows. ``answer`` is how Kafka's answers came; ``status`` holds what is stored, and them."""

    name: str
    snapshot: FeedSnapshot
    status: FeedStatus
    file_error: str | None
    answer: Answer[Answers]
    topics: Sequence[TopicRow]
    partitions: PageOf[PartitionRow]
    batches: Sequence[BatchLine]
    more_batches: bool
    complete: CompleteView | None
    gaps: PageOf[Gap]
    events: Sequence[HistoryLine]
    more_events: bool
    lag_plot: Plot | None
    rows_plot: Plot | None
    duration_plot: Plot | None
    alerts: Sequence[Alert]
    oldest: Answer[dict[str, timedelta | None]]
    newest: Answer[dict[str, timedelta | None]]
    feed: Feed | None
    line: FeedLine
    decided: Collection[UUID]

    @property
    def refresh_s(self) -> int:
        is_pending = self.answer.is_pending or self.oldest.is_pending or self.newest.is_pending
        is_pending = is_pending or (self.complete is not None and self.complete.waiting.is_pending)
        return REFRESH_PENDING_S if is_pending else REFRESH_S

    @property
    def oldest_age_s(self) -> float | None:
        """How old the oldest record is that waits to be read; None where that is not known."""
        age = (self.oldest.value or {}).get(self.name)
        return None if age is None else age.total_seconds()

    @property
    def newest_age_s(self) -> float | None:
        """How old the newest committed record is; None where that is not known."""
        age = (self.newest.value or {}).get(self.name)
        return None if age is None else age.total_seconds()


def one_feed(
    sources: Sources, name: str, asked: FeedAsked, readable_of: Callable[[Collection[str]], set[str]]
) -> OneFeed | None:
    """Return what there is of a feed, None where it was never planned; Kafka's answers where they have come."""
    control = sources.control()
    snapshot = control.feed(name)
    if snapshot is None:
        return None
    # A file that cannot be used has no feed; its error is found among all files.
    file = file_named(name, sources.environment) or (sources.feed_files().value or {}).get(name)
    if file is not None and file.rivals:
        file = without_others(file, readable_of({rival.name for rival in file.rivals}))
    feed = settings_of(file)
    # Answer[Answers](...) would fail: typing sets an attribute on what it makes, and this is frozen.
    answer: Answer[Answers] = sources.answers(snapshot, feed) if feed is not None else Answer(error=NO_FILE)
    status = status_of(
        snapshot,
        control,
        answer.value or Answers(error=answer.error or "Kafka has been asked and has not answered yet."),
        group=feed.kafka.group if feed is not None else None,
        isolation=isolation_of(feed),
    )
    newest = control.batch_lines(snapshot.feed_id, limit=BATCHES_PLOTTED)
    batches = newest[: BATCHES_A_PAGE + 1]
    if asked.batches_before is not None:
        batches = control.batch_lines(snapshot.feed_id, before=asked.batches_before, limit=BATCHES_A_PAGE + 1)
    events = history(control, snapshot.feed_id, before=asked.events_before, limit=EVENTS_A_PAGE + 1)
    # Open ones first, of these the newest.
    gaps = sorted(control.gaps(snapshot.feed_id), key=lambda gap: gap.decided_at, reverse=True)
    gaps.sort(key=lambda gap: gap.closed_by_batch is not None)
    oldest = oldest_of(sources, feed, status)
    events_of_gaps = control.journal(snapshot.feed_id, kinds=[ACKNOWLEDGED], limit=GAPS_ACKNOWLEDGED)
    acknowledged = [Gap.from_document(each.detail["gap"]) for each in events_of_gaps]
    decided = {gap.gap_id for gap in gaps if gap.is_decided(acknowledged)}
    undecided = sum(gap.closed_by_batch is None and gap.gap_id not in decided for gap in gaps)
    return OneFeed(
        name=name,
        snapshot=snapshot,
        status=status,
        file_error=error_of(file, feed),
        answer=answer,
        topics=topic_rows(status),
        partitions=partition_rows(status, snapshot, asked.topic, asked.page),
        batches=batches[:BATCHES_A_PAGE],
        more_batches=len(batches) > BATCHES_A_PAGE,
        complete=complete_view(sources, snapshot, feed, asked.complete_before),
        gaps=PageOf.of(gaps, asked.gaps, GAPS_A_PAGE),
        events=events[:EVENTS_A_PAGE],
        more_events=len(events) > EVENTS_A_PAGE,
        lag_plot=plot(lag_columns(newest)),
        rows_plot=plot(rows_columns(newest)),
        duration_plot=plot(duration_columns(newest)),
        alerts=[each for each in control.alerts() if each.feed_id == snapshot.feed_id and each.ended_at is None],
        oldest=oldest,
        newest=newest_of(sources, feed, status),
        feed=feed,
        line=line_of_snapshot(
            snapshot, undecided, answer.value, feed, error_of(file, feed), (oldest.value or {}).get(name)
        ),
        decided=decided,
    )


def line_of_snapshot(
    snapshot: FeedSnapshot,
    undecided: int,
    answers: Answers | None,
    feed: Feed | None,
    file_error: str | None,
    oldest: timedelta | None,
) -> FeedLine:
    """Return the feed's line as it is among all feeds, so that both views say the same of its state."""
    overview = FeedOverview(
        feed_id=snapshot.feed_id,
        name=snapshot.name,
        cluster_id=snapshot.cluster_id,
        topics=snapshot.topics,
        stored=snapshot.stored,
        rows_committed=0,
        planned_at=snapshot.planned_at,
        holds=tuple(snapshot.holds),
        open_gaps=OpenGaps(undecided=undecided),
    )
    # What was answered of a cluster before an error says nothing, but that it is another one.
    is_other = answers is not None and answers.cluster_id not in {None, snapshot.cluster_id}
    logs = None
    if answers is not None and answers.cluster_id is not None and (answers.error is None or is_other):
        logs = ClusterLogs(answers.cluster_id, answers.topic_ids, answers.bounds)
    stored = {tp: row.next_offset for tp, row in snapshot.stored.items() if row.next_offset is not None}
    read = {tp: offset for tp, offset in stored.items() if tp.topic in snapshot.topics}
    drift = drift_of(read, answers.group_offsets) if answers is not None else None
    late = feed is None or is_late(feed.schedule, oldest, snapshot.planned_at, datetime.now(UTC))
    return line_of(overview, logs, isolation_of(feed), drift=drift, file_error=file_error, is_late=late)


def oldest_of(sources: Sources, feed: Feed | None, status: FeedStatus) -> Answer[dict[str, timedelta | None]]:
    if feed is None or all(each.bounds is None for each in status.partitions):
        return Answer()
    rows = [each.stored for each in status.partitions if each.is_read]
    bounds = {each.stored.topic_partition: each.bounds for each in status.partitions if each.bounds is not None}
    places = waiting(rows, bounds, feed.kafka.isolation)
    return sources.oldest_ages(feed.kafka.conn_id, {status.feed: places}, of=status.feed)


def newest_of(sources: Sources, feed: Feed | None, status: FeedStatus) -> Answer[dict[str, timedelta | None]]:
    """Ask how old the newest committed record is, once Kafka has answered about the logs."""
    rows = [each.stored for each in status.partitions if each.is_read and each.bounds is not None]
    if feed is None or not rows:
        return Answer()
    return sources.newest_ages(feed.kafka.conn_id, {status.feed: rows}, of=status.feed)


def file_named(name: str, environment: Mapping[str, str]) -> FeedFile | None:
    try:
        return file_of_feed(name, feeds_directory(environment))
    except (InvalidFeedError, OSError):
        return None


def error_of(file: FeedFile | None, feed: Feed | None) -> str | None:
    """Return why the feed's file cannot be used, where it is that file's fault."""
    return str(file.error) if file is not None and file.error is not None and feed is None else None
