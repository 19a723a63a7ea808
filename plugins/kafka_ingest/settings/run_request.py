"""What one manual run or a form may ask for: a DAG run's conf, fields of a form, or options of the command line."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import NoneType
from typing import Annotated, Any, Final, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from kafka_ingest.errors import InvalidRangeError, InvalidRunRequestError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.planning.settings import EndPositions, ToOffsets, ToTimestamp
from kafka_ingest.settings.setting_types import Instant, Offset, Records, Settings, describe, not_blank

TOPIC: Final = "[A-Za-z0-9._-]+"
PARTITION: Final = "[0-9]{1,10}"
OFFSET: Final = "[0-9](?:_?[0-9]){0,18}"
OFFSET_RANGE: Final = rf"^({TOPIC}):({PARTITION})=({OFFSET})-({OFFSET})$"
"""``orders:0=1200-1300``: topic orders, partition 0, offset 1200 is read, 1300 is not. Also a JSON schema's pattern."""

RECORD: Final = rf"^({TOPIC}):({PARTITION})=({OFFSET})$"
"""``orders:0=1200``: the record at offset 1200 of partition 0 of topic orders. Also a JSON schema's pattern."""

EXAMPLE: Final = "2026-01-31T00:00:00Z"
LARGEST_PARTITION: Final = 2**31 - 1
LARGEST_OFFSET: Final = 2**63 - 1
OF_RECORDS: Final = {"minimum": 1, "maximum": LARGEST_OFFSET}
OF_TIME: Final = {"format": "date-time"}


@dataclass(frozen=True, slots=True)
class InForm:
    """A field of the form, below a heading; ``schema`` is what JSON Schema says of its values besides their type."""

    title: str
    help: str
    section: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)


Kind = TypeVar("Kind")


def of_kind(model: type[BaseModel], kind: type[Kind]) -> Iterator[tuple[str, Kind]]:
    for name, info in model.model_fields.items():
        yield from ((name, noted) for noted in info.metadata if isinstance(noted, kind))


def type_of(info: FieldInfo) -> object:
    """Return the type of a field's values, without None; it may have arguments."""
    kind = next((each for each in get_args(info.annotation) if each is not NoneType), info.annotation)
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def limit_of(info: FieldInfo, name: str) -> int | None:
    """Return a field's least value, ``ge``, or its largest, ``le``; None where it has none."""
    return next((limit for noted in info.metadata if (limit := getattr(noted, name, None)) is not None), None)


def blank_is_none(value: object) -> object:
    """Treat an empty field of a form as left out, and strip blanks around a text."""
    return (value.strip() or None) if isinstance(value, str) else value


def none_is_empty(value: object) -> object:
    """Treat a list that was left out as empty, and skip empty lines of a form."""
    if value is None:
        return []
    if isinstance(value, list):
        lines = [line.strip() if isinstance(line, str) else line for line in value]
        return [line for line in lines if line not in ("", None)]
    return value


Text = Annotated[str | None, BeforeValidator(blank_is_none)]
Lines = Annotated[list[str], BeforeValidator(none_is_empty)]


def range_named(text: str) -> OffsetRange:
    found = re.fullmatch(OFFSET_RANGE, text)
    numbers = [int(number) for number in found.groups()[1:]] if found is not None else []
    if found is None or max(numbers) > LARGEST_OFFSET:
        raise InvalidRangeError(f"expected TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1300, found {text!r}")
    partition, start, end = numbers
    if start >= end:
        raise InvalidRangeError(f"expected FROM below TO, since FROM is read and TO is not, found {text!r}")
    return OffsetRange(TopicPartition(found[1], partition), start, end)


def record_named(text: str, option: str = "") -> tuple[TopicPartition, int]:
    """Return the partition and the offset that ``TOPIC:PARTITION=OFFSET`` names.

    Raises InvalidRangeError, or WrongUseError with the option that it is for.
    """
    found = re.fullmatch(RECORD, text)
    if found is None or int(found[2]) > LARGEST_PARTITION or int(found[3]) > LARGEST_OFFSET:
        kind = WrongUseError if option else InvalidRangeError
        raise kind(f"expected {option}TOPIC:PARTITION=OFFSET, such as orders:0=1200, found {text!r}")
    return TopicPartition(found[1], int(found[2])), int(found[3])


def time_with_zone(text: str, named: str, expected: str = f"a time such as {EXAMPLE}") -> datetime:
    """Return a time; raises WrongUseError, with what it is ``named``, where it cannot be read or has no zone."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # the year 1 or 9999, which is no year in UTC
        raise WrongUseError(f"{named}: expected {expected}, found {text!r}") from error
    raise WrongUseError(f"{named}: expected a time with a zone, such as {found.isoformat()}Z, found {text!r}")


TopicName = Annotated[str, AfterValidator(not_blank)]


def a_partition_number(key: object) -> object:
    """Read a partition's number where JSON writes it as a text; one number is one text."""
    if isinstance(key, str) and not re.fullmatch("0|[1-9][0-9]*", key):
        raise ValueError(f"expected a partition's number, found {key!r}")
    return key


