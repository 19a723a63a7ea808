"""What the views of one feed and of its coverage show, put together from control tables and Kafka's answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kafka_ingest.batches.complete_periods import Waiting
from kafka_ingest.foundation.counting import counted, grouped, were
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.completion import CompletionRules, Period
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.coverage import PartitionCoverage, coverage_of
from kafka_ingest.model.summaries import BatchLine
from kafka_ingest.observing.feed_status import FeedStatus, PartitionStatus
from kafka_ingest.observing.offset_sums import HEADINGS, offset_counts, used_headings
from kafka_ingest.page.drawings import Bar, Column, offset_bar
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.rendering import PageOf
from kafka_ingest.page.sources import Sources
from kafka_ingest.settings.feed import Feed

PARTITIONS_A_PAGE = 50


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition: its numbers, its bar, and what is wrong with it."""

    status: PartitionStatus
    bar: Bar | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic's partitions in sum; numbers that Kafka did not give are None."""

    topic: str
    partitions: int
    lag: int | None
    headroom: int | None
    rows: int
    gaps: int
    holds: int


def topic_rows(status: FeedStatus) -> list[TopicRow]:
    of_topic = grouped((each.stored.topic_partition.topic, each) for each in status.partitions)
    rows = [
        TopicRow(
            topic=topic,
            partitions=len(found),
            lag=sum(lags) if (lags := [each.lag for each in found if each.lag is not None]) else None,
            headroom=min((each.headroom for each in found if each.headroom is not None), default=None),
            rows=sum(each.rows for each in found),
            gaps=sum(len(each.gaps) for each in found),
            holds=sum(len(each.holds) for each in found),
        )
        for topic, found in of_topic.items()
    ]
    return sorted(rows, key=lambda row: (-(row.lag or 0), row.topic))


def partition_rows(status: FeedStatus, snapshot: FeedSnapshot, topic: str | None, page: int) -> PageOf[PartitionRow]:
    """Return a page of the feed's partitions, of one topic where it is named: the worst first."""
    chosen = [each for each in status.partitions if topic in {None, each.stored.topic_partition.topic}]
    chosen.sort(key=lambda each: (not each.lost, not each.holds, -(each.lag or 0), each.stored.topic_partition))
    shown = PageOf.of(chosen, page, PARTITIONS_A_PAGE)
    being_read = snapshot.open_batch.ranges_read if snapshot.open_batch is not None else ()
    pending = {each.topic_partition: each for each in being_read}
    rows = [
        PartitionRow(each, offset_bar(each, pending.get(each.stored.topic_partition)), notes_of(each))
        for each in shown.items
    ]
    return PageOf(rows, shown.page, shown.pages, shown.total)


def notes_of(partition: PartitionStatus) -> tuple[str, ...]:
    notes = [f"{hold.cause.value.replace('_', ' ')}: {hold.reason}" for hold in partition.holds]
    if partition.lost:
        notes.append(
            f"{counted(partition.lost, 'offset')} {were(partition.lost)} deleted by Kafka before they were read"
        )
    if partition.unavailable is not None:
        notes.append(f"no answer: {partition.unavailable}")
    if partition.drift:
        notes.append(f"the consumer group stands {partition.drift:+,} from the stored offset")
    if partition.stored.is_pending:
        notes.append(f"its start ({partition.stored.seeded_by}) is not resolved yet")
    if not partition.is_read:
        notes.append("the feed does not read this topic any more")
    return tuple(notes)


def lag_columns(lines: Sequence[BatchLine]) -> list[Column]:
    return [
        column(line.lag, f"{counted(line.lag, 'offset')} to read", line.planned_at, line)
        for line in reversed(lines)
        if line.lag is not None
    ]


def rows_columns(lines: Sequence[BatchLine]) -> list[Column]:
    return [
        column(line.rows or 0, counted(line.rows or 0, "row"), line.committed_at, line)
        for line in reversed(lines)
        if line.committed_at is not None
    ]


def duration_columns(lines: Sequence[BatchLine]) -> list[Column]:
    return [
        column(took, f"{took:,.0f} s from plan to commit", line.committed_at, line)
        for line in reversed(lines)
        if line.state is BatchState.COMMITTED and line.committed_at is not None
        for took in [(line.committed_at - line.planned_at).total_seconds()]
    ]


def column(value: float, text: str, at: datetime, line: BatchLine) -> Column:
    return Column(value, f"{at:%Y-%m-%d %H:%M} UTC: {text}", line.kind, at)


PERIODS_A_PAGE: Final = 24
MOST_REASONS: Final = 10


@dataclass(frozen=True, slots=True)
class CompleteView:
    """What it shows: ``waiting`` is as Kafka's answers came, ``reasons`` the first ones of what is waited for.

    Before a run has looked Kafka is not asked: it would be for records.
    """

    rules: CompletionRules
    periods: Sequence[Period]
    more_periods: bool
    waiting: Answer[Waiting]

    @property
    def reasons(self) -> list[str]:
        return [] if self.waiting.value is None else [str(each) for each in self.waiting.value.waits_for[:MOST_REASONS]]

    @property
    def reasons_left_out(self) -> int:
        return 0 if self.waiting.value is None else len(self.waiting.value.waits_for) - len(self.reasons)


def complete_view(
    sources: Sources, snapshot: FeedSnapshot, feed: Feed | None, before: datetime | None
) -> CompleteView | None:
    """Return what is complete of a feed, newest first, or older than a time; None where its file asks for none."""
    if feed is None or feed.complete is None:
        return None
    rules, control = feed.complete_rules(), sources.control()
    # One more for the one that is waited for, and one to see whether there are more.
    found = control.periods(snapshot.feed_id, rules.by, before=before, limit=PERIODS_A_PAGE + 2)
    complete = [each for each in found if each.completed_at is not None]
    more = len(complete) > PERIODS_A_PAGE
    was_looked = found or control.periods(snapshot.feed_id, rules.by, limit=1)
    waiting: Answer[Waiting] = sources.waiting(snapshot, feed) if was_looked else Answer()
    return CompleteView(rules, complete[:PERIODS_A_PAGE], more, waiting)


COVERAGE_A_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class CoverageView:
    """What the view shows: counts by their headings, of a page of the partitions and in all."""

    feed: str
    headings: Sequence[tuple[str, str]]
    partitions: PageOf[tuple[PartitionCoverage, Mapping[str, int]]]
    totals: Mapping[str, int]
    unaccounted: int


def coverage_view(sources: Sources, name: str, page: int) -> CoverageView | None:
    """Return where a feed's offsets are, those that are not accounted for first; None where it was never planned."""
    with without_garbage_collection():
        rows = sources.control().coverage(name)
        if rows is None:
            return None
        partitions = sorted(coverage_of(rows).values(), key=lambda each: (each.is_accounted, each.topic_partition))
        counted = [(each, offset_counts(each)) for each in partitions]
        counts = [count for _, count in counted]
        used = used_headings(counts)
        return CoverageView(
            feed=name,
            headings=[(each, HEADINGS[each]) for each in used],
            partitions=PageOf.of(counted, page, COVERAGE_A_PAGE),
            totals={each: sum(count[each] for count in counts) for each in used},
            unaccounted=sum(not each.is_accounted for each in partitions),
        )
