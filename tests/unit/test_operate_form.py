"""The form of ``operate_feed``: what each action takes, and what it refuses."""

import pytest

from kafka_ingest.errors import InvalidOperationError, InvalidRangeError, WrongUseError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.verbs.operate_form import FIELDS, VERBS, OperateForm
from kafka_ingest.verbs.reset import Reset
from kafka_ingest.verbs.reset_target import named_partitions, reset_target
from kafka_ingest.verbs.skip import Skip


def refusal(**form: object) -> str:
    with pytest.raises(InvalidOperationError) as found:
        OperateForm.of(form)
    return str(found.value)


def test_a_form_that_was_left_empty_is_a_dry_run() -> None:
    empty = {"feed": "", "reason": " ", "to": "", "topics": None, "choice": "", "batch_id": ""}
    form = OperateForm.of({"action": "reset", **empty})
    of_all, request = form.of_all, form.request
    assert (of_all.dry_run, form.decides, of_all.feed, of_all.reason) == (True, False, None, None)
    assert request == Reset()
    # Airflow hands a run every field, and null where nothing was entered, or false where nothing was ticked.
    fields = dict.fromkeys(frozenset().union(*FIELDS.values())) | {"lost_output": False, "create": False}
    assert OperateForm.of(fields | {"action": "reset", "keep_group": False}) == form


def test_what_openlineage_adds_to_a_run_is_no_field() -> None:
    # TriggerDagRunOperator adds it where the provider is installed.
    form = OperateForm.of({"action": "plan", "feed": "orders", "openlineage": {"parentRunId": "1"}})
    assert form == OperateForm.of({"action": "plan", "feed": "orders"})


ONLY_SHOW = {"plan", "doctor", "verify-coverage", "locate", "explain", "preview", "dead-letters"}


@pytest.mark.parametrize("action", VERBS)
def test_only_what_changes_something_is_decided(action: str) -> None:
    assert OperateForm.of({"action": action, "dry_run": False}).decides is (action not in ONLY_SHOW)


@pytest.mark.parametrize("action", VERBS)
def test_the_heading_of_a_field_names_each_action_that_takes_it(action: str) -> None:
    headings = {name: noted.section.split(", ") for name, noted in VERBS[action].in_form().items()}
    assert {name: action in named for name, named in headings.items()} == dict.fromkeys(headings, True)
    known = [named for section in headings.values() for named in section]
    assert set(known) <= set(VERBS)


@pytest.mark.parametrize("action", VERBS)
def test_a_field_of_two_actions_is_one_field_of_the_form(action: str) -> None:
    for name, noted in VERBS[action].in_form().items():
        assert [verb.in_form().get(name, noted) for verb in VERBS.values()] == [noted] * len(VERBS)


def test_what_an_action_does_not_take_is_refused_by_name() -> None:
    text = refusal(action="skip", offset_range="orders:0=1-2", to="latest", create=True)
    assert text == "expected with action skip offset_range at most, found create and to. Nothing was changed."
    assert "no other field at most, found batch_id" in refusal(action="mirror", batch_id="0" * 32)


@pytest.mark.parametrize(
    ("action", "option", "value"),
    [("plan", "max_records", 5), ("verify-coverage", "verify", False), ("rename", "new", "y"), ("skip", "topic", "a")],
)
def test_an_option_that_only_the_command_line_has_is_refused_by_name(action: str, option: str, value: object) -> None:
    assert f"found {option}. Nothing was changed" in refusal(action=action, **{option: value})


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"action": "drop"}, "action: expected 'plan'"),
        ({}, "action: "),
        ({"action": "plan", "dry_run": "no"}, "dry_run: expected true or false"),
        ({"action": "reset", "shift_by": "-1"}, "shift_by: expected a whole number"),
        ({"action": "abandon", "batch_id": "latest"}, "batch_id: "),
        ({"action": "topic-changed", "choice": "guess"}, "choice: expected 'start-over'"),
        ({"action": "preview", "records": 0}, "records: "),
        ({"action": "preview", "records": 1_001}, "records: "),
        ({"action": "preview", "show_values": "yes"}, "show_values: expected true or false"),
        ({"action": "explain", "file": "/" * 4_097}, "file: "),
        ({"action": "explain", "file": "/half a character \ud800"}, "file: "),
        ({"action": "plan", "secret": "x"}, "secret: unknown key"),
    ],
)
def test_what_a_field_cannot_hold_is_refused_by_its_name(form: dict[str, object], said: str) -> None:
    assert said in refusal(**form)


def test_offsets_are_named_as_in_a_backfill() -> None:
    assert Skip(offset_range="orders:0=1_200-1300").interval_meant() == OffsetRange(
        TopicPartition("orders", 0), 1200, 1300
    )
    for text in ("orders:0=9-9", "orders:0", "orders:x=1-2", f"orders:0=1-{2**63}"):
        with pytest.raises(InvalidRangeError):
            Skip(offset_range=text).interval_meant()


@pytest.mark.parametrize("digits", [20, 5_000])
def test_a_number_that_no_offset_can_be_is_refused_by_name(digits: int) -> None:
    # Python itself reads no number of so many digits.
    number = "9" * digits
    with pytest.raises(WrongUseError, match="expected --to offsets=TOPIC:PARTITION=OFFSET"):
        reset_target(f"offsets=orders:0={number}", None, Reset.flag)
    with pytest.raises(WrongUseError, match="expected --topic TOPIC or TOPIC:PARTITION"):
        named_partitions([f"orders:{number}"], reset_target("latest", None, Reset.flag), Reset.flag)
