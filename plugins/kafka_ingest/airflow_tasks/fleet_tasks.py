"""The tasks of a fleet's DAG: each step for all of its feeds, of which one that fails leaves the others alone."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException, SkipMixin
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import AssetAlias, BaseOperator, Context
from airflow.sdk.bases.xcom import BaseXCom

from kafka_ingest.airflow_tasks.asset_events import Announcements, asset_of_starts
from kafka_ingest.airflow_tasks.feed_tasks import WriteOperator, log_plan, planned
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, id_of_batch, lineage_of, run_of
from kafka_ingest.airflow_tasks.metrics import FAILED_ATTEMPTS, send_committed, send_count, step_duration
from kafka_ingest.airflow_tasks.start_checks import has_active_run
from kafka_ingest.assembly import FeedParts, ask_of_all, assemble_all, feed_files, files_of_topics
from kafka_ingest.batches.commit_batch import Committed, announcement
from kafka_ingest.batches.plan_batch import PlanOutcome, PlanResult
from kafka_ingest.errors import InvalidFeedError, KafkaIngestError, UnknownBatchError, may_retry
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.tried import each_tried, tried
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.connections import find_connection_in_task
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import folder_of_feeds, read_feed_files
from kafka_ingest.settings.files_for_dags import Fleet
from kafka_ingest.settings.run_request import FleetRequest, RunRequest, why_no_run_follows
from kafka_ingest.write_step import Work, write_batches

log = logging.getLogger(__name__)

Failures = dict[str, dict[str, Any]]

LARGE_ROWS = 1_000_000
"""From so many records on a batch is no other feed's to wait for: most of its time is no longer the start of Spark."""


def failure_of(error: Exception) -> dict[str, Any]:
    """Return an error for the tasks after this one: its name, what it says, and whether a retry may succeed."""
    if isinstance(error, KafkaIngestError):
        return {"code": error.code, "message": str(error), "may_retry": may_retry(error)}
    return {"code": "UNEXPECTED", "message": f"{type(error).__name__}: {error}", "may_retry": may_retry(error)}


def failures(errors: Mapping[str, Exception]) -> Failures:
    return {name: failure_of(error) for name, error in errors.items()}


def summary(fleet: Fleet, failed: Failures) -> str:
    why = (f"{name}: {each['code']} {each['message'].splitlines()[0]}" for name, each in failed.items())
    # How many feeds there are of topics only the plan has found.
    of = f"of {counted(len(fleet.members), 'feed')} of" if not fleet.sources else "of the feeds of"
    return f"{len(failed):,} {of} fleet {fleet.name} failed: {listing(why)}"


def parts_by_name(fleet: Fleet, names: Iterable[str], of_all: Sequence[FeedFile] | None = None) -> dict[str, FeedParts]:
    """Return the parts of feeds of a fleet; those of topics by what its plans remember, ``of_all`` if that was read."""
    wanted = set(names)
    files = {each.feed.name: each.file for each in fleet.members if each.feed.name in wanted}
    if fleet.sources and (left := wanted - files.keys()):
        of_all = feed_files(find_connection_in_task) if of_all is None else of_all
        files |= {file.feed.name: file for file in of_all if file.feed is not None and file.feed.name in left}
    return {parts.feed.name: parts for parts in assemble_all(files.values(), find_connection_in_task)}


def of_topics(sources: Sequence[FeedFile]) -> tuple[list[FeedFile], dict[str, Exception]]:
    """Return the feeds that files for many topics come to now, and why others cannot be planned."""
    from kafka_ingest.verbs.topics_of_files import plan_topics  # noqa: PLC0415 - only some fleets have such a file

    feeds: list[FeedFile] = []
    errors: dict[str, Exception] = {}
    tries = each_tried(lambda each: plan_topics(each, find_connection_in_task), sources)
    for source, looked in zip(sources, tries, strict=True):
        if (found := looked.result) is None:
            errors[source.path.name] = looked.error or InvalidFeedError(f"{source.path} came to nothing")
            continue
        feeds += [file for file in found.to_plan if file.feed is not None]
        log.info("%s: new: %s; held: %s", source.path.name, listing(found.new) or "none", listing(found.left) or "none")
        errors |= {each.name or each.path.name: each.error for each in found.to_plan if each.error is not None}
    return feeds, errors


