"""What a backfill is asked for, as people write it: read once, and refused with a text that says what was expected."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from airflow.exceptions import ParamValidationError
from tests.outputs import parquet_at

from kafka_ingest.airflow_tasks.dag_arguments import params_of
from kafka_ingest.batches.backfill_request import (
    MAX_RECORDS,
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OfBatch,
    OfDagRun,
    OffsetRanges,
    OnMissing,
    OnOverlap,
    OpenChunks,
    OpenGaps,
    Place,
    StoredDeadLetters,
)
from kafka_ingest.errors import InvalidBackfillError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.settings.backfill_form import PLACE, BackfillForm
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.run_request import LARGEST_OFFSET, OFFSET_RANGE

BATCH = "01990000-0000-7000-8000-000000000001"
JANUARY, FEBRUARY = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)

EMPTY_FORM: dict[str, Any] = {
    "feed": "orders",
    "offset_ranges": None,
    "from_timestamp": None,
    "to_timestamp": None,
    "batch_id": None,
    "dag_run_id": None,
    "open_gaps": False,
    "open_chunks": False,
    "only": None,
    "causes": None,
    "mode": "fill",
    "output": None,
    "overlap": "cut",
    "missing": "refuse",
    "max_records": None,
    "reason": None,
}
"""What the DAG's form hands over where nothing but the feed was filled in."""


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """Where feeds ``orders`` and ``refunds`` have their files, and outputs of the same names."""
    feeds = tmp_path / "feeds"
    feeds.mkdir()
    for name in ("orders", "refunds"):
        (feeds / f"{name}.yaml").write_text(yaml.safe_dump(feed_document(name)))
    return {"KAFKA_INGEST_FEEDS": str(feeds), "KAFKA_INGEST_DATA": "/data"}


def feed_document(name: str) -> dict[str, Any]:
    return {"name": name, "kafka": {"topics": [name]}, "sink": {"format": "parquet", "path": name}}


def a_feed(**changes: Any) -> Feed:
    return Feed.model_validate(feed_document("orders") | changes)


def request_of(
    environment: Mapping[str, str], feed: Feed | None = None, *, anywhere: bool = False, **filled: Any
) -> BackfillRequest:
    """Return what the form asks for where these fields were filled in."""
    return BackfillForm.of(EMPTY_FORM | filled).request(feed or a_feed(), environment, anywhere=anywhere)


def refusal(environment: Mapping[str, str], **filled: Any) -> str:
    """Return why a form is refused; what it is about comes first."""
    with pytest.raises(InvalidBackfillError) as found:
        request_of(environment, **filled)
    assert found.value.exit_code == 2
    message = str(found.value)
    assert message.endswith("Nothing was planned.") or "Nothing was planned; " in message
    return message.removeprefix("the backfill asks for what it cannot have: ").removesuffix(" Nothing was planned.")


def orders(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("orders", partition), start, end)


# ── What is read: one of six ways to say it ───────────────────────────────────────────────────────────────────────────


def test_offset_ranges_are_read_from_their_start_to_before_their_end(environment: Mapping[str, str]) -> None:
    request = request_of(environment, offset_ranges=["orders:0=1200-1300", "or.d_e-rs:11=0-1"])
    assert request.selection == OffsetRanges(
        [orders(0, 1200, 1300), OffsetRange(TopicPartition("or.d_e-rs", 11), 0, 1)]
    )


def test_large_offsets_may_be_grouped(environment: Mapping[str, str]) -> None:
    request = request_of(environment, offset_ranges=["orders:0=1_200_000-1_300_000"])
    assert request.selection == OffsetRanges([orders(0, 1_200_000, 1_300_000)])


def test_the_largest_offset_there_can_be_is_one(environment: Mapping[str, str]) -> None:
    request = request_of(environment, offset_ranges=[f"orders:0=0-{LARGEST_OFFSET}"])
    assert request.selection == OffsetRanges([orders(0, 0, 9_223_372_036_854_775_807)])
    assert "expected TOPIC:PARTITION=FROM-TO" in refusal(
        environment, offset_ranges=[f"orders:0=0-{LARGEST_OFFSET + 1}"]
    )


