"""`make bench`: this project and its peers on the same records, whole processes in turn. See README.md."""

import argparse
import contextlib
import importlib.metadata
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cases import Case, chosen_cases
from confluent_kafka import libversion
from contestant import FLINK, FLINK_PYTHON, Job, leave_settings_behind, our_environment
from contestants_of_tables import CONTESTANTS
from last_will import LastWill
from measured_on import commit, file_system, machine_in_short
from measurement import CouldNotRunError, Measurement, Track, in_short
from options import parse_options, scale_of
from order_values import REGISTERED
from places import new_results
from process_tree import PSS_UP_TO_BYTES, reap_orphans
from report import Results
from result_files import write_results
from s3_server import S3Server
from talking import INTERRUPTED, BenchmarkError, interrupt, say
from topic_data import make_topic, topic_id

from embedded_broker import JARS, MUCH_DATA, BrokerError, EmbeddedBroker
from environment import ROOT
from java_command import JavaMissingError, java_command
from kafka_ingest.spark_launch.installation import installation
from schema_registry import running_schema_registry


def main() -> int:
    """Measure, write the results and print them; exit code 1 where something could not be measured as it should."""
    options = parse_options(__doc__)
    signal.signal(signal.SIGTERM, interrupt)
    leave_settings_behind()
    results = new_results()
    benchmark = Benchmark(options, results)
    try:
        reap_orphans()
        with tempfile.TemporaryDirectory(prefix="data-", dir=options.directory or results) as directory:
            benchmark.run(Path(directory))
    except (BenchmarkError, BrokerError, JavaMissingError) as error:
        say(f"{error}\nThe results so far, and every contestant's output: {results}")
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; the results so far are in {results}")
        return INTERRUPTED
    found = benchmark.results(complete=True)
    print(found.as_json() if options.json else found.as_markdown())
    say(f"results.md, results.json and results.png are in {results}")
    return 0


