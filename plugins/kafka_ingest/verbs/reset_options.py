"""What the options of ``kafka-ingest reset`` ask for: where to, and in which partitions."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.operating.reset_target import (
    ResetTarget,
    ShiftBy,
    ToBatch,
    ToEarliest,
    ToGroup,
    ToLatest,
    ToOffsets,
    ToTimestamp,
)
from kafka_ingest.verbs.named_batch import id_of_batch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER = re.compile("[0-9](?:_?[0-9]){0,18}")

FORMS = (
    "earliest, latest, timestamp=2026-01-31T00:00:00Z, group=NAME, offsets=TOPIC:PARTITION=OFFSET,… or batch=ID "
    "(`kafka-ingest batches` lists them)"
)


def reset_target(to: str | None, shift_by: int | None) -> ResetTarget:
    """Return the target of stored offsets; raises WrongUseError, which shows the accepted forms."""
    if to is None and shift_by is not None:
        return ShiftBy(shift_by)
    if to is None or shift_by is not None:
        raise WrongUseError(
            f"expected --to or --shift-by, found {'both' if to is not None else 'neither'}. --to takes {FORMS}"
        )
    kind, equals, value = to.partition("=")
    if kind in PLAIN and not equals:
        return PLAIN[kind]
    if kind in WITH_VALUE and value.strip():
        return WITH_VALUE[kind](value)
    if kind in WITH_VALUE:
        raise WrongUseError(f"expected --to {kind}=…, found {to!r} without a value. --to takes {FORMS}")
    raise WrongUseError(f"expected --to {FORMS}; found {to!r}")


def to_timestamp(text: str) -> ToTimestamp:
    """Return a time as a target; Kafka counts milliseconds since 1970."""
    expected = "--to timestamp: expected a time with a zone after 1970, such as 2026-01-31T00:00:00Z"
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUseError(f"{expected}; found {text!r}") from error
    if found.tzinfo is None or found < EPOCH:
        raise WrongUseError(f"{expected}; found {text!r}")
    return ToTimestamp(found)


def to_offsets(text: str) -> ToOffsets:
    """Return named offsets as a target."""
    offsets: dict[TopicPartition, int] = {}
    for entry in text.split(","):
        place, _, offset = entry.strip().rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not (topic and is_number(partition) and is_number(offset)):
            raise WrongUseError(
                f"--to offsets: expected TOPIC:PARTITION=OFFSET, such as orders:0=1200,orders:1=88, found {entry!r}"
            )
        topic_partition = TopicPartition(topic, int(partition))
        if topic_partition in offsets:
            raise WrongUseError(
                f"--to offsets: expected one offset for each partition, found {topic}:{partition} twice"
            )
        offsets[topic_partition] = int(offset)
    return ToOffsets(offsets)


def is_number(text: str) -> bool:
    """Whether a text is a number of 0 or more, as a person writes it: 1200 or 1_200."""
    return NUMBER.fullmatch(text) is not None


PLAIN: Mapping[str, ResetTarget] = {"earliest": ToEarliest(), "latest": ToLatest()}
WITH_VALUE: Mapping[str, Callable[[str], ResetTarget]] = {
    "timestamp": to_timestamp,
    "group": ToGroup,
    "offsets": to_offsets,
    "batch": lambda text: ToBatch(id_of_batch(text)),
}


def named_partitions(texts: list[str], target: ResetTarget) -> dict[str, set[int]]:
    """Return the partitions that ``--topic TOPIC`` and ``--topic TOPIC:0,1`` name; no partitions means all of them."""
    if texts and isinstance(target, ToOffsets):
        raise WrongUseError("expected --topic or --to offsets=…, found both: the offsets name their partitions")
    named: dict[str, set[int]] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        partitions = numbers.split(",") if colon else []
        if not topic or not all(is_number(number) for number in partitions):
            raise WrongUseError(f"expected --topic TOPIC or TOPIC:PARTITION,…, such as orders:0,1, found {text!r}")
        if topic in named and not (partitions and named[topic]):
            raise WrongUseError(
                f"expected --topic {topic} once, or with the partitions that are meant, found it as a whole, too"
            )
        named.setdefault(topic, set()).update(int(number) for number in partitions)
    return named
