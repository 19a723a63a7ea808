"""A topic as a plan asks for it. Its transactions decide (:mod:`.commits`)."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Final
from uuid import UUID

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.model.batch import canonical_json
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.topics import MARKS_SUFFIX
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.kafka_topic import TOPIC
from kafka_ingest.sinks.kafka_topic.cluster import FindKafka, OutputCluster
from kafka_ingest.sinks.kafka_topic.commits import KafkaCommits
from kafka_ingest.sinks.kafka_topic.marks import value_of
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

CONN_ID, PARTITIONS, BY_KEY = "conn_id", "partitions", "by_key"
"""Options of an output besides the topic's name: the id of the cluster's connection, how records get a partition."""
KEEPS_TIMES: Final = ("message.timestamp.type", "CreateTime")


class KafkaOutput:
    """A topic by its connection and name, asked for when it is first needed; batches are staged beside ``output``.

    A :class:`.TableFormat`.
    """

    own_columns = False
    data_folder = None

    def __init__(self, output: OutputLocation, find_kafka: FindKafka, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.output = output.place
        self.options = options
        self._address: Mapping[str, str] = dict(output.options)
        self._find_kafka = find_kafka

    @cached_property
    def _cluster(self) -> OutputCluster:
        if missing := [name for name in (CONN_ID, TOPIC) if name not in self._address]:
            raise OutputNotUsableError(
                f"expected to know which topic has the batches of {self.output}, found no {' and no '.join(missing)}: "
                "its path alone does not say it. Ask by the feed or the batch instead."
            )
        return self._find_kafka(self._address[CONN_ID])

    @cached_property
    def commits(self) -> KafkaCommits:
        same = self._address.get(PARTITIONS) != BY_KEY
        return KafkaCommits(self._cluster, self._address.get(TOPIC, ""), same_partitions=same)

    def check_installed(self) -> None:
        """Do nothing: the client is there, it reads Kafka."""

    def one_reading(self) -> AbstractContextManager[None]:
        """Spare nothing: a look reads those marks only that were not read before."""
        return nullcontext()

    def check_usable(self) -> None:
        topic = self.commits.topic()
        name, value = KEEPS_TIMES
        found = topic.setting(name)
        wrong = [] if found == value else [f"{topic.name} with {name}={found} instead of {value}"]
        wrong += [f"{topic.name}, which has the marks of another topic"] if topic.name.endswith(MARKS_SUFFIX) else []
        with self._cluster.named_errors(self.commits.marks.name):
            wrong += self.commits.marks.problems()
        if wrong:
            raise OutputNotUsableError(
                f"expected topics that keep records and marks as they are written, found {listing(wrong)}. Nothing was "
                "written. Correct their settings, or give the feed another sink.topic."
            )

    def published(self) -> set[str]:
        return self.commits.rows().published()

    def most_rows(self) -> int:
        return self.commits.most_rows()

    def lacks(self, batch_id: UUID) -> str:
        """Return why this topic cannot be the one that a batch was published in; an empty text if it has its mark."""
        name = self.commits.marks.name
        mark = self.commits.mark_for_sure(batch_id)
        if mark is not None and mark.outcome is Outcome.PUBLISHED:
            return ""
        return (
            f"topic {name}, reached through connection {self._address[CONN_ID]!r}, has no mark of it. Do {CONN_ID} and "
            "sink.topic lead where they led? Correct them; a topic that is to be a new one needs another sink.path, "
            f"too. If the cluster has lost it, produce a record with key {batch_id} and value "
            f"{canonical_json(value_of(Mark(batch_id, Outcome.PUBLISHED))).decode()} to {name}"
        )

    def columns_left_out(self) -> tuple[str, ...]:
        return ()  # files have all of a record

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        del written
        return {}

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        del written
        yield from ()  # raw records have the columns that they have