class Benchmark:
    """One benchmark from its options to its results; these are written after each case."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._scale = scale_of(options)
        self._cases = chosen_cases(options.cases, self._scale)
        taking_part = dict.fromkeys(entry.contestant for case in self._cases for entry in case.entries)
        self._missing = {name: reason for name in taking_part if (reason := CONTESTANTS[name].missing())}
        # As it begins: the working tree may change during the benchmark.
        self._this_project = f"commit {commit(ROOT)}, {archive_found(directory)}"
        self._measurements: list[Measurement] = []
        self._left_out: dict[tuple[str, str], str] = {}
        self._topic_ids: dict[str, str] = {}
        self._started = time.monotonic()

    def results(self, *, complete: bool) -> Results:
        """Return what has been measured."""
        return Results(self._machine(), self._cases, self._measurements, self._left_out, complete)

    def run(self, directory: Path) -> None:
        """Measure all cases on a broker that keeps its data in ``directory``."""
        logs = self._directory / "logs"
        logs.mkdir()
        for name, reason in self._missing.items():
            say(f"left out: {name}. {in_short(reason)}")
        broker = EmbeddedBroker(directory / "kafka", jvm_flags=MUCH_DATA)
        with LastWill() as will, broker, contextlib.ExitStack() as opened:
            store = opened.enter_context(S3Server(directory / "s3")) if self._need_store() else None
            registry_url = opened.enter_context(running_schema_registry()).url if self._need_registry() else ""
            track = Track(
                directory / "runs",
                logs,
                broker.bootstrap_servers,
                broker.pid,
                will,
                self._topic_ids,
                store,
                registry_url,
            )
            try:
                for case in self._cases:
                    self._fill(case, track)
                    self._measure(case, track)
                    write_results(self.results(complete=False), self._directory)
            except BaseException:
                write_results(self.results(complete=False), self._directory)
                raise
        write_results(self.results(complete=True), self._directory)
        say(f"measured in {(time.monotonic() - self._started) / 60:.1f} minutes")

    def _need_store(self) -> bool:
        taking_part = {entry.contestant for case in self._cases for entry in case.entries} - self._missing.keys()
        return any(CONTESTANTS[name].in_store for name in taking_part)

    def _need_registry(self) -> bool:
        return any(data.form in REGISTERED for case in self._cases for data in case.topics())

    def _fill(self, case: Case, track: Track) -> None:
        for data in case.topics():
            if data.name not in self._topic_ids:
                say(f"producing {data.records:,} records into {data.name}")
                started = time.monotonic()
                make_topic(data, track.bootstrap_servers, track.logs / "producers.log", track.registry_url)
                self._topic_ids[data.name] = topic_id(data.name, track.bootstrap_servers)
                say(f"produced in {time.monotonic() - started:.1f} s")

    def _measure(self, case: Case, track: Track) -> None:
        for entry in case.entries:
            if entry.contestant in self._missing:
                self._left_out[case.name, entry.label] = self._missing[entry.contestant]
        for repetition in range(1, case.repetitions + 1):
            for order, entry in enumerate(case.in_turn(repetition)):
                if (case.name, entry.label) in self._left_out:
                    continue
                try:
                    found = track.measure(case, entry, repetition, order)
                except CouldNotRunError as error:
                    self._left_out[case.name, entry.label] = str(error)
                    say(f"{case.name}: left out: {entry.label}. {error}")
                    continue
                self._measurements.append(found)
                say(
                    f"{case.name}, {repetition} of {case.repetitions}: {entry.label} {found.seconds:.2f} s, "
                    f"{found.cpu_s:.1f} s of processors, and the broker's {found.broker_s:.2f} s, "
                    f"{in_words('S3 server', found.store_s)}{in_words('commit', found.commit_s)}"
                    f"{found.peak_mb:,.0f} MB, {found.output_bytes / 1e6:,.1f} MB out"
                )

    def _machine(self) -> dict[str, str]:
        data = self._scale.data
        loads = [each.load for each in self._measurements] or [os.getloadavg()[0]]
        looked = sum(each.sampling_s for each in self._measurements)
        measured = sum(each.seconds for each in self._measurements) or 1.0
        return {
            "machine": f"{machine_in_short()}, {platform.platform()}",
            "this project": self._this_project,
            "data on": file_system(self._options.directory or self._directory),
            "records": f"{data.record_bytes} bytes of JSON{', incompressible' if data.incompressible else ''}, a key "
            f"each, {data.partitions} partitions, "
            f"{f'{data.skew:.0%} in partition 0' if data.skew else 'evenly spread'} "
            "unless a case says otherwise, topic compressed with "
            f"{data.compression}{', in transactions' if data.transactional else ''}",
            "Kafka": f"{version_of_jar('kafka_2*.jar')}, one real broker on this machine ({' '.join(MUCH_DATA[:3])})",
            "Java": java_version(),
            "Python": f"{platform.python_version()}, "
            f"{', '.join(map(versioned, ('pyspark', 'confluent-kafka', 'pyarrow')))}, librdkafka {libversion()[0]}",
            "Flink": flink_version(),
            "load": f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} processors before a run, this benchmark "
            "and its broker included",
            "memory": f"sampled ten times a second over all processes of a run: proportional size (PSS) of those up to "
            f"{PSS_UP_TO_BYTES // 2**20} MB, resident size (RSS) of larger ones",
            "cost of looking": f"{looked / measured:.2%} of one processor",
        }


def in_words(what: str, seconds: float | None) -> str:
    """Return a figure that not every run has, as a part of a line."""
    return f"{what} {seconds:.2f} s, " if seconds is not None else ""


def version_of_jar(pattern: str) -> str:
    """Return the version in the name of one of the broker's jars."""
    return next(JARS.glob(pattern)).stem.rpartition("-")[2]


def versioned(distribution: str) -> str:
    """Return a distribution with its version."""
    return f"{distribution} {importlib.metadata.version(distribution)}"


def archive_found(home: Path) -> str:
    """Return which archive of classes this project's Java is given."""
    archive = installation(our_environment(Job("", "", home, {}, 0))).class_archive
    return f"archive of classes {archive.name}" if archive else "no archive of classes (make setup makes one)"


def java_version() -> str:
    """Return what Java says of itself."""
    done = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False)
    return (done.stderr.splitlines() or ["unknown"])[0]


def flink_version() -> str:
    """Return Flink's version and its connector's."""
    found = sorted((FLINK / "venv" / "lib").glob("python*/site-packages/apache_flink-*.dist-info"))
    if not found or not FLINK_PYTHON.exists():
        return "not installed"
    jars = sorted(jar.stem for jar in FLINK.glob("*/*flink-*.jar"))
    return f"{found[0].name.removeprefix('apache_flink-').removesuffix('.dist-info')}, {', '.join(jars)}"


if __name__ == "__main__":
    sys.exit(main())
