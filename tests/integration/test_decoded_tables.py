"""A feed that decodes its records into a table, on real parts: columns, fields that come later, and dead letters."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.kafka_faults import Record, produce
from tests.quick_project import QuickProject
from tests.table_kinds import Delta, Iceberg, Postgresql, TableKind

SCHEMA = "id int, lines array<struct<sku: string>>, total decimal(12,2), due date, labels map<string, bigint>"
MORE = (
    "id int, lines array<struct<sku: string, note: string>>, total decimal(12,2), due date, labels map<string, bigint>"
)
LETTERS = "orders_dead_letters"


def order(number: int, **more: object) -> bytes:
    """Return a record that fits."""
    value = {"id": number, "lines": [{"sku": "a"}], "total": "1.50", "due": "2026-01-31", "labels": {"x": 1}} | more
    return json.dumps(value).encode()


@pytest.fixture
def kind(request: pytest.FixtureRequest, quick: QuickProject) -> TableKind:
    found: TableKind = request.param
    found.connect(quick)
    return found


def of_a(kind: TableKind) -> pytest.MarkDecorator:
    """Let a test ask for a table of this kind."""
    return pytest.mark.parametrize("kind", [kind], indirect=True, ids=[kind.name])


def ids_seen(kind: TableKind, quick: QuickProject) -> list[tuple[int, Any]]:
    """Return what readers see: the offset and the number of each order of partition 2."""
    rows = [row for row in kind.rows(quick) if row["kafka_partition"] == 2]
    return [(row["kafka_offset"], row["value"] and row["value"]["id"]) for row in rows]


def letters_of(kind: TableKind, quick: QuickProject) -> list[tuple[int, str]]:
    rows = kind.rows(quick, LETTERS)
    return [(row["kafka_offset"], row["error_class"]) for row in rows if row["kafka_partition"] == 2]


def read_three_times(
    kind: TableKind, quick: QuickProject, servers: str, topic: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read records of a schema, then of one with another field, and none of one that readers would misread.

    Returns the first two batches; the second schema is the feed's again.
    """
    by_day = {"partition_by": ["kafka_partition", "day(kafka_timestamp)"]}
    quick.write_feed(
        topic, sink=kind.sink | by_day, value={"format": "json", "schema": SCHEMA}, key="string", where="value.id < 90"
    )
    produce(servers, topic, 2, [Record(order(1), b"k"), Record(order(99)), Record(b"no"), Record(order(4, id="x"))])
    [first] = quick.run()
    assert (first["rows"], ids_seen(kind, quick)) == (1, [(0, 1)])
    assert letters_of(kind, quick) == [(2, "NOT_JSON"), (3, "DOES_NOT_FIT")]

    # A field deep inside comes later: older rows have nulls there.
    quick.edit_feed(value={"format": "json", "schema": MORE})
    produce(servers, topic, 2, [Record(order(5, lines=[{"sku": "b", "note": "gift"}]))])
    [second] = quick.run()
    notes = [row["value"]["lines"][0]["note"] for row in kind.rows(quick)]
    assert notes == [None, "gift"]

    # What readers would misread stops the feed before anything is staged.
    quick.edit_feed(value={"format": "json", "schema": MORE.replace("id int", "id bigint")})
    produce(servers, topic, 2, [Record(order(6))])
    code, error, message = quick.refusal("run", "orders")
    assert (code, error) == (3, "COLUMNS_CHANGED")
    assert "value.id  int                   bigint" in message
    assert quick.stored_offsets()[2] == 5
    quick.edit_feed(value={"format": "json", "schema": MORE})
    return first, second


@of_a(Iceberg())
def test_decoded_records_go_into_an_iceberg_table_with_fields_that_come_later_and_dead_letters_beside_it(
    kind: TableKind, quick: QuickProject, servers: str, topic: str
) -> None:
    with quick.submitting(spark_is_real=True):
        read_three_times(kind, quick, servers, topic)
        quick.run()
    assert ids_seen(kind, quick) == [(0, 1), (4, 5), (5, 6)]
    check_it_is_restored(kind, quick)


