"""The first task of a backfill. Its chunks are written and committed by the same tasks as a feed's batches."""

from airflow.sdk import BaseOperator, Context

from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of_run, run_of
from kafka_ingest.airflow_tasks.metrics import step_duration
from kafka_ingest.backfilling.decide import BackfillDecision
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offset_sets import span_of
from kafka_ingest.model.offsets import listing
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
        for text in decision.letters_left_out:
            self.log.warning("left out, %s", text)
        for gap in decision.gaps:
            self.log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
