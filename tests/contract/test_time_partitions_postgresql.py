"""Range partitions of a table in PostgreSQL by the records' time: which are made, and where the other rows go."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from psycopg import sql
from sqlalchemy import text
from tests.contract.conftest import PostgresqlServer
from tests.contract.sink_outputs import ROWS, PostgresqlOutput, plan_to, written
from tests.contract.test_sink_postgresql import RAW, to
from tests.postgresql_tables import connect, execute, make_schema, new_role, postgresql_at, schema_of

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.postgresql import time_partitions

pytestmark = pytest.mark.usefixtures("postgresql_server")

FIRST = datetime(2026, 1, 31, 22, tzinfo=UTC)
BY_DAY = TableOptions(partition_by=terms_of(["day(kafka_timestamp)"]))
BY_HOUR = TableOptions(partition_by=terms_of(["hour(kafka_timestamp)"]))
Times = list[datetime | None]


class OfTimes(PostgresqlOutput):
    """A table whose next batch has records of these times, ten in each of two Kafka partitions."""

    def __init__(self, path: Path, options: TableOptions = BY_DAY) -> None:
        super().__init__(path, options)
        self.times: Times = [FIRST + timedelta(hours=each) for each in range(ROWS)]

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        for name in super().stage(directory, files):
            path = directory / "data" / name
            rows = pyarrow.parquet.read_table(path)
            times = pa.array(self.times, pa.timestamp("us", "UTC"))
            number = rows.schema.get_field_index("kafka_timestamp")
            pyarrow.parquet.write_table(rows.set_column(number, "kafka_timestamp", times), path)
        return {name: (directory / "data" / name).stat().st_size for name in files}

    def add(self, number: int, times: Times | None = None) -> None:
        """Publish a batch as a commit does."""
        self.times = times or self.times
        directory, published = written(self, plan_to(self, number))
        self.sink.publisher.can_take(directory, published.receipt)
        self.sink.publisher.publish(directory, published)

    def partitions(self) -> Counter[str]:
        """Return how many rows are in each partition, also in those that have none."""
        with connect() as connection:
            query = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = to_regclass(%s)"
            names = [row[0] for row in connection.execute(query, [f"{schema_of(self.path)}.orders"])]
        count = "SELECT tableoid::regclass::text, count(*) FROM {} GROUP BY 1"
        found = Counter(dict.fromkeys(names, 0)) | Counter(dict(execute(self.path, count)))
        return Counter({name.partition(".orders_")[2]: found[name] for name in {*names, *found}})


@pytest.fixture
def output(postgresql_server: PostgresqlServer, tmp_path: Path) -> OfTimes:
    make_schema(postgresql_server, tmp_path / "orders")
    made = OfTimes(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def test_each_row_is_in_the_partition_of_its_day_in_utc_and_one_without_a_time_in_the_default_one(
    output: OfTimes,
) -> None:
    with connect() as connection:
        connection.execute("ALTER DATABASE postgres SET timezone = 'Pacific/Auckland'")
    try:
        output.add(1)
        assert output.partitions() == {"p20260131": 4, "p20260201": 16, "p20260202": 0, "default": 0}
        output.add(2, [None, datetime(1969, 12, 31, tzinfo=UTC), *[FIRST + timedelta(days=1)] * 8])
        assert output.partitions() == {"p20260131": 4, "p20260201": 32, "p20260202": 0, "default": 4}
    finally:
        with connect() as connection:
            connection.execute("ALTER DATABASE postgres RESET timezone")
    bounds = "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = '{schema}.orders_p20260201'::regclass"
    with connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        [(bound,)] = connection.execute(sql.SQL(bounds).format(schema=sql.SQL(schema_of(output.path)))).fetchall()
    assert bound == "FOR VALUES FROM ('2026-02-01 00:00:00+00') TO ('2026-02-02 00:00:00+00')"


def test_partitions_by_hour(output: OfTimes) -> None:
    by_hour = OfTimes(output.path, BY_HOUR)
    by_hour.add(1)
    expected = {f"p20260131{hour}": 2 for hour in (22, 23)} | {f"p202602010{hour}": 2 for hour in range(8)}
    assert by_hour.partitions() == expected | {"p2026020108": 0, "default": 0}


def days(*numbers: int) -> Times:
    return [datetime(2026, 1, each, tzinfo=UTC) for each in numbers]


def test_no_more_partitions_are_made_for_a_batch_than_may_be_and_rows_that_are_there_stay(
    output: OfTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_partitions, "MOST_NEW", 2)
    output.add(1, days(1, 2, 2, 3, 3, 3, 4, 4, 4, 4))
    assert output.partitions() == {"p20260104": 8, "p20260103": 6, "default": 6}
    output.add(2, days(1, 2, 2, 3, 3, 5, 5, 5, 6, 6))
    made = {"p20260103": 10, "p20260104": 8, "p20260105": 6, "p20260106": 4}
    assert output.partitions() == made | {"default": 12}


def test_a_period_of_which_the_default_partition_has_rows_is_left_there_without_a_lock(
    output: OfTimes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(time_partitions, "MOST_NEW", 0)
        output.add(1)
    output.add(2, [FIRST + timedelta(days=2)] * ROWS)
    caplog.clear()
    with connect() as other:
        other.autocommit = False
        other.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema_of(output.path), "orders")))
        output.add(3, [FIRST] * ROWS)
    [said] = caplog.messages
    assert "orders_default has rows from 2026-01-31 00:00:00+00:00 on" in said
    assert output.partitions() == {"p20260202": 20, "p20260203": 0, "default": 40}


def test_where_the_default_partition_is_large_a_batch_makes_one_partition_alone(
    output: OfTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_partitions, "MOST_SCANNED", 1000)
    output.add(1, [None, *days(1, 1, 1, 1, 1, 2, 2, 2, 2)])
    assert output.partitions() == {"p20260101": 10, "p20260102": 8, "p20260103": 0, "default": 2}
    output.add(2, days(4, 4, 4, 4, 4, 4, 5, 5, 5, 5))
    assert output.partitions() == {"p20260101": 10, "p20260102": 8, "p20260103": 0, "p20260104": 12, "default": 10}


def test_times_far_from_most_of_a_batch_and_from_now_get_no_partitions(output: OfTimes) -> None:
    now = datetime.now(UTC)
    output.add(
        1, [*days(1, 1, 1, 1, 1), now, datetime(2024, 1, 1, tzinfo=UTC), *[datetime(2199, 1, 1, tzinfo=UTC)] * 3]
    )
    found = output.partitions()
    assert (found["p20260101"], found[f"p{now:%Y%m%d}"], found["default"], len(found)) == (10, 2, 8, 5)


def test_a_table_gets_no_more_partitions_than_half_of_the_servers_locks_are_for(
    output: OfTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.add(1)
    with connect() as connection:
        [(most,)] = connection.execute(str(time_partitions.MOST).replace(":name", "'none'")).fetchall()
        [(locks, connections)] = connection.execute(
            "SELECT current_setting('max_locks_per_transaction')::int, current_setting('max_connections')::int"
        ).fetchall()
    assert most == locks * connections // 2
    monkeypatch.setattr(time_partitions, "MOST", text("SELECT 5 WHERE :name <> ''"))
    output.add(2, days(1, 1, 2, 2, 2, 2, 2, 3, 3, 3))
    assert output.partitions() == {"p20260131": 4, "p20260201": 16, "p20260202": 0, "p20260102": 10, "default": 10}


def test_a_program_that_reads_the_default_partition_is_not_waited_for_long_and_no_batch_fails(output: OfTimes) -> None:
    output.add(1, [None] * ROWS)
    with connect() as other:
        other.autocommit = False
        other.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema_of(output.path), "orders")))
        output.add(2, [FIRST] * ROWS)
        assert output.partitions() == {"default": 40}
    output.add(3, [FIRST + timedelta(days=1)] * ROWS)
    assert output.partitions() == {"p20260201": 20, "p20260202": 0, "default": 40}


def test_batches_that_need_a_partition_at_once_make_it_once(output: OfTimes) -> None:
    output.add(1, [None] * ROWS)
    output.times = [FIRST + timedelta(hours=each) for each in range(ROWS)]
    batches = [written(output, plan_to(output, number)) for number in (2, 3, 4)]

    def commit(batch: Any) -> None:
        directory, published = batch
        output.sink.publisher.can_take(directory, published.receipt)
        output.sink.publisher.publish(directory, published)

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(commit, batches))
    assert output.partitions() == {"p20260131": 12, "p20260201": 48, "p20260202": 0, "default": 20}


def test_rows_go_to_the_default_partition_where_the_role_is_none_of_the_owners_and_doctor_says_so(
    output: OfTimes, postgresql_server: PostgresqlServer
) -> None:
    output.add(1, [None] * ROWS)
    assert output.sink.remark is not None
    assert output.sink.remark() == ""
    new_role("loader")
    execute(output.path, "GRANT USAGE, CREATE ON SCHEMA {schema} TO loader")
    execute(output.path, "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {schema} TO loader")
    url = postgresql_server.url("postgres").set(username="loader")
    owners, output.sink = output.sink, sink_of(postgresql_at(output.path, BY_DAY), to(url))
    assert output.sink.remark is not None
    assert "its partitions are made by its owner's roles alone" in output.sink.remark()
    output.add(2, [FIRST] * ROWS)
    assert output.partitions() == {"default": 40}
    output.sink = owners
    output.add(3, [FIRST + timedelta(days=1)] * ROWS)
    assert output.partitions() == {"p20260201": 20, "p20260202": 0, "default": 40}
    with connect() as connection:
        connection.execute("DROP OWNED BY loader")


def test_a_table_with_partitions_of_its_owners_gets_those_alone_that_are_missing(output: OfTimes) -> None:
    columns = sql.SQL(RAW)
    execute(output.path, "CREATE TABLE {} ({columns}) PARTITION BY RANGE (kafka_timestamp)", columns=columns)
    bounds = "FROM (MINVALUE) TO ('2026-02-01T00:00:00Z')"
    execute(
        output.path,
        "CREATE TABLE {schema}.orders_before PARTITION OF {} FOR VALUES {bounds}",
        bounds=sql.SQL(bounds),
    )
    output.add(1)
    assert output.partitions() == {"before": 4, "p20260201": 16, "p20260202": 0}


def test_partitions_and_indexes_that_a_renamed_table_has_kept_are_named_before_another_one_is_made(
    output: OfTimes,
) -> None:
    output.add(1)
    execute(output.path, "ALTER TABLE {} RENAME TO orders_old")
    said = "found orders_default there already: .*, orders_positions there already: .*, orders_batches there already: "
    with pytest.raises(OutputNotUsableError, match=said):
        output.sink.publisher.examine()
    with pytest.raises(OutputNotUsableError, match=said):
        output.add(2)
    execute(output.path, "DROP TABLE {schema}.orders_old")
    output.add(2)
    output.sink.publisher.examine()
    assert output.partitions() == {"p20260131": 4, "p20260201": 16, "p20260202": 0, "default": 0}


@pytest.mark.parametrize("by", ["", " PARTITION BY LIST (kafka_topic)"])
def test_a_table_that_is_not_partitioned_by_the_time_is_used_as_it_is(output: OfTimes, by: str) -> None:
    execute(output.path, "CREATE TABLE {} ({columns}){by}", columns=sql.SQL(RAW), by=sql.SQL(by))
    if by:
        execute(output.path, "CREATE TABLE {schema}.orders_rest PARTITION OF {} DEFAULT")
    output.add(1)
    assert execute(output.path, "SELECT count(*) FROM {}") == [(2 * ROWS,)]
    assert output.partitions().keys() == ({"rest"} if by else {""})


def test_a_record_that_is_there_by_another_batch_is_refused_in_partitions_too(output: OfTimes) -> None:
    output.add(1)
    execute(output.path, "UPDATE {} SET kafka_topic_id = 'same'")
    stage = PostgresqlOutput.stage

    def of_one_topic(self: PostgresqlOutput, directory: Path, files: list[str]) -> dict[str, int]:
        sizes = stage(self, directory, files)
        for name in sizes:
            rows = pyarrow.parquet.read_table(directory / "data" / name)
            number = rows.schema.get_field_index("kafka_topic_id")
            same = pa.array(["same"] * ROWS, pa.string())
            pyarrow.parquet.write_table(rows.set_column(number, "kafka_topic_id", same), directory / "data" / name)
        return sizes

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PostgresqlOutput, "stage", of_one_topic)
        with pytest.raises(OutputConflictError, match="the table refuses"):
            output.add(2)
    assert output.partitions() == {"p20260131": 4, "p20260201": 16, "p20260202": 0, "default": 0}
