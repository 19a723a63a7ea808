"""A feed whose output is a table in a store that speaks S3's protocol: the whole way, with real parts."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.contract.polars_in_stores import delta_rows, iceberg_rows
from tests.iceberg_lake import files_in_store
from tests.integration.test_adopt import DO_IT
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import Record, topic_id
from tests.kafka_faults import produce as produce_plain
from tests.kept_spark import kept_spark
from tests.killing import Processes, ending_all, kill, kill_a_run_that_spark_wrote_for, processes_of
from tests.object_store import ObjectStore, StoreFault
from tests.quick_project import QuickProject
from tests.store_proxy import OF_ROLE, SECRET
from tests.table_kinds import lands

from kafka_ingest.foundation import storage
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.sinks.iceberg.commits import IcebergCommits
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from order_events import order_events, produce

JAVA = b"org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True)
class Lake:
    """A table in a store, and the connections that lead there."""

    store: ObjectStore
    format: str
    uri: str
    catalog: Path
    with_key: bool = True
    """Otherwise the machine's role leads there."""

    @property
    def sink(self) -> dict[str, str]:
        """What a feed file says of it."""
        of_catalog = {"catalog": "lake", "table": "shop.orders"} if self.format == "iceberg" else {}
        return {"format": self.format, "path": self.uri, **of_catalog}

    @property
    def environment(self) -> dict[str, str]:
        """What Airflow knows of it, and what a machine whose role leads there has."""
        catalog = json.dumps({"conn_type": "sqlite", "host": str(self.catalog)})
        store = self.store.connection(with_key=self.with_key)
        role = {} if self.with_key else self.store.role_of_machine(self.catalog.parent)
        return {"AIRFLOW_CONN_AWS_LAKE": store, "AIRFLOW_CONN_LAKE": catalog, **role}

    @property
    def environment_of_a_container(self) -> dict[str, str]:
        """What a container has whose role leads there."""
        return {"AIRFLOW_CONN_AWS_LAKE": self.store.connection(with_key=False), **self.store.role(self.catalog.parent)}

    @property
    def of_java(self) -> dict[str, str]:
        """Where a Java that ran before looks for its machine's role, which the environment says to others."""
        return {} if self.with_key else {"aws.ec2MetadataServiceEndpoint": self.store.endpoint}

    def as_it_is_reached(self) -> AbstractContextManager[None]:
        """Take no requests inside but those of the role, if that leads there."""
        return nullcontext() if self.with_key else self.store.refusing_all_but_the_role()

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as Polars reads the table, by position."""
        try:
            if self.format == "delta":
                found = delta_rows(self.uri.replace("aws_lake@", ""), self.options)
            else:
                found = iceberg_rows(self.iceberg(), self.options)
        except NoSuchTableError:
            return []
        if found.is_empty():
            return []
        by_position = found.sort("kafka_topic", "kafka_partition", "kafka_offset")
        return by_position.drop("kafka_date", strict=False).to_dicts()

    @property
    def options(self) -> dict[str, str]:
        """How other programs reach the store."""
        return {name: value for name, value in self.store.access().for_delta().items() if name.startswith("AWS_")}

    def uploads(self) -> list[str]:
        """Return the keys of the uploads in parts that have begun."""
        place = RemotePlace(self.uri)
        files = storage.opened(place, self.store.access()).fs
        found = files.call_s3("list_multipart_uploads", Bucket=place.bucket, Prefix=f"{place.key}/")
        return [each["Key"] for each in found.get("Uploads", [])]

    def files(self) -> list[int]:
        """Return how many rows each file has, as the table says."""
        return sorted(self.iceberg().inspect.files()["record_count"].to_pylist())

    def iceberg(self) -> Table:
        """Return the table as another program has it."""
        files = files_in_store(self.store.access())
        return load_catalog("lake", type="sql", uri=f"sqlite:///{self.catalog}", **files).load_table("shop.orders")

    def batches_seen(self) -> dict[str, int]:
        """Return how many rows of each batch are there."""
        return dict(Counter(row["kafka_batch"] for row in self.rows()))


@pytest.fixture
def lake(request: pytest.FixtureRequest, object_store: ObjectStore, tmp_path: Path) -> Lake:
    object_store.make_bucket("lake")
    # One of the two goes by a role: the clients are the same for both formats, apart from delta-rs, whose Spark that is
    # killed goes by a container's.
    return Lake(
        object_store,
        request.param,
        f"s3://aws_lake@lake{tmp_path}/orders",
        tmp_path / "catalog.db",
        with_key=request.param == "delta",
    )


@pytest.fixture
def of_lake(quick: QuickProject, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> QuickProject:
    """A project that knows how to reach the store."""
    quick.environment |= lake.environment
    for name, value in lake.environment.items():
        monkeypatch.setenv(name, value)
    return quick


@pytest.fixture
def processes(of_lake: QuickProject) -> Iterator[Processes]:
    with ending_all(of_lake) as made:
        yield made


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def what_others_see(project: QuickProject, of_java: Mapping[str, str]) -> Iterator[list[bytes]]:
    """Collect the command lines of a run's Spark, and what it says; its Java has these properties, too."""
    seen: list[bytes] = []
    submit = project.submit

    def noted(submission: SparkSubmission, log_file: Path, *, while_running: Callable[[], object]) -> None:
        attempt = submission.arguments[0].encode()
        # The log of a run that succeeds is removed with what is beside it; an open file can still be read.
        log_file.touch()
        log = log_file.open("rb")
        said_before = kept_spark().log.stat().st_size

        def look() -> None:
            while_running()
            seen.extend(line for line in command_lines() if attempt in line)

        try:
            submit(replace(submission, conf={**submission.conf, **of_java}), log_file, while_running=look)
        finally:
            seen.append(log.read())
            log.close()
            seen.append(kept_spark().log.read_bytes()[said_before:])

    with project.submitting(spark_is_real=True), patch.object(project, "submit", noted):
        yield seen