@of_a(Delta())
def test_decoded_records_of_a_table_are_replayed_replaced_transformed_and_asked_about(
    kind: TableKind, quick: QuickProject, servers: str, topic: str
) -> None:
    """Spark stages the same for both formats, and what each one replaces is asked by the contract of outputs."""
    with quick.submitting(spark_is_real=True):
        first, second = read_three_times(kind, quick, servers, topic)

        # As text where it must be: the letter becomes a row, in a batch of its own.
        quick.edit_feed(
            value={"format": "json", "schema": MORE.replace("id int", "id string")},
            select=[
                {"name": "key", "type": "string", "sql": "key"},
                {
                    "name": "value",
                    "type": f"struct<{MORE}>",
                    "sql": "named_struct('id', try_cast(value.id as int), 'lines', value.lines, 'total', value.total, "
                    "'due', value.due, 'labels', value.labels)",
                },
            ],
        )
        quick.edit_feed(where="true")
        quick.run()
        [replayed] = quick.answer("replay", "orders", "--error", "DOES_NOT_FIT")["chunks"]

        # Rows are made again as the feed says now; but not of ranges whose dead letters may be rows of a replay.
        again = ("backfill", "orders", "--when", "overlap=replace", f"batch={second['batch_id']}")
        [replaced] = quick.answer(*again)["chunks"]

        # What a function leaves is divided by the table's partitions, too.
        quick.edit_feed(transform="tests.spark.functions:even_offsets")
        produce(servers, topic, 2, [Record(order(7)), Record(order(8))])
        [transformed] = quick.run()
    assert (transformed["rows"], transformed["ranges_left_out"]) == (1, [])
    assert (replaced["kind"], replaced["rows"]) == ("replace", 1)
    assert (replayed["kind"], replayed["rows"]) == ("replay", 1)
    assert ids_seen(kind, quick) == [(0, 1), (3, None), (4, 5), (5, 6), (6, 7)]
    assert quick.stored_offsets() == quick.group_offsets()
    check_questions(quick, topic, first["batch_id"])
    check_it_is_restored(kind, quick)


@of_a(Postgresql())
def test_dead_letters_of_a_table_in_postgresql_are_rows_beside_it_which_spark_decodes_again(
    kind: TableKind, quick: QuickProject, servers: str, topic: str
) -> None:
    with quick.submitting(spark_is_real=True):
        quick.write_feed(topic, sink=kind.sink, value={"format": "json", "schema": "id int"}, key="string")
        headers = (("a", b"\0"),)
        produce(servers, topic, 2, [Record(b'{"id": 1}'), Record(b"no"), Record(b'{"id": "4"}', b"k", headers=headers)])
        [first] = quick.run()
        assert (first["rows"], ids_seen(kind, quick)) == (1, [(0, 1)])
        cast = {"name": "value", "type": "struct<id int>", "sql": "named_struct('id', cast(value.id as int))"}
        key = {"name": "key", "type": "string", "sql": "key"}
        quick.edit_feed(value={"format": "json", "schema": "id string"}, select=[key, cast])
        [replayed] = quick.answer("replay", "orders", "--error", "DOES_NOT_FIT")["chunks"]
    assert (replayed["kind"], replayed["rows"]) == ("replay", 1)
    assert ids_seen(kind, quick) == [(0, 1), (2, 4)]
    assert kind.rows(quick)[-1]["key"] == "k"
    assert [each["records"] for each in quick.answer("dead-letters", "orders")["causes"]] == [1]
    assert not (quick.output / LETTERS).exists()
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    [located] = quick.answer("locate", "orders", topic, "2", "1")["batches"]
    assert located["record"] == "dead_letter"


def check_it_is_restored(kind: TableKind, quick: QuickProject) -> None:
    """The table alone says what was read, where the control tables are lost."""
    before = kind.rows(quick)
    lose_control_tables(quick)
    quick.answer("adopt", "orders", *DO_IT)
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    assert (kind.rows(quick), quick.run()) == (before, [])


def check_questions(quick: QuickProject, topic: str, first: str) -> None:
    """The questions about decoded records are answered of a table, too; dead letters are not replaced."""
    coverage = quick.answer("coverage", "orders", "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])
    [partition] = [each for each in coverage["partitions"] if each["partition"] == 2]
    assert (partition["offsets"]["dead_letters"], partition["offsets"]["replayed"]) == (1, 1)
    assert quick.answer("dead-letters", "orders")["dead_letters"] == 1
    states = [quick.answer("locate", "orders", topic, "2", str(offset))["batches"][0]["record"] for offset in range(4)]
    assert states == ["in_file", "filtered", "dead_letter", "in_file"]
    [file, *_] = quick.answer("locate", "orders", topic, "2", "0")["batches"][0]["files"]
    assert quick.answer("explain", file["path"])["receipt"]["differences"] == []
    refused = quick.kafka_ingest("backfill", "orders", f"batch={first}", "--when", "overlap=replace", "--json")
    assert refused.exit_code == 2
    assert "expected ranges without dead letters" in refused.document["error"]["message"]
    assert quick.kafka_ingest("doctor").exit_code == 0
    assert Path(quick.output / f"{LETTERS}.kafka-ingest").is_dir()
