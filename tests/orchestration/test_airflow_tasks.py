"""What errors and signals mean to Airflow, without a run."""

import faulthandler
import os
import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from kafka_ingest import write_step
from kafka_ingest.airflow_tasks import feed_tasks
from kafka_ingest.airflow_tasks.dags.maintenance_dag import MaintenanceOperator
from kafka_ingest.airflow_tasks.feed_tasks import FeedErrorOperator, WriteOperator, spark_failed
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, id_of_batch, leave_out_traceback
from kafka_ingest.errors import (
    InvalidFeedError,
    KafkaUnavailableError,
    OffsetsLostError,
    UnknownBatchError,
)
from kafka_ingest.model.batch import Attempt, AttemptState
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, read_feed_file
from kafka_ingest.spark_launch.spark_submission import SparkMaster, SparkSubmission
from kafka_ingest.write_step import Opened

FEED = Feed.model_validate(
    {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "/data/orders"}}
)


def test_what_may_succeed_later_is_left_to_airflows_retries() -> None:
    with pytest.raises(KafkaUnavailableError), errors_for_airflow():
        raise KafkaUnavailableError("the broker is down")


def test_what_an_operator_has_to_decide_fails_at_once_under_its_stable_name() -> None:
    with pytest.raises(AirflowFailException, match="OFFSETS_LOST: 40 records are gone"), errors_for_airflow():
        raise OffsetsLostError("40 records are gone")


def test_a_fault_of_a_native_library_ends_the_task_s_process_though_airflow_has_a_handler_for_it() -> None:
    if not (child := os.fork()):
        faulthandler.disable()
        signal.signal(signal.SIGSEGV, lambda *_: None)  # as PythonDagImporter does before it imports a DAG file
        with errors_for_airflow():
            os.kill(os.getpid(), signal.SIGSEGV)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


@pytest.mark.parametrize(
    ("error", "logged"),
    [
        (OffsetsLostError("40 records are gone"), {"event": "Failed: OFFSETS_LOST: 40 records are gone"}),
        (KafkaUnavailableError("the broker is down"), {"event": "Failed: KAFKA_UNAVAILABLE: the broker is down"}),
        (KeyError("a fault"), {"event": "Failed", "exc_info": True}),
    ],
)
def test_a_named_error_is_logged_as_one_message_and_any_other_with_its_traceback(
    error: Exception, logged: dict[str, object]
) -> None:
    found: dict[str, object] = {}

    class TaskRunner:
        """Looks at the exception while it is handled, as Airflow's does."""

        def __enter__(self) -> None: ...

        def __exit__(self, *_: object) -> None:
            found.update(leave_out_traceback(None, "error", {"event": "Failed", "exc_info": True}))

    with pytest.raises((AirflowFailException, type(error))), TaskRunner(), errors_for_airflow():
        raise error

    assert found == logged


def test_a_failure_of_spark_is_reported_by_its_cause_and_not_by_the_command() -> None:
    said = "\n".join(["Caused by: java.io.IOException: No space left on device", "\tat org.apache.Foo", *["INFO"] * 20])
    error = AirflowException(
        f"Cannot execute: spark-submit --conf a=b. Error code is: 1.\nLast spark-submit output:\n{said}"
    )
    message = str(spark_failed(error))
    assert message.startswith("Spark ended with exit code 1; nothing it wrote is visible")
    assert "No space left on device" in message
    assert "--conf" not in message
    assert "\tat " not in message


def test_a_write_task_that_is_killed_before_spark_starts_makes_no_hook_that_would_start_one() -> None:
    task = WriteOperator(task_id="write", feed=FEED, batch_id="{{ none }}")

    task.on_kill()

    assert task.killed
    assert task._hook is None


