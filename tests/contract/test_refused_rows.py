"""Which rows a table in PostgreSQL refuses, asked before a batch is committed, so that they can become dead letters."""

from collections import Counter
from typing import LiteralString

import psycopg
import pytest
from tests.contract.sink_outputs import ROWS, PostgresqlOutput, made, plan_to, rows_of, written
from tests.contract.test_sink_postgresql import RAW, tables
from tests.postgresql_tables import connect, execute, schema_of

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.sinks.postgresql import commits, database
from kafka_ingest.sinks.postgresql.named_table import name_of_copy

pytestmark = pytest.mark.usefixtures("postgresql_server")

ALL = list(range(ROWS))


@pytest.fixture
def output(request: pytest.FixtureRequest) -> PostgresqlOutput:
    found = made(PostgresqlOutput, request.getfixturevalue("tmp_path") / "orders", request)
    assert isinstance(found, PostgresqlOutput)
    return found


def refused(output: PostgresqlOutput) -> dict[str, list[int]]:
    """Return which offsets the table refuses of a batch with 0 to 9 of two partitions, by partition and cause."""
    directory, published = written(output, plan_to(output, 1))
    assert output.sink.refused is not None
    found = output.sink.refused(directory, published.receipt)
    return {f"{each.topic_partition} {each.cause}": list(each.offsets) for each in found}


UNIQUE = "orders-1 UniqueViolation, constraint orders_kafka_offset_key"
FEW = "orders-1 CheckViolation, constraint few"
TO_THE_NEXT: LiteralString = (
    "next bigint GENERATED ALWAYS AS (least(kafka_offset + 1, 9)) STORED, UNIQUE (kafka_partition, kafka_offset), "
    "FOREIGN KEY (kafka_partition, next) REFERENCES {schema}.orders (kafka_partition, kafka_offset)"
)


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("CONSTRAINT few CHECK (kafka_partition = 0 OR kafka_offset < 7)", {FEW: [7, 8, 9]}),
        ("UNIQUE (kafka_offset)", {UNIQUE: ALL}),
        ("UNIQUE (kafka_offset) DEFERRABLE INITIALLY DEFERRED", {UNIQUE: ALL}),
        (
            "EXCLUDE USING gist (int8range(kafka_offset, kafka_offset + 2) WITH &&) WHERE (kafka_partition = 1)",
            {"orders-1 ExclusionViolation, constraint orders_int8range_excl": [1, 3, 5, 7, 9]},
        ),
        (
            "CONSTRAINT known FOREIGN KEY (kafka_partition) REFERENCES {schema}.partitions INITIALLY DEFERRED",
            {"orders-1 ForeignKeyViolation, constraint known": ALL},
        ),
        (
            "ratio int GENERATED ALWAYS AS (1 / (kafka_offset - 4 + 10 * kafka_partition)) STORED",
            {"orders-0 DivisionByZero": [4]},
        ),
        (
            "CONSTRAINT few CHECK (kafka_partition = 0 OR kafka_offset <> 3), " + TO_THE_NEXT,
            {"orders-1 ForeignKeyViolation, constraint orders_kafka_partition_next_fkey": [0, 1, 2], FEW: [3]},
        ),
    ],
    ids=["check", "unique", "deferred", "exclusion", "foreign key", "generated", "each wants the row behind it"],
)
def test_all_rows_that_a_constraint_refuses_are_named_and_nothing_stays_in_the_table(
    output: PostgresqlOutput, constraint: LiteralString, expected: dict[str, list[int]]
) -> None:
    execute(output.path, "CREATE TABLE {schema}.partitions AS SELECT 0 AS number")
    execute(output.path, "ALTER TABLE {schema}.partitions ADD PRIMARY KEY (number)")
    execute(output.path, "CREATE TABLE {} (" + RAW + ", " + constraint + ")")
    assert refused(output) == expected
    assert output.seen() == Counter()
    assert not any(name.startswith("kafka_ingest_") for name in tables(output))


