"""Reads offsets of a feed again, or skipped ones, without moving its stored offsets: plan >> write >> commit by chunk.

Each chunk is a separate batch: a failed one is cleared and run again alone, the others stay.
"""

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, BaseOperator, Context, Param, task_group

from kafka_ingest.airflow_tasks.dag_arguments import (
    MANUAL,
    TRIGGERED,
    are_all,
    files_for_form,
    only_runs,
    params_of,
)
from kafka_ingest.airflow_tasks.feed_tasks import CommitOperator, WriteOperator
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of_run, run_of
from kafka_ingest.airflow_tasks.metrics import step_duration
from kafka_ingest.batches.decide_backfill import BackfillDecision
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import listing, span_of
from kafka_ingest.settings.backfill_form import BackfillForm


class BackfillPlanOperator(BaseOperator):
    """Claims the requested offsets in chunks; its XCom is their batch ids. Without any, the other tasks are skipped."""

    def execute(self, context: Context) -> list[str]:
        """Return the ids of the batches to write and commit; the same ones where this run has planned them before."""
        with errors_for_airflow():
            form = BackfillForm.of(context["params"])
            parts = parts_of_run(None, context)
            # A run that is retried, or cleared, continues with the chunks that it has claimed.
            with step_duration(parts.feed.name, "plan_backfill"):
                outcome = parts.plan_backfill(form.request(parts.feed), actor=run_of(context), once=True)
        if outcome.decision is not None:
            self._log_decision(outcome.decision)
        elif outcome.chunks:
            self.log.info("continuing with chunks that are planned already")
        for chunk in outcome.chunks:
            self.log.info("%s %s: %s", chunk.kind, chunk.batch_id, listing(chunk.ranges, limit=20))
        if not outcome.chunks:
            self.log.info("nothing to read")
        return [str(chunk.batch_id) for chunk in outcome.chunks]

    def _log_decision(self, decision: BackfillDecision) -> None:
        for why, ranges in decision.not_read():
            self.log.warning("left out, %s: %s: %s", why, counted(span_of(ranges), "offset"), listing(ranges, limit=20))
        if decision.replays:
            self.log.info("%s dead letters are replayed", f"{decision.records_at_most:,}")
        for letters in decision.letters_left_out:
            self.log.warning("left out, %s", letters)
        for gap in decision.gaps:
            self.log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)


DAG_ID = "backfill_offsets"
CHUNKS_VARIABLE = "KAFKA_INGEST_BACKFILL_CHUNKS"
"""How many chunks are written at a time, of all runs, 2 unless it is set: each is a Spark application."""

EXECUTION_TIMEOUT = timedelta(hours=12)
"""Of each task, also where the feed sets another limit for its own DAG: a chunk is about as large as a live batch."""


def chunks_at_a_time() -> int:
    text = os.environ.get(CHUNKS_VARIABLE) or "2"
    if not text.isdecimal() or not int(text):
        raise ValueError(f"expected {CHUNKS_VARIABLE} to be a number from 1 on, found {text!r}")
    return int(text)


def feed_param() -> Param:
    """Return the field that names the feed. It has no default, so that no feed is chosen by mistake."""
    files = files_for_form()
    # Those that can be used: the DAG of a broken one shows its error. Without any the form still opens, and the first
    # task says what is missing.
    names = [file.feed.name for file in files if file.feed is not None]
    known: dict[str, Any] = {"enum" if are_all(files) else "examples": names} if names else {}
    return Param(type="string", title="Feed", description_md="The feed whose offsets are read.", **known)


def backfill_dag() -> DAG:
    with DAG(
        dag_id=DAG_ID,
        description="Offset ranges of a feed, read again or later; stored offsets and consumer groups never move",
        doc_md=__doc__,
        schedule=None,
        **only_runs(MANUAL, TRIGGERED),
        params={"feed": feed_param(), **params_of(BackfillForm)},
        tags=["kafka_ingest", "backfill"],
        default_args={
            "retries": 3,
            "retry_delay": timedelta(seconds=30),
            "retry_exponential_backoff": True,
            "max_retry_delay": timedelta(minutes=10),
            "execution_timeout": EXECUTION_TIMEOUT,
        },
    ) as dag:

        @task_group
        def chunk(batch_id: str) -> None:
            # Its ranges and the batch's id; before the task has looked them up, the id alone.
            label = "{{ task.shown_as or task.batch_id }}"
            of_chunk: dict[str, Any] = {"feed": None, "batch_id": batch_id, "map_index_template": label}
            write = WriteOperator(task_id="write", max_active_tis_per_dag=chunks_at_a_time(), **of_chunk)
            commit = CommitOperator(task_id="commit", **of_chunk)
            write >> commit

        plan = BackfillPlanOperator(task_id="plan")
        chunk.expand(batch_id=plan.output)
    return dag
