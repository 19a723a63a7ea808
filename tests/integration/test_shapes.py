"""A feed that filters and selects, on real parts: change events of a database, as the documentation reads them."""

import json
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from tests.integration.test_dead_letters import rows_of
from tests.kafka_faults import Record, produce
from tests.quick_project import QuickProject

from kafka_ingest.verbs import preview

DOCUMENTED = Path(__file__).parents[2] / "docs" / "feed-files.md"


def documented() -> dict[str, Any]:
    """Return the settings that docs/feed-files.md shows for Debezium's change events."""
    text = DOCUMENTED.read_text().partition("## Change events")[2]
    found: dict[str, Any] = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    return found


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, at: int) -> bytes:
    """Return the value of a change event as Debezium's JSON converter writes it without schemas."""
    source = {"version": "3.0.0", "connector": "postgresql", "db": "shop", "table": "customers", "lsn": at}
    return json.dumps({"before": before, "after": after, "source": source, "op": op, "ts_ms": at}).encode()


def customer(number: int, city: str | None) -> dict[str, Any]:
    return {"id": number, "city": city, "note": "not among the columns"}


EVENTS = [
    Record(event("r", None, customer(1, "Bonn"), 1_000), b'{"id": 1}'),
    Record(event("c", None, customer(2, "Rom"), 2_000), b'{"id": 2}'),
    Record(event("u", customer(1, "Bonn"), customer(1, "Berlin"), 3_000), b'{"id": 1}'),
    Record(event("d", customer(2, "Rom"), None, 4_000), b'{"id": 2}'),
    Record(None, b'{"id": 2}'),  # the tombstone that follows each deletion
    Record(json.dumps({"op": "t", "source": {}, "ts_ms": 5_000}).encode()),  # a truncation has no key
    Record(event("c", None, customer(3, "Wien"), 10**18), b'{"id": 3}'),  # no time that Spark has
]


def test_change_events_become_rows_and_what_is_left_out_is_counted(
    quick: QuickProject, servers: str, orders: str
) -> None:
    produce(servers, orders, 2, EVENTS)
    quick.write_feed(orders, **documented(), start={"offsets": {orders: {0: 10, 1: 5, 2: 0}}, "otherwise": "latest"})

    with quick.submitting(spark_is_real=True):
        quick.run()

    rows = rows_of(quick.output / "orders")
    names = ("kafka_offset", "id", "city", "deleted")
    assert [tuple(row[name] for name in names) for row in rows] == [
        (0, 1, "Bonn", False),
        (1, 2, "Rom", False),
        (2, 1, "Berlin", False),
        (3, 2, "Rom", True),
    ]
    assert rows[3]["changed_at"].timestamp() == 4
    assert not {"key", "value"} & rows[0].keys()
    [letter] = rows_of(quick.output / "orders_dead_letters")
    assert (letter["kafka_offset"], letter["error_part"], letter["error_class"]) == (6, "select", "EXPRESSION")
    assert letter["error"].endswith("found ArithmeticException in column changed_at: timestamp_millis(value.ts_ms)")
    [span] = quick.batches()[0]["ranges"]
    assert {name: span[name] for name in ("rows", "filtered", "dead_letters", "invisible")} == {
        "rows": 4,
        "filtered": 2,
        "dead_letters": 1,
        "invisible": 0,
    }
    check_questions(quick, orders)
    check_refused(quick)


def check_questions(quick: QuickProject, topic: str) -> None:
    """Ask everything that knows of filtered records."""
    # An expression failed for it, so all of the record is shown.
    assert 'timestamp_millis(value.ts_ms): {"before": null' in quick.kafka_ingest("dead-letters", "orders").stdout
    assert "filtered" in quick.kafka_ingest("locate", "orders", topic, "2", "4").stdout
    [located] = quick.answer("locate", "orders", topic, "2", "5")["batches"]
    assert (located["record"], located["filtered"]) == ("filtered", 2)
    verified = quick.answer("coverage", "orders", "--verify")["verified"]
    assert (verified["rows"], verified["filtered"], verified["differences"]) == (4, 2, [])
    assert verified["counts"] == [
        {"topic": topic, "partition": 2, "offsets": 7, "rows": 4, "filtered": 2, "dead_letters": 1, "invisible": 0}
        | {"in_output": 4}
    ]
    [file] = (quick.output / "orders").rglob("*.parquet")
    explained = quick.answer("explain", str(file))
    assert (explained["filtered"], explained["receipt"]) == (2, {"differences": []})
    said = quick.kafka_ingest("coverage", "orders", "--verify", COLUMNS="200").stdout
    assert "7 committed offsets: 4 rows, 2 filtered, 1 dead letter, 0 without a record" in said


def check_refused(quick: QuickProject) -> None:
    """What Spark refuses is named by doctor, by preview and by a run, and nothing moves."""
    of_kept_spark = patch.object(preview, "run_spark_submit", partial(quick.submit, while_running=int))
    with quick.submitting(spark_is_real=True), of_kept_spark:
        answer = quick.kafka_ingest("preview", "orders", "--records", "12", "--json")
        assert (answer.exit_code, answer.document["filtered"]) == (1, 2)
        quick.edit_feed(where="value.opp = 'c'")
        code, error, message = quick.refusal("preview", "orders")
    assert (code, error) == (2, "INVALID_EXPRESSION")
    assert "feed orders: where: [FIELD_NOT_FOUND] No such struct field `opp`" in message
    checks = {check["check"]: check for check in quick.kafka_ingest("doctor", "orders", "--json").document["checks"]}
    assert not checks["feed orders: expressions"]["ok"]