@pytest.mark.parametrize(
    ("filled", "selection"),
    [
        ({"from_timestamp": "2026-01-01T00:00:00Z"}, BetweenTimestamps(JANUARY, None)),
        ({"to_timestamp": "2026-02-01T02:00:00+02:00"}, BetweenTimestamps(None, FEBRUARY)),
        (
            {"from_timestamp": " 2026-01-01T00:00:00+00:00", "to_timestamp": "2026-02-01T00:00:00Z"},
            BetweenTimestamps(JANUARY, FEBRUARY),
        ),
        ({"batch_id": BATCH}, OfBatch(UUID(BATCH))),
        ({"batch_id": f" {BATCH}\n"}, OfBatch(UUID(BATCH))),
        ({"dag_run_id": "manual__2026-01-01T00:00:00+00:00"}, OfDagRun("manual__2026-01-01T00:00:00+00:00")),
        ({"dag_run_id": " nightly "}, OfDagRun("nightly")),
        ({"open_gaps": True}, OpenGaps()),
        ({"open_chunks": True}, OpenChunks()),
    ],
)
def test_what_is_read_can_be_said_in_other_ways(
    environment: Mapping[str, str], filled: dict[str, Any], selection: object
) -> None:
    assert request_of(environment, **filled).selection == selection


SELECTIONS: dict[str, Any] = {
    "offset_ranges": ["orders:0=1-2"],
    "from_timestamp": "2026-01-01T00:00:00Z",
    "batch_id": BATCH,
    "dag_run_id": "nightly",
    "open_gaps": True,
    "open_chunks": True,
}


@pytest.mark.parametrize("first", SELECTIONS)
@pytest.mark.parametrize("second", SELECTIONS)
def test_two_ways_at_once_are_refused(environment: Mapping[str, str], first: str, second: str) -> None:
    filled = {name: SELECTIONS[name] for name in (first, second)}
    if first == second:
        assert request_of(environment, **filled)
        return
    message = refusal(environment, **filled)
    names = {name: "from_timestamp or to_timestamp" if name == "from_timestamp" else name for name in SELECTIONS}
    found = [names[name] for name in SELECTIONS if name in filled]
    assert message.endswith(f"found {found[0]} and {found[1]}.")


@pytest.mark.parametrize(
    "blank",
    [
        {},
        {"offset_ranges": []},
        {"offset_ranges": ["", "  ", None]},
        {"from_timestamp": "", "to_timestamp": "  "},
        {"batch_id": "", "dag_run_id": " \t"},
        {"only": ["orders"]},
    ],
)
def test_a_form_that_says_nothing_of_what_is_read_is_refused(
    environment: Mapping[str, str], blank: dict[str, Any]
) -> None:
    ways = "offset_ranges, from_timestamp or to_timestamp, batch_id, dag_run_id, open_gaps, open_chunks"
    assert refusal(environment, **blank) == f"expected one of {ways} to say what is read, found none."


def test_empty_lines_of_a_form_are_passed_over(environment: Mapping[str, str]) -> None:
    request = request_of(environment, offset_ranges=["", " orders:0=1-2 ", "   ", None], only=[None, "orders:0\t", " "])
    assert request.selection == OffsetRanges([orders(0, 1, 2)])
    assert request.only == [Place("orders", 0)]


# ── Offset ranges and places that are none ────────────────────────────────────────────────────────────────────────────

NO_RANGES = [
    *("orders", "orders:0", "orders:0=", "orders:0=1", "orders:0=1-", "orders:0=-1", "orders:0=-", "orders:0=1-2-3"),
    *("orders:0=a-b", "orders:0=1-b", "orders:-1=0-5", "orders:0=-5-5", "orders:x=0-5", ":0=0-5", "or ders:0=0-5"),
    *("orders:0=1.5-2", "orders:0=1e3-2e3", "orders:0=1,000-2,000", "orders:0 = 1-2", "orders=1-2", "0=1-2"),
    *("orders:0=1__0-50", "orders:0=_1-50", "orders:0=1_-50", "orders:0=_-_", "orders:0=1-2\norders:0=2-3"),
    *(f"orders:0=0-{'9' * 5_000}", f"orders:{'9' * 5_000}=0-5", "orders:0=\u0661-\u0662", "orders:0=1-2 orders:0=2-3"),
]


@pytest.mark.parametrize("text", NO_RANGES)
def test_what_is_no_range_is_refused_with_what_one_looks_like(environment: Mapping[str, str], text: str) -> None:
    expected = f"expected TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1300, found {text!r}."
    assert refusal(environment, offset_ranges=["orders:0=1-2", text]) == expected


