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
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cases import ALL_CONTESTANTS, CASES, Case, Entry, Scale
from confluent_kafka import libversion
from contestant import CONTESTANTS, FLINK, FLINK_PYTHON
from last_will import LastWill
from machine import file_system, physical_memory_gb, processor
from measurement import CouldNotRunError, Measurement, Track, in_short
from process_tree import PSS_UP_TO_BYTES, reap_orphans
from report import Results
from talking import BenchmarkError, interrupt, say
from topic_data import LARGEST_BYTES, SMALLEST_BYTES, TopicData, make_topic

from embedded_broker import JARS, MUCH_DATA, BrokerError, EmbeddedBroker
from environment import ROOT
from java_command import JavaMissingError, java_command

RECORDS, QUICK_RECORDS = 10_000_000, 1_000_000
REPETITIONS, QUICK_REPETITIONS = 5, 2
QUICK_CASES = ("big", "small", "nothing", "hot")
LARGEST_SKEW = 0.99
RESULTS = ROOT / ".local" / "bench"
INTERRUPTED = 130


def main() -> int:
    """Measure, write the results and print them; exit code 1 where something could not be measured as it should."""
    options = parse_options()
    signal.signal(signal.SIGTERM, interrupt)
    results = RESULTS / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    results.mkdir(parents=True)
    benchmark = Benchmark(options, results)
    try:
        reap_orphans()
        with tempfile.TemporaryDirectory(prefix="data-", dir=options.directory or results) as directory:
            benchmark.run(Path(directory))
    except (BenchmarkError, BrokerError, JavaMissingError) as error:
        say(f"{error}\nThe results so far, and what everybody said: {results}")
        return 1
    except KeyboardInterrupt:
        say(f"interrupted; the results so far are in {results}")
        return INTERRUPTED
    found = benchmark.results(complete=True)
    print(found.as_json() if options.json else found.as_markdown())
    say(f"results.md, results.json and results.png are in {results}")
    return 0


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=…", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer records, repetitions and cases, where not told otherwise"
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, help=f"default: all; with --quick {' '.join(QUICK_CASES)}")
    parser.add_argument(
        "--contestants", nargs="+", choices=ALL_CONTESTANTS, default=ALL_CONTESTANTS, help="default: all"
    )
    parser.add_argument("--repetitions", type=int, help=f"default: {REPETITIONS}; with --quick {QUICK_REPETITIONS}")
    parser.add_argument("--records", type=int, help=f"default: {RECORDS:,}; with --quick {QUICK_RECORDS:,}")
    parser.add_argument("--partitions", type=int, default=4, help="default: 4")
    parser.add_argument("--record-bytes", type=int, default=200, help="length of each value; default: 200")
    parser.add_argument("--incompressible", action="store_true", help="values in which nothing repeats")
    parser.add_argument("--topic-compression", choices=("zstd", "none"), default="zstd", help="default: zstd")
    parser.add_argument("--skew", type=float, default=0.0, help="share of the records in partition 0; default: even")
    parser.add_argument("--transactional", action="store_true", help="records come in transactions")
    parser.add_argument(
        "--directory", type=Path, help="where broker and outputs keep their data; default: .local/bench"
    )
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    options.cases = options.cases or (QUICK_CASES if options.quick else tuple(CASES))
    options.records = options.records if options.records is not None else (QUICK_RECORDS if options.quick else RECORDS)
    if options.repetitions is None:
        options.repetitions = QUICK_REPETITIONS if options.quick else REPETITIONS
    if min(options.records, options.repetitions, options.partitions) < 1:
        parser.error("expected records, repetitions and partitions of 1 or more")
    if not SMALLEST_BYTES <= options.record_bytes <= LARGEST_BYTES:
        parser.error(f"expected --record-bytes from {SMALLEST_BYTES} to {LARGEST_BYTES}, found {options.record_bytes}")
    if not 0.0 <= options.skew <= LARGEST_SKEW:
        parser.error(f"expected --skew from 0.0 to {LARGEST_SKEW}, found {options.skew}")
    if "hot" in options.cases and options.partitions == 1:
        parser.error("expected 2 partitions or more: the case hot compares them (--cases)")
    return options


