"""``clean``: remove expired staged output, or one batch's at an operator's request."""

from typing import Any
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.tables import staged_table
from kafka_ingest.assembly import assemble
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.operating.clean import StagedOutput, clean_up, staged_outputs_of_batch
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import feed_of
from kafka_ingest.settings.feed_files import feed_file_named, feeds_directory, read_feed_files
from kafka_ingest.verbs.decided import Decided


def clean_named(feed_name: str, find_connection: FindConnection, *, only_show: bool) -> Answer:
    """Clean up one feed. A contested one may be running all the same: its staged output expires as any other."""
    file = feed_file_named(feed_name, feeds_directory())
    found = clean_feed(file.contested or feed_of(file), find_connection, only_show=only_show)
    return answer_of(found, [], executed=not only_show)


def clean_all(find_connection: FindConnection, *, only_show: bool) -> Answer:
    """Clean up every feed; one that cannot be cleaned up, or used at all, does not stop the others."""
    found: list[StagedOutput] = []
    errors: list[KafkaIngestError] = []
    for file in read_feed_files(feeds_directory()):
        if file.error is not None:
            errors.append(file.error)
        feed = file.feed or file.contested
        if feed is None:
            continue
        try:
            found += clean_feed(feed, find_connection, only_show=only_show)
        except KafkaIngestError as error:
            errors.append(error)
    return answer_of(found, errors, executed=not only_show)


def clean_feed(feed: Feed, find_connection: FindConnection, *, only_show: bool) -> list[StagedOutput]:
    """Clean up one feed, or only show what would be removed; one that was never planned has nothing."""
    parts = assemble(feed, find_connection)
    if parts.control.feed(feed.name) is None:
        return []
    if only_show:
        return list(parts.staged_outputs())
    return list(parts.clean_up())


def clean_batch(batch_id: UUID, control: SqlControlTables, sinks: Sinks, decided: Decided | None) -> Answer:
    """Remove one batch's staged output at an operator's request, and record the actor and the reason."""
    found = staged_outputs_of_batch(batch_id, control, sinks)
    if decided is not None and found:
        detail = {"reason": decided.reason, "attempts": [staged_document(staged) for staged in found]}
        feed_id = control.batch(batch_id).plan.feed_id
        # Before the files go: a last copy must not vanish without a trace.
        control.record_event(feed_id, "cleaned", actor=decided.actor, batch_id=batch_id, detail=detail)
        found = list(clean_up(found, control, sinks))
    return answer_of(found, [], executed=decided is not None)


def answer_of(found: list[StagedOutput], errors: list[KafkaIngestError], *, executed: bool) -> Answer:
    """Return what was removed, what stays and why, and which feeds were left out."""
    gone = [staged for staged in found if staged.kept is None]
    freed = sum(staged.size_bytes for staged in gone)
    attempts = [staged_document(staged) for staged in found]
    left_out = [{"code": error.code, "message": str(error), "exit_code": error.exit_code} for error in errors]
    verb = "removed" if executed else "would remove"
    return Answer(
        {"executed": executed, "freed_bytes": freed, "attempts": attempts, "errors": left_out},
        [
            *([staged_table(found, executed=executed)] if found else []),
            *(Line(f"left out: {error.code} {error}", "yellow", aside=True) for error in errors),
            Line(f"{verb} {counted(len(gone), 'attempt')}, {freed / 1e6:,.1f} MB"),
        ],
        max([error.exit_code for error in errors] + [1 for staged in found if staged.failed], default=0),
        only_shown=bool(gone) and not executed,
    )


def staged_document(staged: StagedOutput) -> dict[str, Any]:
    """Return staged output as ``--json`` shows it."""
    return {
        "feed": staged.batch.feed_name,
        "batch_id": str(staged.batch.batch_id),
        "state": staged.batch.state.value,
        "attempt": staged.attempt.attempt,
        "directory": str(staged.attempt.directory),
        "size_bytes": staged.size_bytes,
        "kept": staged.kept,
        "failed": staged.failed,
    }
