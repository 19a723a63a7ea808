"""Answers that take a while: shown as soon as they are there, asked for once, and no failure lets a page fail."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import ANY

from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.page import kept_answers
from kafka_ingest.page.kept_answers import MOST_KEPT, KeptAnswers

PATIENT_S = 60


def test_an_answer_in_time_is_shown_and_kept_for_all_who_ask() -> None:
    asked: list[int] = []
    kept = KeptAnswers()
    for _ in range(3):
        found = kept.answer("how many", lambda: asked.append(1) or len(asked), wait_s=PATIENT_S)
        assert (found.value, found.error, found.is_pending) == (1, None, False)
    assert kept.answer("another", lambda: 7, wait_s=PATIENT_S).value == 7


def test_who_does_not_wait_gets_nothing_yet_and_the_answer_later_and_many_ask_once() -> None:
    may_answer, asked = threading.Event(), []

    def slow() -> str:
        asked.append(1)
        may_answer.wait(PATIENT_S)
        return "here"

    kept = KeptAnswers()
    with ThreadPoolExecutor(8) as viewers:
        found = list(viewers.map(lambda _: kept.answer("slow", slow, wait_s=0), range(8)))
    assert {(each.value, each.error, each.is_pending) for each in found} == {(None, None, True)}
    may_answer.set()
    assert kept.answer("slow", slow, wait_s=PATIENT_S).value == "here"
    assert len(asked) == 1


def test_an_answer_that_is_old_is_shown_with_its_age_while_it_is_asked_for_again() -> None:
    kept, may_answer = KeptAnswers(fresh_s=0), threading.Event()
    assert kept.answer("lag", lambda: 1, wait_s=PATIENT_S).value == 1

    def again() -> int:
        may_answer.wait(PATIENT_S)
        return 2

    old = kept.answer("lag", again, wait_s=0)
    assert (old.value, old.is_pending) == (1, True)
    assert old.age_s is not None
    may_answer.set()
    assert kept.answer("lag", again, wait_s=PATIENT_S).value == 2


def test_a_failure_is_said_beside_the_last_answer_and_tried_again() -> None:
    kept = KeptAnswers(fresh_s=0)
    kept.answer("lag", lambda: 1, wait_s=PATIENT_S)

    def down() -> int:
        raise KafkaUnavailableError("no answer from kafka:9092")

    failed = kept.answer("lag", down, wait_s=PATIENT_S)
    assert (failed.value, failed.error) == (1, "no answer from kafka:9092")
    well = kept.answer("lag", lambda: 3, wait_s=PATIENT_S)
    assert (well.value, well.error) == (3, None)


def test_an_unexpected_error_is_not_repeated_to_the_viewer() -> None:
    def broken() -> int:
        raise ZeroDivisionError("password=hunter2")

    failed = KeptAnswers().answer("lag", broken, wait_s=PATIENT_S)
    assert failed.error is not None
    assert "hunter2" not in failed.error


def test_what_nobody_asks_for_any_more_is_dropped() -> None:
    kept = KeptAnswers(fresh_s=0, forgotten_s=0)
    for revision in range(20):
        assert kept.answer(("feed", revision), lambda: [0] * 1_000, wait_s=PATIENT_S).value is not None
    assert len(kept._entries) == 1
    assert kept.answer(("feed", 19), lambda: 1, wait_s=PATIENT_S).value == 1


def test_not_every_question_that_was_ever_asked_is_kept() -> None:
    kept = KeptAnswers()
    for number in range(MOST_KEPT + 10):
        kept.answer(number, lambda: 1, wait_s=PATIENT_S)
    assert len(kept._entries) <= MOST_KEPT
    assert kept_answers.MOST_KEPT == MOST_KEPT


def test_what_hangs_is_an_error_after_a_while_and_an_answer_if_it_comes_after_all() -> None:
    kept, may_answer = KeptAnswers(slow_s=-1.0), threading.Event()

    def hanging() -> str:
        may_answer.wait(PATIENT_S)
        return "late"

    found = kept.answer("files", hanging, wait_s=0)
    assert (found.value, found.is_pending) == (None, False)
    assert "it is still being asked" in str(found.error)
    may_answer.set()
    assert kept.answer("files", hanging, wait_s=PATIENT_S) == replace(found, value="late", age_s=ANY, error=None)


def test_a_question_that_ends_its_thread_is_answered_by_an_error() -> None:
    def leaving() -> None:
        raise SystemExit(3)

    found = KeptAnswers().answer("files", leaving, wait_s=PATIENT_S)
    assert (found.error, found.is_pending) == ("an unexpected error; the API server's log says which", False)
