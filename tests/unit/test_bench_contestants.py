"""How the benchmark's contestants are started, and what their failure means.

A peer is left out, this project's ends all.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import contestant
import measurement
import pytest
from cases import Case, Entry
from contestant import (
    OURS,
    Job,
    Start,
    leave_settings_behind,
    our_environment,
    plain_environment,
)
from contestants_of_tables import CONTESTANTS
from last_will import LastWill
from measurement import CouldNotRunError, Track
from process_tree import processor_s
from talking import BenchmarkError
from topic_data import TopicData

from kafka_ingest.writing.read_ranges import READ_DEFAULTS

PEER = "python"
OF_THE_SHELL = (
    *("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"),
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


@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_the_peers_of_tables_read_as_this_project_does(table: str, job: Job) -> None:
    command = CONTESTANTS[f"available-now-{table}"].start(job).command

    assert all(f'"kafka.{name}": "{value}"' in command[-1] for name, value in READ_DEFAULTS.items())
    assert f'"format": "{table}"' in command[-1]


def test_the_tuned_flink_gets_this_projects_flags_for_java_and_no_dictionaries(job: Job) -> None:
    plain, tuned = (CONTESTANTS[name].start(job) for name in ("flink", "flink-tuned"))

    assert "SerialGC" not in plain.environment["JVM_ARGS"]
    assert "-XX:+UseSerialGC" in tuned.environment["JVM_ARGS"].split()
    assert '"parquet": {}' in plain.command[-1]
    assert '"parquet": {"parquet.enable.dictionary": "false"}' in tuned.command[-1]


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


@pytest.mark.parametrize(
    ("name", "error"), [(PEER, CouldNotRunError), (OURS, BenchmarkError), ("kafka-ingest-delta", BenchmarkError)]
)
def test_what_hangs_is_killed_and_fails_like_that(
    name: str, error: type[Exception], track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "TIMEOUT_S", 1.0)

    with pytest.raises(error, match=f"{name}: expected an end within 1 s, found none: it was killed"):
        run(track, name, LINGERS, monkeypatch)


def test_the_processor_time_of_a_process_is_the_kernels() -> None:
    before, times, after = processor_s(os.getpid()), os.times(), processor_s(os.getpid())

    assert 0.0 < before <= round(times.user + times.system, 2) <= after
