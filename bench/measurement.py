"""One run of one contestant, checked: what it took and what came out."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from cases import Case, Entry
from contestant import Job
from contestants_of_tables import CONTESTANTS
from last_will import LastWill
from positions import Positions, data_files, positions_in
from process_tree import processor_s
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

    The rest is as in whole_process.Finished.
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
    """Where contestants run, one after the other, each in an empty directory; ``broker`` is the broker's process."""

    directory: Path
    logs: Path
    bootstrap_servers: str
    broker: int
    will: LastWill
    topic_ids: dict[str, str] = field(default_factory=dict)
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
        job = Job(self.bootstrap_servers, name, home, entry.end_offsets, expected.rows, self.topic_ids.get(name, ""))
        home.mkdir(parents=True)
        try:
            CONTESTANTS[entry.contestant].prepare(job)
            log = self.logs / f"{case.name}-{entry.label.replace(' ', '-').replace(',', '')}-{repetition}.log"
            if entry.caught_up:
                self._run(entry, job, log.with_suffix(".before.log"))
            os.sync()  # what others wrote is not to be written while this one runs
            load = os.getloadavg()[0]
            broker_before = processor_s(self.broker)
            found = self._run(entry, job, log)
            broker_s = processor_s(self.broker) - broker_before
            if entry.caught_up and found.child_s > ANY_SPARK_S:
                raise CouldNotRunError(
                    f"{entry.label}: expected no Spark where nothing is new, found {found.child_s:.2f} s of it"
                )
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
            found = positions_in(files)
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
        key = f"{entry.data} {ends}"
        if key not in self._expected:
            self._expected[key] = entry.data.positions(ends)
        return self._expected[key]


def tail(log: Path) -> str:
    """Return the end of a log."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    informative = [line for line in lines if not line.lstrip().startswith(("at ", "... "))]
    return "\n".join(informative[-LINES_SHOWN:])


def in_short(reason: str) -> str:
    """Return a reason that fits into a line of a table."""
    return " ".join(reason.split())[:REASON_CHARACTERS]