def command_lines() -> Iterator[bytes]:
    """Yield the command line of each process, as any user of the machine may read it."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def assert_no_secret_in(lake: Lake, project: QuickProject, seen: list[bytes]) -> None:
    """Neither the key's secret nor the role's is in what was seen, on the project's disk, or in the store."""
    seen += [file.read_bytes() for file in project.home.rglob("*") if file.is_file()]
    in_store = storage.opened(RemotePlace(lake.uri).parent, lake.store.access())
    names = storage.files_below(in_store)
    assert any(name.endswith("/plan.json") for name in names)
    seen += [storage.read_whole(in_store / name) for name in names]
    for secret in (SECRET, OF_ROLE["SecretAccessKey"], OF_ROLE["Token"]):
        assert not [content for content in seen if secret.encode() in content]


BY = ["kafka_partition", "day(kafka_timestamp)"]


# By a role, and the next ones by a key: Spark stages the same files for both formats.
@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_every_record_is_in_the_table_once_after_a_killed_commit_a_filled_gap_and_lost_control_tables(
    of_lake: QuickProject, processes: Processes, servers: str, topic: str, lake: Lake
) -> None:
    of_lake.write_feed(topic, sink=lake.sink | {"partition_by": BY})
    noon_ms = round(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
    events = list(order_events(2_000, seed=11, timestamps_ms=count(noon_ms, 60_000)))
    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, islice(events, 1_000))
    with lake.as_it_is_reached(), what_others_see(of_lake, lake.of_java) as seen:
        [first] = of_lake.run()
    assert first["rows"] == 1_000
    rows = lake.rows()
    assert [comparable(row) for row in rows] == rows_expected(events[:1_000], topic, id_of_topic)
    partitions = Counter((row["kafka_partition"], row["kafka_timestamp"].date()) for row in rows)
    assert len({day for _, day in partitions}) == 2
    assert lake.files() == sorted(partitions.values()), "one file for each partition of the table"

    produce(servers, topic, events[1_000:])
    stored = of_lake.stored_offsets()[0]
    of_lake.answer("skip", "orders", topic, "0", f"{stored}-{stored + 10}", "--reason", "poisoned")
    kill_a_run_that_spark_wrote_for(of_lake, processes, f"after:{lands(IcebergCommits)}")
    open_batch = of_lake.status()["open_batch"]
    [second] = of_lake.run()
    assert (second["batch_id"], second["rows"]) == (open_batch["batch_id"], 1_000 - 10)
    [filled] = of_lake.answer("backfill", "orders", "gaps", "--reason", "mended")["chunks"]
    expected = rows_expected(events, topic, id_of_topic)
    rows = lake.rows()
    assert [comparable(row) for row in rows] == expected
    assert {row["kafka_batch"] for row in rows} == {first["batch_id"], second["batch_id"], filled["batch_id"]}
    assert of_lake.stored_offsets() == of_lake.group_offsets()

    assert of_lake.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    located = of_lake.answer("locate", "orders", topic, "0", "0")
    [file] = [file for batch in located["batches"] for file in batch["files"] if file["holds_record"]]
    assert file["path"].startswith(f"{lake.uri}/")
    assert f"/batches/{first['batch_id']}/" in file["path"]
    assert of_lake.kafka_ingest("doctor").exit_code == 0

    of_lake.control_file.unlink()
    of_lake.upgrade()
    of_lake.answer("adopt", "orders", *DO_IT)
    assert of_lake.run() == []
    assert [comparable(row) for row in lake.rows()] == expected
    assert_no_secret_in(lake, of_lake, seen)


