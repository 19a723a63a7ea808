"""The consumer group's offsets, asked for and set."""

import functools
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import tenacity
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kafka_ingest.cluster.kafka_client import ACCESS_ERRORS, RIGHTS, Questions, is_unreachable
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.ports.cluster import MirrorRefusedError

GROUP_COMMIT_PARTITIONS = 1_000
"""One request's offsets become one record batch, about 100 bytes each, which must stay below ``max.message.bytes``."""

LOOK_WHY_AFTER_S = 2.0
"""A group answers in milliseconds; after this time a second request asks whether the client may read it at all."""

Answer = TypeVar("Answer")

COORDINATOR_MOVES = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)


OF_MEMBERS = frozenset({KafkaError.UNKNOWN_MEMBER_ID, KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH})
"""What a group with members answers to others, by the classic protocol and by that of KIP-848."""


class GroupQuestions(Questions):
    """A consumer group's committed offsets."""

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return the consumer group's committed offsets, None where it has none.

        Asked by a consumer that never joins: librdkafka's admin request for it crashes the process where the group's
        coordinator moves (https://github.com/confluentinc/librdkafka/issues/5040).
        """
        if not topic_partitions:
            return {}
        wanted = [ClientTopicPartition(tp.topic, tp.partition) for tp in sorted(topic_partitions)]
        with (
            self._client.time_limited(f"the offsets of consumer group {group!r}"),
            self._client.consumer(group) as consumer,
        ):
            answer = self._while_the_coordinator_moves(
                tenacity.retry_if_exception(coordinator_moves), lambda: self._committed(consumer, group, wanted)
            )
            if failed := next((tp.error for tp in answer if tp.error), None):
                raise KafkaException(failed)
        return {TopicPartition(tp.topic, tp.partition): tp.offset if tp.offset >= 0 else None for tp in answer}

    def _committed(
        self, consumer: Consumer, group: str, wanted: list[ClientTopicPartition]
    ) -> list[ClientTopicPartition]:
        """Ask for the offsets; a consumer that may not read the group looks for its coordinator until the timeout."""
        first_try_s = min(LOOK_WHY_AFTER_S, self._client.request_timeout_s / 2)
        try:
            return consumer.committed(wanted, timeout=first_try_s)
        except KafkaException as error:
            if not is_unreachable(error.args[0]):
                raise
            if denied := self._denied(group):
                raise denied from error
        return consumer.committed(wanted, timeout=self._client.request_timeout_s - first_try_s)

    def _denied(self, group: str) -> KafkaException | None:
        futures = self._client.admin.describe_consumer_groups([group], request_timeout=self._client.request_timeout_s)
        try:
            self._client.result(futures[group])
        except KafkaException as error:
            return error if error.args[0].code() in ACCESS_ERRORS else None
        return None

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str) -> None:
        """Set the consumer group's committed offsets in parts; raises MirrorRefusedError naming what was refused.

        A coordinator that is being found or is loading (the first commit to a new group) is waited for, within the
        limit.
        """
        wanted = [
            ClientTopicPartition(tp.topic, tp.partition, offset, metadata) for tp, offset in sorted(offsets.items())
        ]
        for start in range(0, len(wanted), GROUP_COMMIT_PARTITIONS):
            request = ConsumerGroupTopicPartitions(group, wanted[start : start + GROUP_COMMIT_PARTITIONS])
            with self._client.time_limited(f"setting the offsets of consumer group {group!r}"):
                self._while_the_coordinator_moves(
                    tenacity.retry_if_exception_type(CoordinatorMovingError),
                    functools.partial(self._set_group_offsets_once, group, request),
                )

    def _while_the_coordinator_moves(self, retry: tenacity.retry_base, ask: Callable[[], Answer]) -> Answer:
        """Ask again until the group's coordinator is found and has loaded, within the limit."""
        return tenacity.Retrying(
            retry=retry,
            wait=tenacity.wait_exponential(multiplier=0.05, max=1),
            stop=tenacity.stop_after_delay(self._client.request_timeout_s),
            reraise=True,
        )(ask)

    def _set_group_offsets_once(self, group: str, request: ConsumerGroupTopicPartitions) -> None:
        futures = self._client.admin.alter_consumer_group_offsets(
            [request], request_timeout=self._client.request_timeout_s
        )
        try:
            answer = self._client.result(futures[group])
        except KafkaException as error:
            if is_unreachable(error.args[0]):
                raise
            text = f"{error.args[0].name()}: {error.args[0].str()}"
            raise refusal(group, [error.args[0]], self._client.settings.redacted(text)) from error
        refused = [tp for tp in answer.topic_partitions if tp.error]
        if refused:
            texts = [f"{tp.topic}-{tp.partition}: {tp.error.name()}" for tp in refused]
            raise refusal(group, [tp.error for tp in refused], listing(texts))


class CoordinatorMovingError(MirrorRefusedError):
    """The group's coordinator is being found, or is loading: it will answer soon."""


def coordinator_moves(error: BaseException) -> bool:
    """Whether a group's coordinator is being found, or is loading."""
    return isinstance(error, KafkaException) and error.args[0].code() in COORDINATOR_MOVES


def refusal(group: str, errors: list[KafkaError], text: str) -> MirrorRefusedError:
    if any(error.code() in OF_MEMBERS for error in errors):
        return MirrorRefusedError(
            f"{text}: consumer group {group!r} has live members, and while it has, Kafka takes its offsets from them "
            "alone. Stop these consumers (`kafka-consumer-groups.sh --describe --members` lists them), or give the "
            "feed a kafka.group of its own"
        )
    if all(error.code() in COORDINATOR_MOVES for error in errors):
        return CoordinatorMovingError(text)
    rights = sorted({RIGHTS[error.code()] for error in errors if error.code() in RIGHTS})
    return MirrorRefusedError(f"{text}. Expected {' and '.join(rights)}: docs/security.md" if rights else text)
