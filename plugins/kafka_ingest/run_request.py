"""What one manual run may ask for: a DAG run's conf, or options of the command line. The feed file stays as it is."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from kafka_ingest.errors import InvalidRunRequestError
from kafka_ingest.offsets import TopicPartition
from kafka_ingest.planning.end_positions import EndPositions, ToOffsets, ToTimestamp
from kafka_ingest.setting_types import Instant, Offset, Records, Settings, describe, not_blank

TopicName = Annotated[str, AfterValidator(not_blank)]


def a_partition_number(key: object) -> object:
    """Read a partition's number where JSON writes it as a text; one number is one text."""
    if isinstance(key, str) and not re.fullmatch("0|[1-9][0-9]*", key):
        raise ValueError(f"expected a partition's number, found {key!r}")
    return key


PartitionNumber = Annotated[int, BeforeValidator(a_partition_number), Field(ge=0)]
EndsOfTopic = Annotated[Mapping[PartitionNumber, Offset], Field(min_length=1)]


NOT_APPLIED = (
    "what this run asks for is not applied: a batch was open and goes on as planned; ask again once it is committed"
)


class RunRequest(Settings):
    """``{"max_records": 1000, "end_timestamp": "2026-01-31T00:00:00Z"}`` or ``{"end_offsets": {"orders": {"0": 1200}}}``."""

    max_records: Records | None = None
    end_timestamp: Instant | None = None
    end_offsets: Mapping[TopicName, EndsOfTopic] = Field(default_factory=dict)

    @classmethod
    def of(cls, conf: Mapping[str, Any]) -> "RunRequest":
        """Read a request; raises InvalidRunRequestError, which says what was expected."""
        try:
            request = cls.model_validate(conf)
        except ValidationError as error:
            raise InvalidRunRequestError(
                f"the run asks for what it cannot have: {'; '.join(describe(error))}"
            ) from error
        if request.end_timestamp is not None and request.end_offsets:
            raise InvalidRunRequestError("expected end_timestamp or end_offsets, found both")
        return request

    def end(self) -> EndPositions:
        """Return where the run's batch ends."""
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