class Writing:
    """The write step of a feed whose first attempts end over schema ids that the registry has to be asked for."""

    feed, master = FEED, SparkMaster("spark_default", "local[*]")

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.done: list[str] = []
        self.control = self.schemas = Mock()
        self.kafka = self.sinks = self.column_rules = None

    def batch(self, batch_id: UUID) -> Any:
        return SimpleNamespace(plan=SimpleNamespace(batch_id=batch_id, max_rows=1))

    def open_attempt(self, batch_id: UUID, *_: object, actor: str, **__: object) -> Attempt:
        number = 1 + sum(each.startswith("opened") for each in self.done)
        self.done.append(f"opened {number}")
        return Attempt(batch_id, number, AttemptState.OPEN, Path("/data"), "sha256", datetime.now(UTC), actor)

    def submission(self, opened: Sequence[Opened]) -> SparkSubmission:
        [number] = [str(each.attempt.attempt) for each in opened]
        return SparkSubmission(
            *("local[*]", None, "spark-submit", None, "orders", "job.py", (number,)),
            *({}, None, "connector.jar", {}, Path("/tmp/kafka-ingest-that-is-none")),
        )

    def needs_schemas(self, _parts: object, attempt: Attempt, _plan: object) -> bool:
        return attempt.attempt <= self.rounds

    def pin_attempt(self, _batch_id: UUID, number: int, *_: object) -> None:
        self.done.append(f"pinned {number}")


def write_with(parts: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a write task whose Spark fails as long as schema ids are found."""
    task = WriteOperator(task_id="write", feed=FEED, batch_id=str(UUID(int=1)))

    def run_spark(started: SparkSubmitOperator, _context: Context) -> None:
        assert started._hook is None
        started._hook = object()
        parts.done.append(f"started {started.application_args}")
        if int((started.application_args or [])[0]) <= parts.rounds:
            raise AirflowException("Cannot execute: spark-submit. Error code is: 1.")

    monkeypatch.setattr(feed_tasks, "parts_of_run", lambda *_: parts)
    monkeypatch.setattr(feed_tasks, "run_of", lambda _: "airflow")
    monkeypatch.setattr(write_step, "submission", parts.submission)
    for step in ("open_attempt", "needs_schemas", "pin_attempt"):
        monkeypatch.setattr(write_step, step, getattr(parts, step))
    monkeypatch.setattr(SparkSubmitOperator, "execute", run_spark)
    task.execute({})


def test_a_write_task_whose_spark_finds_schema_ids_starts_it_once_more_with_their_schemas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_with(parts := Writing(1), monkeypatch)

    assert parts.done == ["opened 1", "started ['1']", "opened 2", "started ['2']", "pinned 2"]


@pytest.mark.parametrize("text", ["None", "", "orders"])
def test_a_plan_that_was_marked_as_success_by_hand_is_named_as_the_reason(text: str) -> None:
    with pytest.raises(UnknownBatchError, match="Was plan marked as success by hand"):
        id_of_batch(text)


def written(folder: Path, name: str) -> FeedFile:
    """Write a feed file that claims the group ``g``, and return it as a task's start reads it: by itself."""
    path = folder / f"{name}.yaml"
    path.write_text(f"name: {name}\nkafka: {{topics: [t], group: g}}\nsink: {{format: parquet, path: /data/{name}}}\n")
    return read_feed_file(path)


def test_a_group_that_another_file_claims_since_the_task_was_started_is_not_moved(tmp_path: Path) -> None:
    file = written(tmp_path, "orders")
    assert file.feed is not None
    task = MaintenanceOperator(task_id="mirror", step="mirror", feed=file.feed, file=file)
    written(tmp_path, "copy")

    with pytest.raises(AirflowSkipException, match=r"its group is not moved: .*kafka\.group 'g' is also that of"):
        task.execute({})


def test_a_red_task_says_what_a_file_shares_when_it_runs_and_is_skipped_once_it_shares_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, "orders")
    contested = FeedFile(file.path, None, InvalidFeedError("earlier"), contested=file.feed)
    task = FeedErrorOperator(task_id="feed_error", file=contested)
    written(tmp_path, "copy")

    with pytest.raises(AirflowFailException, match=r"kafka\.group 'g' is also that of"):
        task.execute({})
    (tmp_path / "copy.yaml").unlink()
    with pytest.raises(AirflowSkipException, match="shares nothing with other files any more"):
        task.execute({})