PartitionNumber = Annotated[int, BeforeValidator(a_partition_number), Field(ge=0)]
EndsOfTopic = Annotated[Mapping[PartitionNumber, Offset], Field(min_length=1)]


NOT_APPLIED = (
    "what this run asks for is not applied: a batch was open and continues as planned; ask again once it is committed"
)
APPLIED_NEXT = (
    "what this run asks for is not applied to the batch that was open, which continues as planned: the run that "
    "follows its commit applies it"
)


OF_LINEAGE = "openlineage"
"""What Airflow's operators add to the conf of runs that they trigger, where OpenLineage's provider is installed."""


def without_lineage(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a run was triggered with, without what says by which task."""
    return {name: value for name, value in conf.items() if name != OF_LINEAGE}


class RunRequest(Settings):
    """One manual run's limits.

    ``{"max_records": 1000, "end_timestamp": "2026-01-31T00:00:00Z"}``, or ``{"end_offsets": {"orders": {"0": 1200}}}``.
    """

    max_records: Annotated[
        Records | None, InForm("Records", "At most; empty: what the feed's limits say.", schema=OF_RECORDS)
    ] = None
    end_timestamp: Annotated[
        Instant | None,
        InForm(
            "Up to this time",
            "The first record of this time or later is not read; empty: what there is.",
            schema=OF_TIME,
        ),
    ] = None
    end_offsets: Annotated[
        Mapping[TopicName, EndsOfTopic],
        BeforeValidator(lambda ends: {} if ends is None else ends),
        InForm(
            "Up to these offsets",
            'By topic and partition, such as {"orders": {"0": 1200}}: offset 1200 is not read, and partitions that are '
            "not named are left out. Not together with a time.",
        ),
    ] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _without_lineage(cls, conf: object) -> object:
        return without_lineage(conf) if isinstance(conf, Mapping) else conf

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> "RunRequest":
        request = validated(cls, conf)
        if request.end_timestamp is not None and request.end_offsets:
            raise InvalidRunRequestError("expected end_timestamp or end_offsets, found both")
        return request

    def end(self) -> EndPositions:
        if self.end_timestamp is not None:
            return ToTimestamp(self.end_timestamp)
        if not self.end_offsets:
            return None
        return ToOffsets(
            {
                TopicPartition(topic, partition): offset
                for topic, offsets in self.end_offsets.items()
                for partition, offset in offsets.items()
            }
        )


class FleetRequest(Settings):
    """What a run of a fleet's DAG is for: feeds by name, else all of them.

    ``retry`` is of runs that follow others: the feeds that had failed there, each with which retry of it this is.
    """

    feeds: (
        Annotated[
            Sequence[str],
            BeforeValidator(lambda feeds: [feeds] if isinstance(feeds, str) else feeds),
            Field(min_length=1),
        ]
        | None
    ) = None
    retry: Mapping[str, int] | None = None

    @classmethod
    def of(cls, conf: Mapping[str, Any], members: Collection[str]) -> "FleetRequest":
        """Read one; raises InvalidRunRequestError where it names a feed that is not in the fleet.

        A run that follows leaves such a one out: it was taken out of the fleet meanwhile.
        """
        request = validated(cls, without_lineage(conf))
        unknown = [name for name in request.feeds or () if name not in members]
        if unknown and request.retry is None:
            raise InvalidRunRequestError(
                f"feeds: expected names of feeds of this fleet, found {listing(unknown)}; it has {listing(members)}"
            )
        return request


Request = TypeVar("Request", bound=Settings)


def validated(kind: type[Request], conf: Mapping[str, Any]) -> Request:
    try:
        return kind.model_validate(conf)
    except ValidationError as error:
        raise InvalidRunRequestError(
            f"the run asks for what it cannot have: {'; '.join(describe(error, kind))}"
        ) from error


def why_no_run_follows(batch: Batch, request: RunRequest, run: str) -> str | None:
    """Return why the DAG is not run again at once after a run's batch; None where it is.

    One run follows a batch that a limit cut; a batch that left ranges out, since only a plan decides what happens to
    the loss; and a batch that an earlier run left open, since it says nothing about the records that arrived since
    then. The run that follows plans a new batch, so each chain ends.
    """
    if batch.state is not BatchState.COMMITTED:
        return f"batch {batch.batch_id} is {batch.state}"
    if batch.planned_by != run:
        return None
    if not (batch.plan.capped or batch.left_out):
        return f"batch {batch.batch_id} reached the end of what there was to read"
    if request.max_records is not None:
        return f"this run was asked for {counted(request.max_records, 'record')} at most"
    return None
