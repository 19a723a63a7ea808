"""``kafka-ingest run``: plan, write and commit without a scheduler, one feed or several by one Spark."""

import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from kafka_ingest.assembly import FeedParts, ask_of_all, assemble_all, file_finder
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.plan_batch import PlanOutcome, PlanResult, why_nothing
from kafka_ingest.cli.arguments import (
    EndOffsets,
    EndTimestamp,
    Json,
    MaxRecords,
    actor,
    feed_parts,
    print_committed,
    submit,
)
from kafka_ingest.cli.output import answers, out, print_json, print_shown, progress, step
from kafka_ingest.errors import KafkaIngestError, UnknownFeedError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.tried import Tried, each_tried, tried
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.files_for_dags import feed_in
from kafka_ingest.settings.run_request import NOT_APPLIED, RunRequest
from kafka_ingest.verbs.answer import error_document
from kafka_ingest.verbs.plan import decision_document, lines_of_gaps_and_holds, run_request
from kafka_ingest.verbs.topics_of_files import plan_topics
from kafka_ingest.write_step import Work, write_batches

MAY_BE_MORE = "there may be more records to read: the next run reads them; --until-caught-up reads them at once"

FeedNames = Annotated[
    list[str] | None, typer.Argument(metavar="FEED", help="Names, as in the feeds' files; several share a Spark.")
]


@dataclass
class FeedRun:
    """A feed and what its run has done: ``parts`` are None where its file cannot be used."""

    name: str
    file: FeedFile | None = None
    parts: FeedParts | None = None
    done: list[dict[str, Any]] = field(default_factory=list)
    nothing: str = ""
    hint: str = ""
    error: Exception | None = None

    @property
    def feed_parts(self) -> FeedParts:
        if self.parts is None:
            raise self.error or UnknownFeedError(f"feed {self.name} has no parts")
        return self.parts

    @property
    def document(self) -> dict[str, Any]:
        return {"feed": self.name, "batches": self.done, "ended_with": self.nothing or None}

    @property
    def error_document(self) -> dict[str, Any]:
        if isinstance(self.error, KafkaIngestError):
            return error_document(self.error.code, str(self.error), self.error.exit_code)
        if self.error is not None:
            return error_document("UNEXPECTED", f"{type(self.error).__name__}: {self.error}", 1)
        return {"error": None}

    @property
    def line(self) -> str:
        rows = counted(sum(each["rows"] for each in self.done), "row")
        if self.error is not None:
            return f"{self.failure}{f'; before that it committed {rows}' if self.done else ''}"
        ended = f"committed {rows}" if self.done else self.nothing
        return f"{self.name}: {ended}{f'; {self.hint}' if self.hint and not self.nothing else ''}"

    @property
    def failure(self) -> str:
        found = self.error_document["error"]
        return f"{self.name}: {found['code']} {(found['message'].splitlines() or [''])[0]}"


def run(
    feed_names: FeedNames = None,
    *,
    fleet: Annotated[str | None, typer.Option(metavar="NAME", help="Run the feeds of a fleet.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all feeds.")] = False,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Continue batch by batch until no records are left.")
    ] = False,
    max_records: MaxRecords = None,
    end_timestamp: EndTimestamp = None,
    end_offset: EndOffsets = None,
    as_json: Json = False,
) -> None:
    """Plan, write and commit without a scheduler. Several feeds share a Spark; one that fails leaves the others alone.

    The exit code of several is the highest of theirs.
    """
    with answers(as_json=as_json):
        request = run_request(max_records, end_timestamp, end_offset or [])
        names = list(dict.fromkeys(feed_names or []))
        if (given := [bool(names), fleet is not None, every].count(True)) != 1:
            found = "several of them" if given else "none of them"
            raise WrongUseError(f"expected names of feeds, --fleet or --all, found {found}")
        if len(names) == 1:
            alone = FeedRun(names[0], parts=feed_parts(names[0]))
            run_rounds([alone], request, until_caught_up=until_caught_up)
            if alone.error is not None:
                raise alone.error
            print_alone(alone, as_json=as_json)
            return
        runs = runs_of(names, fleet)
        run_rounds(runs, request, until_caught_up=until_caught_up)
        print_several(runs, as_json=as_json)
        if errors := [each.error_document["error"] for each in runs if each.error is not None]:
            raise typer.Exit(max(each["exit_code"] for each in errors))


