"""Processes that outlive the program that started them, and how a later program stops exactly those.

Each is the leader of a separate session, and what it starts stays in that session. A process id alone is not unique,
since numbers are reused; together with the boot and the time of the process's start within it, it identifies one
process. (Linux: /proc.)
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

_POLL_S = 0.1
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class OwnProcess:
    """A session leader that was started here, with its output in `log`; can be written down and found again."""

    name: str
    pid: int
    log: str
    started_ticks: int
    boot_id: str

    @classmethod
    def of(cls, name: str, pid: int, log: Path) -> Self:
        """Describe a process that runs now. Raises ProcessLookupError where it ended already."""
        stat = _stat(pid)
        if stat is None:
            raise ProcessLookupError(f"expected {name} to run as process {pid}, it has ended")
        return cls(name, pid, str(log.resolve()), stat.started_ticks, _boot_id())

    def is_running(self) -> bool:
        """Whether this very process still runs; another one under its number does not count."""
        stat = _stat(self.pid)
        return stat is not None and stat.started_ticks == self.started_ticks and self.boot_id == _boot_id()

    def has_left_something(self) -> bool:
        """Whether it ended, and processes that it started did not: its session continues, and one writes to its log."""
        return (
            not self.is_running()
            and self.boot_id == _boot_id()
            and any(self.log in _outputs(pid) for pid in _members({self.pid}))
        )


def start(name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> OwnProcess:
    """Start a command that continues when this program ends, its output appended to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return OwnProcess.of(name, process.pid, log)


def stop(processes: Sequence[OwnProcess], grace_s: float) -> None:
    """Ask these and all they started to end, and end what is left after `grace_s`.

    Touches only sessions that are proven to be theirs. While one member lives, no other session gets its number.
    """
    sessions = {process.pid for process in processes if process.is_running() or process.has_left_something()}
    _signal(sessions, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while _members(sessions):
        if time.monotonic() > deadline:
            _signal(sessions, signal.SIGKILL)
        time.sleep(_POLL_S)


class _Stat(NamedTuple):
    session: int
    started_ticks: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name stands in parentheses and may contain anything, parentheses too. See proc(5) for the rest.
    fields = text[text.rindex(")") + 2 :].split()
    state, session, started_ticks = fields[0], int(fields[3]), int(fields[19])
    return None if state in "ZX" else _Stat(session, started_ticks)


def _members(sessions: set[int]) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if (stat := _stat(pid)) and stat.session in sessions]


def _outputs(pid: int) -> list[str]:
    """Where standard output and error of a process lead; nothing for a process that has ended or is another user's."""
    try:
        return [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in (1, 2)]
    except OSError:
        return []


def _signal(sessions: set[int], number: signal.Signals) -> None:
    for pid in _members(sessions):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            stat = _stat(pid)  # again: from here on the handle and the number mean the same process
            if stat is not None and stat.session in sessions:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(handle)


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()
