"""A feed that decodes its records, on real parts: what cannot be decoded is beside the output, and accounted for."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.by_form import ALICE, DO, asking_by_form
from tests.integration.test_operator_commands import journal
from tests.kafka_faults import Record, produce
from tests.quick_project import QuickProject

from kafka_ingest.errors import InvalidOperationError

ORDER = {"format": "json", "schema": "id bigint, city string"}
AS_BEFORE = [
    {"name": "key", "type": "string", "sql": "key"},
    {
        "name": "value",
        "type": "struct<id: bigint, city: string>",
        "sql": "named_struct('id', try_cast(get_json_object(value, '$.id') as bigint), "
        "'city', get_json_object(value, '$.city'))",
    },
]
"""The columns of such records, of JSON of any form."""


def order(number: int) -> bytes:
    """Return a record that fits."""
    return json.dumps({"id": number, "city": "Zürich"}, ensure_ascii=False).encode()


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Return what readers see of an output, sorted by position."""
    rows = pl.read_parquet(f"{directory}/**/*.parquet").sort("kafka_partition", "kafka_offset")
    return rows.to_dicts()


def test_a_feed_gets_columns_and_loses_no_record_that_has_none(quick: QuickProject, servers: str, orders: str) -> None:
    # Partition 0 holds ten values that are no JSON; partition 1 and 2 get what fits, and what nearly does.
    # Of what fits, two are not certain to Spark: they are decided on with the dead letters.
    good = [Record(order(1), b"1"), Record(None, b"2"), Record(order(3).replace(b"3,", b"3.0,"), b"3")]
    bad = [Record(b"\xff\xfe", b"4"), Record(b'{"id": "many"}', b"5"), Record(order(6) + b" tail", b"6")]
    produce(servers, orders, 2, [*good, *bad, Record(order(7).replace(b"7,", b"0.7e1,"), b"7")])
    quick.write_feed(orders, value=ORDER, key="string", limits={"max_dead_letters": 100})

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()

    assert batch["rows"] == 4
    rows = rows_of(quick.output / "orders")
    assert [(row["kafka_partition"], row["kafka_offset"], row["key"], row["value"]) for row in rows] == [
        (2, 0, "1", {"id": 1, "city": "Zürich"}),
        (2, 1, "2", None),
        (2, 2, "3", {"id": 3, "city": "Zürich"}),
        (2, 6, "7", {"id": 7, "city": "Zürich"}),
    ]
    letters = [row for row in rows_of(quick.output / "orders_dead_letters") if row["kafka_partition"] == 2]
    assert [(row["kafka_offset"], row["key"], row["value"], row["error_class"]) for row in letters] == [
        (3, b"4", b"\xff\xfe", "INVALID_UTF8"),
        (4, b"5", b'{"id": "many"}', "DOES_NOT_FIT"),
        (5, b"6", order(6) + b" tail", "NOT_JSON"),
    ]
    assert {(row["kafka_topic"], row["error_part"], row["attempt"]) for row in letters} == {(orders, "value", 1)}
    assert quick.stored_offsets() == quick.group_offsets() == {0: 10, 1: 5, 2: 7}

    check_questions(quick, orders, batch["batch_id"])
    check_preview(quick, orders)
    check_limit(quick, servers, orders)
    check_replay(quick, orders, batch["batch_id"])
    check_given_up(quick, batch["batch_id"])