def runs_of(names: Sequence[str], fleet: str | None = None) -> list[FeedRun]:
    """Return the runs of feeds by name, of a fleet's, or of all; what is wrong with a file has ended its feed's run."""
    if names:
        find = file_finder(find_connection_from_shell)
        found = [tried(find, name) for name in names]
    else:
        named = files_to_run(feeds_directory(), fleet)
        names, found = [name for name, _ in named], [each for _, each in named]
    runs = [FeedRun(name, each.result, error=each.error) for name, each in zip(names, found, strict=True)]
    with_files = [(each, each.file) for each in runs if each.file is not None]
    for run, file in with_files:
        run.error = file.error
    usable = [(run, file) for run, file in with_files if file.feed is not None or file.contested is not None]
    assembled = assemble_all([file for _, file in usable], find_connection_from_shell)
    for (run, file), parts in zip(usable, assembled, strict=True):
        run.parts, run.error = parts, tried(parts.check_keeps_running, file).error
    return runs


def files_to_run(directory: Path, fleet: str | None) -> list[tuple[str, Tried[FeedFile]]]:
    """Return the files of a fleet's feeds, or of all, by name; those for many topics as what they come to now."""
    files = [
        file
        for file in read_feed_files(directory)
        if fleet is None or ((feed := feed_in(file)) is not None and feed.fleet == fleet)
    ]
    if not files:
        raise UnknownFeedError(
            f"expected feeds to run, found no feed file in {directory}. Add one, or correct the folder."
            if fleet is None
            else f"expected a fleet that feeds in {directory} name, found none of them name {fleet!r}"
        )
    found: list[tuple[str, Tried[FeedFile]]] = []
    for file in files:
        looked = tried(files_of, file)
        found += [(each.name or each.path.name, Tried(each)) for each in looked.result or ()]
        if looked.error is not None:
            found.append((file.path.name, Tried(error=looked.error)))
    return found


def files_of(file: FeedFile) -> list[FeedFile]:
    return [file] if file.topics is None else plan_topics(file, find_connection_from_shell).to_plan


def run_rounds(runs: Sequence[FeedRun], request: RunRequest, *, until_caught_up: bool) -> None:
    """Plan, write and commit a batch of each feed, and again as long as records may be left, if all are to be read."""
    left = [each for each in runs if each.error is None]
    while left:
        run_round(left, request)
        left = [each for each in left if each.error is None]
        # Also between batches: hours are complete long before a backlog is.
        complete_all(left, several=len(runs) > 1)
        left = [each for each in left if until_caught_up and each.hint and not each.nothing and each.error is None]


def run_round(runs: Sequence[FeedRun], request: RunRequest) -> None:
    """Plan, write and commit one batch of each feed; several are planned, and committed, at a time."""
    began = time.monotonic()
    batches = plan_all(runs, request)
    planned = time.monotonic()
    writing = write_batches([each.work for each in batches.values()], submit, actor=actor())
    left = set(batches)
    while left:
        with step("write (Spark)"):
            written = next(each for each in writing if each)
        done = time.monotonic()
        left.difference_update(written)
        for batch_id, error in written.items():
            batches[batch_id].run.error = error
        if good := [batches[batch_id] for batch_id, error in written.items() if error is None]:
            commit_all(good, {"plan": planned - began, "write": done - planned})


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch of a run; ``about`` begins the lines about it, where there are several feeds."""

    run: FeedRun
    outcome: PlanOutcome
    work: Work
    about: str


def plan_all(runs: Sequence[FeedRun], request: RunRequest) -> dict[UUID, Planned]:
    """Return the batches to write, each the feed's open one or a new one."""
    name, found = actor(), dict[UUID, Planned]()
    end, limit = request.end(), request.max_records
    with step("plan"):
        asked = ask_of_all([each.feed_parts for each in runs], end)
        planned = each_tried(
            lambda each: each.feed_parts.plan(actor=name, end=end, max_records=limit, asked=asked.get(each.name)), runs
        )
    for run, each in zip(runs, planned, strict=True):
        if (outcome := each.result) is None:
            run.error = each.error
            continue
        about = f"{run.name}: " if len(runs) > 1 else ""
        for line in lines_of_gaps_and_holds(outcome.decision) if outcome.decision is not None else ():
            print_shown(replace(line, text=f"{line.text[:2]}{about}{line.text[2:]}"))
        if outcome.result is PlanResult.RESUMED and request != RunRequest():
            progress.print(f"  {about}{NOT_APPLIED}", style="yellow", soft_wrap=True)
        if (batch := outcome.batch) is None:
            run.nothing = why_nothing(outcome.decision)
            continue
        shown = f"  {about}{outcome.result.value} batch {batch.batch_id}: {listing(batch.ranges)}"
        progress.print(shown, markup=False, soft_wrap=True)
        found[batch.batch_id] = Planned(run, outcome, Work(run.feed_parts, batch.batch_id), about)
    return found


