"""The tasks that plan, write and commit a batch."""

import os
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset, AssetAlias, BaseOperator, Context
from airflow.sdk.bases.skipmixin import SkipMixin
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, id_of_batch, parts_of, parts_of_run, run_of
from kafka_ingest.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.feed import Feed
from kafka_ingest.offsets import listing
from kafka_ingest.planning.plan_batch import PlanResult, why_nothing
from kafka_ingest.run_request import NOT_APPLIED, RunRequest
from kafka_ingest.submitting.run_spark_submit import AIRFLOW_VARIABLES


class PlanOperator(BaseOperator, SkipMixin):
    """Plans the feed's next batch, or takes an open one on; its XCom is the batch id. Nothing new skips the rest."""

    def __init__(self, *, feed: Feed, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.feed = feed

    def execute(self, context: Context) -> str | None:
        """Return the id of the batch to write and commit."""
        with errors_for_airflow():
            request = RunRequest.of(context["dag_run"].conf or {})
            parts = parts_of(self.feed)
            outcome = parts.plan(who=run_of(context), end=request.end(), max_records=request.max_records)
        if outcome.decision is not None:
            for gap in outcome.decision.gaps:
                self.log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
            for hold in outcome.decision.holds:
                self.log.warning("held since %s: %s", hold.since.isoformat(timespec="seconds"), hold)
        if outcome.batch is None:
            self.log.info("%s in %s", why_nothing(outcome.decision), self.feed.kafka.described())
            # A short circuit: the run is green, and what comes after is skipped.
            self.skip(ti=context["ti"], tasks=list(self.get_flat_relatives(upstream=False)))
            return None
        if outcome.result is PlanResult.RESUMED and request != RunRequest():
            self.log.warning("%s", NOT_APPLIED)
        verb = "continuing with open batch" if outcome.result is PlanResult.RESUMED else "planned batch"
        self.log.info("%s %s: %s", verb, outcome.batch.batch_id, listing(outcome.batch.ranges, limit=20))
        return str(outcome.batch.batch_id)


class WriteOperator(SparkSubmitOperator):
    """Opens an attempt, runs Spark on it, and pins its receipt. A receipt that is there already needs no Spark.

    Without a feed the run names it in its params.
    """

    # Only the batch id is rendered, and so stored and shown: what is handed to Spark is set inside execute.
    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed | None, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        # durable would pick an earlier application up again on some clusters; attempts are ours.
        super().__init__(durable=False, **kwargs)
        self.feed = feed
        self.batch_id = batch_id
        self.killed = False

    def execute(self, context: Context) -> None:
        """Write the batch, unless it is written."""
        with errors_for_airflow():
            parts = parts_of_run(self.feed, context)
            attempt = parts.open_attempt(id_of_batch(self.batch_id), who=run_of(context))
            if attempt is None:
                self.log.info("batch %s is written already: no need for Spark", self.batch_id)
                return
            submission = parts.submission(attempt)
        self.log.info("attempt %d of batch %s writes into %s", attempt.attempt, self.batch_id, attempt.directory)
        self._conn_id = parts.feed.spark.conn_id
        self.application = submission.application
        self.application_args = list(submission.arguments)
        self.conf = dict(submission.conf)
        self.py_files = submission.py_files
        self.jars = submission.jars
        self.driver_class_path = submission.driver_class_path
        self.name = submission.name
        # The hook adds to this process's environment; Spark has no use for Airflow's settings, nor for its passwords.
        unused = {key: "" for key in os.environ if key.startswith(AIRFLOW_VARIABLES) and parts.master.is_local}
        self.env_vars = {**unused, **submission.environment}
        if self.killed:
            raise AirflowException(
                f"attempt {attempt.attempt} of batch {self.batch_id} was ended before Spark was started"
            )
        try:
            super().execute(context)
        except AirflowException:
            with errors_for_airflow():
                parts.explain_failure(attempt)
            raise
        with errors_for_airflow():
            parts.pin(attempt)

    def on_kill(self) -> None:
        """Stop Spark, if it runs; the provider would make a hook without any settings here, and Airflow goes on after it."""
        self.killed = True
        if self._hook is not None:
            super().on_kill()


class CommitOperator(BaseOperator):
    """Publishes the batch, moves the stored offsets, then the consumer group, and announces what it committed.

    Without a feed the run names it in its params; a backfill moves neither.
    """

    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed | None, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        self.asset_alias = AssetAlias(name=f"kafka_ingest/{feed.name if feed is not None else 'backfills'}")
        super().__init__(outlets=[self.asset_alias], **kwargs)
        self.feed = feed
        self.batch_id = batch_id

    def execute(self, context: Context) -> None:
        """Commit the batch."""
        with errors_for_airflow():
            parts = parts_of_run(self.feed, context)
            committed = parts.commit(id_of_batch(self.batch_id), who=run_of(context))
        if committed.mirrored.failure is not None:
            self.log.warning("the consumer group was not moved: %s", committed.mirrored.failure)
        if not committed.by_us:
            self.log.info("batch %s was committed by %s: nothing to do", self.batch_id, committed.batch.committed_by)
            return
        # A plain outlet would announce every success of this task; the alias only what this run committed. Delivery is
        # at least once: whoever listens tells batches apart by their id.
        asset = asset_of(committed.batch.plan, parts.feed)
        context["outlet_events"][self.asset_alias].add(asset, extra=announcement(committed))


class NextBatchOperator(TriggerDagRunOperator):
    """Runs the DAG again at once where a limit left records behind: a backlog is worked off without the schedule."""

    template_fields = ("batch_id",)

    def __init__(self, *, feed: Feed, batch_id: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(trigger_dag_id=feed.name, logical_date=None, skip_when_already_exists=True, **kwargs)
        self.feed = feed
        self.batch_id = batch_id

    def execute(self, context: Context) -> None:
        """Trigger the next run, once for each committed batch that was capped."""
        with errors_for_airflow():
            batch = parts_of(self.feed).control.batch(id_of_batch(self.batch_id))
            request = RunRequest.of(context["dag_run"].conf or {})
        if batch.state is not BatchState.COMMITTED or not batch.plan.capped:
            raise AirflowSkipException(f"batch {self.batch_id} reached the end of what there was to read")
        if request.max_records is not None and batch.planned_by == run_of(context):
            raise AirflowSkipException(f"this run was asked for {request.max_records:,} records at most")
        self.trigger_run_id = f"next_batch__{self.batch_id}"
        self.conf = context["dag_run"].conf or None  # a run that ends at a time goes on to that time, batch by batch
        super().execute(context)


class FeedErrorOperator(BaseOperator):
    """The only task of a broken feed's DAG: it fails with what is wrong with the file."""

    def __init__(self, *, message: str, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        super().__init__(**kwargs)
        self.message = message

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Fail, without retries."""
        raise AirflowFailException(self.message)


def asset_of(plan: BatchPlan, feed: Feed) -> Asset:
    """Return the output as Airflow knows it: the feed's, or that of its copies."""
    uri = plan.output_path.as_uri()
    return Asset(uri) if plan.kind is BatchKind.COPY else Asset(name=f"kafka_ingest/{feed.name}", uri=uri)


def announcement(committed: Committed) -> dict[str, Any]:
    """Return what the Asset event carries."""
    return {
        "batch_id": str(committed.batch.batch_id),
        "feed": committed.batch.plan.feed_name,
        "kind": committed.batch.plan.kind.value,
        "rows": sum(count.rows for count in committed.counts),
        "ranges": [
            {
                "topic": count.offset_range.topic,
                "partition": count.offset_range.partition,
                "start_offset": count.offset_range.start_offset,
                "end_offset": count.offset_range.end_offset,
                "rows": count.rows,
            }
            for count in committed.counts
        ],
    }
