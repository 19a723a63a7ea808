"""The memory of a tree of processes is counted once, also while one of them starts another."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import process_tree
import pytest
from last_will import LastWill
from process_tree import ProcessTree, all_processes, is_copy, parent_of
from whole_process import run_whole

ALLOCATED = 64 * 2**20
ALLOCATE = f"import os, sys, time; held = bytearray(b'x') * {ALLOCATED}; "
WAIT = "print('ready', flush=True); sys.stdin.read()"
FORKS = f"{ALLOCATE} os.fork() or time.sleep(60); {WAIT}"
STARTS_ANOTHER = f"""{ALLOCATE}
import subprocess
child = subprocess.Popen([sys.executable, '-c', {f"{ALLOCATE} print('ready', flush=True); time.sleep(60)"!r}])
sys.stdin.read()"""


@contextmanager
def tree_of(program: str) -> Iterator[ProcessTree]:
    others = all_processes()
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    tree = ProcessTree(process.pid, others, lambda *_: None, lambda _: None)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        tree.look()
        yield tree
    finally:
        tree.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def resident_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "PSS_UP_TO_BYTES", 0)


def test_a_process_that_was_forked_and_has_not_started_its_program_holds_its_parents_memory() -> None:
    with tree_of(FORKS) as tree:
        [child] = tree.members.keys() - {tree.leader}

        assert parent_of(child) == tree.leader
        assert (is_copy(child), is_copy(tree.leader)) == (True, False)
        assert ALLOCATED < tree.memory_bytes() < 1.9 * ALLOCATED


def test_a_process_that_has_started_its_program_has_memory_of_its_own() -> None:
    with tree_of(STARTS_ANOTHER) as tree:
        assert len(tree.members) == 2
        assert tree.memory_bytes() > 2 * ALLOCATED


def test_this_process_is_its_own_program() -> None:
    assert not is_copy(os.getpid())


BURNS = "import time\nwhile time.process_time() < 0.8: pass"
IGNORES_ITS_CHILDREN = f"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {BURNS!r}]).wait()
"""


def test_the_time_of_a_process_whose_parent_ignores_its_end_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", IGNORES_ITS_CHILDREN]
    with LastWill() as will:
        finished = run_whole(command, os.environ, tmp_path, log, timeout_s=60, will=will)
    assert finished.exit_code == 0, log.read_text()
    assert finished.user_s + finished.system_s > 0.4
