"""``explain``: which offsets are in a data file, and which batch it belongs to."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.history_sentences import describe_file, describe_missing_batch
from kafka_ingest.answers.history_tables import explained_table
from kafka_ingest.errors import NotADataFileError, UnknownBatchError, WrongUseError
from kafka_ingest.model.batch import Batch
from kafka_ingest.observing.explain_file import ExplainedFile, explain_file, is_same_place, output_of_batch, place_named
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.settings.form_fields import blank_is_none
from kafka_ingest.settings.sink_settings.local_directory import in_object_store
from kafka_ingest.sinks.choose import DataFilesOfAllFormats
from kafka_ingest.verbs.request import Argument, Call, Deciding, InForm, Needed, Request

DATA_FILES = DataFilesOfAllFormats()
LONGEST_PATH = 4_096


class Explain(Request):
    """Show which offsets are in a file, which batch it belongs to, and whether it matches that batch's receipt."""

    verb = command = "explain"
    does = "only shows which offsets are in a data file, and whether its batch's receipt fits"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS
    command_names_feed = needs_feed = False

    file: Annotated[
        Annotated[str, Field(max_length=LONGEST_PATH)] | None,
        BeforeValidator(blank_is_none),
        InForm(
            "File",
            "The absolute path of a data file on a disk, in the output of a batch that the control tables know.",
            "explain",
            {"maxLength": LONGEST_PATH},
        ),
        Needed("file, the absolute path of a data file,"),
        Argument("A data file of an output, or one that is staged.", "FILE"),
    ] = None

    def answer(self, call: Call) -> Answer:
        """Show what a data file holds, its batch, and whether it matches that batch's receipt.

        By form only of a file in the output of a batch that the control tables know, of one feed where it is named: the
        answer does not reveal whether other files exist, since the caller has no right to this machine's files.
        """
        file = self.file or ""
        check_on_disk(file)
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


def check_on_disk(file: str) -> None:
    """Raise WrongUseError where a file is in an object store."""
    if in_object_store(file):
        raise WrongUseError(
            f"expected a file on a local or mounted disk, found {file}. Copy it to a disk to see what is in it; "
            "`kafka-ingest locate FEED TOPIC PARTITION OFFSET` names an offset's file, also in a store."
        )


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
    """Yield what is in the file, and whether it is what it should be."""
    yield explained_table(found)
    yield Line(describe_file(found), "red" if found.differences else "")
    if (missing := describe_missing_batch(found)) is not None:
        yield Line(missing, "yellow", aside=True)
