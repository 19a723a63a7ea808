"""``kafka-ingest preview``: what a feed makes of real records, before it ingests any."""

import json
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.fitting_columns import ComparedColumns
from kafka_ingest.batches.freeze_schemas import ROUNDS
from kafka_ingest.batches.preview import Preview, preview_of
from kafka_ingest.cli.arguments import SINKS, FeedName, Json, feed_parts
from kafka_ingest.cli.output import answers, out, print_json, step
from kafka_ingest.commands.answer import number
from kafka_ingest.errors import ColumnsChangedError, SparkFailedError
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.written_columns import side_by_side
from kafka_ingest.observing.dead_letters import preview as beginning
from kafka_ingest.observing.dead_letters import sample_document
from kafka_ingest.sinks.choose import dead_letters_in_file, rows_of_file
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit

POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")


def preview(
    feed_name: FeedName,
    *,
    records: Annotated[int, typer.Option(min=1, max=1_000, help="How many of the newest records, about.")] = 20,
    as_json: Json = False,
) -> None:
    """Decode a few of the newest records with Spark on this machine, and show what becomes of them; commits nothing.

    Exit code 1: some of them cannot be decoded. 3: their columns do not go with those of the output, so that no batch
    would be written.
    """
    with answers(as_json=as_json), tempfile.TemporaryDirectory(prefix="kafka-ingest-preview-") as directory:
        parts = feed_parts(feed_name)
        found, compared = Preview([], []), None
        plan = parts.preview_plan(Path(directory), records)
        if plan is not None:
            with step("decode (Spark)"):
                attempt, compared = run_preview(parts, plan)
            found = preview_of(attempt, SINKS, plan, rows_of_file, dead_letters_in_file)
        if as_json:
            print_json(
                {
                    "feed": feed_name,
                    "filtered": found.filtered,
                    "rows": [row_document(row) for row in found.rows],
                    "dead_letters": [
                        sample_document(each) | {"part": each.cause.part, "error_class": each.cause.error_class}
                        for each in found.dead_letters
                    ],
                    "columns": columns_document(compared) if compared is not None else None,
                }
            )
        else:
            print_preview(feed_name, found, offsets=plan.max_rows if plan is not None else 0)
            if compared is not None:
                print_columns(compared)
        if compared is not None and compared.refused is not None:
            raise typer.Exit(ColumnsChangedError.exit_code)
        if found.dead_letters:
            raise typer.Exit(1)


def run_preview(parts: FeedParts, plan: BatchPlan) -> tuple[Attempt, ComparedColumns]:
    """Let Spark write a batch that nobody commits; once more where it found schema ids to ask for.

    Return with it how its columns go with those of the feed's output.
    """
    failed: list[Attempt] = []
    while True:
        attempt, submission, compared = parts.preview(plan, failed)
        # Outside of the directory, since the error of a job that fails names it.
        log_file = Path(tempfile.mkstemp(prefix="kafka-ingest-preview-", suffix=".log")[1])
        try:
            run_spark_submit(submission, log_file)
        except SparkFailedError:
            failed.append(attempt)
            parts.check_expressions(attempt, plan)
            if len(failed) == ROUNDS or not parts.needs_schemas(attempt, plan):
                raise
        else:
            log_file.unlink()
            return attempt, compared
        log_file.unlink()


def print_preview(feed_name: str, found: Preview, *, offsets: int) -> None:
    """Print the rows, then what cannot be decoded; ``offsets`` is how many were read."""
    for row in found.rows:
        topic, partition, offset = (row[name] for name in POSITION)
        columns = {name: value for name, value in row_document(row).items() if name not in POSITION}
        shown = ", ".join(f"{name}={value!r}" for name, value in columns.items() if value is not None)
        out.print(f"{topic}-{partition} offset {offset:,}: {shown}", markup=False, soft_wrap=True)
    for letter in found.dead_letters:
        where = f"{letter.topic_partition} offset {letter.offset:,}"
        content = beginning(letter.key if letter.cause.part == "key" else letter.value)
        error = f"{letter.cause.part} {letter.cause.error_class}: {letter.error}: {content}"
        out.print(f"{where}: {error}", style="red", markup=False, soft_wrap=True)
    good, dead = len(found.rows), len(found.dead_letters)
    if not offsets:
        out.print(f"the topics of feed {feed_name} hold no record")
    elif not good + dead + found.filtered:
        out.print(
            f"none of the {number(offsets)} newest offsets holds a record: they are transaction markers, aborted or "
            "compacted. Ask for more: --records",
            soft_wrap=True,
        )
    else:
        filtered = f", and {number(found.filtered)} of them are filtered" if found.filtered else ""
        can_be = f"{number(good + found.filtered)} of {number(good + dead + found.filtered)} records can be decoded"
        out.print(f"{can_be}{filtered}; nothing was committed")


def print_columns(compared: ComparedColumns) -> None:
    """Print which new fields are added or left out, or why no batch would be written."""
    left_out = set(compared.left_out)
    if compared.refused is not None:
        out.print(f"no batch would be written: {compared.refused}", style="red", markup=False, soft_wrap=True)
    elif compared.before is not None and compared.new:
        does = "on_new_fields: ignore leaves out" if left_out else "on_new_fields: add adds to the output"
        shown = side_by_side(compared.before, compared.now or {}, compared.new)
        out.print(f"{does}\n{shown}", markup=False, soft_wrap=True)


def columns_document(compared: ComparedColumns) -> dict[str, Any]:
    """Return the columns as ``--json`` shows them: fields by their paths, with their types; None where not known."""
    written, before = compared.fitting.columns, compared.before
    return {
        "written": dict(written) if written is not None else None,
        "output": dict(before) if before is not None else None,
        "new": list(compared.new),
        "left_out": list(compared.left_out),
        "refused": compared.refused,
    }


def row_document(row: Mapping[str, object]) -> dict[str, Any]:
    """Return a row as ``--json`` shows it; bytes as the beginning of a text."""
    document: dict[str, Any] = json.loads(json.dumps(row, default=in_words))
    return document


def in_words(value: object) -> str | None:
    """Return a value that JSON does not have."""
    if isinstance(value, bytes):
        return beginning(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command()(preview)
