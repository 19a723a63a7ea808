"""Find which hours or days of a feed are complete, and record it. Batches know nothing of it.

The control tables have a row for each hour from the first one on; the newest is the one that is waited for. What is
complete is recorded before anyone hears of it, once, whoever looks: a run, the command line, or both at the same time.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from uuid import UUID

from kafka_ingest.errors import NotADataFileError, OutputUnavailableError
from kafka_ingest.model.batch import milliseconds_of
from kafka_ingest.model.completion import CompletionRules, LateCount
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import FirstRecord, Unavailable
from kafka_ingest.model.topics import check_cluster
from kafka_ingest.planning.completion import PassingAnswers, Question, WaitedFor, too_early, waited_for
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import CompletionTables
from kafka_ingest.ports.outputs import Sinks

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 100
"""How many hours or days one look completes and one run announces."""

OLDEST: Final = timedelta(days=31)
"""How long before the first look the first hour may be: one record of a wrong clock must not make 400,000 of them.

A feed that has committed for longer begins with the hour of the first look.
"""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The hour or day that is waited for, and what for: nothing, where more are complete than one look records."""

    began_at: datetime
    waits_for: Sequence[WaitedFor]


@dataclass(frozen=True, slots=True)
class Looking:
    """A feed, with what it is judged by."""

    feed: FeedSnapshot
    rules: CompletionRules
    kafka: KafkaCluster
    now: datetime

    def waits_for(self, began_at: datetime) -> list[WaitedFor]:
        """Ask Kafka, and return what an hour or a day waits for."""
        feed, kafka, asked = self.feed, self.kafka, Question(self.feed, self.rules, began_at, self.now)
        if early := too_early(asked):
            return early
        topics = kafka.describe_topics(feed.topics)
        partitions = [tp for topic in topics.values() for tp in topic.topic_partitions() if tp in feed.stored]
        found = kafka.records_from(dict.fromkeys(partitions, asked.due_at))
        answers = PassingAnswers(topics, kafka.log_bounds(partitions), found)
        return waited_for(asked, answers)


def complete_periods(
    feed: FeedSnapshot,
    rules: CompletionRules,
    control: CompletionTables,
    kafka: KafkaCluster,
    *,
    actor: str | None,
    now: datetime,
) -> Waiting:
    """Record which hours or days are complete since the last look, and return the next.

    ``feed`` is as it was before its late rows were counted: a batch that another process committed since then is not
    counted yet, so nothing may be complete because of it. Without an actor only look. Raises WrongClusterError, and
    KafkaUnavailableError where Kafka does not answer.
    """
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    looking = Looking(feed, rules, kafka, now)
    waiting = control.waiting_period(feed.feed_id, rules.by)
    if waiting is None:
        first, newest = control.live_batches_after(feed.feed_id, None, limit=1), control.newest_published(feed.feed_id)
        if newest is None or not first:
            return Waiting(rules.by.start_of(now), [WaitedFor("no batch is committed yet")])
        # By the feed's age, not by what a look that failed, or never came, should have recorded.
        is_young = milliseconds_of(first[0]) >= (now - OLDEST).timestamp() * 1000
        oldest = oldest_record(feed, kafka, now) if is_young else now
        if isinstance(oldest, WaitedFor):
            return Waiting(rules.by.start_of(now), [oldest])
        began_at = rules.by.start_of(oldest)
        if actor is not None:
            began_at = control.begin_periods(feed.feed_id, rules.by, began_at, counted=newest.batch_id)
    else:
        began_at = waiting
    some = [began_at + number * rules.by.length for number in range(MOST_AT_ONCE + 1)]
    waits_for = cache(looking.waits_for)
    # Once one waits all later ones do: their ends are later in every log.
    done = bisect_left(some, 1, hi=MOST_AT_ONCE, key=lambda each: min(1, len(waits_for(each))))
    if done and actor is not None:
        control.complete_periods(feed.feed_id, rules.by, some[: done + 1], now, actor=actor)
    return Waiting(some[done], waits_for(some[done]) if done < MOST_AT_ONCE else [])


def oldest_record(feed: FeedSnapshot, kafka: KafkaCluster, now: datetime) -> datetime | WaitedFor:
    """Return the time of the oldest record that the feed begins with, or why it is not known; now where it has none."""
    firsts = {tp: row.first_offset for tp, row in feed.stored.items() if row.first_offset is not None}
    found = kafka.first_records(firsts)
    silent = [tp for tp, first in found.items() if isinstance(first, Unavailable)]
    if silent:
        return WaitedFor("Kafka does not say of which time its first record is", silent[0].topic, silent[0].partition)
    times = [each.timestamp_ms for each in found.values() if isinstance(each, FirstRecord) and each.timestamp_ms]
    oldest_ms, now_ms = (now - OLDEST).timestamp() * 1000, now.timestamp() * 1000
    return datetime.fromtimestamp(max(oldest_ms, min([*times, now_ms])) / 1000, UTC)


def count_late_rows(feed_id: UUID, rules: CompletionRules, control: CompletionTables, sinks: Sinks) -> int:
    """Count the rows that batches committed since the last look have in complete hours or days, and return how many.

    Done before more of them are completed: a batch is not late for what is complete because of it. Each batch is
    counted once, in one transaction with the note that it is. Backfills are not counted: an operator asked for them.
    """
    late = 0
    while newest := control.periods(feed_id, rules.by, limit=2):
        # Asked again for each page: where another look has completed more since, nothing of the page was added.
        before, counted = newest[0].began_at, control.counted_batch(feed_id, rules.by)
        batches = control.live_batches_after(feed_id, counted, limit=MOST_AT_ONCE)
        if not batches:
            break
        for batch_id in batches:
            rows = rows_before(batch_id, before, rules, control, sinks) if len(newest) > 1 else {}
            late += control.add_late_rows(feed_id, rules.by, rows, before=before, counted=batch_id)
    return late


def rows_before(
    batch_id: UUID, before: datetime, rules: CompletionRules, control: CompletionTables, sinks: Sinks
) -> dict[datetime, LateCount]:
    """Return how many rows of a batch are of each hour or day before a time; most have none, as their files' ends say.

    Of a file that was removed, rewritten or damaged none is counted: nothing else waits for it. Raises
    OutputUnavailableError where the output cannot be read now.
    """
    sink = sinks(control.batch(batch_id).plan.output)
    receipt = sink.archive.receipt(batch_id)
    rows_by_hour = sink.inspector.rows_by_hour if sink.inspector is not None else sink.rows_by_hour
    found, aside = Counter[datetime](), Counter[datetime]()
    if receipt is None or rows_by_hour is None:
        return {}
    for file in receipt.files:
        try:
            hours = rows_by_hour(receipt, file, before)
        except (FileNotFoundError, NotADataFileError) as error:
            log.warning("batch %s: late rows are not counted in %s: %s", batch_id, file.name, error)
            continue
        except OSError as error:
            raise OutputUnavailableError(
                f"batch {batch_id}: {file.name} could not be read: {error}. The batch is committed; its late rows are "
                "counted by the next run."
            ) from error
        for hour, rows in hours.items():
            found[rules.by.start_of(hour)] += rows
            aside[rules.by.start_of(hour)] += rows if file.is_late else 0
    return {each: LateCount(rows, aside[each]) for each, rows in found.items()}