def commit_all(batches: Sequence[Planned], before: Mapping[str, float]) -> None:
    """Commit written batches, each in a transaction of its own; ``before``: how many seconds the steps before took."""
    name, began = actor(), time.monotonic()
    with step("commit"):
        committed = each_tried(lambda each: each.work.parts.commit(each.work.batch_id, actor=name), batches)
    seconds = {**before, "commit": time.monotonic() - began}
    for batch, found in zip(batches, committed, strict=True):
        if found.result is None:
            batch.run.error = found.error
            continue
        print_committed(found.result, batch.about)
        document = document_of(batch.outcome, found.result, seconds)
        batch.run.done.append(document)
        # A batch that was open does not cover later records; on ranges that one left out a plan decides.
        was_open = batch.outcome.result is PlanResult.RESUMED
        batch.run.hint = MAY_BE_MORE if document["capped"] or was_open or document["ranges_left_out"] else ""


def document_of(outcome: PlanOutcome, committed: Committed, seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return a committed batch as ``--json`` shows it; of several, which share steps, the seconds are all batches'."""
    return {
        "batch_id": str(committed.batch.batch_id),
        "result": outcome.result.value,
        "state": committed.batch.state.value,
        "committed_by": committed.batch.committed_by,
        "rows": sum(count.rows for count in committed.counts),
        "capped": committed.batch.plan.capped,
        "output": str(committed.batch.plan.output),
        "left_out": decision_document(outcome.decision)["left_out"],
        "ranges_left_out": [each.as_document() for each in committed.batch.left_out],
        "mirror_failure": committed.mirrored.failure,
        "seconds": round(sum(seconds.values()), 3),
        "step_seconds": {name: round(each, 3) for name, each in seconds.items()},
    }


def complete_all(runs: Sequence[FeedRun], *, several: bool) -> None:
    """Complete the feeds' hours or days; what fails the next run does, and what is committed stays committed."""
    if not (runs := [each for each in runs if each.feed_parts.feed.complete is not None]):
        return
    name = actor()
    with step("complete"):
        found = each_tried(lambda each: each.feed_parts.complete(actor=name), runs)
    for run, each in zip(runs, found, strict=True):
        about = f"  {run.name}: " if several else "  "
        if isinstance(each.error, KafkaIngestError):
            shown = f"{about}{each.error.code} {each.error}"
            progress.print(shown, style="yellow", markup=False, soft_wrap=True)
        elif each.error is not None:
            run.error = each.error
        elif (waiting := each.result) is not None:
            said = f"waiting for {waiting.began_at:%Y-%m-%d %H:%M} UTC: {listing(waiting.waits_for, 2)}"
            progress.print(f"{about}{said}", markup=False, soft_wrap=True)


def print_alone(run: FeedRun, *, as_json: bool) -> None:
    if as_json:
        print_json(run.document)
    elif not run.done:
        out.print(f"feed {run.name}: {run.nothing}")
    elif run.hint and not run.nothing:
        progress.print(f"  {run.hint}", soft_wrap=True)


def print_several(runs: Sequence[FeedRun], *, as_json: bool) -> None:
    """Print what the runs of several feeds have done: a line each, and before and after them which ones failed.

    All of an error is in ``--json``, and on standard error, with a traceback of one that has no name.
    """
    for each in runs:
        if each.error is not None:
            named = isinstance(each.error, KafkaIngestError)
            trace = "" if named else f"\n{''.join(traceback.format_exception(each.error)).rstrip()}"
            found = each.error_document["error"]
            progress.print(f"{each.name}: {found['code']} {found['message']}{trace}", markup=False, soft_wrap=True)
    if as_json:
        print_json({"feeds": [each.document | each.error_document for each in runs]})
        return
    failed = [each.failure for each in runs if each.error is not None]
    ended = (
        f"{len(failed):,} of {counted(len(runs), 'feed')} failed"
        if failed
        else f"{counted(len(runs), 'feed')}, all good"
    )
    summary = f"{ended}{': ' if failed else ''}{', '.join(failed)}"
    lines = [summary, *(f"  {each.line}" for each in runs), *([summary] if failed else [])]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
