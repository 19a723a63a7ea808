"""The tasks that plan, write and commit a batch."""

import os
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    SkipMixin,
    mask_secret,
)
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.xcom import BaseXCom

from kafka_ingest.airflow_tasks.asset_events import Announcements, CompleteOperator
from kafka_ingest.airflow_tasks.dag_arguments import NOT_DURABLE, check_is_no_backfill
from kafka_ingest.airflow_tasks.in_airflow import (
    errors_for_airflow,
    id_of_batch,
    label_of,
    lineage_of,
    lines_of_ranges,
    name_in_run,
    parts_of,
    parts_of_run,
    run_of,
)
from kafka_ingest.airflow_tasks.metrics import (
    ATTEMPTS,
    FAILED_ATTEMPTS,
    send_committed,
    send_count,
    send_standing,
    step_duration,
)
from kafka_ingest.batches.commit_batch import announcement
from kafka_ingest.batches.plan_batch import Asked, PlanOutcome, PlanResult, why_nothing
from kafka_ingest.errors import BatchStateError, InstallationError, KafkaIngestError, OperatorDecisionError
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import checked_against_others
from kafka_ingest.settings.run_request import APPLIED_NEXT, RunRequest, why_no_run_follows, without_lineage
from kafka_ingest.spark_launch.run_spark_submit import emptied, not_started
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.spark_launch.start_failures import spark_failure
from kafka_ingest.spark_launch.workplace import begun_in, remove_workplace

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts
    from kafka_ingest.write_step import Opened


