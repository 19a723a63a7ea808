"""Where an operator can move stored offsets, as with kafka-consumer-groups. Resolved to a number per partition."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.settings.run_request import record_named, time_with_zone
from kafka_ingest.verbs.request import id_of_batch


@dataclass(frozen=True, slots=True)
class Place:
    """What is known about one partition; of the last three only what the target needs, and None means "there is none".

    ``end_offset`` is how far a stored offset may go.
    """

    topic_partition: TopicPartition
    stored_offset: int
    log_start_offset: int
    end_offset: int
    offset_at: int | None = None
    group_offset: int | None = None
    batch_start: int | None = None


@dataclass(frozen=True, slots=True)
class NewPosition:
    """Where one partition would move, None where it stays; with a remark."""

    offset: int | None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The log start."""

    def resolve(self, place: Place) -> NewPosition:
        return NewPosition(place.log_start_offset)


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of what the feed can read: the last stable offset under read_committed, else the high watermark."""

    def resolve(self, place: Place) -> NewPosition:
        return NewPosition(place.end_offset)


@dataclass(frozen=True, slots=True)
class ToTimestamp:
    """The first offset whose record is of that time or later (KIP-79); the end where there is none."""

    timestamp: datetime

    def resolve(self, place: Place) -> NewPosition:
        if place.offset_at is None:
            return NewPosition(place.end_offset, "no record is of that time or later")
        return NewPosition(place.offset_at)


@dataclass(frozen=True, slots=True)
class ToGroup:
    """A consumer group's committed offsets."""

    group: str

    def resolve(self, place: Place) -> NewPosition:
        return NewPosition(place.group_offset)


@dataclass(frozen=True, slots=True)
class ToOffsets:
    """These offsets, which the logs have to hold. No other partition is moved."""

    offsets: Mapping[TopicPartition, int]

    @property
    def partitions(self) -> dict[str, list[int]]:
        return grouped((tp.topic, tp.partition) for tp in self.offsets)

    def resolve(self, place: Place) -> NewPosition:
        return NewPosition(self.offsets[place.topic_partition])


@dataclass(frozen=True, slots=True)
class ToBatch:
    """Where a batch began; a partition that it did not read goes to where the first batch after it began."""

    batch_id: UUID

    def resolve(self, place: Place) -> NewPosition:
        return NewPosition(place.batch_start, "" if place.batch_start is not None else "not read since that batch")


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """By a number of offsets: forward, or back where it is negative."""

    offsets: int

    def resolve(self, place: Place) -> NewPosition:
        """Return where the partition would move; it may be outside the log."""
        return NewPosition(place.stored_offset + self.offsets)


ResetTarget = ToEarliest | ToLatest | ToTimestamp | ToGroup | ToOffsets | ToBatch | ShiftBy


def cut_to_log(found: NewPosition, place: Place) -> NewPosition:
    """Return a position that the log holds, and that can be read: the nearest one, as kafka-consumer-groups does."""
    if found.offset is not None and found.offset < place.log_start_offset:
        return NewPosition(place.log_start_offset, "cut to the log start")
    if found.offset is not None and found.offset > place.end_offset:
        return NewPosition(place.end_offset, "cut to the end of what can be read")
    return found


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER = re.compile("[0-9](?:_?[0-9]){0,18}")

Named = Callable[[str], str]

FORMS = (
    "earliest, latest, timestamp=2026-01-31T00:00:00Z, group=NAME, offsets=TOPIC:PARTITION=OFFSET,… or batch=ID "
    "(`kafka-ingest batches` lists them)"
)


def reset_target(to: str | None, shift_by: int | None, named: Named) -> ResetTarget:
    """Return the target of stored offsets; raises WrongUseError, which shows the accepted forms."""
    option = named("to")
    if to is None and shift_by is not None:
        return ShiftBy(shift_by)
    if to is None or shift_by is not None:
        raise WrongUseError(
            f"expected {option} or {named('shift_by')}, found {'both' if to is not None else 'neither'}. "
            f"{option} takes {FORMS}"
        )
    kind, equals, value = to.partition("=")
    if kind in PLAIN and not equals:
        return PLAIN[kind]
    if kind in WITH_VALUE and value.strip():
        return WITH_VALUE[kind](value, option)
    if kind in WITH_VALUE:
        raise WrongUseError(f"expected {option} {kind}=…, found {to!r} without a value. {option} takes {FORMS}")
    raise WrongUseError(f"expected {option} {FORMS}; found {to!r}")


def to_timestamp(text: str, option: str) -> ToTimestamp:
    found = time_with_zone(text, f"{option} timestamp")
    if found < EPOCH:
        raise WrongUseError(f"{option} timestamp: expected a time after 1970, found {text!r}")
    return ToTimestamp(found)


def to_offsets(text: str, option: str) -> ToOffsets:
    offsets: dict[TopicPartition, int] = {}
    for entry in text.split(","):
        tp, offset = record_named(entry.strip(), f"{option} offsets=")
        if tp in offsets:
            raise WrongUseError(
                f"{option} offsets: expected one offset for each partition, found {tp.topic}:{tp.partition} twice"
            )
        offsets[tp] = offset
    return ToOffsets(offsets)


def is_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


PLAIN: Mapping[str, ResetTarget] = {"earliest": ToEarliest(), "latest": ToLatest()}
WITH_VALUE: Mapping[str, Callable[[str, str], ResetTarget]] = {
    "timestamp": to_timestamp,
    "group": lambda text, _: ToGroup(text),
    "offsets": to_offsets,
    "batch": lambda text, _: ToBatch(id_of_batch(text)),
}


def named_partitions(texts: list[str], target: ResetTarget, named: Named) -> dict[str, set[int]]:
    """Return the partitions that ``TOPIC`` and ``TOPIC:0,1`` name; no partitions means all of them."""
    option = named("topics")
    if texts and isinstance(target, ToOffsets):
        raise WrongUseError(
            f"expected {option} or {named('to')} offsets=…, found both: the offsets name their partitions"
        )
    found: dict[str, set[int]] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        partitions = numbers.split(",") if colon else []
        if not topic or not all(is_number(number) for number in partitions):
            raise WrongUseError(f"expected {option} TOPIC or TOPIC:PARTITION,…, such as orders:0,1, found {text!r}")
        if topic in found and not (partitions and found[topic]):
            raise WrongUseError(
                f"expected {option} {topic} once, or with the partitions that are meant, found it as a whole, too"
            )
        found.setdefault(topic, set()).update(int(number) for number in partitions)
    return found
