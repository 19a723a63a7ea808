"""What one manual run may ask for: a DAG run's conf, or options of the command line. The feed file stays as it is."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from kafka_ingest.errors import InvalidRunRequestError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.planning.settings import EndPositions, ToOffsets, ToTimestamp
from kafka_ingest.settings.setting_types import Instant, Offset, Records, Settings, not_blank
from kafka_ingest.settings.wrong_settings import describe

TopicName = Annotated[str, AfterValidator(not_blank)]


def a_partition_number(key: object) -> object:
    """Read a partition's number where JSON writes it as a text; one number is one text."""
    if isinstance(key, str) and not re.fullmatch("0|[1-9][0-9]*", key):
        raise ValueError(f"expected a partition's number, found {key!r}")
    return key


def none_where_null(value: object) -> object:
    """Read a form's field that was left empty."""
    return {} if value is None else value


def one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


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

    max_records: Records | None = None
    end_timestamp: Instant | None = None
    end_offsets: Annotated[Mapping[TopicName, EndsOfTopic], BeforeValidator(none_where_null)] = Field(
        default_factory=dict
    )

    @model_validator(mode="before")
    @classmethod
    def _without_lineage(cls, conf: object) -> object:
        return without_lineage(conf) if isinstance(conf, Mapping) else conf

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> "RunRequest":
        """Read a request; raises InvalidRunRequestError, which says what was expected."""
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

    feeds: Annotated[Sequence[str], BeforeValidator(one_or_more), Field(min_length=1)] | None = None
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
    """Read what a run asks for; raises InvalidRunRequestError, which says what was expected."""
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