@pytest.mark.parametrize("text", ["orders:0=5-3", "orders:0=3-3", "orders:0=0-0"])
def test_a_range_of_no_offsets_is_refused(environment: Mapping[str, str], text: str) -> None:
    assert refusal(environment, offset_ranges=[text]) == (
        f"expected FROM below TO, since FROM is read and TO is not, found {text!r}."
    )


@pytest.mark.parametrize(
    "text", ["orders:", "orders:x", "orders:-1", ":0", "or ders", "orders:0=1-2", f"orders:{'9' * 5_000}"]
)
def test_what_is_no_topic_or_partition_is_refused(environment: Mapping[str, str], text: str) -> None:
    expected = f"expected TOPIC or TOPIC:PARTITION, such as orders or orders:0, found {text!r}."
    assert refusal(environment, open_gaps=True, only=[text]) == expected


@pytest.mark.parametrize("field", ["offset_ranges", "only"])
@pytest.mark.parametrize("value", ["orders:0=1-2", 5, {"orders": 0}, [5], [["orders:0=1-2"]]])
def test_ranges_and_places_are_a_list_of_texts(environment: Mapping[str, str], field: str, value: object) -> None:
    assert refusal(environment, **{"open_gaps": field == "only", field: value}).startswith(f"{field}")


def test_the_patterns_are_those_of_the_dags_form() -> None:
    assert json.loads(json.dumps([OFFSET_RANGE, PLACE])) == [OFFSET_RANGE, PLACE]
    assert all(pattern.startswith("^") and pattern.endswith("$") for pattern in (OFFSET_RANGE, PLACE))


# ── Times and ids ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("field", ["from_timestamp", "to_timestamp"])
@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T00:00:00", "2026-01-31 00:00"])
def test_a_time_without_a_zone_is_refused(environment: Mapping[str, str], field: str, text: str) -> None:
    assert (
        refusal(environment, **{field: text})
        == f"{field}: expected a time with a zone, such as 2026-01-31T00:00:00Z, found {text!r}."
    )


@pytest.mark.parametrize("field", ["from_timestamp", "to_timestamp"])
@pytest.mark.parametrize(
    "value", ["1767225600", 1767225600, 1767225600.5, "yesterday", "1969-12-31T23:59:59Z", True, []]
)
def test_what_is_no_time_after_1970_is_refused(environment: Mapping[str, str], field: str, value: object) -> None:
    assert refusal(environment, **{field: value}).startswith(f"{field}: ")


@pytest.mark.parametrize("end", ["2026-02-01T00:00:00Z", "2026-01-31T23:59:59Z", "2026-02-01T01:00:00+02:00"])
def test_times_that_are_reversed_or_the_same_are_refused(environment: Mapping[str, str], end: str) -> None:
    message = refusal(environment, from_timestamp="2026-02-01T00:00:00Z", to_timestamp=end)
    assert message.startswith("expected from_timestamp before to_timestamp, found 2026-02-01T00:00:00+00:00 and ")


@pytest.mark.parametrize("value", ["orders", "0199", 5, f"{BATCH}0"])
def test_a_batch_is_named_by_its_id(environment: Mapping[str, str], value: object) -> None:
    assert refusal(environment, batch_id=value).startswith("batch_id: ")


def test_all_that_is_wrong_is_said_at_once(environment: Mapping[str, str]) -> None:
    message = refusal(environment, batch_id="x", from_timestamp="y", max_records=0, everything=True)
    assert [text.partition(":")[0] for text in message.split("; ")] == [
        *("from_timestamp", "batch_id", "max_records", "everything")
    ]
    assert "everything: unknown key" in message


@pytest.mark.parametrize("values", [{}, {"open_gaps": True}, EMPTY_FORM | {"feed": None}])
def test_a_form_names_its_feed(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidBackfillError, match="feed: "):
        BackfillForm.of(values)


# ── How it is read ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_where_nothing_else_is_said_holes_are_filled_what_is_there_is_cut_and_what_is_gone_is_refused(
    environment: Mapping[str, str],
) -> None:
    for filled in (EMPTY_FORM | {"open_gaps": True}, {"feed": "orders", "open_gaps": True}):
        request = BackfillForm.of(filled).request(a_feed(), environment)
        assert (request.mode, request.on_overlap, request.on_missing) == (Mode.FILL, OnOverlap.CUT, OnMissing.REFUSE)
        assert (request.output, list(request.only)) == (None, [])


