"""How the benchmark's contestants are started, and what their failure means.

A peer is left out, this project's ends all.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import contestant
import measurement
import pytest
import yaml
from cases import Case, Entry
from contestant import (
    OURS,
    S3_JARS,
    Job,
    Start,
    leave_settings_behind,
    our_environment,
    plain_environment,
)
from contestants_of_formats import FLINK_AVRO
from contestants_of_tables import CONTESTANTS, FLINK_ICEBERG
from last_will import LastWill
from measurement import CouldNotRunError, Track, commit_s
from order_values import NAMES
from process_tree import processor_s
from s3_server import BUCKET
from talking import BenchmarkError
from topic_data import TopicData

from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

PEER = "python"
TABLES = "delta", "iceberg"
OF_THE_SHELL = (
    *("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"),
    *("AWS_PROFILE", "AWS_ENDPOINT_URL"),
    *("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "FLINK_CONF_DIR", "JVM_ARGS", "PYSPARK_PYTHON", "KAFKA_INGEST_SPARK_JARS"),
)

LINGERS = "import time; time.sleep(600)"
FAILS = "import sys; sys.exit('no such topic')"
WRITES_NOTHING = "pass"
WRITES_NO_PARQUET = (
    "import pathlib; pathlib.Path('output').mkdir(); pathlib.Path('output/a.parquet').write_text('no Parquet')"
)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job("127.0.0.1:1", "orders", tmp_path, {}, 2_000)


@pytest.fixture
def job_in_store(job: Job) -> Job:
    return replace(job, store=S3Access("aws_default", "http://127.0.0.1:2", "us-east-1", "a-key", "a-secret"))


@pytest.fixture
def track(tmp_path: Path) -> Iterator[Track]:
    (tmp_path / "logs").mkdir()
    with LastWill() as will:
        yield Track(tmp_path / "runs", tmp_path / "logs", "127.0.0.1:1", os.getpid(), will)


def run(track: Track, name: str, program: str, monkeypatch: pytest.MonkeyPatch, *, caught_up: bool = False) -> None:
    """Measure a program in the place of a contestant."""
    start = Start([sys.executable, "-c", program], {})
    replaced = replace(CONTESTANTS[name], start=lambda _: start, prepare=lambda _: None)
    monkeypatch.setitem(CONTESTANTS, name, replaced)  # type: ignore[arg-type]
    entry = Entry(name, name, TopicData("orders", 10), caught_up=caught_up)
    track.measure(Case("big", "10 records", [entry], OURS, 1), entry, 1, 0)


@pytest.mark.parametrize("name", list(CONTESTANTS))
def test_what_the_shell_carries_of_settings_reaches_no_one(
    name: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = (*OF_THE_SHELL, "AIRFLOW_CONN_KAFKA_DEFAULT", "PYTHONHASHSEED")
    monkeypatch.setattr(os, "environ", {**os.environ, **dict.fromkeys(carried, "the shell's")})

    leave_settings_behind()
    environment = CONTESTANTS[name].start(job).environment
    assert [name for name, value in environment.items() if value == "the shell's"] == []
    assert environment["PATH"].startswith(str(contestant.BIN))


def test_what_the_shell_carries_of_settings_reaches_no_broker_either(monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker has this process's environment; what it is called with, and what finds its Java, stays.
    monkeypatch.setattr(os, "environ", {"PATH": "/bin", "JAVA_HOME": "/java", **dict.fromkeys(OF_THE_SHELL, "x")})

    leave_settings_behind()

    assert os.environ == {"PATH": "/bin", "JAVA_HOME": "/java"}


def test_this_project_has_everybodys_environment_and_its_own_places(job: Job) -> None:
    more = our_environment(job).keys() - plain_environment(job).keys()

    assert {name.partition("_")[0] for name in more} == {"AIRFLOW", "KAFKA"}


def test_the_tuned_peer_reads_as_this_project_does(job: Job) -> None:
    reported = CONTESTANTS["available-now-zstd"].start(job).command[-1]

    for name, value in READ_DEFAULTS.items():
        assert f'"kafka.{name}": "{value}"' in reported


@pytest.mark.parametrize("table", TABLES)
def test_the_peers_of_tables_read_as_this_project_does(table: str, job: Job) -> None:
    command = CONTESTANTS[f"available-now-{table}"].start(job).command

    assert all(f'"kafka.{name}": "{value}"' in command[-1] for name, value in READ_DEFAULTS.items())
    assert f'"format": "{table}"' in command[-1]


def test_the_peers_of_tables_in_s3_write_to_its_server(job_in_store: Job) -> None:
    delta, iceberg = (CONTESTANTS[f"available-now-{table}-s3"].start(job_in_store).command for table in TABLES)
    place = f"s3a://{BUCKET}/{job_in_store.home.name}/output"

    assert f'"output": "{place}"' in delta[-1]
    assert f"spark.sql.catalog.lake.warehouse={place}" in iceberg
    for command in (delta, iceberg):
        assert f"spark.hadoop.fs.s3a.bucket.{BUCKET}.endpoint=http://127.0.0.1:2" in command


def test_only_tables_in_s3_take_its_jars_and_its_settings(job: Job) -> None:
    for name, each in CONTESTANTS.items():
        if not each.in_store:
            command = " ".join(each.start(job).command)
            assert "s3a" not in command, name
            assert str(S3_JARS) not in command, name


def test_this_project_writes_its_table_in_s3_by_an_airflow_connection(
    job_in_store: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contestant.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    ours = CONTESTANTS["kafka-ingest-delta-s3"]
    ours.prepare(job_in_store)

    feed = yaml.safe_load((job_in_store.home / "feeds" / "orders.yaml").read_text())
    assert feed["sink"] == {"format": "delta", "path": f"s3://{BUCKET}/{job_in_store.home.name}/output"}
    connection = json.loads(ours.start(job_in_store).environment["AIRFLOW_CONN_AWS_DEFAULT"])
    assert (connection["login"], connection["extra"]["endpoint_url"]) == ("a-key", "http://127.0.0.1:2")


def test_flink_finds_hadoop_only_where_it_writes_to_iceberg(job: Job) -> None:
    files, table = (CONTESTANTS[name].start(job) for name in ("flink", "flink-iceberg"))

    assert ("HADOOP_CLASSPATH" in files.environment, "HADOOP_CLASSPATH" in table.environment) == (False, True)
    assert ('"format": "parquet"' in files.command[-1], '"format": "iceberg"' in table.command[-1]) == (True, True)
    assert ("/iceberg" in files.command[-1], f'"{FLINK_ICEBERG}"' in table.command[-1]) == (False, True)


ANSWER = json.dumps({"version": 1, "batches": [{"step_seconds": {"commit": each}} for each in (0.5, 1)]}, indent=2)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (ANSWER, 1.5),
        (f"plan   0.1 s\n{{\nnot the answer\n}}\n{ANSWER}", 1.5),
        ('nothing new\n{\n  "batches": []\n}\n', None),
    ],
)
def test_how_long_commits_took_is_in_the_answer_at_the_end_of_the_log(
    log: str, expected: float | None, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text(log)

    assert commit_s(tmp_path / "log") == expected


@pytest.mark.parametrize("log", ["", "plan 0.1 s\n", '{\n  "error": {}\n}\n', '{\n  "batches": [{}]\n}\n'])
def test_a_log_without_the_answer_ends_the_benchmark(log: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(log)

    with pytest.raises(BenchmarkError, match="expected the answer of kafka-ingest run --json at the end of "):
        commit_s(tmp_path / "log")


def test_the_tuned_flink_gets_this_projects_flags_for_java_and_no_dictionaries(job: Job) -> None:
    plain, tuned = (CONTESTANTS[name].start(job) for name in ("flink", "flink-tuned"))

    assert "SerialGC" not in plain.environment["JVM_ARGS"]
    assert "-XX:+UseSerialGC" in tuned.environment["JVM_ARGS"].split()
    assert '"parquet": {}' in plain.command[-1]
    assert '"parquet": {"parquet.enable.dictionary": "false"}' in tuned.command[-1]


@pytest.mark.long
def test_a_run_that_starts_spark_where_nothing_is_new_ends_the_benchmark(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "ANY_SPARK_S", 0.2)
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(0.8)'])"

    with pytest.raises(BenchmarkError, match="expected no Spark where nothing is new"):
        run(track, OURS, program, monkeypatch, caught_up=True)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (FAILS, r"found exit code 1; the end of (?s:.*)no such topic"),
        (WRITES_NOTHING, "expected 10 rows .* found 0"),
        (WRITES_NO_PARQUET, "Parquet magic bytes not found"),
    ],
)
class TestAFailure:
    def test_of_a_peer_leaves_it_out(
        self, program: str, reason: str, track: Track, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(CouldNotRunError, match=reason):
            run(track, PEER, program, monkeypatch)

    def test_of_this_project_ends_the_benchmark(
        self, program: str, reason: str, track: Track, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(BenchmarkError, match=reason):
            run(track, OURS, program, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "error"), [(PEER, CouldNotRunError), (OURS, BenchmarkError), ("kafka-ingest-delta", BenchmarkError)]
)
def test_what_hangs_is_killed_and_fails_like_that(
    name: str, error: type[Exception], track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "TIMEOUT_S", 0.6)

    with pytest.raises(error, match=f"{name}: expected an end within 1 s, found none: it was killed"):
        run(track, name, LINGERS, monkeypatch)


def test_the_processor_time_of_a_process_is_the_kernels() -> None:
    before, times, after = processor_s(os.getpid()), os.times(), processor_s(os.getpid())

    assert 0.0 < before <= round(times.user + times.system, 2) <= after


DECODING = [name for name, each in CONTESTANTS.items() if each.decodes]


@pytest.mark.parametrize("name", DECODING)
def test_only_registered_formats_ask_the_registry_and_only_those_that_do_not_know_the_schema(
    name: str, job: Job
) -> None:
    start = CONTESTANTS[name].start(replace(job, registry_url="http://127.0.0.1:3"))

    asked = "http://127.0.0.1:3" in f"{start.command[-1]} {start.environment.get('AIRFLOW_CONN_SCHEMAS')}"
    assert asked == (name in {"kafka-ingest-avro", "kafka-ingest-protobuf", "flink-avro"})


@pytest.mark.parametrize("name", ["available-now-json", "available-now-avro"])
def test_the_peers_that_decode_read_as_this_project_does_and_know_every_field(name: str, job: Job) -> None:
    command = CONTESTANTS[name].start(job).command

    value = json.loads(command[-1])["value"]
    assert f"available-now-{value['format']}" == name
    assert all(field in value["schema"] for field in NAMES)
    assert all(f'"kafka.{setting}": "{set_to}"' in command[-1] for setting, set_to in READ_DEFAULTS.items())
    assert ("spark-avro_" in " ".join(command)) == (name == "available-now-avro")


@pytest.mark.parametrize("form", ["json", "avro", "protobuf"])
def test_this_project_stores_a_column_for_each_field(form: str, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestant.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    CONTESTANTS[f"kafka-ingest-{form}"].prepare(job)

    feed = yaml.safe_load((job.home / "feeds" / "orders.yaml").read_text())
    assert (feed["value"]["format"], feed["columns"]) == (form, "flatten")


def test_flink_gets_the_jar_for_avro_only_where_it_decodes_it(job: Job) -> None:
    with_jar = [name for name in DECODING if f'"{FLINK_AVRO}"' in CONTESTANTS[name].start(job).command[-1]]

    assert with_jar == ["flink-avro"]