def check_some_left(fleet: Fleet, errors: Mapping[str, Exception], *, all_failed: bool) -> None:
    """Raise where a step has failed for all feeds: Airflow tries it again, if that may succeed for one of them."""
    if not all_failed:
        return
    for error in errors.values():
        if failure_of(error)["may_retry"]:
            raise error
    if errors:
        raise AirflowFailException(summary(fleet, failures(errors)))


class FleetOperator(BaseOperator, SkipMixin):
    """A step that announces batches, each by its feed's own alias."""

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        self.announcements = {each.feed.name: Announcements(each.feed.name) for each in fleet.members}
        # Which feeds topics become is not known when the DAG is read: their events name their Assets, by one alias.
        self.of_topics = Announcements(fleet.name)
        aliases = [*self.announcements.values(), *([self.of_topics] if fleet.sources else [])]
        super().__init__(
            outlets=[each.alias for each in aliases], on_success_callback=[each.note for each in aliases], **kwargs
        )
        self.fleet = fleet

    def announcements_of(self, name: str) -> Announcements:
        return self.announcements.get(name, self.of_topics)


class FleetPlanOperator(FleetOperator):
    """Plans the feeds' next batches, or resumes open ones; its XCom has their ids, and which feeds failed.

    A large batch is left to the feed's own DAG, which an event starts, and so is an open one while that DAG has a run.
    """

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(fleet=fleet, **kwargs)
        self.starts = AssetAlias(name=f"kafka_ingest/large/{fleet.name}")
        self.outlets.append(self.starts)

    def is_left(self, parts: FeedParts, outcome: PlanOutcome, *, is_for_all: bool) -> bool:
        """Whether a feed's own DAG does the rest: of a large batch of a run for all feeds, or where it is at work.

        What was left to a DAG that is paused, or was lost on the way, is resumed by this DAG's next run; the runs that
        follow that one leave nothing. A run of a DAG that was paused meanwhile stays active: no attempt is at work for
        longer than it may take.
        """
        feed, batch = parts.feed, outcome.batch
        if batch is None or feed.name not in self.announcements:
            return False  # the feed is one of many topics, and has no DAG of its own
        if outcome.result is not PlanResult.RESUMED:
            return is_for_all and batch.max_rows >= LARGE_ROWS
        is_young = datetime.now(UTC) - batch.planned_at < feed.airflow.execution_timeout
        return is_young and has_active_run(feed.name)

    def leave(self, feed_name: str, outcome: PlanOutcome, context: Context) -> None:
        self.log.info("%s: the batch is left to DAG %s", feed_name, feed_name)
        if outcome.result is not PlanResult.RESUMED:
            context["outlet_events"][self.starts].add(asset_of_starts(feed_name))

    def execute(self, context: Context) -> dict[str, Any] | None:
        actor = run_of(context)
        with errors_for_airflow():
            files = remembered(self.fleet, context)
            asked = request_of(self.fleet, context, files).feeds
            members = {
                each.feed.name: each.file.path
                for each in self.fleet.members
                if asked is None or each.feed.name in asked
            }
            # A file whose topics could not be found is in the retry under its own name.
            sources = [each for each in self.fleet.sources if asked is None or each.path.name in asked]
            of_topics_now, refused = of_topics(sources)
            parts = parts_by_name(self.fleet, [*members, *((asked or ()) if self.fleet.sources else ())], files)
            parts |= {each.feed.name: each for each in assemble_all(of_topics_now, find_connection_in_task)}
            now = (
                {file.path: file for file in read_feed_files(folder_of_feeds(next(iter(members.values()))))}
                if members
                else {}
            )

            def check(name: str) -> None:
                if (path := members.get(name)) in now and path is not None:
                    parts[name].check_keeps_running(now[path])

            checks = {name: tried(check, name).error for name in parts}
            usable = [name for name, error in checks.items() if error is None]
            together = ask_of_all([parts[name] for name in usable])

            def plan(name: str) -> tuple[PlanOutcome, bool]:
                outcome = planned(parts[name], RunRequest(), actor=actor, asked=together.get(name))
                return outcome, self.is_left(parts[name], outcome, is_for_all=asked is None)

            results = dict(zip(usable, each_tried(plan, usable), strict=True))
            failed = checks | {name: each.error for name, each in results.items()} | refused
            errors = {name: error for name, error in failed.items() if error is not None}
            check_some_left(self.fleet, errors, all_failed=len(errors) == len(failed))
            lost = next((each.control.feeds_to_announce() for each in parts.values()), set[str]())
        for name in lost.intersection(results) - errors.keys():
            self.announcements_of(name).add_lost(context, parts[name])
        batches: dict[str, str] = {}
        for name, (outcome, is_left) in ((name, each.result) for name, each in results.items() if each.result):
            log_plan(outcome, parts[name].feed, self.log)
            if is_left:
                self.leave(name, outcome, context)
            elif outcome.batch is not None:
                batches[name] = str(outcome.batch.batch_id)
        if not batches and not errors:
            self.skip(ti=context["ti"], tasks=self.get_flat_relatives(upstream=False))
            return None
        return {"batches": batches, "failed": failures(errors)}


