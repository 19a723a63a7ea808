"""What one manual run may ask for: read once, at the edge, and refused with a text that says what was expected."""

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from tests.fakes import FeedInMemory, partition, span
from typer.testing import CliRunner

from kafka_ingest.cli.app import app_of
from kafka_ingest.cli.run_command import FeedRun, complete_all, print_several
from kafka_ingest.errors import EndOutsideLogError, InvalidRunRequestError, KafkaUnavailableError
from kafka_ingest.foundation.tried import tried
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.batch import Batch
from kafka_ingest.planning.settings import ToOffsets, ToTimestamp
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.settings.run_request import RunRequest, why_no_run_follows, without_lineage

END_OF_JANUARY = datetime(2026, 1, 31, tzinfo=UTC)


def refusal(conf: Any) -> str:
    """Return why a request is refused; what it is about comes first."""
    with pytest.raises(InvalidRunRequestError) as found:
        RunRequest.of(conf)
    assert found.value.exit_code == 2
    return str(found.value).removeprefix("the run asks for what it cannot have: ")


# ── What can be asked for ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_that_asks_for_nothing_reads_as_far_as_the_log_goes() -> None:
    request = RunRequest.of({})
    assert (request.max_records, request.end()) == (None, None)


def test_what_openlineage_adds_to_a_run_that_is_triggered_asks_for_nothing() -> None:
    added = {"openlineage": {"parentRunId": "01890000-0000-7000-8000-000000000001", "parentJobName": "daily.ingest"}}
    assert RunRequest.of(added) == RunRequest()
    assert BackfillForm.of({"feed": "orders", "open_gaps": True} | added).open_gaps
    assert without_lineage({"max_records": 10} | added) == {"max_records": 10}


def test_options_that_were_not_given_ask_for_nothing() -> None:
    for ends in ({}, None):  # of the command line, and of a form's empty field
        request = RunRequest.of({"max_records": None, "end_timestamp": None, "end_offsets": ends})
        assert (request.max_records, request.end()) == (None, None)


@pytest.mark.parametrize("text", ["2026-01-31T00:00:00Z", "2026-01-31T00:00:00+00:00", "2026-01-31T02:00:00+02:00"])
def test_a_run_may_end_at_a_time_in_any_zone(text: str) -> None:
    assert RunRequest.of({"end_timestamp": text}).end() == ToTimestamp(END_OF_JANUARY)


def test_milliseconds_of_a_time_are_kept() -> None:
    end = RunRequest.of({"end_timestamp": "2026-01-31T00:00:00.007Z"}).end()
    assert end == ToTimestamp(END_OF_JANUARY + timedelta(milliseconds=7))


def test_a_run_may_end_at_offsets_whose_partitions_json_writes_as_texts() -> None:
    request = RunRequest.of({"end_offsets": {"orders": {"0": 1200, "11": 0}, "refunds": {"0": 5}}})
    assert request.end() == ToOffsets({partition(0): 1200, partition(11): 0, partition(0, "refunds"): 5})


def test_a_limit_goes_with_either_end() -> None:
    request = RunRequest.of({"max_records": 1000, "end_timestamp": "2026-01-31T00:00:00Z"})
    assert (request.max_records, request.end()) == (1000, ToTimestamp(END_OF_JANUARY))
    request = RunRequest.of({"max_records": 1, "end_offsets": {"orders": {"0": 1}}})
    assert (request.max_records, request.end()) == (1, ToOffsets({partition(0): 1}))


def test_a_request_never_changes_after_it_was_read() -> None:
    request = RunRequest.of({"max_records": 5})
    with pytest.raises(ValidationError, match="frozen"):
        request.max_records = 6


# ── What it comes to ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_partitions_that_are_named_are_read_up_to_there(feed: FeedInMemory) -> None:
    batch = feed.plan(end=RunRequest.of({"end_offsets": {"orders": {"0": 30}}}).end()).batch
    assert batch is not None
    assert batch.ranges == (span(0, 0, 30),)


def test_a_run_that_asks_for_more_than_there_is_is_refused_and_plans_nothing(feed: FeedInMemory) -> None:
    with pytest.raises(EndOutsideLogError, match="orders-0: asked to end at 101"):
        feed.plan(end=RunRequest.of({"end_offsets": {"orders": {"0": 101}}}).end())
    assert feed.stored_offsets() == {}


def test_a_run_ends_before_the_first_record_of_the_time_it_asks_for(feed: FeedInMemory) -> None:
    feed.kafka.times[partition(0)] = {40: END_OF_JANUARY, 60: END_OF_JANUARY + timedelta(days=1)}
    batch = feed.plan(end=RunRequest.of({"end_timestamp": "2026-01-31T00:00:00Z"}).end()).batch
    assert batch is not None
    assert batch.ranges == (span(0, 0, 40), span(1, 0, 50))


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_key_is_refused_by_name() -> None:
    assert refusal({"max_record": 5}) == "max_record: unknown key; did you mean max_records?"