def check_questions(quick: QuickProject, topic: str, batch_id: str) -> None:
    """Ask everything that knows of dead letters."""
    [listed] = quick.batches()
    counts = {
        entry["partition"]: (entry["rows"], entry["dead_letters"], entry["invisible"]) for entry in listed["ranges"]
    }
    assert counts == {0: (0, 10, 0), 1: (0, 5, 0), 2: (4, 3, 0)}
    coverage = quick.answer("coverage", "orders", "--verify")
    assert coverage["verified"]["differences"] == []
    assert [entry["offsets"]["dead_letters"] for entry in coverage["partitions"]] == [10, 5, 3]

    found = quick.answer("dead-letters", "orders", "--samples", "1")
    assert (found["dead_letters"], found["batches"], found["problems"]) == (18, 1, [])
    assert {(each["part"], each["error_class"], each["records"]) for each in found["causes"]} == {
        ("value", "NOT_JSON", 16),
        ("value", "INVALID_UTF8", 1),
        ("value", "DOES_NOT_FIT", 1),
    }
    [sample] = next(each["samples"] for each in found["causes"] if each["error_class"] == "INVALID_UTF8")
    assert (sample["partition"], sample["offset"], sample["key"], sample["value"]) == (2, 3, "4", "\\xff\\xfe")

    located = quick.answer("locate", "orders", topic, "2", "4")
    assert (located["state"], located["batches"][0]["record"]) == ("committed", "dead_letter")
    [file] = [each["path"] for each in located["batches"][0]["dead_letter_files"] if each["holds_record"]]
    explained = quick.answer("explain", file)
    assert (explained["batch_id"], explained["receipt"]) == (batch_id, {"differences": []})
    assert quick.answer("locate", "orders", topic, "2", "6")["batches"][0]["record"] == "in_file"


def check_preview(quick: QuickProject, topic: str) -> None:
    """See what the feed makes of the newest record of each partition, and that nothing comes of it."""
    batches = quick.batches()
    with quick.submitting(spark_is_real=True):
        answer = quick.kafka_ingest("preview", "orders", "--records", "3", "--json")
    assert answer.exit_code == 1, answer.stderr
    [row] = answer.document["rows"]
    assert answer.document["types"].items() >= {"value": "struct", "value.id": "bigint", "value.city": "string"}.items()
    assert (row["kafka_topic"], row["kafka_offset"], row["value"]) == (topic, 6, {"id": 7, "city": "Zürich"})
    assert [
        (each["partition"], each["offset"], each["error_class"], each["value"])
        for each in answer.document["dead_letters"]
    ] == [(0, 9, "NOT_JSON", "value 9"), (1, 4, "NOT_JSON", "value 4")]
    assert quick.batches() == batches


def check_limit(quick: QuickProject, servers: str, topic: str) -> None:
    """One dead letter too many: nothing moves until the feed's file is mended, and the columns are as before."""
    produce(servers, topic, 2, [Record(order(8)), Record(b"8")])
    quick.edit_feed(limits={"max_dead_letters": 0})
    with quick.submitting(spark_is_real=True):
        code, error, message = quick.refusal("run", "orders")
        assert (code, error) == (3, "TOO_MANY_DEAD_LETTERS")
        assert "1 of its 2 records cannot be decoded" in message
        assert quick.stored_offsets()[2] == 7
        open_batch = quick.status()["open_batch"]
        assert (open_batch["state"], open_batch["attempt"]) == ("PLANNED", 1)
        assert "1 of its 2 records cannot be decoded" in open_batch["discarded"]
        assert "attempt 1 was discarded: batch " in quick.kafka_ingest("status", "orders").stdout

        quick.edit_feed(limits={}, value={"format": "json"})
        code, error, message = quick.refusal("run", "orders")
        assert (code, error) == (3, "COLUMNS_CHANGED")
        assert re.search(r"value +struct +string\n +value.city +string +\(none\)", message)
        assert quick.stored_offsets()[2] == 7

        quick.edit_feed(select=AS_BEFORE)
        [batch] = quick.run()
    assert batch["rows"] == 2
    assert [row["value"] for row in rows_of(batch_directory(quick, batch["batch_id"]))] == [
        {"id": 8, "city": "Zürich"},
        {"id": None, "city": None},
    ]
    assert quick.stored_offsets()[2] == 9


