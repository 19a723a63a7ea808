"""``sink: {format: kafka, path: …, conn_id: …, topic: …}``."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, field_validator

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.settings.setting_types import is_topic_name, not_blank
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink

LONGEST_NAME = 230
"""What is added to the name for the topic of its marks has to fit into Kafka's 249 characters, too."""


class KafkaSink(LocalDirectorySink):
    """A topic. ``conn_id``: the connection of type kafka; ``path``: what batches are staged beside.

    ``partitions``: a record keeps the number of its partition, or gets one by the hash of its key.
    """

    not_on_object_stores: ClassVar[str] = f"batches are staged on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True
    takes_columns: ClassVar[bool] = False

    format: Literal["kafka"]
    conn_id: Annotated[str, AfterValidator(not_blank)]
    topic: str
    partitions: Literal["same", "by_key"] = "same"

    @field_validator("topic")
    @classmethod
    def _is_a_topic(cls, topic: str) -> str:
        if not is_topic_name(topic, LONGEST_NAME):
            raise ValueError(f"expected a topic of up to 230 letters, digits, '.', '_' and '-', found {topic!r}")
        return topic

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Raise InvalidFeedError: what reads a topic, or writes to it besides, no feed file says for sure."""
        raise InvalidFeedError(
            f"expected an output that can be copied elsewhere, found topic {self.topic}: copies are made of files and "
            f"tables only. Write a feed with a sink.topic of its own instead of copying to {path}."
        )

    @property
    def address(self) -> Mapping[str, str]:
        """What the topic is, for every feed."""
        return {"conn_id": self.conn_id, "topic": self.topic}

    @property
    def written_topic(self) -> tuple[str, str]:
        return self.conn_id, self.topic

    @property
    def options(self) -> Mapping[str, str]:
        """How the topic is reached and written, stored in each plan."""
        by_key = {"partitions": self.partitions} if self.partitions != "same" else {}
        return {**super().options, **self.address, **by_key}