def test_what_is_to_become_of_what_is_there_or_gone_is_chosen(environment: Mapping[str, str]) -> None:
    request = request_of(
        environment, open_gaps=True, overlap="refuse", missing="record_gap", only=["orders", "orders:1"]
    )
    assert (request.on_overlap, request.on_missing) == (OnOverlap.REFUSE, OnMissing.RECORD_GAP)
    assert request.only == [Place("orders"), Place("orders", 1)]


@pytest.mark.parametrize(("field", "value"), [("overlap", "refuse"), ("missing", "record_gap")])
def test_a_replacement_replaces_all_that_it_is_asked_for_or_nothing(
    environment: Mapping[str, str], field: str, value: str
) -> None:
    ranges = {"offset_ranges": ["orders:0=0-10"], "mode": "replace"}
    assert request_of(environment, **ranges).mode is Mode.REPLACE
    with pytest.raises(InvalidBackfillError, match="neither overlap nor missing with mode replace"):
        request_of(environment, **ranges, **{field: value})


@pytest.mark.parametrize("field", ["mode", "overlap", "missing"])
@pytest.mark.parametrize("value", ["", "swap", "CUT", 1, None])
def test_a_choice_is_one_of_those_there_are(environment: Mapping[str, str], field: str, value: object) -> None:
    message = refusal(environment, open_gaps=True, **{field: value})
    assert message.startswith(f"{field}: expected '")
    assert message.endswith(f"found {'null' if value is None else repr(value)}.")


def test_a_chunk_holds_what_the_form_says_or_else_the_feed_or_else_five_million(environment: Mapping[str, str]) -> None:
    limited = a_feed(limits={"max_records": 1_000})
    assert request_of(environment, limited, open_gaps=True, max_records=7).max_records == 7
    assert request_of(environment, limited, open_gaps=True).max_records == 1_000
    assert request_of(environment, open_gaps=True).max_records == MAX_RECORDS == 5_000_000


@pytest.mark.parametrize("value", [0, -1, 1.5, "1000", True, 2**63, 10**30])
def test_a_chunk_holds_one_record_at_least_and_no_more_than_there_can_be(
    environment: Mapping[str, str], value: object
) -> None:
    assert refusal(environment, open_gaps=True, max_records=value).startswith("max_records: ")


def test_a_chunk_may_hold_as_many_records_as_a_log_can(environment: Mapping[str, str]) -> None:
    assert request_of(environment, open_gaps=True, max_records=2**63 - 1).max_records == 9_223_372_036_854_775_807


def test_what_was_asked_for_is_kept_as_it_was_said(environment: Mapping[str, str]) -> None:
    asked = request_of(
        environment,
        offset_ranges=["orders:0=1-2"],
        only=["orders"],
        missing="record_gap",
        max_records=5,
        reason=" mended ",
    ).asked
    assert asked == {
        "feed": "orders",
        "offset_ranges": ["orders:0=1-2"],
        "only": ["orders"],
        "mode": "fill",
        "missing": "record_gap",
        "max_records": 5,
        "reason": "mended",
    }
    by_time = request_of(environment, from_timestamp="2026-01-01T02:00:00+02:00", reason="  ").asked
    assert json.loads(json.dumps(by_time)) == by_time
    assert (by_time["mode"], by_time.get("reason")) == ("fill", None)


# ── Copies ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("output", "path"), [("again", "/data/again"), ("/data/again", "/data/again"), (" a/b/ ", "/data/a/b")]
)
def test_a_copy_goes_to_a_directory_below_the_data(environment: Mapping[str, str], output: str, path: str) -> None:
    request = request_of(environment, open_gaps=True, mode="copy", output=output)
    assert (request.mode, request.output) == (Mode.COPY, parquet_at(Path(path)))


def test_a_copy_goes_beside_the_feeds_output_where_that_is_elsewhere(environment: Mapping[str, str]) -> None:
    elsewhere = a_feed(sink={"format": "parquet", "path": "/lake/raw/orders"})
    request = request_of(environment, elsewhere, open_gaps=True, mode="copy", output="/lake/raw/again")
    assert request.output == parquet_at(Path("/lake/raw/again"))


@pytest.mark.parametrize("output", ["/lake/again", "/etc", "/database/again", "/data2"])
def test_only_a_user_with_a_shell_copies_to_any_place_of_the_machine(
    environment: Mapping[str, str], output: str
) -> None:
    with pytest.raises(InvalidBackfillError, match=r"below /data.* found .*Nothing was planned\. .*--copy-to"):
        request_of(environment, open_gaps=True, mode="copy", output=output)
    request = request_of(environment, anywhere=True, open_gaps=True, mode="copy", output=output)
    assert request.output == parquet_at(Path(output))


