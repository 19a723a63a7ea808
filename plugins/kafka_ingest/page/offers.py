"""What the page offers to do: a DAG to trigger, and what its form is to say.

Airflow 3 opens a DAG's form filled in from a run only, not at an address: the page's script triggers the dry run by
Airflow's own API, in the name of who is signed in, and "Trigger again with this config" opens the form. It shows no
other fields than the run's, so all that a person may want to set are among them.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from kafka_ingest.model.batch import AttemptState, BatchKind, BatchState
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.hold import DECIDED_BY_TOPIC, OF_WHOLE_TOPICS, Hold, HoldCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.observing.feed_status import FeedStatus
from kafka_ingest.page.one_batch import OneBatch
from kafka_ingest.page.sources import BACKFILL_DAG, OPERATE_DAG
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.verbs.abandon import Abandon, Restore
from kafka_ingest.verbs.coverage import Coverage
from kafka_ingest.verbs.dead_letters import DeadLetters, GiveUpDeadLetters
from kafka_ingest.verbs.doctor import Doctor
from kafka_ingest.verbs.mending import Mirror
from kafka_ingest.verbs.preview import PreviewRecords
from kafka_ingest.verbs.request import Request
from kafka_ingest.verbs.skip import Skip
from kafka_ingest.verbs.topic_changed import TopicChanged

MOST_HOLDS: Final = 20
COMES_BACK: Final = frozenset({BatchKind.LIVE, BatchKind.BACKFILL})
"""Kinds of batches that are restored; copies, replays and replacements are made again instead."""

OF_A_GAP: Final = {"feed", "offset_ranges", "mode", "missing", "max_records", "reason"}


@dataclass(frozen=True, slots=True)
class Offer:
    """Something that can be done: why, by which DAG, and what its form is to say."""

    why: str
    dag_id: str
    conf: Mapping[str, Any]

    @property
    def config(self) -> str:
        return json.dumps(self.conf)


def as_written(span: OffsetRange) -> str:
    return f"{span.topic}:{span.partition}={span.start_offset}-{span.end_offset}"


def read_again(feed_name: str, gap: Gap) -> Offer:
    form = BackfillForm(feed=feed_name, offset_ranges=[as_written(gap.offset_range)])
    return Offer("read the gap again", BACKFILL_DAG, form.model_dump(mode="json", include=OF_A_GAP))


def acknowledge(feed_name: str, gap: Gap) -> Offer:
    return operate("acknowledge the gap", feed_name, Skip, offset_range=as_written(gap.offset_range))


def abandon(feed_name: str, batch_id: UUID | str) -> Offer:
    return operate("give the open batch up", feed_name, Abandon, batch_id=batch_id)


def offers_of_batch(view: OneBatch) -> Iterator[Offer]:
    """Yield the decisions that a batch's state may ask for; each is a dry run first."""
    batch = view.batch
    of_batch = partial(operate, feed_name=view.feed, batch_id=batch.batch_id)
    if batch.state.is_open:
        yield abandon(view.feed, batch.batch_id)
    left = (each.state is not AttemptState.DISCARDED and each.cleaned_at is None for each in view.attempts)
    if batch.state is BatchState.ABANDONED and batch.plan.kind in COMES_BACK and any(left):
        yield of_batch("publish its staged files after all", verb=Restore)
    if view.has_dead_letters and batch.state is BatchState.COMMITTED:
        yield of_batch("see which records became dead letters, and why", verb=DeadLetters)
        yield of_batch("give its dead letters up for good", verb=GiveUpDeadLetters)


def offers_of(status: FeedStatus, file_error: str | None) -> list[Offer]:
    """Return the decisions that the feed's state may ask for; each is a dry run first."""
    found: list[Offer] = []
    if file_error is not None:
        found.append(operate("see what is wrong with the feed's file", status.feed, Doctor))
    if status.open_batch is not None:
        found.append(abandon(status.feed, status.open_batch["batch_id"]))
    for hold in status.holds[:MOST_HOLDS]:
        found += offers_of_hold(status.feed, hold)
    found += [decide_topic(status.feed, problem.topic) for problem in status.topic_problems[:MOST_HOLDS]]
    if any(partition.drift for partition in status.partitions):
        found.append(operate("set the consumer group to the stored offsets", status.feed, Mirror))
    if file_error is None:
        found.append(operate("see how the newest records are decoded", status.feed, PreviewRecords))
    found.append(operate("count the output and account for every offset", status.feed, Coverage))
    return [each for number, each in enumerate(found) if each not in found[:number]]


def offers_of_hold(feed_name: str, hold: Hold) -> Iterator[Offer]:
    if hold.cause in DECIDED_BY_TOPIC | OF_WHOLE_TOPICS:
        yield decide_topic(feed_name, hold.topic)
    elif hold.cause is HoldCause.UNREADABLE and hold.at_offset is not None:
        at = hold.at_offset
        offsets = f"{hold.topic}:{hold.partition}={at}-{at + 1}"
        yield operate(f"skip what cannot be read in {hold.topic_partition}", feed_name, Skip, offset_range=offsets)


def decide_topic(feed_name: str, topic: str) -> Offer:
    return operate(f"decide what topic {topic} holds now", feed_name, TopicChanged, topics=[topic])


def operate(why: str, feed_name: str, verb: type[Request], **fields: object) -> Offer:
    return Offer(why, OPERATE_DAG, verb.dry_run_of(feed_name, **fields))
