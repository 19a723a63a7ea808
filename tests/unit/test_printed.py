"""A command whose answer cannot be printed does what it was asked for, and says at its end that it was not printed."""

import json
import os
import select
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.command_forks import Fork, command_forks

STEPS = """
import sys
from kafka_ingest.cli import app as command_line
from kafka_ingest.cli.output import out, print_json, progress
def steps():
    for number in range(3):
        out.print("x" * 10_000)
        print_json({"step": number})
        progress.print("shown")
    open("done", "w").write("all steps are done")
    sys.exit(int(sys.argv[-1]))
command_line.app_of = lambda _: lambda **_: steps()
command_line.main()
"""
FULL = Path("/dev/full")
BROKEN = """
import sys
from kafka_ingest.cli import app
def boom(**_): raise RuntimeError('caf\\udce9')
app.app_of = lambda _: boom
sys.argv = ['kafka-ingest', 'feeds', '--json']
app.main()
"""


def started(tmp_path: Path, program: str, *arguments: str, stdout: Path, stderr: Path) -> Fork:
    """Start a program whose output goes to files."""
    script = tmp_path / "program.py"
    script.write_text(program)
    return command_forks().start(
        [str(script), *arguments], directory=tmp_path, environment=dict(os.environ), stdout=stdout, stderr=stderr
    )


def run(
    tmp_path: Path, exit_code: int, *, stdout: Path, stderr: Path | None = None, reads: Callable[[], None] | None = None
) -> tuple[int, str]:
    """Run a command whose answer goes to a file; return its exit code and what else it said."""
    said = tmp_path / "said"
    said.touch()
    command = started(tmp_path, STEPS, str(exit_code), stdout=stdout, stderr=stderr or said)
    if reads is not None:
        reads()
    code = command.wait(60)
    assert (tmp_path / "done").read_text() == "all steps are done"
    return code, said.read_text()


@pytest.mark.parametrize(("exit_code", "ends_with"), [(0, 1), (3, 3)])
def test_on_a_full_disk_the_command_goes_on_and_names_it_at_the_end(
    tmp_path: Path, exit_code: int, ends_with: int
) -> None:
    code, said = run(tmp_path, exit_code, stdout=FULL)
    assert (code, said.count("shown")) == (ends_with, 3)
    assert "NOT_PRINTED expected to print to <stdout>, found: No space left on device." in said
    assert "Traceback" not in said
    assert run(tmp_path, exit_code, stdout=tmp_path / "answer", stderr=FULL)[0] == ends_with


def test_a_reader_that_went_away_is_no_error(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def read_a_byte() -> None:
        select.select([reader], [], [])
        os.close(reader)

    code, said = run(tmp_path, 0, stdout=pipe, reads=read_a_byte)
    assert (code, said.count("shown"), "NOT_PRINTED" in said, "Traceback" in said) == (0, 3, False, False)


def test_what_can_be_printed_is_printed(tmp_path: Path) -> None:
    assert run(tmp_path, 0, stdout=tmp_path / "answer") == (0, "shown\n" * 3)
    assert (tmp_path / "answer").read_text().count('"step"') == 3


def test_with_json_an_error_without_a_name_is_an_object_too(tmp_path: Path) -> None:
    # In a process of its own: what is not caught anywhere is Python's to report.
    answer, said = tmp_path / "answer", tmp_path / "said"
    assert started(tmp_path, BROKEN, stdout=answer, stderr=said).wait(60) == 1
    error = json.loads(answer.read_text())["error"]
    assert (error["code"], error["message"]) == ("UNEXPECTED", r"RuntimeError: caf\xe9")
    assert "Traceback" in said.read_text()
