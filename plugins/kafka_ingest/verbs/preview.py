"""``preview``: what a feed makes of real records, before it ingests any."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.fitting_columns import ComparedColumns
from kafka_ingest.batches.freeze_schemas import ROUNDS
from kafka_ingest.batches.preview import MOST_RECORDS, Preview, preview_of
from kafka_ingest.errors import ColumnsChangedError, SparkFailedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.dead_letters import DeadLetter
from kafka_ingest.model.omissions import LEAST_RECORDS, described
from kafka_ingest.model.written_columns import KAFKAS_OWN, POSITION, WrittenColumns, side_by_side
from kafka_ingest.settings.run_request import InForm
from kafka_ingest.sinks.choose import columns_of_file, dead_letters_in_file, rows_of_file
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.verbs.answer import Answer, Line, number
from kafka_ingest.verbs.dead_letters import preview as beginning
from kafka_ingest.verbs.dead_letters import sample_document
from kafka_ingest.verbs.request import WITHOUT_VALUES, Call, Deciding, Option, Request, ShowValues
from kafka_ingest.write_step import begin_preview, may_preview_again, plan_preview

LONGEST_LINE, MOST_COLUMNS = 200, 100
"""What of a record, and of columns, is shown to people; ``--json`` has all."""
RECORDS = 20


class PreviewRecords(Request):
    """Decode a few of the newest records with Spark on this machine, and show the rows; commits nothing.

    Exit code 1: some of them cannot be decoded. 3: their columns do not go with those of the output, so that no batch
    would be written.
    """

    verb = command = "preview"
    does = "only decodes the newest records, by Spark on the worker, and shows the rows"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS

    records: Annotated[
        int | None,
        Field(strict=True, ge=1, le=MOST_RECORDS),
        InForm("Records", "How many of the newest ones, about; empty: 20.", "preview"),
        Option("How many of the newest records, about; 20 by default."),
    ] = None
    show_values: ShowValues = False

    def answer(self, call: Call) -> Answer:
        """Decode about so many of the newest records with Spark on this machine; commits nothing.

        Without ``show_values`` nothing is shown of what the records hold: where they are, how they are decoded and
        their columns. Nor is what Spark says where it fails.
        """
        parts, show_values = call.parts, self.show_values or call.is_shell
        with tempfile.TemporaryDirectory(prefix="kafka-ingest-preview-") as directory:
            found, compared = Preview([], []), None
            plan = plan_preview(parts, Path(directory), self.records or RECORDS)
            if plan is not None:
                with call.step("decode (Spark)"), spark_says(show_values=show_values):
                    attempt, compared = run_preview(parts, plan)
                found = preview_of(attempt, parts.sinks, plan, rows_of_file, columns_of_file, dead_letters_in_file)
                found = replace(found, never_found=tuple(parts.feed.batch_limits().to_name(found.never_found)))
        name, offsets = parts.feed.name, plan.max_rows if plan is not None else 0
        is_refused = compared is not None and compared.refused is not None
        hides = not show_values and bool(found.rows or found.dead_letters)
        more = call.named("records")
        return Answer(
            preview_document(name, found, compared, show_values=show_values),
            [
                *shown_preview(name, found, offsets=offsets, show_values=show_values, more=more),
                *shown_columns(compared),
                *([Line(WITHOUT_VALUES)] if hides else []),
            ],
            exit_code=ColumnsChangedError.exit_code if is_refused else 1 if found.dead_letters else 0,
        )


def preview_document(
    feed_name: str, found: Preview, compared: ComparedColumns | None, *, show_values: bool
) -> dict[str, Any]:
    """Return a preview as ``--json`` shows it; without the records' contents, where they are not to be shown."""
    rows = found.rows if show_values else [{name: row[name] for name in POSITION} for row in found.rows]
    return {
        "feed": feed_name,
        "filtered": found.filtered,
        "never_found": [each.as_document() for each in found.never_found],
        "types": dict(found.columns),
        "rows": [row_document(row) for row in rows],
        "dead_letters": [
            sample_document(each, show_values=show_values)
            | {"part": each.cause.part, "error_class": each.cause.error_class}
            for each in found.dead_letters
        ],
        "columns": columns_document(compared) if compared is not None else None,
    }


