"""Errors: stable names, and one consequence each."""

import inspect
import re

import pytest

from kafka_ingest import errors
from kafka_ingest.errors import (
    BatchStateError,
    InvalidReceiptError,
    KafkaIngestError,
    OperatorDecisionError,
    PlanAgainError,
    RetryableError,
    WrongUseError,
)

GROUPS = (RetryableError, WrongUseError, OperatorDecisionError)
ALL = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, KafkaIngestError) and error is not KafkaIngestError
]
NAMED = [error for error in ALL if error not in GROUPS]


def test_the_names_that_scripts_and_log_searches_rely_on() -> None:
    # Adding one is fine. Renaming one breaks a user's script.
    assert {error("x").code for error in NAMED} >= {
        "BATCH_STATE",
        "CONTROL_SCHEMA",
        "CONTROL_TABLES_UNAVAILABLE",
        "FEED_CHANGED",
        "INSTALLATION",
        "INVALID_CONNECTION",
        "INVALID_FEED",
        "INVALID_RECEIPT",
        "KAFKA_UNAVAILABLE",
        "MISSING_CONNECTION",
        "OFFSETS_LOST",
        "OFFSETS_MISSING",
        "OFFSETS_MOVED",
        "OUTPUT_CONFLICT",
        "OUTPUT_NOT_USABLE",
        "OUTPUT_UNAVAILABLE",
        "OUTPUT_UNKNOWN",
        "SPARK_FAILED",
        "STAGED_OUTPUT_UNUSABLE",
        "START_OUTSIDE_LOG",
        "STORED_OFFSET_BEYOND_LOG",
        "TOPIC_GONE",
        "START_UNDECIDED",
        "TOPIC_RECREATED",
        "UNKNOWN_BATCH",
        "UNKNOWN_FEED",
        "UNKNOWN_TOPIC",
        "UNSAFE_SPARK_MASTER",
        "WRONG_CLUSTER",
    }


def test_no_two_errors_have_one_name() -> None:
    codes = [error("x").code for error in ALL]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("error", ALL)
def test_an_error_is_named_by_its_cause_and_says_in_a_line_what_it_means(error: type[KafkaIngestError]) -> None:
    assert error.__name__.endswith("Error")
    assert re.fullmatch(r"[A-Z][^\n]+\.", error.__doc__ or "")


@pytest.mark.parametrize("error", NAMED)
def test_an_error_has_at_most_one_consequence(error: type[KafkaIngestError]) -> None:
    assert sum(issubclass(error, group) for group in GROUPS) <= 1


@pytest.mark.parametrize(("group", "exit_code"), [(RetryableError, 1), (WrongUseError, 2), (OperatorDecisionError, 3)])
def test_a_scripts_exit_code_says_whether_to_try_again_to_change_a_setting_or_to_ask_an_operator(
    group: type[KafkaIngestError], exit_code: int
) -> None:
    assert {error.exit_code for error in ALL if issubclass(error, group)} == {exit_code}


def test_an_exit_code_of_1_means_that_running_it_again_may_help() -> None:
    # Airflow retries a task on RetryableError alone; after PlanAgainError it is the next run that helps, since it
    # plans.
    helped = (RetryableError, PlanAgainError)
    assert [error.__name__ for error in NAMED if error.exit_code == 1 and not issubclass(error, helped)] == []


def test_a_missing_or_damaged_receipt_is_retried_since_the_next_try_writes_the_batch_again() -> None:
    assert issubclass(InvalidReceiptError, RetryableError)


def test_a_step_that_another_process_took_first_is_not_retried() -> None:
    assert not issubclass(BatchStateError, RetryableError)
    assert BatchStateError.exit_code == 2
