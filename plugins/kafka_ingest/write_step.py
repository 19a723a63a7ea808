"""The write step of a batch with its feed's parts: one loop for tasks and command line, each of which runs Spark."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import UUID

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.explain_failure import check_expressions, explain_failure
from kafka_ingest.batches.fitting_columns import ComparedColumns
from kafka_ingest.batches.freeze_schemas import ROUNDS, names_ids
from kafka_ingest.batches.hold_unreadable import hold_too_large
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.preview import open_preview, preview_plan
from kafka_ingest.errors import InstallationError, SparkFailedError
from kafka_ingest.model.attempt_directory import MAX_WAIT_FOR_EXECUTORS
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.job_settings import JobSettings
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.out_of_memory import may_have_run_out_of_memory, out_of_memory, ran_out_of_memory
from kafka_ingest.spark_launch.package_zip import package_zip
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES
from kafka_ingest.spark_launch.spark_submission import (
    SparkMaster,
    SparkRun,
    SparkSubmission,
    StoreOfAttempt,
    spark_submission,
)
from kafka_ingest.spark_launch.start_failures import machines_fault
from kafka_ingest.spark_launch.workplace import equip, make_workplace, remove_workplace

log = logging.getLogger(__name__)

Submit = Callable[[Attempt], None]
"""Runs Spark on an attempt; raises SparkFailedError, or InstallationError, where it fails."""


def write_batch(
    parts: FeedParts, batch_id: UUID, submit: Submit, *, actor: str, on_failure: Callable[[], object] = lambda: None
) -> None:
    """Write a batch and pin its receipt, unless it is written; once more where Spark found schema ids to ask for.

    Raises the named error behind a failure where one is found, else Spark's own; ``on_failure`` is called before.
    """
    parts.batch(batch_id)
    for tries_left in reversed(range(ROUNDS)):
        attempt = open_attempt(
            batch_id,
            parts,
            actor=actor,
            decoding=parts.feed.decoding(),
            freeze=parts.schemas.frozen,
            rules=parts.column_rules,
        )
        if attempt is None:
            log.info("batch %s is written already: no need for Spark", batch_id)
            return
        try:
            submit(attempt)
        except (SparkFailedError, InstallationError) as error:
            plan = parts.control.batch(batch_id).plan
            if tries_left and needs_schemas(parts, attempt, plan):
                log.info("attempt %d found schema ids that the registry has to be asked for", attempt.attempt)
                continue
            on_failure()
            # The error has the end of Spark's output, its cause may have more.
            explain(parts, attempt, f"{error}\n{error.__cause__ or ''}")
            raise
        pin_attempt(batch_id, attempt.attempt, parts)
        return


def needs_schemas(parts: FeedParts, attempt: Attempt, plan: BatchPlan) -> bool:
    """Whether an attempt ended since it found schema ids that the registry was not asked for: the next one asks."""
    return parts.feed.decoding().has_sources and names_ids(said_by_job(parts, attempt, plan))


def said_by_job(parts: FeedParts, attempt: Attempt, plan: BatchPlan) -> str:
    """Return what the Spark job left as the reason of its failure; nothing where it could not."""
    return parts.sinks(plan.output).staging.read_failure(attempt.directory) or ""


def explain(parts: FeedParts, attempt: Attempt, said: str) -> None:
    """Raise the named error behind a failed Spark run, if one is found; ``said`` is what spark-submit reported."""
    explain_failure(attempt, parts)
    batch = parts.control.batch(attempt.batch_id)
    failure = said_by_job(parts, attempt, batch.plan)
    if fault := machines_fault(failure):
        raise fault
    has_run_out = ran_out_of_memory(said) or ran_out_of_memory(failure)
    if has_run_out or may_have_run_out_of_memory(said):
        hold_too_large(batch, parts.heap, parts.control, parts.kafka)
    if has_run_out:
        raise out_of_memory(batch.plan, parts.master, parts.feed.spark.conf)


def submission(
    parts: FeedParts, plan: BatchPlan, attempt: Attempt, *, master: SparkMaster | None = None
) -> SparkSubmission:
    """Return the spark-submit call of an attempt, with its workplace, which the caller removes.

    ``master``: where another Spark than the feed's runs it.
    """
    settings, master = parts.feed.spark, master or parts.master
    wait = {} if master.is_local else {MAX_WAIT_FOR_EXECUTORS: f"{settings.max_wait_for_executors.total_seconds():.0f}"}
    workplace, access, store = make_workplace(), parts.access(plan.output), None
    try:
        if access is not None:
            names = SPARK_STORES[access.scheme].role
            role = {name: value for name, value in parts.environment.items() if name.startswith(names)}
            store = StoreOfAttempt(access.with_key_in(workplace), role)
        secret = JobSettings(parts.kafka_client.java_settings(), store.access.as_json() if store else None)
        equip(workplace, package_zip(), secret)
        return spark_submission(
            plan,
            attempt,
            spark=SparkRun(master, {**settings.conf, **wait}, parts.feed.decoding()),
            kafka=parts.kafka_client,
            sink_is_shared=parts.feed.sink.shared,
            installed=installation(),
            workplace=workplace,
            store=store,
        )
    except BaseException:
        remove_workplace(workplace)  # it may hold a key
        raise


def plan_preview(parts: FeedParts, directory: Path, records: int) -> BatchPlan | None:
    """Return a batch of a few of the newest records that is never committed; None where the topics hold no record.

    ``directory`` is the caller's, who removes it.
    """
    parts.check_decoders()
    return preview_plan(parts.plan_settings, parts.kafka, directory, records)


def begin_preview(
    parts: FeedParts, plan: BatchPlan, failed: Sequence[Attempt]
) -> tuple[Attempt, SparkSubmission, ComparedColumns]:
    """Return an attempt at such a batch, and how to run Spark on it here; ``failed`` are those before it.

    With how its columns go with those of the feed's output.
    """
    decoding = parts.feed.decoding()
    attempt, compared = open_preview(plan, decoding, parts.sinks, parts.schemas.frozen, failed, parts.compare_columns)
    here = SparkMaster(parts.feed.spark.conn_id, "local[2]")
    return attempt, submission(parts, plan, attempt, master=here), compared


def may_preview_again(parts: FeedParts, plan: BatchPlan, attempt: Attempt) -> bool:
    """Whether a preview's next attempt may succeed; raises InvalidExpressionError where Spark refused an expression."""
    check_expressions(said_by_job(parts, attempt, plan), f"feed {parts.feed.name}")
    return needs_schemas(parts, attempt, plan)