def test_a_null_a_missing_partition_and_a_trigger_refuse_rows_too_and_no_words_of_a_trigger_are_kept(
    output: PostgresqlOutput,
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW.replace("key bytea", "key bytea NOT NULL DEFAULT ''") + ")")
    assert refused(output) == {f"orders-{number} NotNullViolation, column key": ALL for number in range(2)}
    execute(output.path, "DROP TABLE {}")
    execute(output.path, "CREATE TABLE {} (" + RAW + ") PARTITION BY LIST (kafka_partition)")
    execute(output.path, "CREATE TABLE {schema}.one PARTITION OF {} FOR VALUES IN (1)")
    execute(
        output.path,
        "CREATE FUNCTION {schema}.few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.kafka_partition = 1 AND "
        "new.kafka_offset >= 8 THEN RAISE EXCEPTION 'secret %', new.value; END IF; RETURN new; END $$",
    )
    execute(output.path, "CREATE TRIGGER few BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {schema}.few()")
    directory, published = written(output, plan_to(output, 1), attempt=2)
    assert output.sink.refused is not None
    found = output.sink.refused(directory, published.receipt)
    assert [(str(each), list(each.offsets)) for each in found] == [
        ("orders-0@0 and 9 more (CheckViolation)", ALL),
        ("orders-1@8 and 1 more (RaiseException)", [8, 9]),
    ]


def test_a_row_is_refused_for_one_that_is_there_and_what_is_not_refused_is_published_as_it_was_copied(
    output: PostgresqlOutput,
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(output.path, "CREATE UNIQUE INDEX once ON {} (kafka_partition, kafka_offset)")
    execute(output.path, "INSERT INTO {} (kafka_topic, kafka_partition, kafka_offset) VALUES ('other', 0, 5)")
    assert refused(output) == {"orders-0 UniqueViolation, constraint once": [5]}
    execute(output.path, "DELETE FROM {}")
    directory, published = written(output, plan_to(output, 2))
    assert output.sink.refused is not None
    assert output.sink.refused(directory, published.receipt) == ()
    assert output.seen() == Counter()
    assert sum(name.startswith("kafka_ingest_") for name in tables(output)) == 1
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert output.sink.refused(directory, published.receipt) == ()


def test_rows_are_copied_again_where_a_crash_of_the_server_has_emptied_their_copy(output: PostgresqlOutput) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    directory, published = written(output, plan_to(output, 1))
    assert output.sink.refused is not None
    assert output.sink.refused(directory, published.receipt) == ()
    execute(output.path, "ALTER TABLE {} ADD CONSTRAINT few CHECK (kafka_offset < 9)")
    [copied] = [name for name in tables(output) if name.startswith(name_of_copy(published.receipt.batch_id, ""))]
    execute(output.path, "TRUNCATE {schema}.{copied}", copied=psycopg.sql.Identifier(copied))
    found = output.sink.refused(directory, published.receipt)
    assert [(str(each.topic_partition), each.offsets) for each in found] == [("orders-0", (9,)), ("orders-1", (9,))]


def test_so_many_are_looked_for_as_may_become_dead_letters_and_one_more(
    output: PostgresqlOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "MOST_REFUSED", 3)
    execute(output.path, "CREATE TABLE {} (" + RAW + ", UNIQUE (kafka_offset))")
    assert refused(output) == {UNIQUE: [0, 1, 2, 3]}


def test_a_row_that_another_writer_has_not_committed_yet_is_waited_for_and_refuses_none(
    output: PostgresqlOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCK_TIMEOUT_S", 1)
    execute(output.path, "CREATE TABLE {} (" + RAW + ", UNIQUE (kafka_partition, kafka_offset))")
    with connect() as rival, rival.transaction():
        rival.execute(
            psycopg.sql.SQL("INSERT INTO {} (kafka_partition, kafka_offset) VALUES (0, 5)").format(
                psycopg.sql.Identifier(schema_of(output.path), "orders")
            )
        )
        with pytest.raises(OutputUnavailableError, match="has held a lock for more than 1 s"):
            refused(output)
