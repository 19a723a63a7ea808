"""What a command answers: a document for programs, lines and tables for people, an exit code for both."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.foundation.storable_text import storable
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import StoredOffset

JSON_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people, never markup. ``aside``: a warning beside the answer, not part of it.

    ``quotes``: it quotes records, or what a user wrote, so no word of it is replaced.
    """

    text: str
    style: str = ""
    aside: bool = False
    quotes: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command. ``only_shown``: something would be done, and was not.

    ``shown`` can be read once: a table of thousands of partitions is made only where people see it.
    """

    document: Mapping[str, Any]
    shown: Iterable[Line | FittingTable] = ()
    exit_code: int = 0
    only_shown: bool = False

    def whole_document(self) -> dict[str, Any]:
        """Return the document with the version of its form."""
        return {"version": JSON_VERSION, **self.document}


def error_document(code: str, message: str, exit_code: int) -> dict[str, Any]:
    """Return the object that replaces an answer where there is none."""
    return {"error": {"code": code, "message": storable(message), "exit_code": exit_code}}


def document_of_error(error: KafkaIngestError) -> dict[str, Any]:
    """Return what replaces an answer after a named error, with the version of its form."""
    return {"version": JSON_VERSION, **error_document(error.code, str(error), error.exit_code)}


def mirror_lines(failure: str | None) -> list[Line]:
    """Return the line that says why the consumer group is not at the stored offsets."""
    return [Line(f"the consumer group was not moved: {failure}", "yellow", aside=True)] if failure is not None else []


def number(value: int | None) -> str:
    """Return an offset or count for people; a dash where it is not known."""
    return "-" if value is None else f"{value:,}"


def row_document(row: StoredOffset) -> dict[str, Any]:
    return document_of(row, "topic_partition", "topic_id", "seeded_by") | {"stored_offset": row.next_offset}


def moment(value: datetime | None) -> str:
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")
