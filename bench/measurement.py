"""One run of one contestant, checked: what it took and what came out."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from cases import Case, Entry
from contestant import Contestant, Job
from contestants_of_tables import CONTESTANTS
from decoded_values import decoded
from last_will import LastWill
from order_values import NAMES
from positions import Positions, data_files, positions_in
from process_tree import processor_s
from s3_server import S3Server
from talking import BenchmarkError
from whole_process import Finished, run_whole

TIMEOUT_S = 1_800.0
LINES_SHOWN = 12
REASON_CHARACTERS = 400
ANY_SPARK_S = 1.0
"""No Spark starts and ends faster."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run. ``load`` is the machine's over the minute before, ``broker_s`` the broker's processor time during it.

    ``store_s`` is the S3 server's, where the output goes there; ``commit_s`` is how long this project's commit took,
    where there was one. The rest is as in whole_process.Finished.
    """

    case: str
    label: str
    contestant: str
    repetition: int
    order: int
    load: float
    seconds: float
    user_s: float
    system_s: float
    broker_s: float
    store_s: float | None
    commit_s: float | None
    peak_mb: float
    child_s: float
    sampling_s: float
    output_bytes: int
    files: int
    rows: int
    checksum: str

    @property
    def cpu_s(self) -> float:
        """Processor time of the whole tree."""
        return self.user_s + self.system_s


class CouldNotRunError(RuntimeError):
    """A contestant failed, did not end or wrote something else: a peer is left out then, and this says why."""


@dataclass(frozen=True)
class Track:
    """Where contestants run, one after the other, each in an empty directory; ``broker`` is the broker's process.

    ``store`` is there where one of them writes to it, ``registry_url`` where one reads registered schemas.
    """

    directory: Path
    logs: Path
    bootstrap_servers: str
    broker: int
    will: LastWill
    topic_ids: dict[str, str] = field(default_factory=dict)
    store: S3Server | None = None
    registry_url: str = ""
    _expected: dict[str, Positions] = field(default_factory=dict)

    def measure(self, case: Case, entry: Entry, repetition: int, order: int) -> Measurement:
        """Run it and check its output.

        Where it fails, does not end or wrote something else, this raises CouldNotRunError for a peer, which is left
        out then, and BenchmarkError for this project.
        """
        try:
            return self._measured(case, entry, repetition, order)
        except CouldNotRunError as error:
            if CONTESTANTS[entry.contestant].is_ours:
                raise BenchmarkError(str(error)) from error
            raise

    def _measured(self, case: Case, entry: Entry, repetition: int, order: int) -> Measurement:
        home = self.directory / f"{case.name}-{repetition}-{order}"
        expected = self._positions(entry)
        name = entry.data.name
        contestant = CONTESTANTS[entry.contestant]
        store = self._store_of(contestant)
        job = Job(
            bootstrap_servers=self.bootstrap_servers,
            topic=name,
            home=home,
            end_offsets=entry.end_offsets,
            records=expected.rows,
            topic_id=self.topic_ids.get(name, ""),
            store=store.access if store is not None else None,
            registry_url=self.registry_url,
        )
        home.mkdir(parents=True)
        try:
            contestant.prepare(job)
            log = self.logs / f"{case.name}-{entry.label.replace(' ', '-').replace(',', '')}-{repetition}.log"
            if entry.caught_up:
                self._run(entry, job, log.with_suffix(".before.log"))
            os.sync()  # what others wrote is not to be written while this one runs
            load = os.getloadavg()[0]
            broker_before, store_before = processor_s(self.broker), store.processor_s() if store is not None else 0.0
            found = self._run(entry, job, log)
            broker_s = processor_s(self.broker) - broker_before
            store_s = store.processor_s() - store_before if store is not None else None
            if entry.caught_up and found.child_s > ANY_SPARK_S:
                raise CouldNotRunError(
                    f"{entry.label}: expected no Spark where nothing is new, found {found.child_s:.2f} s of it"
                )
            if store is not None:
                store.download(job.place("s3"), job.output)
            files, positions = self._checked(entry, job, expected, log)
            return Measurement(
                case=case.name,
                label=entry.label,
                contestant=entry.contestant,
                repetition=repetition,
                order=order,
                load=load,
                seconds=found.seconds,
                user_s=found.user_s,
                system_s=found.system_s,
                broker_s=broker_s,
                store_s=store_s,
                commit_s=commit_s(log) if contestant.is_ours else None,
                peak_mb=found.peak_bytes / 1e6,
                child_s=found.child_s,
                sampling_s=found.sampling_s,
                output_bytes=sum(file.stat().st_size for file in files),
                files=len(files),
                rows=positions.rows,
                checksum=positions.checksum,
            )
        finally:
            shutil.rmtree(home, ignore_errors=True)
            if store is not None:
                store.clear()

    def _store_of(self, contestant: Contestant) -> S3Server | None:
        if not contestant.in_store:
            return None
        if self.store is None:
            raise BenchmarkError(f"expected an S3 server for {contestant.name}, found none that was started")
        return self.store

    def _run(self, entry: Entry, job: Job, log: Path) -> Finished:
        start = CONTESTANTS[entry.contestant].start(job)
        try:
            found = run_whole(start.command, start.environment, job.home, log, timeout_s=TIMEOUT_S, will=self.will)
        except TimeoutError as error:
            raise CouldNotRunError(f"{entry.contestant}: {error}; the end of {log}:\n{tail(log)}") from error
        if found.exit_code:
            raise CouldNotRunError(
                f"expected {entry.contestant} to succeed, found exit code {found.exit_code}; the end of "
                f"{log}:\n{tail(log)}"
            )
        return found

    def _checked(self, entry: Entry, job: Job, expected: Positions, log: Path) -> tuple[Sequence[Path], Positions]:
        files = data_files(job.output)
        try:
            found = positions_in(files, NAMES if CONTESTANTS[entry.contestant].decodes else ())
        except (BenchmarkError, pa.ArrowInvalid) as error:
            raise CouldNotRunError(f"{entry.label}: {error}; see {log}") from error
        if found != expected:
            raise CouldNotRunError(
                f"{entry.label}: expected {expected.rows:,} rows with checksum {expected.checksum} in {len(files)} "
                f"files, found {found.rows:,} with {found.checksum}: records are missing, twice, or others. Its times "
                f"say nothing; see {log}"
            )
        return files, found

    def _positions(self, entry: Entry) -> Positions:
        ends: Mapping[int, int] = entry.end_offsets or entry.data.end_offsets()
        decodes = CONTESTANTS[entry.contestant].decodes
        key = f"{entry.data} {ends} {decodes}"
        if key not in self._expected:
            self._expected[key] = decoded(entry.data, ends) if decodes else entry.data.positions(ends)
        return self._expected[key]


def commit_s(log: Path) -> float | None:
    """Return how long the commits of a run took, None where it had nothing to do.

    The log ends with the object that ``kafka-ingest run --json`` prints. Raises BenchmarkError where it has none.
    """
    _, brace, document = f"\n{log.read_text(errors='replace')}".rpartition("\n{\n")
    try:
        batches = json.loads(brace + document)["batches"]
        return sum(batch["step_seconds"]["commit"] for batch in batches) if batches else None
    except (json.JSONDecodeError, KeyError) as error:
        raise BenchmarkError(f"expected the answer of kafka-ingest run --json at the end of {log}: {error}") from error


def tail(log: Path) -> str:
    """Return the end of a log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    informative = [line for line in lines if not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(informative[-LINES_SHOWN:])


def in_short(reason: str) -> str:
    """Return a reason that fits into a line of a table."""
    return " ".join(reason.split())[:REASON_CHARACTERS]
