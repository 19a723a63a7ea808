"""The world of a random history.

One feed with real control tables and a real output, on a fake cluster with a fake Spark.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal
from uuid import UUID

from sqlalchemy import URL, Engine, update
from tests.fakes import GROUP, Watched, feed_settings
from tests.histories import spark_stand_in
from tests.histories.interruptions import Interrupter, Killed
from tests.histories.recorded import Recorded, recorded_in
from tests.histories.topics import Topics
from tests.kept_engines import open_kept
from tests.outputs import parquet_at

from kafka_ingest.batches.backfill_request import BackfillRequest, OnMissing, OpenGaps
from kafka_ingest.batches.commit_batch import commit_batch
from kafka_ingest.batches.known_feed import receipt_of_folded, whole_plan
from kafka_ingest.batches.mirror_group import mirror_group
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.plan_backfill import BackfillOutcome, plan_backfill
from kafka_ingest.batches.plan_batch import PlanOutcome, plan_batch
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, transaction
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.decoding import RAW
from kafka_ingest.model.folded import FoldCut
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.planning.settings import Earliest, OnDataLoss
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.clean import clean_up, staged_outputs
from kafka_ingest.verbs.database import fold
from kafka_ingest.verbs.reset import decide_reset, reset
from kafka_ingest.verbs.reset_target import ResetTarget
from kafka_ingest.verbs.skip import decide_skip, skip
from kafka_ingest.verbs.topic_changes import Choice, accept_batch, apply_choice, changes_of, rows_after

FEED = "orders"
TOPICS = ("orders", "refunds")
OPERATOR = "operator"

Spark = Literal["finishes", "outlives its task", "dies with its task"]


class World:
    """The feed, its parts, and what its tasks and its operator do. Crashes leave the parts as they are."""

    def __init__(self, directory: Path, template: Path, *, partitions: int, max_records: int | None) -> None:
        self.directory = directory
        self._template = template
        self._numbers = 0
        self.topics = Topics(*TOPICS, partitions=partitions)
        rules = dict.fromkeys(TOPICS, Earliest())
        self.settings = feed_settings(
            name=FEED,
            start_rules=rules,
            output=parquet_at(directory / "output"),
            max_records=max_records,
        )
        self.decoding = RAW
        self.interrupter = Interrupter(self._incident)
        self.kafka: Watched = self.interrupter.watch(self.topics.cluster)
        self.spark_jobs: list[spark_stand_in.SparkJob] = []
        self.finished: dict[Path, spark_stand_in.SparkJob] = {}
        self.was_damaged = False
        self.is_restored = False
        self.cuts: dict[TopicPartition, int] = {}
        self.recorded: dict[UUID, Recorded] = {}
        self.backup: Path | None = None
        self.copy_output = parquet_at(directory / "copy-0")
        self._engines: dict[SqlControlTables, Engine] = {}
        self.continue_with(self.tables_in(template))

    # ── Its parts ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def tables_in(self, copied: Path) -> SqlControlTables:
        """Return control tables in a copy of this file."""
        file = self.directory / f"control-{len(self._engines)}.db"
        shutil.copy(copied, file)
        engine = open_kept(ControlDatabaseSettings(URL.create("sqlite", database=str(file))))
        tables = SqlControlTables(engine)
        self._engines[tables] = engine
        return tables

    def empty_tables(self) -> SqlControlTables:
        """Return control tables that know nothing."""
        return self.tables_in(self._template)

    def continue_with(self, tables: SqlControlTables) -> None:
        """Throw the control tables away and use these; what receipts recorded that nobody ever saw is forgotten."""
        self.tables = tables
        self.control: Watched = self.interrupter.watch(tables, self._tables_answered)
        published = set(self.sink.publisher.known_batches())
        self.recorded = {batch_id: each for batch_id, each in self.recorded.items() if str(batch_id) in published}
        # Which copies were made only the lost tables knew: others go elsewhere.
        self.copy_output = parquet_at(self.directory / f"copy-{len(self._engines)}")

    def back_up(self) -> None:
        """Keep a copy of the control tables."""
        self.backup = self.directory / "backup.db"
        self.backup.unlink(missing_ok=True)
        with (
            contextlib.closing(self._engines[self.tables].raw_connection()) as source,
            contextlib.closing(sqlite3.connect(self.backup)) as copy,
        ):
            source.driver_connection.backup(copy)

    def move_by_hand(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """Write a stored offset past all locks and checks, as an operator with a database client can."""
        table = schema.stored_offset
        of_partition = (table.c.topic == topic_partition.topic, table.c.partition == topic_partition.partition)
        with transaction(self._engines[self.tables], "write") as connection:
            connection.execute(update(table).where(*of_partition).values(next_offset=next_offset))

    def close(self) -> None:
        """Let go of the databases."""
        for engine in self._engines.values():
            engine.dispose()

    def sinks(self, target: OutputLocation) -> Watched:
        """Return the sink of a feed or plan."""
        return self.interrupter.watch(parquet_sink(target.path))

    @property
    def sink(self) -> Sink:
        """The output."""
        return parquet_sink(self.settings.output.path)

    @property
    def letters(self) -> Sink:
        """The output of dead letters."""
        return parquet_sink(output_of_dead_letters(self.settings.output).path)

    def feed(self) -> FeedSnapshot | None:
        """Return the feed as it is stored."""
        return self.tables.feed(FEED)

    # ── The DAG ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self) -> PlanOutcome:
        """Run the plan task."""
        return plan_batch(self.settings, self, actor="run")

    def write(self, batch_id: UUID, spark: Spark = "finishes") -> None:
        """Run the write task; where Spark outlives it, it may finish at any time later."""
        attempt: Attempt | None = open_attempt(batch_id, self, actor="run", decoding=self.decoding)
        if attempt is None:
            return
        job = spark_stand_in.start(attempt, self.topics)
        if spark == "finishes":
            self.finish(job)
            pin_attempt(batch_id, attempt.attempt, self)
        else:
            if spark == "outlives its task":
                self.spark_jobs.append(job)
            raise Killed

    def finish(self, job: spark_stand_in.SparkJob) -> None:
        """Let Spark write."""
        job.finish()
        self.finished[job.attempt.directory] = job

    def commit(self, batch_id: UUID) -> None:
        """Run the commit task."""
        commit_batch(batch_id, self, group=GROUP, actor="run")

    def run(self, spark: Spark = "finishes", *, last_task: str = "commit") -> PlanOutcome:
        """Run the DAG, or the first of its tasks."""
        outcome = self.plan()
        if outcome.batch is not None and last_task != "plan":
            self.write(outcome.batch.batch_id, spark)
            if last_task == "commit":
                self.commit(outcome.batch.batch_id)
        return outcome

    # ── Backfills ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def plan_backfill(self, request: BackfillRequest, *, actor: str, once: bool = False) -> BackfillOutcome:
        """Plan a backfill."""
        return plan_backfill(request, self.settings, self, actor=actor, once=once)

    def work_on(self, batch_id: UUID, spark: Spark = "finishes", *, last_task: str = "commit") -> None:
        """Write and commit one chunk, or only write it."""
        self.write(batch_id, spark)
        if last_task == "commit":
            self.commit(batch_id)

    def fill_gaps(self) -> BackfillOutcome:
        """Backfill all open gaps, as far as Kafka still holds them."""
        request = BackfillRequest(OpenGaps(), {}, on_missing=OnMissing.RECORD_GAP)
        outcome = self.plan_backfill(request, actor="backfill of the gaps")
        for chunk in outcome.chunks:
            self.work_on(chunk.batch_id)
        return outcome

    def open_backfills(self) -> list[Batch]:
        """Return the chunks of backfills and copies that are open."""
        feed = self.feed()
        return self.tables.open_backfills(feed.feed_id) if feed is not None else []

    # ── The operator ──────────────────────────────────────────────────────────────────────────────────────────────────

    def mirror(self) -> None:
        """Bring the group to the stored offsets, as commands do that moved them."""
        if (feed := self.tables.feed(FEED)) is not None:
            mirror_group(feed.feed_id, GROUP, self, batch_id=None, actor=OPERATOR)

    def skip(self, offset_range: OffsetRange) -> None:
        """Skip an interval."""
        skip(decide_skip(FEED, offset_range, "poisoned", self.control, self.kafka), self.control, actor=OPERATOR)
        self.mirror()

    def abandon(self) -> None:
        """Give the open batch up."""
        feed = self.tables.feed(FEED)
        if feed is not None and feed.open_batch is not None:
            self.abandon_batch(feed.open_batch.batch_id)

    def abandon_batch(self, batch_id: UUID) -> None:
        """Give a batch up."""
        abandon(batch_id, self.control, self.sinks, reason="not wanted", actor=OPERATOR)

    def reset(self, target: ResetTarget, *topic_partitions: TopicPartition) -> None:
        """Reset partitions, or all of them where none is named."""
        named = {tp.topic: [tp.partition] for tp in topic_partitions}
        decision = decide_reset(target, named, self.settings, self.control, self.kafka, reason="again")
        if decision.moves:
            reset(decision, self.control, reason="again", actor=OPERATOR)
        self.mirror()

    def clean(self) -> None:
        """Remove the staged output of all that ended."""
        if (feed := self.tables.feed(FEED)) is None:
            return
        later = datetime.now(UTC) + timedelta(days=1)
        found = staged_outputs(feed, self.settings.output, self.control, self.kafka, self.sinks, ended_before=later)
        assert not [staged for staged in clean_up(found, self.control, self.sinks) if staged.failed]

    def whole_plan(self, batch_id: UUID) -> BatchPlan:
        """Return a batch's plan with its ranges, also where the control tables have them no more."""
        return whole_plan(self.tables.batch(batch_id).plan, sink_of)

    def counts(self, batch_id: UUID) -> list[RangeCount]:
        """Return what a batch's receipt says of each range."""
        plan = self.tables.batch(batch_id).plan
        if plan.folded is None:
            return self.tables.range_counts(batch_id)
        published = receipt_of_folded(batch_id, plan.folded, plan.output, sink_of)
        return published.receipt.range_counts(published.plan)

    def fold(self, newest_stay: int) -> None:
        """Fold all old batches but the newest, two at a time; staged output is removed before."""
        feed = self.tables.feed(FEED)
        if feed is not None:
            cut = FoldCut(datetime.now(UTC) + timedelta(days=1), newest_stay=newest_stay, batches_at_once=2)
            for _ in fold(feed.feed_id, cut, self.control, actor=OPERATOR):
                pass

    def decide_topic(self, name: str, choice: Choice) -> None:
        """Decide on a topic that changed.

        What an open batch read cleanly from it counts, otherwise the batch is abandoned.
        """
        changes = changes_of(FEED, [name], self.settings, self.control, self.kafka)
        batch = changes.affected
        if batch is not None and batch.state is BatchState.PLANNED and choice is not Choice.REWIND:
            written = [job for job in self.finished.values() if job.plan.batch_id == batch.batch_id]
            usable = [job for job in written if job.is_clean and job.attempt.directory.is_dir()]
            if usable and not self.was_damaged and all(job.is_clean for job in written):
                accept_batch(changes, self.control, self.sinks, reason="read before", actor=OPERATOR)
                return
        after = rows_after(changes, choice, self.settings)
        apply_choice(changes, after, self.control, discard_batch=True, reason="it changed", actor=OPERATOR)
        for topic_partition in [tp for tp in self.cuts if tp.topic == name]:
            del self.cuts[topic_partition]
        self.mirror()

    def choice_for(self, name: str) -> Choice:
        """Return what is true of a topic that is not what its offsets were counted in."""
        feed = self.tables.feed(FEED)
        known = next((tp for tp in (feed.stored if feed else {}) if tp.topic == name), None)
        if feed is None or known is None:
            return Choice.START_OVER
        topic_id = feed.stored[known].topic_id
        if topic_id == self.topics[name].topic_id and any(tp.topic == name for tp in self.cuts):
            return Choice.REWIND
        is_same = self.topics.generation_of[str(topic_id)] == self.topics[name].generation
        return Choice.SAME_RECORDS if is_same else Choice.START_OVER

    def accept_losses(self, on_data_loss: OnDataLoss) -> None:
        """Change what the feed file says of losses."""
        self.settings = replace(self.settings, on_data_loss=on_data_loss)

    # ── What is noted on the way ──────────────────────────────────────────────────────────────────────────────────────

    def _tables_answered(self, name: str) -> None:
        """Keep what the next receipt records: all that is known when its commit begins, or a backfill is planned."""
        feed = self.tables.feed(FEED) if name in {"begin_commit", "record_backfill"} else None
        if feed is None:
            return
        recorded = recorded_in(self.tables, feed)
        if name == "record_backfill":
            chunks = self.tables.open_backfills(feed.feed_id)
            kinds = {BatchKind.BACKFILL, BatchKind.REPLAY}
            planned = [chunk.batch_id for chunk in chunks if chunk.plan.kind in kinds]
            self.recorded |= {batch_id: recorded for batch_id in planned if batch_id not in self.recorded}
        elif recorded.committing is not None:
            self.recorded.setdefault(recorded.committing, recorded)

    # ── What may happen in the middle of a step ───────────────────────────────────────────────────────────────────────

    def _incident(self, incident: str) -> None:
        """Let something happen that is not this step's; what comes of it is no answer to this step."""
        if incident == "crash":
            raise Killed
        with contextlib.suppress(Killed, KafkaIngestError):
            self._incidents[incident]()

    @property
    def _incidents(self) -> dict[str, Callable[[], object]]:
        return {
            "another run": self.run,
            "an operator abandons": self.abandon,
            "an operator cleans": self.clean,
            "an operator fills the gaps": self.fill_gaps,
            "Kafka goes down": self.topics.go_down,
        }
