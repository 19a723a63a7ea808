"""Ask what the plans of many feeds ask, at once: a few questions to each cluster and to the control tables.

Each feed's own plan takes these answers for its first questions. It asks by itself where a bulk question cannot have
the answer, or had none: so one feed's topic that may not be seen, or is away, changes nothing for the others. A feed of
which the decision changes nothing has no plan of its own: it is noted that it was planned, and its output is not
read.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NoReturn, cast

from kafka_ingest.batches.ask_kafka import ask_kafka
from kafka_ingest.batches.plan_batch import Asked, never_planned, record_of
from kafka_ingest.foundation.tried import tried
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import LogBounds, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.decide import PlanDecision, decide
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings
from kafka_ingest.planning.topics import KafkaAnswers, topics_wanted
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlTables


class NotAskedError(Exception):
    """A bulk question has no answer to this."""


NOT_ASKED = Unavailable("it was not asked about")


@dataclass(frozen=True, slots=True)
class AnswersInBulk:
    """One cluster's answers about many feeds, as that cluster gives them; any other question raises NotAskedError."""

    id: str
    names: list[str]
    topics: Mapping[str, TopicDescription]
    denied: AbstractSet[str]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]

    def cluster_id(self) -> str:
        return self.id

    def topic_names(self) -> list[str]:
        return self.names

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        if not self.denied.isdisjoint(topics):
            raise NotAskedError
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        return {tp: self.bounds.get(tp, NOT_ASKED) for tp in topic_partitions}

    def __getattr__(self, question: str) -> NoReturn:
        raise NotAskedError(question)


def as_asked(answers: KafkaAnswers) -> KafkaCluster:
    """Return a cluster that gives one plan's answers again."""
    return cast("KafkaCluster", AnswersInBulk(answers.cluster_id, [], answers.topics, frozenset(), answers.bounds))


@without_garbage_collection()
def ask_together(
    feeds: Sequence[FeedPlanSettings], control: ControlTables, kafka: KafkaCluster, end: EndPositions = None
) -> dict[str, Asked]:
    """Return what was asked of feeds of one cluster, by their names; those that have to ask by themselves are left out.

    Raises what keeps Kafka or the control tables from answering.
    """
    known, asked_at = control.feeds([each.name for each in feeds]), datetime.now(UTC)
    asked = [each for each in feeds if each.name not in known or known[each.name].open_batch is None]
    answers = answers_about(asked, known, kafka)
    tries = {
        each.name: tried(lambda each: ask_one(each, known.get(each.name), answers, asked_at, end), each)
        for each in asked
    }
    found = {name: each.result for name, each in tries.items() if each.result is not None}
    unchanged = [each.feed for each in found.values() if each.nothing is not None and each.feed is not None]
    noted = control.note_unchanged(unchanged, asked_at)
    # One that another process has changed meanwhile asks by itself.
    return {name: each for name, each in found.items() if each.nothing is None or known[name].feed_id in noted}


def answers_about(
    feeds: Sequence[FeedPlanSettings], known: Mapping[str, FeedSnapshot], kafka: KafkaCluster
) -> KafkaCluster:
    """Ask a cluster about feeds, in the order in which a plan asks."""
    names = kafka.topic_names() if any(each.topic_pattern is not None for each in feeds) else []
    # What stops one feed there, such as a pattern that takes too long, it says by itself.
    found = [
        tried(lambda each: topics_wanted(known.get(each.name) or never_planned(each), each, names), each).result
        for each in feeds
    ]
    wanted = {topic for topics in found for topic in topics or ()}
    topics, denied = kafka.visible_topics(wanted) if wanted else ({}, {})
    bounds = kafka.log_bounds([tp for described in topics.values() for tp in described.topic_partitions()])
    return cast("KafkaCluster", AnswersInBulk(kafka.cluster_id(), names, topics, denied.keys(), bounds))


def ask_one(
    settings: FeedPlanSettings, feed: FeedSnapshot | None, answers: KafkaCluster, asked_at: datetime, end: EndPositions
) -> Asked:
    """Return what one feed's plan asks; raises NotAskedError, and what stops the feed."""
    asked = Asked(feed, ask_kafka(feed or never_planned(settings), settings, answers, end), asked_at)
    if feed is None:
        return asked
    decision = decide(feed, asked.answers, settings, now=asked_at, end=end)
    return replace(asked, nothing=decision) if changes_nothing(decision, settings, feed) else asked


def changes_nothing(decision: PlanDecision, settings: FeedPlanSettings, feed: FeedSnapshot) -> bool:
    """Whether a plan would write down nothing but when it was made."""
    record = record_of(decision, settings, None, feed, datetime.now(UTC))
    changes = (
        *(decision.ranges, record.seeds, record.jumps, record.leader_epochs),
        *(record.holds, feed.holds, record.waiting_since, feed.waiting_since),
    )
    selected = sorted(record.topics), record.topic_pattern
    return not any(changes) and selected == (sorted(feed.topics), feed.topic_pattern)