GIVES_UP_SOON = {
    "spark.hadoop.fs.s3a.attempts.maximum": "1",
    "spark.hadoop.fs.s3a.retry.limit": "1",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "1",
}


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_uploads_of_spark_that_fail_or_are_killed_end_the_attempt_and_the_next_one_is_committed(
    of_lake: QuickProject, processes: Processes, servers: str, topic: str, lake: Lake
) -> None:
    of_lake.write_feed(topic, sink=lake.sink, spark={"conf": GIVES_UP_SOON})
    produce(servers, topic, order_events(100, seed=11))
    busy = StoreFault("(PUT|POST) .*/batches/", status=503, code="SlowDown")
    with lake.store.failing(busy), what_others_see(of_lake, lake.of_java) as seen:
        failed = of_lake.kafka_ingest("run", "orders", "--json")
    assert failed.exit_code == 1, failed.stdout + failed.stderr
    assert (lake.rows(), lake.uploads()) == ([], [])
    seen += [failed.stdout.encode(), failed.stderr.encode()]

    # No upload ends, however soon Spark is killed after one has begun.
    lake.store.set_faults(StoreFault("PUT .*/batches/.*partNumber=", "withhold the answer"))
    try:
        run = processes.run_feed(**lake.environment_of_a_container)
        run.wait_until(lake.uploads, "Spark to have begun an upload")
        of_attempts = lake.catalog.parent / "orders.kafka-ingest"
        lines = [line for line in command_lines() if bytes(of_attempts) in line]
        assert any(JAVA in line for line in lines)
        [java] = [each for each in processes_of(of_attempts) if each.info["name"].startswith("java")]
        kill(java)
        assert (run.end().exit_code, run.said.document["error"]["code"]) == (1, "SPARK_FAILED"), run.said
        seen += [*lines, run.said.stdout.encode(), run.said.stderr.encode()]
    finally:
        lake.store.set_faults()
    assert lake.rows() == []
    assert_no_secret_in(lake, of_lake, seen)

    [batch] = of_lake.run()
    assert (batch["rows"], lake.batches_seen()) == (100, {batch["batch_id"]: 100})
    assert f"/{batch['batch_id']}/3/" in json.dumps(of_lake.answer("locate", "orders", topic, "0", "0"))
    assert {name.split("/")[-2] for name in lake.uploads()} == {"2"}
    of_lake.answer("clean", "--batch", batch["batch_id"], "--reason", "the store is dear")
    assert (lake.uploads(), lake.batches_seen()) == ([], {batch["batch_id"]: 100})


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_records_that_cannot_be_decoded_are_beside_a_table_in_a_store_and_spark_replays_them(
    of_lake: QuickProject, lake: Lake, servers: str, topic: str
) -> None:
    of_lake.write_feed(topic, sink=lake.sink, value={"format": "json", "schema": "id int"}, where="value.id > 0")
    produce_plain(
        servers, topic, 0, [Record(b'{"id": 1}'), Record(b"no"), Record(b'{"id": 0}'), Record(b'{"id": "2"}')]
    )
    with of_lake.submitting(spark_is_real=True):
        [batch] = of_lake.run()
        assert [row["value"] for row in lake.rows()] == [{"id": 1}]
        found = of_lake.answer("dead-letters", "orders")
        assert (found["dead_letters"], found["problems"]) == (2, [])
        assert {each["error_class"] for each in found["causes"]} == {"NOT_JSON", "DOES_NOT_FIT"}

        as_text = {"name": "value", "type": "struct<id: int>", "sql": "named_struct('id', length(value))"}
        key = {"name": "key", "type": "binary", "sql": "key"}
        of_lake.edit_feed(value="string", where="true", select=[key, as_text])
        [replayed] = of_lake.answer("replay", "orders")["chunks"]
    assert (replayed["kind"], replayed["rows"]) == ("replay", 2)
    assert [(row["kafka_offset"], row["value"]["id"]) for row in lake.rows()] == [(0, 1), (1, 2), (3, 11)]
    coverage = of_lake.answer("coverage", "orders", "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])
    given_up = ("dead-letters", "orders", "--batch", batch["batch_id"], "--give-up", "--reason", "they are rows")
    assert of_lake.answer(*given_up)["given_up"] == 2
