"""What the benchmark says of the code that it measured."""

import subprocess
from pathlib import Path

from measured_on import commit

COMMITTED = ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "--message", "first")


def git(directory: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=directory, capture_output=True, text=True, check=True).stdout.strip()


def test_the_commit_is_reported_with_a_plus_where_files_differ_from_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, *COMMITTED)
    head = git(tmp_path, "rev-parse", "--short", "HEAD")

    clean = commit(tmp_path)
    (tmp_path / "code.py").write_text("2\n")

    assert (clean, commit(tmp_path)) == (head, f"{head}+")


def test_outside_of_git_the_commit_is_unknown(tmp_path: Path) -> None:
    assert commit(tmp_path) == "unknown"