class PlanOperator(BaseOperator, SkipMixin):
    """Plans the feed's next batch, or resumes an open one; its XCom is the batch id. No batch skips the other tasks.

    ``file`` is the feed's: where it shares something with another file, only the feed that the control tables know is
    planned. The other files are looked up when the task runs: starting it reads none of them.
    """

    def __init__(self, *, feed: Feed, file: FeedFile, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        self.announcements = Announcements(feed.name)
        super().__init__(outlets=[self.announcements.alias], on_success_callback=[self.announcements.note], **kwargs)
        self.feed = feed
        self.file = file

    def execute(self, context: Context) -> str | None:
        with errors_for_airflow():
            check_is_no_backfill(context)
            request = RunRequest.of(context["dag_run"].conf or {})
            parts = parts_of(self.feed)
            parts.check_keeps_running(checked_against_others(self.file))
            outcome = planned(parts, request, actor=run_of(context))
            if lost := self.announcements.add_lost(context, parts):
                self.log.info("announced %d batches whose commit task died before it did so", lost)
        log_plan(outcome, self.feed, self.log)
        if outcome.batch is None:
            # A short circuit: the run succeeds, and the tasks of a batch are skipped.
            others = [
                task for task in self.get_flat_relatives(upstream=False) if not isinstance(task, CompleteOperator)
            ]
            self.skip(ti=context["ti"], tasks=others)
            return None
        if outcome.result is PlanResult.RESUMED and request != RunRequest():
            self.log.warning("%s", APPLIED_NEXT)
        return str(outcome.batch.batch_id)


def planned(parts: "FeedParts", request: RunRequest, *, actor: str, asked: Asked | None = None) -> PlanOutcome:
    """Plan, and send where the feed stands: also of one that has stopped, since it falls behind."""
    try:
        with step_duration(parts.feed.name, "plan"):
            outcome = parts.plan(actor=actor, end=request.end(), max_records=request.max_records, asked=asked)
    except OperatorDecisionError:
        send_standing(parts)
        raise
    send_standing(parts, asked)
    return outcome


def log_plan(outcome: PlanOutcome, feed: Feed, log: Any) -> None:  # noqa: ANN401 - structlog's, or the standard one
    if outcome.decision is not None:
        for gap in outcome.decision.gaps:
            log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
        for hold in outcome.decision.holds:
            log.warning("held since %s: %s", hold.since.isoformat(timespec="seconds"), hold)
    if outcome.batch is None:
        log.info("%s in %s", why_nothing(outcome.decision), feed.kafka.described())
        return
    verb = "continuing with open batch" if outcome.result is PlanResult.RESUMED else "planned batch"
    log.info("%s %s:", verb, outcome.batch.batch_id)
    for line in lines_of_ranges(outcome.batch.ranges):
        log.info("%s", line)


class WriteOperator(SparkSubmitOperator):
    """Opens an attempt, runs Spark on it, and pins its receipt. A receipt that exists already needs no Spark.

    Without a feed the run names it in its params.
    """

    # Only the batch id is rendered, and so stored and shown: what Spark gets is set inside execute.
    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed | None, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        # Which application continues is decided by attempts.
        super().__init__(**NOT_DURABLE, **kwargs)
        self.feed = feed
        self.batch_id = batch_id
        self.shown_as: str | None = None
        self.killed = False

    def execute(self, context: Context) -> None:
        from kafka_ingest.write_step import write_batch  # noqa: PLC0415 - reading a DAG file needs none of it

        with step_duration(name_in_run(self.feed, context), "write"), errors_for_airflow():
            parts = parts_of_run(self.feed, context)
            batch_id = id_of_batch(self.batch_id)
            if self.feed is None:
                self.shown_as = label_of(parts.batch(batch_id))
            failed = partial(send_count, FAILED_ATTEMPTS, parts.feed.name)
            write_batch(parts, batch_id, partial(self.submit, context), actor=run_of(context), on_failure=failed)

    def submit(self, context: Context, opened: "Sequence[Opened]") -> None:
        from kafka_ingest.write_step import submission  # noqa: PLC0415 - as above

        call = submission(opened)
        for each in opened:
            send_count(ATTEMPTS, each.parts.feed.name)
            attempt = each.attempt
            self.log.info("attempt %d of batch %s writes into %s", attempt.attempt, attempt.batch_id, attempt.directory)
        which = listing(f"attempt {each.attempt.attempt} of batch {each.attempt.batch_id}" for each in opened)
        try:
            self.take(call, opened[0].parts)
            if self.killed:
                raise AirflowException(f"{which} was ended before Spark was started")
            try:
                super().execute(context)
            except AirflowException as error:
                if self.killed:  # no other attempt is begun
                    raise AirflowException(f"{which} was ended while Spark ran") from error
                raise spark_failed(error, call.secrets, begun_in(call.workplace)) from error
            except OSError as error:
                raise not_started(call.spark_binary, error) from error
        finally:
            remove_workplace(call.workplace)

    def take(self, submission: SparkSubmission, parts: "FeedParts") -> None:
        self._hook = None  # it holds the former call
        self._conn_id = parts.feed.spark.conn_id
        self.application = submission.application
        self.application_args = list(submission.arguments)
        self.conf = dict(submission.conf)
        self.jars = submission.jars
        self.driver_class_path = submission.driver_class_path
        self.name = submission.name
        # The hook adds to this process's environment.
        self.env_vars = {**emptied(os.environ), **submission.environment}
        for secret in submission.secrets:
            mask_secret(secret)

    def _get_hook(self) -> SparkSubmitHook:
        hook = super()._get_hook()
        # On YARN and Kubernetes it would put the environment on the command line, as settings of a driver elsewhere.
        if lacking := [name for name in ("_is_yarn", "_is_kubernetes") if not hasattr(hook, name)]:
            raise InstallationError(
                f"expected {' and '.join(lacking)} in the hook of apache-airflow-providers-apache-spark, which keep "
                "secrets off Spark's command line, found a version without. Install the one in requirements.txt."
            )
        hook._is_yarn = hook._is_kubernetes = False  # noqa: SLF001 - it has no public way
        return hook

    def on_kill(self) -> None:
        """Stop Spark, if it runs; the provider would make a hook without settings. Airflow continues afterwards."""
        self.killed = True
        if self._hook is not None:
            super().on_kill()


def spark_failed(
    error: AirflowException, secrets: Collection[str] = (), begun: frozenset[int] = frozenset()
) -> KafkaIngestError:
    """Return the provider's error of a failed spark-submit, without the command and its 2,000 characters of flags."""
    command, _, output = str(error).partition("Last spark-submit output:\n")
    code = re.search(r"Error code is: (-?[0-9]+)", command)
    ended = f"ended with exit code {code[1]}" if code else "failed"
    return spark_failure(
        f"Spark {ended}; nothing it wrote is visible, and no offset was moved. A retry writes a new attempt of the "
        "same batch. Spark's whole output is above; its end:",
        output,
        secrets,
        begun,
    )


class CommitOperator(BaseOperator, SkipMixin):
    """Publishes the batch, moves the stored offsets, then the consumer group, and announces what it committed.

    Without a feed the run names it in its params; a backfill moves neither offsets nor group. Where no run of the
    feed's DAG is to follow at once, the task that would trigger it is skipped from here: it starts no process for that.
    """

    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed | None, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        self.announcements = Announcements() if feed is None else Announcements(feed.name)
        super().__init__(outlets=[self.announcements.alias], on_success_callback=[self.announcements.note], **kwargs)
        self.feed = feed
        self.batch_id = batch_id
        self.shown_as: str | None = None
        self.lineage: Any = None

    def execute(self, context: Context) -> dict[str, Any]:
        with errors_for_airflow():
            parts = parts_of_run(self.feed, context)
            began = datetime.now(UTC)
            with step_duration(parts.feed.name, "commit"):
                committed = parts.commit(id_of_batch(self.batch_id), actor=run_of(context))
            send_committed(committed, parts, began)
        self.lineage = lineage_of(committed, parts)
        if self.feed is None:
            self.shown_as = label_of(committed.batch)
        if committed.mirrored.failure is not None:
            self.log.warning("the consumer group was not moved: %s", committed.mirrored.failure)
        if committed.by_us:
            self.announcements.add(context, committed.batch, committed.counts, parts)
        else:
            self.log.info("batch %s was committed by %s: nothing to do", self.batch_id, committed.batch.committed_by)
        said = announcement(committed.batch.plan, committed.counts)
        self.log.info("%s rows, %s dead letters", f"{said['rows']:,}", f"{said['dead_letters']:,}")
        counts = {name: value for name, value in said.items() if not name.startswith("ranges")}
        if self.feed is not None:
            self._skip_next(committed.batch, counts, context)
        return counts

    def get_openlineage_facets_on_complete(self, _task_instance: object) -> object:
        """Return what was committed; OpenLineage's provider asks for it, where it is installed."""
        from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - it may not be there

        return self.lineage or OperatorLineage()

    def _skip_next(self, batch: Batch, counts: dict[str, Any], context: Context) -> None:
        with errors_for_airflow():
            request = RunRequest.of(context["dag_run"].conf or {})
        if reason := why_no_run_follows(batch, request, run_of(context)):
            self.log.info("no run follows at once: %s", reason)
            # Airflow's skip ends the task, which then returns nothing.
            context["ti"].xcom_push(BaseXCom.XCOM_RETURN_KEY, counts)
            following = [task for task in self.get_direct_relatives() if isinstance(task, NextBatchOperator)]
            self.skip(ti=context["ti"], tasks=following)


class NextBatchOperator(TriggerDagRunOperator):
    """Runs the DAG again at once where records may be left: a limit cut the batch, or an earlier run had planned it."""

    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(trigger_dag_id=feed.name, logical_date=None, skip_when_already_exists=True, **kwargs)
        self.feed = feed
        self.batch_id = batch_id

    def execute(self, context: Context) -> None:
        with errors_for_airflow():
            batch = parts_of(self.feed).batch(id_of_batch(self.batch_id))
            request = RunRequest.of(context["dag_run"].conf or {})
            if batch.state is not BatchState.COMMITTED:
                raise BatchStateError(
                    f"batch {batch.batch_id}: expected it to be COMMITTED after the task commit, found {batch.state}. "
                    "Was commit marked as success by hand? Nothing is lost: clear that task, or run the DAG again, "
                    "and it is committed."
                )
        if reason := why_no_run_follows(batch, request, run_of(context)):
            raise AirflowSkipException(reason)
        self.trigger_run_id = f"next_batch__{self.batch_id}"
        # A run with an end time continues to that time, batch by batch.
        self.conf = without_lineage(context["dag_run"].conf or {}) or None
        super().execute(context)


class FeedErrorOperator(BaseOperator):
    """Fails with the error of a feed file that cannot be used; skipped where the file can be used again."""

    def __init__(self, *, file: FeedFile, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.file = file

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        # What a file shares with others is not read when a task starts.
        file = checked_against_others(self.file)
        if file.error is not None:
            raise AirflowFailException(str(file.error))
        raise AirflowSkipException(f"{file.path} shares nothing with other files any more")
