"""All processes of one tree and the memory that they hold, from Linux's /proc; looking costs next to nothing.

A process belongs to the tree from the first time it is seen below the leader, also when its parent has ended since: the
benchmark is the reaper of what its contestants leave behind (`reap_orphans`), and those who are given to it are theirs.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

PSS_UP_TO_BYTES = 256 * 2**20
"""Of larger processes the resident size is taken: the kernel walks all their pages for the other figure, and what a JVM
of that size shares with others is a few of its megabytes."""

WORTH_ANOTHER_LOOK_BYTES = 4 * 2**20
"""As long as its resident size changes by less, a process keeps the proportional size that it was found with."""

STACK, UNKNOWN_STACK = 25, b"0"
"""Where ``stat`` says at which address the stack begins: another one in each program that is started (address space
layout randomisation). It is 0 where this process may not know."""

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(slots=True)
class _Seen:
    resident: int
    proportional: int


class ProcessTree:
    """The processes below ``leader``, itself included. Make it at once after the start: others of ours are not in it.

    ``members`` are those that were there at the last look, as handles: one means that very process, also when its
    number is given again. ``when_new`` is called with each of them, ``when_gone`` with its number before its handle is
    closed.
    """

    def __init__(
        self, leader: int, others: set[int], when_new: Callable[[int, int], None], when_gone: Callable[[int], None]
    ) -> None:
        self.leader = leader
        self.members: dict[int, int] = {}
        self._known = others | {leader}
        self._when_new = when_new
        self._when_gone = when_gone
        self._sizes: dict[int, _Seen] = {}
        self._add(leader)

    def look(self) -> None:
        """Find new processes, and forget those that ended and were reaped."""
        running = {int(name) for name in os.listdir(PROC) if name.isdigit()}  # noqa: PTH208  (ten times a second)
        self._forget(self.members.keys() - running)
        for pid in sorted(running - self._known):
            parent = parent_of(pid)
            if parent in self.members or parent == os.getpid():
                self._add(pid)
        self._known = running

    def memory_bytes(self) -> int:
        """Return what all of them hold now: the proportional size of the smaller, the resident size of the larger."""
        return sum(map(self._memory_of, self.members))

    def kill(self) -> None:
        """Kill all that were there at the last look."""
        for handle in self.members.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def _add(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        self.members[pid] = handle
        self._when_new(pid, handle)

    def _forget(self, gone: Collection[int]) -> None:
        for pid in gone:
            self._when_gone(pid)
            os.close(self.members.pop(pid))
            self._sizes.pop(pid, None)

    def _memory_of(self, pid: int) -> int:
        try:
            resident = int((PROC / f"{pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
            if resident > PSS_UP_TO_BYTES:
                return 0 if is_copy(pid) else resident
            if resident == 0:
                return 0
            seen = self._sizes.get(pid)
            if seen is None or abs(seen.resident - resident) > WORTH_ANOTHER_LOOK_BYTES:
                seen = self._sizes[pid] = _Seen(resident, proportional_bytes(pid))
        except OSError:
            return 0  # it has ended since then
        return seen.proportional


def proportional_bytes(pid: int) -> int:
    """Return a process's memory, where pages that n processes share count as an n-th."""
    for line in (PROC / f"{pid}/smaps_rollup").read_bytes().splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def is_copy(pid: int) -> bool:
    """Return whether a process is still its parent's program.

    Between fork and exec it holds its parent's memory, not its own.
    """
    own = stat_of(pid)
    stack, parent = own[STACK], int(own[1])
    return stack != UNKNOWN_STACK and stack == stat_of(parent)[STACK]


def parent_of(pid: int) -> int:
    """Return a process's parent, 0 where it has ended."""
    try:
        return int(stat_of(pid)[1])
    except OSError:
        return 0


def processor_s(pid: int) -> float:
    """Return the processor time of all threads that a process has had, in seconds; not that of its children."""
    return sum(processor_ticks(pid)) / TICKS_PER_S


def processor_times(pid: int) -> tuple[float, float]:
    """Return the same in user and in system mode; raises OSError where the process has ended."""
    user, system = processor_ticks(pid)
    return user / TICKS_PER_S, system / TICKS_PER_S


def processor_ticks(pid: int) -> tuple[int, int]:
    """Return the same as the kernel counts it."""
    user, system = stat_of(pid)[11:13]
    return int(user), int(system)


def is_never_reaped(pid: int) -> bool:
    """Return whether a process's parent ignores how its children end: then the kernel counts their time for nobody.

    Spark's daemon for Python's workers does so.
    """
    try:
        status = (PROC / f"{parent_of(pid)}/status").read_text()
    except OSError:
        return False
    ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(ignored >> (signal.SIGCHLD - 1) & 1)


def stat_of(pid: int) -> list[bytes]:
    """Return the fields of a process's ``stat`` from its state on; raises OSError where it has ended."""
    # The command's name stands in parentheses and may contain anything, parentheses too. See proc(5).
    stat = (PROC / f"{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()


def all_processes() -> set[int]:
    """Return the ids of all processes there are."""
    return {int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()}


def reap_orphans() -> None:
    """Become the parent of every process whose parent ends below this one: prctl(2), PR_SET_CHILD_SUBREAPER."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "expected to become the reaper of orphans")
