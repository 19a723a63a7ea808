"""A command whose answer cannot be printed does what it was asked for, and says at its end that it was not printed."""

import subprocess
import sys
from pathlib import Path

import pytest

STEPS = """
import sys
from kafka_ingest.cli import app as command_line
from kafka_ingest.cli.output import out, print_json, progress
def steps():
    for number in range(3):
        out.print("x" * 10_000)
        print_json({"step": number})
        progress.print("shown")
    open(sys.argv[-1], "w").write("all steps are done")
    sys.exit(int(sys.argv[-2]))
command_line.app = lambda **_: steps()
command_line.main()
"""


def run(tmp_path: Path, redirected: str, exit_code: int) -> tuple[int, str]:
    """Run a command whose output goes where a shell sends it; return its exit code and what it said."""
    shell = f'"$0" -c "$1" "$2" "$3" {redirected}'
    done = tmp_path / "done"
    found = subprocess.run(
        ["/bin/bash", "-c", shell, sys.executable, STEPS, str(exit_code), str(done)],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.read_text() == "all steps are done"
    return found.returncode, found.stderr


@pytest.mark.parametrize(("exit_code", "ends_with"), [(0, 1), (3, 3)])
def test_on_a_full_disk_the_command_goes_on_and_names_it_at_the_end(
    tmp_path: Path, exit_code: int, ends_with: int
) -> None:
    code, said = run(tmp_path, "> /dev/full", exit_code)
    assert (code, said.count("shown")) == (ends_with, 3)
    assert "NOT_PRINTED expected to print to <stdout>, found: No space left on device." in said
    assert "Traceback" not in said
    assert run(tmp_path, "2> /dev/full", exit_code)[0] == ends_with


def test_a_reader_that_went_away_is_no_error(tmp_path: Path) -> None:
    code, said = run(tmp_path, "| head -c 1 > /dev/null; exit ${PIPESTATUS[0]}", 0)
    assert (code, said.count("shown"), "NOT_PRINTED" in said, "Traceback" in said) == (0, 3, False, False)


def test_what_can_be_printed_is_printed(tmp_path: Path) -> None:
    assert run(tmp_path, "> /dev/null", 0) == (0, "shown\n" * 3)