def check_replay(quick: QuickProject, topic: str, batch_id: str) -> None:
    """Replay two of the letters, as JSON of any form now: one becomes a row, the other stays with its new error."""
    only = ("replay", "orders", "--batch", batch_id, "--error", "DOES_NOT_FIT", "--error", "INVALID_UTF8")
    # Columns that do not go with the output's are refused before the letters are claimed, by the dry run too.
    quick.edit_feed(select=[*AS_BEFORE[:1], {**AS_BEFORE[1], "type": "string", "sql": "value"}])
    refused = [quick.refusal(*only, *dry)[:2] for dry in (["--dry-run"], [])]
    assert refused == [(3, "COLUMNS_CHANGED")] * 2
    assert quick.answer("backfill", "orders", "open", "--dry-run")["chunks"] == []
    quick.edit_feed(select=AS_BEFORE)
    shown = quick.answer(*only, "--dry-run")
    assert (shown["executed"], shown["records"], shown["chunks"]) == (False, 2, [])
    stored = quick.stored_offsets()
    with quick.submitting(spark_is_real=True):
        [chunk] = quick.answer(*only)["chunks"]
    assert (chunk["kind"], chunk["state"], chunk["rows"]) == ("replay", "COMMITTED", 1)

    directory = batch_directory(quick, chunk["batch_id"])
    [row] = rows_of(directory)
    [letter] = rows_of(quick.output / "orders_dead_letters" / directory.name)
    position = (topic, 2, 4)
    assert (row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]) == position
    assert (row["key"], row["value"]) == ("5", {"id": None, "city": None})
    assert row["kafka_timestamp"] is not None
    assert (letter["kafka_offset"], letter["value"], letter["error_class"]) == (3, b"\xff\xfe", "INVALID_UTF8")

    found = quick.answer("dead-letters", "orders", "--samples", "0")
    assert (found["dead_letters"], {(each["error_class"], each["records"]) for each in found["causes"]}) == (
        17,
        {("NOT_JSON", 16), ("INVALID_UTF8", 1)},
    )
    coverage = quick.answer("coverage", "orders", "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])
    counts = [(each["offsets"]["dead_letters"], each["offsets"]["replayed"]) for each in coverage["partitions"]]
    assert counts == [(10, 0), (5, 0), (2, 1)]
    sums = {each["partition"]: (each["rows"], each["dead_letters"]) for each in coverage["verified"]["counts"]}
    assert sums == {0: (0, 10), 1: (0, 5), 2: (7, 2)}
    assert coverage["verified"]["rows"] == sum(each["in_output"] for each in coverage["verified"]["counts"]) == 7
    said = quick.kafka_ingest("coverage", "orders", "--verify", COLUMNS="200").stdout
    assert "24 committed offsets: 7 rows, 0 filtered, 17 dead letters, 0 without a record" in said
    located = quick.answer("locate", "orders", topic, "2", "4")
    assert [(each["kind"], each["record"]) for each in located["batches"]] == [
        ("replay", "in_file"),
        ("live", "replayed"),
    ]
    assert quick.stored_offsets() == stored
    assert quick.answer(*only)["chunks"] == []


def check_given_up(quick: QuickProject, batch_id: str) -> None:
    """Dead letters that nobody needs are removed for good, and stay counted."""
    giving_up = {"action": "give-up-dead-letters", "batch_id": batch_id}
    with asking_by_form(quick) as ask:
        with pytest.raises(InvalidOperationError, match=rf"batches with dead letters: .*{batch_id} \(16\)"):
            ask(action="give-up-dead-letters")
        shown = ask(**giving_up)
        assert (shown.document["dead_letters"], shown.document["replayed"], shown.only_shown) == (18, 2, True)
        assert quick.answer("dead-letters", "orders", "--batch", batch_id)["dead_letters"] == 16
        assert ask(**giving_up, **DO).document["given_up"] == 18
        again = ask(**giving_up)
        assert (again.document["removed_before"], again.only_shown) == (True, False)
    arguments = ("dead-letters", "orders", "--batch", batch_id, "--give-up", "--reason", "test data")
    assert quick.answer(*arguments)["given_up"] == 18
    assert [(actor, detail["reason"]) for actor, detail in journal(quick, "dead_letters_given_up")] == [
        (ALICE, DO["reason"])
    ]
    found = quick.answer("dead-letters", "orders")
    assert (found["dead_letters"], [each["error_class"] for each in found["causes"]]) == (17, ["INVALID_UTF8"])
    assert found["problems"] == []
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def batch_directory(quick: QuickProject, batch_id: str) -> Path:
    """Return where readers find a batch."""
    return quick.output / "orders" / f"kafka_batch={batch_id}"