class FleetWriteOperator(WriteOperator):
    """Lets Spark write the batches, all that may by one application; its XCom says which are written."""

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(feed=None, batch_id="", **kwargs)
        self.fleet = fleet

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        errors: dict[str, Exception] = {}
        with step_duration(self.fleet.name, "write"), errors_for_airflow():
            batches: dict[str, str] = said_by("plan", context)["batches"]
            parts = parts_by_name(self.fleet, batches)
            works = {name: Work(each, id_of_batch(batches[name])) for name, each in parts.items()}
            names = {str(work.batch_id): name for name, work in works.items()}
            for written in write_batches(
                list(works.values()),
                lambda opened: self.submit(context, opened),
                actor=run_of(context),
                on_failure=lambda each: send_count(FAILED_ATTEMPTS, each.feed.name),
            ):
                errors |= {names[str(batch_id)]: error for batch_id, error in written.items() if error is not None}
            if self.killed:
                raise AirflowException(f"the task was ended before all batches of fleet {self.fleet.name} were written")
            check_some_left(self.fleet, errors, all_failed=0 < len(errors) == len(works))
        for name, error in errors.items():
            self.log.error("%s: %s", name, error)
        return {"written": [name for name in works if name not in errors], "failed": failures(errors)}


class FleetCommitOperator(FleetOperator):
    """Commits each written batch in a transaction of its own, several at a time, and announces them.

    Where no feed failed, and none has more to read, the tasks for these are skipped from here: each would read all
    feed files, for seconds.
    """

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(fleet=fleet, **kwargs)
        self.lineages: list[Any] = []

    def get_openlineage_facets_on_complete(self, task_instance: object) -> object:
        """Send what was committed, each feed's by itself; OpenLineage's provider asks for it, where it is installed."""
        from kafka_ingest.airflow_tasks.openlineage_facets import send_each  # noqa: PLC0415 - it imports the provider

        return send_each(self.lineages, task_instance)

    def execute(self, context: Context) -> dict[str, Any]:
        actor = run_of(context)
        with errors_for_airflow():
            batches: dict[str, str] = said_by("plan", context)["batches"]
            parts = parts_by_name(self.fleet, said_by("write", context)["written"])

            def commit(name: str) -> Committed:
                began = datetime.now(UTC)
                with step_duration(name, "commit"):
                    committed = parts[name].commit(id_of_batch(batches[name]), actor=actor)
                send_committed(committed, parts[name], began)
                if (lineage := lineage_of(committed, parts[name])) is not None:
                    self.lineages.append(lineage)
                return committed

            results = dict(zip(parts, each_tried(commit, list(parts)), strict=True))
            errors = {name: each.error for name, each in results.items() if each.error is not None}
            check_some_left(self.fleet, errors, all_failed=0 < len(errors) == len(results))
        done: dict[str, Any] = {}
        again: list[str] = []
        for name, committed in ((name, each.result) for name, each in results.items()):
            if committed is None:
                continue
            if committed.mirrored.failure is not None:
                self.log.warning("%s: the consumer group was not moved: %s", name, committed.mirrored.failure)
            if committed.by_us:
                self.announcements_of(name).add(context, committed.batch, committed.counts, parts[name])
            said = announcement(committed.batch.plan, committed.counts)
            done[name] = {key: value for key, value in said.items() if not key.startswith("ranges")}
            self.log.info("%s: %s rows, %s dead letters", name, f"{said['rows']:,}", f"{said['dead_letters']:,}")
            if why_no_run_follows(committed.batch, RunRequest(), actor) is None:
                again.append(name)
        said = {"committed": done, "again": again, "failed": failures(errors)}
        if not again and not errors and not failed_in(context):
            # Nothing is left to run, or to report. Airflow's skip ends the task, which then returns nothing.
            context["ti"].xcom_push(BaseXCom.XCOM_RETURN_KEY, said)
            self.skip(ti=context["ti"], tasks=list(self.get_direct_relatives()))
        return said


