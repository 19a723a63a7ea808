"""The tutorial, as it is written: its commands, and what it shows of their output."""

from pathlib import Path

import pytest
from tests.kept_spark import kept_spark
from tests.shell_commands import forking_commands

from embedded_broker import EmbeddedBroker
from try_tutorial import PAGE, PageError, not_printed, try_page


def test_the_commands_of_the_tutorial_print_what_it_shows(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with forking_commands(tmp_path / "commands", kept_spark().folder) as functions:
        try_page(PAGE.read_text(), broker.bootstrap_servers, tmp_path, BASH_ENV=str(functions))


def test_a_page_whose_command_fails_or_prints_something_else_is_refused(tmp_path: Path) -> None:
    page = "\n## First\n```sh\ncd /\n```\n\n## Second\n```sh\npwd\n```\n\n```text\n/\n```\n"
    try_page(page, "", tmp_path / "good")
    with pytest.raises(PageError, match="/tmp"):
        try_page(page.replace("\n/\n", "\n/tmp\n"), "", tmp_path / "other")
    with pytest.raises(PageError, match="exit code 0"):
        try_page(page.replace("cd /", "cd /\nfalse"), "", tmp_path / "failed")


@pytest.mark.parametrize(
    ("expected", "missing"),
    [("one 2\nfour", None), ("four\none 2", "one 2"), ("o…3 four", None), ("one 2 3  ", None), ("one 3", "one 3")],
)
def test_lines_are_looked_for_in_their_order_whatever_is_left_out(expected: str, missing: str | None) -> None:
    assert not_printed(expected, "  one  2 3 four\nfour\n") == missing
