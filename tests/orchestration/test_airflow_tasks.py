"""What errors and signals mean to Airflow, without a run."""

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_ingest.airflow_tasks.feed_tasks import WriteOperator
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, id_of_batch
from kafka_ingest.errors import KafkaUnavailableError, OffsetsLostError, UnknownBatchError
from kafka_ingest.feed import Feed

FEED = Feed.model_validate(
    {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "/data/orders"}}
)


def test_what_may_succeed_later_is_left_to_airflows_retries() -> None:
    with pytest.raises(KafkaUnavailableError), errors_for_airflow():
        raise KafkaUnavailableError("the broker is down")


def test_what_an_operator_has_to_decide_fails_at_once_under_its_stable_name() -> None:
    with pytest.raises(AirflowFailException, match="OFFSETS_LOST: 40 records are gone"), errors_for_airflow():
        raise OffsetsLostError("40 records are gone")


def test_a_write_task_that_is_killed_before_spark_starts_makes_no_hook_that_would_start_one() -> None:
    task = WriteOperator(task_id="write", feed=FEED, batch_id="{{ none }}")

    task.on_kill()

    assert task.killed
    assert task._hook is None


@pytest.mark.parametrize("text", ["None", "", "orders"])
def test_a_plan_that_was_marked_as_success_by_hand_is_named_as_the_reason(text: str) -> None:
    with pytest.raises(UnknownBatchError, match="Was plan marked as success by hand"):
        id_of_batch(text)
