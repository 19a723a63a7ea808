"""What becomes of runs of the DAG: they end, stop, crash, meet others, and leave Spark behind."""

from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.explanations import check_explained
from tests.histories.interruptions import Interruption
from tests.histories.machine import INTERRUPTIONS, MARKERS, NUMBERS, RECORDS, TROUBLE, History
from tests.histories.to_the_end import answer
from tests.histories.world import Spark

from kafka_ingest.errors import BatchStateError, KafkaIngestError
from kafka_ingest.model.place import DATA, RECEIPT

SPARK = st.sampled_from(["finishes", "finishes", "finishes", "outlives its task", "dies with its task"])


class RunRules(History):
    """Rules of the DAG's tasks and of what they stage."""

    @rule(records=RECORDS, markers=MARKERS)
    def a_quiet_hour(self, records: list[int], markers: int) -> None:
        """Kafka is available, records arrive, the DAG runs, and an operator answers what stops it."""
        self.world.topics.heal()
        self.produce(records, markers)
        with self.step(None, BatchStateError):
            try:
                self.world.run()
            except KafkaIngestError as error:
                check_explained(error, self.world)
                answer(error, self.world)

    @rule(records=RECORDS, markers=MARKERS, spark=SPARK, interruption=TROUBLE)
    def an_hour_of_trouble(self, records: list[int], markers: int, spark: Spark, interruption: Interruption) -> None:
        """Kafka is available, records arrive, and something happens in the middle of a run."""
        self.world.topics.heal()
        self.produce(records, markers)
        with self.step(interruption):
            self.world.run(spark)

    @rule(spark=SPARK, last_task=st.sampled_from(["commit", "write", "plan"]), interruption=INTERRUPTIONS)
    def the_dag_runs(self, spark: Spark, last_task: str, interruption: Interruption | None) -> None:
        with self.step(interruption):
            self.world.run(spark, last_task=last_task)

    @precondition(lambda self: bool(self.world.spark_jobs))
    @rule(number=NUMBERS)
    def spark_finishes_at_last(self, number: int) -> None:
        with self.step():
            self.world.finish(self.world.spark_jobs.pop(number % len(self.world.spark_jobs)))

    @precondition(lambda self: self.known is not None)
    @rule(number=NUMBERS, interruption=INTERRUPTIONS)
    def an_old_commit_task_is_cleared(self, number: int, interruption: Interruption | None) -> None:
        if batches := sorted(self.world.tables.batch_states(self.feed.feed_id)):
            with self.step(interruption, BatchStateError):
                self.world.commit(batches[number % len(batches)])

    @precondition(lambda self: self.staged)
    @rule(number=NUMBERS, damage=st.sampled_from(["shorter", "gone", "no receipt"]))
    def staged_files_are_damaged(self, number: int, damage: str) -> None:
        directory = self.staged[number % len(self.staged)]
        files = sorted((directory / DATA).iterdir()) if (directory / DATA).is_dir() else []
        self.world.was_damaged = True
        if damage == "no receipt" or not files:
            (directory / RECEIPT).unlink(missing_ok=True)
        elif damage == "gone":
            files[number % len(files)].unlink()
        else:
            files[number % len(files)].write_bytes(files[number % len(files)].read_bytes()[:-9])

    @property
    def staged(self) -> list[Path]:
        """The attempts' directories that Spark finished writing and that are there still."""
        return [directory for directory in self.world.finished if directory.is_dir()] if self.world is not None else []