def test_all_that_is_wrong_is_said_at_once() -> None:
    message = refusal({"max_records": 0, "end_timestamp": "2026-01-31T00:00:00", "until": "now"})
    assert [text.partition(":")[0] for text in message.split("; ")] == ["max_records", "end_timestamp", "until"]


def test_a_time_and_offsets_at_once_are_refused() -> None:
    both = {"end_timestamp": "2026-01-31T00:00:00Z", "end_offsets": {"orders": {"0": 1}}}
    assert refusal(both) == "expected end_timestamp or end_offsets, found both"


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1000", True])
def test_a_limit_is_a_number_of_records_from_1_on(limit: object) -> None:
    assert refusal({"max_records": limit}).startswith("max_records: ")


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T00:00:00"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    assert (
        refusal({"end_timestamp": text})
        == f"end_timestamp: expected a time with a zone, such as 2026-01-31T00:00:00Z, found {text!r}"
    )


@pytest.mark.parametrize("number", [1_767_225_600, 1_767_225_600_000, 0, 1.5, True])
def test_a_time_as_a_number_is_refused_because_its_unit_is_unknown(number: float) -> None:
    message = refusal({"end_timestamp": number})
    assert message == f"end_timestamp: expected a time with a zone, such as 2026-01-31T00:00:00Z, found {number!r}"


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00+01:00"])
def test_a_time_before_kafkas_first_is_refused(text: str) -> None:
    assert refusal({"end_timestamp": text}).startswith("end_timestamp: expected a time after 1970, found ")


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30T00:00:00Z", ""])
def test_what_is_no_time_is_refused_with_what_was_found(text: str) -> None:
    message = refusal({"end_timestamp": text})
    assert message.startswith("end_timestamp: ")
    assert message.endswith(f"found {text!r}")


@pytest.mark.parametrize("offset", [-1, -2, "1200", 12.0, True, None])
def test_an_end_is_a_plain_offset_and_never_a_sentinel(offset: object) -> None:
    assert refusal({"end_offsets": {"orders": {"0": offset}}}).startswith("end_offsets.orders.0: ")


@pytest.mark.parametrize("number", ["-1", "first", "", "0.5"])
def test_a_partition_is_a_number_from_0_on(number: str) -> None:
    assert refusal({"end_offsets": {"orders": {number: 5}}}).startswith(f"end_offsets.orders.{number}")


@pytest.mark.parametrize("name", ["", "  "])
def test_a_topic_has_a_name(name: str) -> None:
    assert f"expected a name, found {name!r}" in refusal({"end_offsets": {name: {"0": 5}}})


@pytest.mark.parametrize("ends", [[], "orders:0=5", {"orders": 5}, {"orders": [5]}])
def test_ends_are_by_topic_and_partition(ends: object) -> None:
    assert refusal({"end_offsets": ends}).startswith("end_offsets")


@pytest.mark.parametrize("conf", [[], "max_records=5", None, 5])
def test_a_conf_that_is_no_object_is_refused(conf: object) -> None:
    assert f"found {'null' if conf is None else repr(conf)}" in refusal(conf)


@pytest.mark.parametrize("text", ["1767225600", "1767225600000", "1.5"])
def test_a_number_in_quotes_is_no_time_either(text: str) -> None:
    assert refusal({"end_timestamp": text}).startswith("end_timestamp: expected a time with a zone")


@pytest.mark.parametrize("other", ["00", "0.0"])
def test_a_partition_that_is_named_twice_is_refused(other: str) -> None:
    refusal({"end_offsets": {"orders": {"0": 5, other: 7}}})


def test_a_topic_without_a_partition_is_refused_because_nothing_would_be_read() -> None:
    refusal({"end_offsets": {"orders": {}}})


# ── Whether the DAG is run again at once ──────────────────────────────────────────────────────────────────────────────

THIS_RUN = "airflow:orders/scheduled__2026-01-02"
YESTERDAYS_RUN = "airflow:orders/scheduled__2026-01-01"


def committed(feed: FeedInMemory, *, by: str, max_records: int | None = None) -> Batch:
    """Return a committed batch that a run planned."""
    feed.settings = replace(feed.settings, max_records=max_records)
    planned = feed.planned(by)
    feed.write(planned.batch_id)
    return feed.commit(planned.batch_id).batch


def test_no_run_follows_a_batch_that_reached_the_end_in_its_own_run(feed: FeedInMemory) -> None:
    assert "reached the end" in (why_no_run_follows(committed(feed, by=THIS_RUN), RunRequest(), THIS_RUN) or "")


def test_a_run_follows_a_batch_that_a_limit_cut(feed: FeedInMemory) -> None:
    assert why_no_run_follows(committed(feed, by=THIS_RUN, max_records=4), RunRequest(), THIS_RUN) is None


