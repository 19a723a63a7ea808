"""What a command answers: a document for programs, lines and tables for people, an exit code for both."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_ingest.batches.commit_batch import IN_ONE, Committed
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.model.dead_letters import where_they_are
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import StoredOffset


class FittingTable(Table):
    """Rich cuts what is in a table that is too wide; this one gives text less room first, down to its longest word.

    A cell is plain text, never markup, and holds nothing that a terminal obeys: names and reasons come from anywhere.
    """

    def __init__(self, title: str, *columns: str, numbers: Sequence[str] = ()) -> None:
        super().__init__(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0))
        self._names = columns
        self._cells: list[list[Text]] = []
        for name in columns:
            self.add_column(name, justify="right" if name in numbers else "left", overflow="fold")

    def add_line(self, *cells: object) -> None:
        made = [cell if isinstance(cell, Text) else Text(storable(in_words(cell))) for cell in cells]
        self._cells.append(made)
        self.add_row(*made)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as a table where every word fits, else as records."""
        wanted = [
            room_of([Text(name), *(cells[number] for cells in self._cells)]) for number, name in enumerate(self._names)
        ]
        widths = fitting_widths(wanted, options.max_width - self._extra_width)
        if widths is None:
            yield from self._records()
            return
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _records(self) -> RenderResult:
        """Yield each row as lines of name and value; those without a value are left out."""
        if self.title:
            yield Text(str(self.title), style="italic")
        for cells in self._cells:
            yield Text()
            for name, cell in zip(self._names, cells, strict=True):
                if cell.plain:
                    yield Padding(
                        Text.assemble((f"{name}: ", "bold"), cell, overflow="fold"), (0, 0, 0, 2), expand=False
                    )


def room_of(cells: Iterable[Text]) -> tuple[int, int]:
    """Return the widest word and the widest line of a column's cells, in places of the terminal."""
    words, lines = 1, 1
    for cell in cells:
        words = max(words, *(cell_len(word) for word in cell.plain.split()), 1)
        lines = max(lines, *(cell_len(line) for line in cell.plain.splitlines()), 1)
    return words, lines


def fitting_widths(columns: Sequence[tuple[int, int]], width: int) -> list[int] | None:
    """Return each column's width, from its widest word up to its widest line; None where not even all words fit.

    What is left above the words goes first to the columns that need the least to hold their lines.
    """
    left = width - sum(words for words, _ in columns)
    if left < 0:
        return None
    widths = [words for words, _ in columns]
    by_need = sorted(range(len(columns)), key=lambda number: columns[number][1] - columns[number][0])
    for place, number in enumerate(by_need):
        words, lines = columns[number]
        more = min(lines - words, left // (len(by_need) - place))
        widths[number] += more
        left -= more
    return widths


JSON_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Line:
    """A line for people, never markup. ``aside``: a warning beside the answer, not part of it."""

    text: str
    style: str = ""
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """One check: ``error`` is None where it passed."""

    about: str
    found: str
    error: KafkaIngestError | None = None


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
        return {"version": JSON_VERSION, **self.document}


def error_document(code: str, message: str, exit_code: int) -> dict[str, Any]:
    return {"error": {"code": code, "message": storable(message), "exit_code": exit_code}}


def document_of_error(error: KafkaIngestError) -> dict[str, Any]:
    """Return what replaces an answer after a named error, with the version of its form."""
    return {"version": JSON_VERSION, **error_document(error.code, str(error), error.exit_code)}


def mirror_lines(failure: str | None) -> list[Line]:
    return [Line(f"the consumer group was not moved: {failure}", "yellow", aside=True)] if failure is not None else []


def committed_lines(committed: Committed) -> Iterator[Line]:
    output = committed.batch.plan.output
    rows = sum(count.rows for count in committed.counts)
    done = "committed" if committed.by_us else f"{committed.batch.committed_by} was first and committed"
    yield Line(f"{done} {counted(rows, 'row')} into {output}{IN_ONE if committed.in_one else ''}")
    if letters := sum(count.dead_letters for count in committed.counts):
        yield Line(f"{counted(letters, 'record')} became dead letters: {where_they_are(output)}")
    if filtered := sum(count.filtered for count in committed.counts):
        yield Line(f"{counted(filtered, 'record')} {were(filtered)} filtered")
    yield from mirror_lines(committed.mirrored.failure)


def in_words(value: object) -> str:
    """Return what a cell holds for people; a dash where it is not known."""
    if value is None:
        return "-"
    return moment(value) if isinstance(value, datetime) else f"{value:,}" if isinstance(value, int) else str(value)


def number(value: int | None) -> str:
    """Return an offset or count for people; a dash where it is not known."""
    return "-" if value is None else f"{value:,}"


def row_document(row: StoredOffset) -> dict[str, Any]:
    return document_of(row, "topic_partition", "topic_id", "seeded_by") | {"stored_offset": row.next_offset}


def moment(value: datetime | None) -> str:
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")