def remembered(fleet: Fleet, context: Context) -> list[FeedFile]:
    """Return all feed files, with what topics came to, where a run may name feeds of these."""
    return feed_files(find_connection_in_task) if fleet.sources and context["dag_run"].conf else []


def request_of(fleet: Fleet, context: Context, files: Sequence[FeedFile]) -> FleetRequest:
    """Return what a run is for, among ``remembered`` files; raises InvalidRunRequestError."""
    names = [each.feed.name for each in fleet.members]
    sources = [each.path.name for each in fleet.sources]
    return FleetRequest.of(context["dag_run"].conf or {}, [*names, *sources, *files_of_topics(fleet.name, files)])


def said_by(step: str, context: Context) -> dict[str, Any]:
    """Return what a task before this one returned; raises UnknownBatchError where it returned nothing."""
    said: dict[str, Any] | None = context["ti"].xcom_pull(task_ids=step)
    if said is None:
        raise UnknownBatchError(
            f"expected batches from task {step}, found none. Was {step} marked as success by hand? Clear it."
        )
    return said


def failed_in(context: Context) -> Failures:
    found = (context["ti"].xcom_pull(task_ids=step) or {} for step in ("plan", "write", "commit"))
    return {name: each for step in found for name, each in step.get("failed", {}).items()}


class NextFleetOperator(TriggerDagRunOperator):
    """Runs the DAG again at once for those feeds alone of which records are left, or of which a retry may succeed."""

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(trigger_dag_id=fleet.name, logical_date=None, skip_when_already_exists=True, **kwargs)
        self.fleet = fleet

    def execute(self, context: Context) -> None:
        before = request_of(self.fleet, context, remembered(self.fleet, context)).retry or {}
        again = list((context["ti"].xcom_pull(task_ids="commit") or {}).get("again", []))
        # Of each feed the retries since it was last committed.
        retry = {name: before.get(name, 0) + 1 for name, each in failed_in(context).items() if each["may_retry"]}
        retry = {name: count for name, count in retry.items() if count <= self.fleet.first.airflow.retries}
        if not again and not retry:
            raise AirflowSkipException("no records are left, and no retry may succeed")
        self.conf = {"feeds": sorted({*again, *retry}), "retry": retry}
        # The same each time this task is tried, and no longer the more runs follow one another.
        self.trigger_run_id = f"next_batch__{uuid5(NAMESPACE_URL, str(context['dag_run'].run_id))}"
        super().execute(context)


class FleetReportOperator(BaseOperator):
    """Fails where a feed failed, so that the run does; its first and its last line say which ones, and why."""

    def __init__(self, *, fleet: Fleet, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.fleet = fleet

    def execute(self, context: Context) -> None:
        if not (failed := failed_in(context)):
            return
        first = summary(self.fleet, failed)
        self.log.error("%s", first)
        for name, each in failed.items():
            self.log.error("%s: %s %s", name, each["code"], each["message"])
        raise AirflowFailException(first)