def test_a_link_out_of_the_data_does_not_lead_a_copy_there(environment: Mapping[str, str], tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    data.mkdir()
    outside.mkdir()
    (data / "link").symlink_to(outside)
    linked = {**environment, "KAFKA_INGEST_DATA": str(data)}
    with pytest.raises(InvalidBackfillError, match=f"below {data}, found {data}/link/again"):
        request_of(linked, open_gaps=True, mode="copy", output="link/again")
    assert request_of(linked, open_gaps=True, mode="copy", output="again").output is not None


def test_data_that_is_a_link_holds_the_copies_below_where_it_leads(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "disk")
    linked = {**environment, "KAFKA_INGEST_DATA": str(tmp_path / "data")}
    for output in ("again", str(tmp_path / "data" / "again"), str(tmp_path / "disk" / "again")):
        assert request_of(linked, open_gaps=True, mode="copy", output=output).output is not None


def test_a_link_to_a_feeds_output_is_that_output(environment: Mapping[str, str], tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "refunds").mkdir(parents=True)
    (data / "link").symlink_to(data / "refunds")
    linked = {**environment, "KAFKA_INGEST_DATA": str(data)}
    message = refusal(linked, open_gaps=True, mode="copy", output="link")
    assert f"which is, is in, or holds the output of feed refunds, {data}/refunds." in message


def test_the_root_of_the_machine_is_no_place_for_copies(environment: Mapping[str, str]) -> None:
    at_the_root = a_feed(sink={"format": "parquet", "path": "/orders"})
    with pytest.raises(InvalidBackfillError, match="below /data, found /again"):
        request_of(environment, at_the_root, open_gaps=True, mode="copy", output="/again")
    with pytest.raises(InvalidBackfillError, match="below KAFKA_INGEST_DATA, found /again"):
        request_of(environment | {"KAFKA_INGEST_DATA": "/"}, at_the_root, open_gaps=True, mode="copy", output="/again")


@pytest.mark.parametrize(
    ("path", "output"), [("s3://aws_lake@lake/orders", "again"), ("orders", "s3://aws_lake@lake/again")]
)
def test_a_copy_from_or_into_an_object_store_is_refused_by_name(
    environment: Mapping[str, str], path: str, output: str
) -> None:
    feed = a_feed(sink={"format": "delta", "path": path})
    with pytest.raises(InvalidBackfillError, match=f"found {path} and {output}: copies into object stores are not"):
        request_of(environment, feed, anywhere=True, open_gaps=True, mode="copy", output=output)


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_a_copy_without_an_output_is_refused(environment: Mapping[str, str], blank: str | None) -> None:
    assert refusal(environment, open_gaps=True, mode="copy", output=blank).startswith(
        "expected an output with mode copy: "
    )


def test_an_output_where_nothing_is_copied_is_refused(environment: Mapping[str, str]) -> None:
    message = refusal(environment, open_gaps=True, output="again")
    assert message.startswith("expected an output with mode copy only, found 'again' with fill")


@pytest.mark.parametrize(
    "output",
    [
        *("orders", "/data/orders", "/data/orders/", "orders/again", "/data/./orders", "/data", "orders.kafka-ingest"),
        *("orders.kafka-ingest/receipts", "refunds", "refunds/again"),
    ],
)
def test_an_output_that_is_in_or_holds_what_is_a_feeds_is_refused(environment: Mapping[str, str], output: str) -> None:
    feed = "refunds" if output.startswith("refunds") else "orders"
    message = refusal(environment, open_gaps=True, mode="copy", output=output)
    assert f"which is, is in, or holds the output of feed {feed}, /data/{feed}." in message


@pytest.mark.parametrize(
    "output",
    ["orders-again", "orders2", "order", "orders.kafka", "orders.kafka-ingest2", "again/orders", "/elsewhere/orders"],
)
def test_an_output_whose_name_only_looks_like_a_feeds_is_taken(environment: Mapping[str, str], output: str) -> None:
    assert request_of(environment, anywhere=True, open_gaps=True, mode="copy", output=output).output is not None


@pytest.mark.parametrize("output", ["/", "../again", "a/../b", "~/again", "s3://bucket/again", "a\x00b", "a\nb"])
def test_a_path_that_the_sink_would_not_take_is_refused(environment: Mapping[str, str], output: str) -> None:
    assert refusal(environment, open_gaps=True, mode="copy", output=output).startswith("output: ")


def test_a_relative_output_needs_the_directory_that_it_lies_below(environment: Mapping[str, str]) -> None:
    without_data = {key: value for key, value in environment.items() if key != "KAFKA_INGEST_DATA"}
    message = refusal(without_data, open_gaps=True, mode="copy", output="again")
    assert message.startswith("output: ")
    assert "'again' is relative. Expected an absolute path, or KAFKA_INGEST_DATA" in message


def test_the_output_of_a_feed_whose_file_is_broken_stops_no_copy(environment: Mapping[str, str]) -> None:
    (Path(environment["KAFKA_INGEST_FEEDS"]) / "broken.yaml").write_text("name: [")
    assert request_of(environment, open_gaps=True, mode="copy", output="again").output is not None


def test_asking_makes_no_directory(environment: Mapping[str, str], tmp_path: Path) -> None:
    request_of(environment, anywhere=True, open_gaps=True, mode="copy", output=str(tmp_path / "again"))
    assert not (tmp_path / "again").exists()


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("filled", "selection"),
    [
        ({}, StoredDeadLetters()),
        ({"batch_id": BATCH}, StoredDeadLetters(UUID(BATCH))),
        ({"from_timestamp": "2026-01-01T00:00:00Z"}, StoredDeadLetters(since=JANUARY)),
        (
            {"causes": ["NOT_JSON", " ", "DOES_NOT_FIT"]},
            StoredDeadLetters(causes=frozenset({"NOT_JSON", "DOES_NOT_FIT"})),
        ),
    ],
)
def test_a_replay_takes_all_dead_letters_or_those_of_a_batch_a_time_and_causes(
    environment: Mapping[str, str], filled: dict[str, Any], selection: StoredDeadLetters
) -> None:
    request = request_of(environment, mode="replay", **filled)
    assert (request.selection, request.mode) == (selection, Mode.REPLAY)