class Benchmark:
    """One benchmark from its options to its results; these are written after each case."""

    def __init__(self, options: argparse.Namespace, directory: Path) -> None:
        self._options = options
        self._directory = directory
        self._scale = scale_of(options)
        self._missing = {name: reason for name in options.contestants if (reason := CONTESTANTS[name].missing())}
        self._cases = [CASES[name](self._scale) for name in CASES if name in options.cases]
        self._measurements: list[Measurement] = []
        self._left_out: dict[tuple[str, str], str] = {}
        self._topics: set[str] = set()
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
        with LastWill() as will, running(broker) as bootstrap_servers:
            track = Track(directory / "runs", logs, bootstrap_servers, will)
            try:
                for case in self._cases:
                    self._fill(case, bootstrap_servers, logs)
                    self._measure(case, track)
                    self.results(complete=False).write(self._directory)
            except BaseException:
                self.results(complete=False).write(self._directory)
                raise
        self.results(complete=True).write(self._directory)
        say(f"measured in {(time.monotonic() - self._started) / 60:.1f} minutes")

    def _fill(self, case: Case, bootstrap_servers: str, logs: Path) -> None:
        for data in case.topics():
            if data.name not in self._topics:
                say(f"producing {data.records:,} records into {data.name}")
                started = time.monotonic()
                make_topic(data, bootstrap_servers, logs / "producers.log")
                self._topics.add(data.name)
                say(f"produced in {time.monotonic() - started:.1f} s")

    def _measure(self, case: Case, track: Track) -> None:
        for entry in case.entries:
            if entry.contestant in self._missing:
                self._left_out[case.name, entry.label] = self._missing[entry.contestant]
        for repetition in range(1, case.repetitions + 1):
            for order, entry in enumerate(rotated(case.entries, repetition - 1)):
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
                    f"{found.cpu_s:.1f} s of processors, {found.peak_mb:,.0f} MB, {found.output_bytes / 1e6:,.1f} MB out"
                )

    def _machine(self) -> dict[str, str]:
        data = self._scale.data
        loads = [each.load for each in self._measurements] or [os.getloadavg()[0]]
        looked = sum(each.sampling_s for each in self._measurements)
        measured = sum(each.seconds for each in self._measurements) or 1.0
        return {
            "machine": f"{processor()}, {os.cpu_count()} processors, {physical_memory_gb():.0f} GB, {platform.platform()}",
            "data on": file_system(self._options.directory or self._directory),
            "records": f"{data.record_bytes} bytes of JSON{', incompressible' if data.incompressible else ''}, a key each, "
            f"{data.partitions} partitions, {'even' if not data.skew else f'{data.skew:.0%} in partition 0'}, topic compressed "
            f"with {data.compression}{', in transactions' if data.transactional else ''}",
            "Kafka": f"{version_of_jar('kafka_2*.jar')}, one real broker on this machine ({' '.join(MUCH_DATA[:3])})",
            "Java": java_version(),
            "Python": f"{platform.python_version()}, {', '.join(map(versioned, ('pyspark', 'confluent-kafka', 'pyarrow')))}, "
            f"librdkafka {libversion()[0]}",
            "Flink": flink_version(),
            "load": f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} processors before a run, this benchmark and its "
            "broker included",
            "memory": f"sampled ten times a second over all processes of a run: proportional size (PSS) of those up to "
            f"{PSS_UP_TO_BYTES // 2**20} MB, resident size (RSS) of larger ones",
            "cost of looking": f"{looked / measured:.2%} of one processor",
        }


def scale_of(options: argparse.Namespace) -> Scale:
    """Return how much the options ask for."""
    data = TopicData(
        name="bench-big",
        records=options.records,
        partitions=options.partitions,
        record_bytes=options.record_bytes,
        incompressible=options.incompressible,
        compression=options.topic_compression,
        skew=options.skew,
        transactional=options.transactional,
    )
    contestants = [name for name in ALL_CONTESTANTS if name in options.contestants]
    return Scale(data, options.repetitions, contestants)


def rotated(entries: Sequence[Entry], by: int) -> list[Entry]:
    """Return the entries so that each repetition begins with another one."""
    start = by % len(entries) if entries else 0
    return [*entries[start:], *entries[:start]]


@contextlib.contextmanager
def running(broker: EmbeddedBroker) -> Iterator[str]:
    """Start a broker; yield its bootstrap servers."""
    with broker:
        yield broker.bootstrap_servers


def version_of_jar(pattern: str) -> str:
    """Return the version in the name of one of the broker's jars."""
    return next(JARS.glob(pattern)).stem.rpartition("-")[2]


def versioned(distribution: str) -> str:
    """Return a distribution with its version."""
    return f"{distribution} {importlib.metadata.version(distribution)}"


def java_version() -> str:
    """Return what Java says of itself."""
    done = subprocess.run([java_command(), "-version"], capture_output=True, text=True, check=False)
    return (done.stderr.splitlines() or ["unknown"])[0]


def flink_version() -> str:
    """Return Flink's version and its connector's."""
    found = sorted((FLINK / "venv" / "lib").glob("python*/site-packages/apache_flink-*.dist-info"))
    if not found or not FLINK_PYTHON.exists():
        return "not installed"
    jars = sorted(jar.stem for jar in (FLINK / "jars").glob("flink-sql-*.jar"))
    return f"{found[0].name.removeprefix('apache_flink-').removesuffix('.dist-info')}, {', '.join(jars)}"


if __name__ == "__main__":
    sys.exit(main())