def shown_preview(
    feed_name: str, found: Preview, *, offsets: int, show_values: bool, more: str = "--records"
) -> Iterator[Line]:
    """Yield the rows, then what cannot be decoded, of so many ``offsets``; the option ``more`` asks for more."""
    for row in found.rows if show_values else ():
        topic, partition, offset = (row[name] for name in POSITION)
        columns = {name: value for name, value in row_document(row).items() if name not in POSITION}
        shown = ", ".join(f"{name}={value!r}" for name, value in columns.items() if value is not None)
        yield Line(cut(f"{topic}-{partition} offset {offset:,}: {shown}"))
    yield from (Line(f"  {path}: {kind}") for path, kind in list(own(found).items())[:MOST_COLUMNS])
    if len(own(found)) > MOST_COLUMNS:
        yield Line(f"  and {counted(len(own(found)) - MOST_COLUMNS, 'more column')}")
    for letter in found.dead_letters:
        yield Line(cut(letter_in_words(letter, show_values=show_values)), "red")
    good, dead = len(found.rows), len(found.dead_letters)
    if not offsets:
        yield Line(f"the topics of feed {feed_name} hold no record")
    elif not good + dead + found.filtered:
        yield Line(
            f"none of the {number(offsets)} newest offsets holds a record: they are transaction markers, aborted or "
            f"compacted. Ask for more: {more}"
        )
    else:
        filtered = f", and {number(found.filtered)} of them are filtered" if found.filtered else ""
        can_be = f"{number(good + found.filtered)} of {counted(good + dead + found.filtered, 'record')} can be decoded"
        yield Line(f"{can_be}{filtered}; nothing was committed")
    for each in described(found.never_found):
        yield Line(f"null in all rows: {each}", "red")
    if found.never_found:
        has_some = all(each.is_part_found for each in found.never_found)
        at_least = f"of {LEAST_RECORDS} such records or more " if has_some else ""
        yield Line(
            f"A first batch {at_least}is not committed, unless the feed says on_never_found: warn; "
            "correct the names in its schema",
            "red",
        )


def own(found: Preview) -> WrittenColumns:
    return {path: kind for path, kind in found.columns.items() if path not in KAFKAS_OWN}


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"


def letter_in_words(letter: DeadLetter, *, show_values: bool) -> str:
    """Return why a record cannot be decoded; the error's text may quote it."""
    text = f"{letter.topic_partition} offset {letter.offset:,}: {letter.cause.part} {letter.cause.error_class}"
    content = beginning(letter.key if letter.cause.part == "key" else letter.value)
    return f"{text}: {letter.error}: {content}" if show_values else text


def shown_columns(compared: ComparedColumns | None) -> Iterator[Line]:
    if compared is None:
        return
    if compared.refused is not None:
        yield Line(f"no batch would be written: {compared.refused}", "red")
    elif compared.before is not None and compared.new:
        does = "on_new_fields: ignore leaves out" if compared.left_out else "on_new_fields: add adds to the output"
        shown = side_by_side(compared.before, compared.now or {}, compared.new)
        yield Line(f"{does}\n{shown}")


def columns_document(compared: ComparedColumns) -> dict[str, Any]:
    written, before = compared.fitting.columns, compared.before
    return {
        "written": dict(written) if written is not None else None,
        "output": dict(before) if before is not None else None,
        "new": list(compared.new),
        "left_out": list(compared.left_out),
        "refused": compared.refused,
    }


def row_document(row: Mapping[str, object]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(row, default=in_words))
    return document


def in_words(value: object) -> str | None:
    if isinstance(value, bytes):
        return beginning(value)
    return value.isoformat() if isinstance(value, date) else str(value)


@contextmanager
def spark_says(*, show_values: bool) -> Iterator[None]:
    """Leave the end of Spark's log out of its error, unless values are shown: it may quote records."""
    try:
        yield
    except SparkFailedError as error:
        if show_values:
            raise
        # Its first line says how Spark ended, and names the log.
        first, *_ = str(error).splitlines()
        raise SparkFailedError(
            f"{first} not shown, since it may quote records. Read it on this machine, or ask with show_values, which "
            "shows it."
        ) from None


def run_preview(parts: FeedParts, plan: BatchPlan) -> tuple[Attempt, ComparedColumns]:
    """Let Spark write a batch that is never committed; once more where it found schema ids to ask for.

    Return with it how its columns go with those of the feed's output.
    """
    failed: list[Attempt] = []
    while True:
        attempt, submission, compared = begin_preview(parts, plan, failed)
        with log_for_errors() as log_file:
            try:
                run_spark_submit(submission, log_file)
            except SparkFailedError:
                failed.append(attempt)
                if not may_preview_again(parts, plan, attempt) or len(failed) == ROUNDS:
                    raise
            else:
                return attempt, compared


@contextmanager
def log_for_errors() -> Iterator[Path]:
    """Yield where Spark's log goes, of which records may be quoted; it stays only where an error names it."""
    # Outside of the directory of the preview, which is removed in any case.
    handle, name = tempfile.mkstemp(prefix="kafka-ingest-preview-", suffix=".log")
    os.close(handle)
    is_named = False
    try:
        yield Path(name)
    except SparkFailedError:
        is_named = True
        raise
    finally:
        if not is_named:
            Path(name).unlink()