@pytest.mark.parametrize(
    "filled",
    [
        {"offset_ranges": ["orders:0=1-2"]},
        {"to_timestamp": "2026-01-01T00:00:00Z"},
        {"dag_run_id": "manual__1"},
        {"open_gaps": True},
        {"only": ["orders"]},
        {"overlap": "refuse"},
        {"missing": "record_gap"},
    ],
)
def test_what_narrows_no_dead_letters_is_refused_with_a_replay(
    environment: Mapping[str, str], filled: dict[str, Any]
) -> None:
    [name] = filled
    assert refusal(environment, mode="replay", **filled) == (
        "expected batch_id, from_timestamp and causes to say which dead letters mode replay takes, or none of them for "
        f"all; found {name}."
    )


def test_causes_are_those_of_dead_letters_and_go_with_a_replay_only(environment: Mapping[str, str]) -> None:
    assert "NOT_JSON" in refusal(environment, mode="replay", causes=["NOT_JSN"])
    assert refusal(environment, open_gaps=True, causes=["NOT_JSON"]) == (
        "expected causes of dead letters with mode replay only, found them with fill."
    )


def test_open_chunks_continue_whatever_the_mode(environment: Mapping[str, str]) -> None:
    assert request_of(environment, mode="replay", open_chunks=True).selection == OpenChunks()


def test_a_refusal_says_whether_a_backfill_or_a_replay_asks(environment: Mapping[str, str]) -> None:
    assert refusal(environment, mode="replay", causes=["NOPE"]).startswith("the replay asks for what it cannot have: ")
    with pytest.raises(InvalidBackfillError, match=r"^the backfill asks for what it cannot have: max_records"):
        request_of(environment, max_records="many")


@pytest.mark.parametrize(
    ("field", "taken", "refused"),
    [
        ("offset_ranges", ["orders:0=1-2"], ["orders:0"]),
        ("only", ["orders", "orders:0"], ["an order"]),
        ("causes", ["NOT_JSON"], ["not json"]),
        ("mode", "copy", None),
        ("max_records", 1, 0),
    ],
)
def test_a_field_of_the_form_takes_what_the_request_takes_before_a_run_is_made(
    field: str, taken: object, refused: object
) -> None:
    param = params_of(BackfillForm)[field]
    assert param.resolve(taken) == taken
    with pytest.raises(ParamValidationError):
        param.resolve(refused)
