"""``explain``: which offsets are in a data file, and which batch it belongs to; or what is known of a batch."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import BeforeValidator, Field
from rich.text import Text

from kafka_ingest.batches.known_feed import batch_of_feed
from kafka_ingest.errors import NotADataFileError, UnknownBatchError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.observing.explain_file import (
    BatchOfFile,
    ExplainedFile,
    explain_batch,
    explain_file,
    is_same_place,
    output_of_batch,
    place_named,
)
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.settings.run_request import InForm, blank_is_none
from kafka_ingest.settings.sink_settings.local_directory import in_object_store
from kafka_ingest.sinks.choose import DataFilesOfAllFormats
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.request import Argument, Call, Deciding, Needed, Request

if TYPE_CHECKING:
    from kafka_ingest.model.published_output import PartitionContents

DATA_FILES = DataFilesOfAllFormats()
LONGEST_PATH = 4_096
TRANSACTIONS = {True: "one transaction", False: "one transaction after the other"}


class Explain(Request):
    """Show which offsets are in a file, which batch it belongs to, and whether it matches that batch's receipt.

    Or show a batch by its id.
    """

    verb = command = "explain"
    does = "only shows which offsets are in a data file, and whether its batch's receipt fits; or a batch"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS
    command_names_feed = needs_feed = False

    file: Annotated[
        Annotated[str, Field(max_length=LONGEST_PATH)] | None,
        BeforeValidator(blank_is_none),
        InForm(
            "File",
            "The absolute path of a data file on a disk, in the output of a batch that the control tables know; or the "
            "batch's id.",
            "explain",
            {"maxLength": LONGEST_PATH},
        ),
        Needed("file, the absolute path of a data file,"),
        Argument("A data file of an output, or one that is staged; or a batch's id.", "FILE"),
    ] = None

    def answer(self, call: Call) -> Answer:
        """Show what a data file holds, its batch, and whether it matches that batch's receipt.

        By form only of a file in the output of a batch that the control tables know, of one feed where it is named: the
        answer does not reveal whether other files exist, since the caller has no right to this machine's files.
        """
        file = self.file or ""
        if (batch_id := batch_named(file)) is not None:
            return explained_batch(batch_id, call)
        if in_object_store(file):
            raise WrongUseError(
                f"expected a file on a local or mounted disk, found {file}. Copy it to a disk to see what is in it; "
                "`kafka-ingest locate FEED TOPIC PARTITION OFFSET` names an offset's file, also in a store."
            )
        if not call.is_shell:
            batch = batch_of_place(file, call.control)
            if batch is None or call.feed not in {None, batch.feed_name}:
                whose = f"feed {call.feed}" if call.feed is not None else "a feed"
                raise NotADataFileError(
                    f"expected the absolute path of a data file in the output of {whose}, of a batch that the control "
                    f"tables know, found {file!r}. `locate` names the file of an offset, the page those of a batch."
                )
        found = explain_file(Path(file), lambda: call.control, call.sinks, DATA_FILES)
        return Answer(found.as_document(), shown(found), exit_code=1 if found.control_error is not None else 0)


def batch_named(text: str) -> UUID | None:
    with contextlib.suppress(ValueError):
        return UUID(text)
    return None


def explained_batch(batch_id: UUID, call: Call) -> Answer:
    found = explain_batch(
        call.control.batch(batch_id) if call.feed is None else batch_of_feed(batch_id, call.feed, call.control),
        call.sinks,
    )
    made = FittingTable(f"batch {batch_id}", "fact", "value")
    for fact, value in facts_of_batch(found).items():
        made.add_line(fact, Text(value))
    return Answer({"batch_id": str(batch_id), "batch": found.as_document()}, [made])


def batch_of_place(file: str, control: ControlObserver) -> Batch | None:
    """Return the batch in whose output a path is, None where the control tables know none."""
    try:
        path = Path(file)
        named = place_named(path, DATA_FILES) if path.is_absolute() else None
        batch = control.batch(named[1].batch_id) if named is not None else None
    except (UnknownBatchError, OSError, ValueError):  # no path may hold a NUL
        return None
    if named is None or batch is None or not is_same_place(output_of_batch(batch, named[1]), named[1].output):
        return None
    return batch


def shown(found: ExplainedFile) -> Iterator[Line | FittingTable]:
    yield explained_table(found)
    yield Line(describe_file(found), "red" if found.differences else "")
    if (missing := describe_missing_batch(found)) is not None:
        yield Line(missing, "yellow", aside=True)


def describe_file(found: ExplainedFile) -> str:
    if found.differences is None:
        return f"it cannot be compared with its receipt: {found.receipt_problem}"
    if found.differences:
        return f"it differs from its receipt: {listing(found.differences)}"
    return "it matches its receipt: name, bytes, rows and offsets"


def describe_missing_batch(found: ExplainedFile) -> str | None:
    if found.control_error is not None:
        return f"{found.control_error.code} {found.control_error}"
    if found.batch is None:
        return (
            f"the control tables know no batch {found.place.batch_id}: they are another database, or older than this "
            "output (`kafka-ingest adopt` adopts it)"
        )
    return None


INTERVALS_SHOWN = 20


def explained_table(found: ExplainedFile) -> FittingTable:
    contents = found.contents
    made = FittingTable(found.path.name, "fact", "value")
    facts = {
        "file": str(found.path),
        "rows": number(contents.rows),
        **facts_of_partitions(contents.partitions),
        "columns": ", ".join(f"{name} ({kind})" for name, kind in contents.columns),
        "bytes": number(contents.size_bytes),
        "batch": str(found.place.batch_id),
        **({"filtered of these partitions": number(found.filtered)} if found.filtered else {}),
        "published": "yes" if found.place.attempt is None else f"no, staged by attempt {found.place.attempt}",
    }
    for fact, value in (facts | facts_of_batch(found.batch)).items():
        made.add_line(fact, Text(value))
    return made


def facts_of_partitions(partitions: "Sequence[PartitionContents]") -> dict[str, str]:
    """Return which offsets are in a file; of one that holds several partitions, where each begins and ends."""
    if len(partitions) > 1:
        each = (
            f"{held.topic_partition}: {counted(held.rows, 'row')}, offsets {held.smallest_offset:,} to "
            f"{held.largest_offset:,}"
            for held in partitions
        )
        return {f"{counted(len(partitions), 'partition')}": listing(each)}
    only = partitions[0] if partitions else None
    return {
        "topic": only.topic_partition.topic if only else "-",
        "partition": str(only.topic_partition.partition) if only else "-",
        "smallest offset": number(only.smallest_offset if only else None),
        "largest offset": number(only.largest_offset if only else None),
        "intervals": intervals_in_words(only.intervals, only.interval_count) if only else "none",
    }


def facts_of_batch(found: BatchOfFile | None) -> dict[str, str]:
    if found is None:
        return {}
    batch = found.batch
    return {
        "feed": batch.feed_name,
        "kind": batch.plan.kind.value,
        "state": batch.state.value,
        "planned range": listing(found.planned) or "none of this partition",
        "planned by": f"{batch.planned_by}, {moment(batch.plan.planned_at)} UTC",
        "committed by": f"{batch.committed_by}, {moment(batch.committed_at)} UTC" if batch.committed_by else "-",
        **({"attempt": found.attempt.state.value} if found.attempt else {}),
        **({} if found.one_transaction is None else {"rows and stored offsets": TRANSACTIONS[found.one_transaction]}),
    }


def intervals_in_words(intervals: Sequence[OffsetRange], count: int) -> str:
    shown = intervals[:INTERVALS_SHOWN]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return (", ".join(f"[{run.start_offset:,}, {run.end_offset:,})" for run in shown) or "none") + more
