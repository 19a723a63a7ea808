"""One command, started cold and measured to its end with everything that it starts.

Time, processor time, peak of memory.
"""

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from last_will import LastWill
from process_tree import ProcessTree, all_processes, is_never_reaped, parent_of, processor_times

SAMPLE_S = 0.1
STARTING_S = 3.0
"""So long new processes are looked for in each sample; afterwards, when hardly any come, in one of some."""
SAMPLES_A_LOOK = 5
LEFT_BEHIND_S = 10.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Finished:
    """What a whole process took.

    ``seconds`` until the process that was started had ended; ``user_s`` and ``system_s`` are of all processes of its
    tree. ``child_s`` is how long its longest direct child ran. ``sampling_s`` is the processor time of looking at it.
    """

    exit_code: int
    seconds: float
    user_s: float
    system_s: float
    peak_bytes: int
    child_s: float
    sampling_s: float


def run_whole(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log: Path,
    *,
    timeout_s: float,
    will: LastWill,
) -> Finished:
    """Run a command in ``directory`` with its output in ``log``. Nothing of it runs on return, nor when this raises.

    Raises TimeoutError where it does not end in time.
    """
    others = all_processes()
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    measuring = _Measuring(process.pid, others, will, started)
    try:
        measuring.until_it_ends(started + timeout_s)
        return measuring.reaped(process)
    finally:
        measuring.end_all(process)


class _Measuring:
    def __init__(self, leader: int, others: set[int], will: LastWill, started: float) -> None:
        self._leader = leader
        self._started = started
        self._will = will
        self._poll = select.poll()
        self._began: dict[int, float] = {}  # by handle: the leader, and its children
        self._leader_handle = -1
        self._child_s = 0.0
        self._peak = 0
        self._samples = 0
        self._sampling_s = 0.0
        self._ended_after = 0.0
        self._user_s = 0.0
        self._system_s = 0.0
        self._never_reaped: dict[int, tuple[float, float]] = {}  # by process: its times at the last look
        self._tree = ProcessTree(leader, others, self._met, self._gone)

    def until_it_ends(self, deadline: float) -> None:
        next_sample = time.monotonic()
        while not self._ended_after:
            now = time.monotonic()
            if now > deadline:
                raise TimeoutError(
                    f"expected an end within {deadline - self._started:.0f} s, found none: it was killed"
                )
            if now >= next_sample:
                self._sample()
                next_sample = now + SAMPLE_S
            for handle, _ in self._poll.poll(max(0.0, next_sample - time.monotonic()) * 1000):
                self._note_end(handle)

    def reaped(self, process: "subprocess.Popen[bytes]") -> Finished:
        """Collect the processor time of the leader, and of those that it left behind and that end by themselves."""
        self._reap(self._leader, process)
        deadline = time.monotonic() + LEFT_BEHIND_S
        while self._are_left(process) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return Finished(
            exit_code=process.returncode,
            seconds=self._ended_after,
            user_s=self._user_s,
            system_s=self._system_s,
            peak_bytes=self._peak,
            child_s=self._child_s,
            sampling_s=self._sampling_s,
        )

    def end_all(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill what still runs; what is killed gives its own children to us, so look again."""
        deadline = time.monotonic() + LEFT_BEHIND_S
        while self._are_left(process) and time.monotonic() < deadline:
            self._tree.kill()
            time.sleep(_POLL_S)

    def _are_left(self, process: "subprocess.Popen[bytes]") -> bool:
        self._tree.look()
        for pid in list(self._tree.members):
            self._reap(pid, process)
        self._tree.look()
        return bool(self._tree.members)

    def _reap(self, pid: int, process: "subprocess.Popen[bytes]") -> None:
        try:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
        except ChildProcessError:  # another one's child: that one reaps it, or ends and leaves it to us
            return
        if ended:
            self._never_reaped.pop(pid, None)  # its parent has ended before it, and this process has become the parent
            self._user_s += usage.ru_utime
            self._system_s += usage.ru_stime
        if ended == self._leader:
            process.returncode = os.waitstatus_to_exitcode(status)

    def _met(self, pid: int, handle: int) -> None:
        self._will.name(pid)
        if is_never_reaped(pid):
            self._never_reaped[pid] = (0.0, 0.0)
        if pid == self._leader:
            self._leader_handle = handle
        if pid == self._leader or parent_of(pid) == self._leader:
            self._began[handle] = time.monotonic()
            self._poll.register(handle, select.POLLIN)

    def _gone(self, pid: int) -> None:
        self._will.strike(pid)
        user_s, system_s = self._never_reaped.pop(pid, (0.0, 0.0))
        self._user_s += user_s
        self._system_s += system_s
        if (handle := self._tree.members[pid]) in self._began:
            self._note_end(handle)

    def _note_end(self, handle: int) -> None:
        ran_for = time.monotonic() - self._began.pop(handle)
        self._poll.unregister(handle)
        if handle == self._leader_handle:
            self._ended_after = time.monotonic() - self._started
        else:
            self._child_s = max(self._child_s, ran_for)

    def _sample(self) -> None:
        before = time.thread_time()
        self._samples += 1
        if self._samples % SAMPLES_A_LOOK == 0 or time.monotonic() < self._started + STARTING_S:
            self._tree.look()
        self._peak = max(self._peak, self._tree.memory_bytes())
        for pid in self._never_reaped:
            with contextlib.suppress(OSError):  # it has ended since
                self._never_reaped[pid] = processor_times(pid)
        self._sampling_s += time.thread_time() - before