@pytest.mark.parametrize("planned_by", [YESTERDAYS_RUN, "cli:ana@host"])
@pytest.mark.parametrize("request_of_run", [RunRequest(), RunRequest(max_records=5)])
def test_a_run_follows_a_batch_that_was_open_from_before_also_where_no_limit_cut_it(
    feed: FeedInMemory, planned_by: str, request_of_run: RunRequest
) -> None:
    assert why_no_run_follows(committed(feed, by=planned_by), request_of_run, THIS_RUN) is None


def test_no_run_follows_a_batch_of_as_many_records_as_its_run_asked_for(feed: FeedInMemory) -> None:
    batch = committed(feed, by=THIS_RUN, max_records=4)
    assert "4 records at most" in (why_no_run_follows(batch, RunRequest(max_records=4), THIS_RUN) or "")


def test_no_run_follows_a_batch_that_was_not_committed(feed: FeedInMemory) -> None:
    batch = feed.control.batch(feed.planned(YESTERDAYS_RUN).batch_id)
    assert "is PLANNED" in (why_no_run_follows(batch, RunRequest(), THIS_RUN) or "")


# ── Complete hours ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_until_it_has_caught_up_looks_for_complete_hours_after_each_batch_and_after_the_last_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    answers = ["", "", "nothing new"]

    def next_batch(runs: Sequence[FeedRun], _: object) -> None:
        steps.append("batch")
        [run] = runs
        run.hint, run.nothing = "there may be more", answers.pop(0)

    parts = SimpleNamespace(feed=SimpleNamespace(complete=object()), complete=lambda **_: steps.append("complete"))
    monkeypatch.setattr("kafka_ingest.cli.run_command.feed_parts", lambda _: parts)
    monkeypatch.setattr("kafka_ingest.cli.run_command.run_round", next_batch)

    found = CliRunner().invoke(app_of(), ["run", "orders", "--until-caught-up", "--json"])

    assert found.exit_code == 0, found.output
    assert steps == ["batch", "complete"] * 3


def test_of_several_feeds_each_says_what_its_hours_wait_for_and_one_that_fails_leaves_the_others_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(**_: object) -> None:
        raise KafkaUnavailableError("no answer")

    def breaks(**_: object) -> None:
        raise ValueError("never seen before")

    waiting = SimpleNamespace(began_at=datetime(2026, 11, 27, 1, tzinfo=UTC), waits_for=["orders:0"])
    does = {"away": fails, "broken": breaks, "good": lambda **_: waiting}
    feed = SimpleNamespace(complete=object())
    runs = [FeedRun(name, parts=SimpleNamespace(feed=feed, complete=do)) for name, do in does.items()]  # type: ignore[arg-type]

    complete_all(runs, several=True)

    lines = capsys.readouterr().err.splitlines()[1:]
    assert lines == [
        "  away: KAFKA_UNAVAILABLE no answer",
        "  good: waiting for 2026-11-27 01:00 UTC: orders:0",
    ]
    assert [each.failure for each in runs if each.error is not None] == [
        "broken: UNEXPECTED ValueError: never seen before"
    ]


# ── Several feeds ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_feeds_of_an_empty_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(tmp_path))
    found = CliRunner().invoke(app_of(), ["run", "--all", "--json"])
    assert found.exit_code == 2
    assert f"found no feed file in {tmp_path}" in found.output


def test_each_of_several_has_a_line_and_the_first_and_the_last_name_all_that_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def breaks(_: object) -> None:
        raise ValueError("one\ntwo")

    unexpected = tried(breaks, None).error
    failed = [FeedRun(f"feed{number}", error=KafkaUnavailableError("no answer")) for number in range(6)]
    runs = [*failed, FeedRun("odd", error=unexpected, done=[{"rows": 12}]), FeedRun("good", done=[{"rows": 3}])]

    print_several(runs, as_json=False)

    said = capsys.readouterr()
    first, *lines, last = said.out.splitlines()
    names = ", ".join(f"feed{number}: KAFKA_UNAVAILABLE no answer" for number in range(6))
    assert first == last == f"7 of 8 feeds failed: {names}, odd: UNEXPECTED ValueError: one"
    assert lines[-2:] == [
        "  odd: UNEXPECTED ValueError: one; before that it committed 12 rows",
        "  good: committed 3 rows",
    ]
    assert len(lines) == 8
    assert 'raise ValueError("one\\ntwo")' in said.err


# ── What several at a time share ──────────────────────────────────────────────────────────────────────────────────────


def test_the_garbage_collector_runs_again_after_the_last_of_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "disable", lambda: states.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: states.append("on"))
    monkeypatch.setattr(gc, "isenabled", lambda: states[-1] == "on")
    states = ["on"]
    first, second = without_garbage_collection(), without_garbage_collection()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert states[-1] == "off"
    second.__exit__(None, None, None)
    assert states[-1] == "on"


def test_what_failed_is_not_held_by_its_own_error() -> None:
    class Parts:
        pass

    def fail(_: object) -> None:
        raise ValueError

    parts = Parts()
    gone = weakref.ref(parts)
    gc.disable()
    try:
        tried(fail, parts)
        del parts
        assert gone() is None
    finally:
        gc.enable()
