"""``locate``: what happened to one offset."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.history_sentences import describe_files, describe_offset
from kafka_ingest.answers.history_tables import located_table
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.locate import LocatedOffset, locate
from kafka_ingest.settings.form_fields import LARGEST_OFFSET, LARGEST_PARTITION, RECORD, Text, record_named
from kafka_ingest.verbs.request import Argument, Call, Deciding, InForm, Needed, Request


class Locate(Request):
    """Show what happened to one offset: which batch ingested it, who ran it, and its file, or why there is none."""

    verb = command = "locate"
    does = "only shows what happened to one offset: its batch, its file, or why there is none"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS

    record: Annotated[
        Text,
        InForm("Record", "TOPIC:PARTITION=OFFSET, such as orders:0=1200.", "locate", {"pattern": RECORD}),
        Needed("record, such as orders:0=1200,"),
    ] = None
    topic: Annotated[str, Argument()] = ""
    partition: Annotated[int, Field(ge=0, le=LARGEST_PARTITION), Argument()] = 0
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET), Argument()] = 0

    def answer(self, call: Call) -> Answer:
        """Say what happened to one offset."""
        place = record_named(self.record) if self.record else (TopicPartition(self.topic, self.partition), self.offset)
        found = locate(call.control, call.sinks, call.feed_name, *place)
        return Answer(found.as_document(), shown(found))


def shown(found: LocatedOffset) -> Iterator[Line | FittingTable]:
    """Yield what happened to the offset, and where its record is."""
    yield Line(describe_offset(found))
    if found.batches:
        yield located_table(found)
    for batch in found.batches:
        yield from map(Line, describe_files(batch))
