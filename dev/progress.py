"""Steps a person can follow: what is being done, for how long, and how long it took.

On a terminal a step is one live line with a spinner; elsewhere (a CI log, a pipe) plain lines, with a sign of life
every few seconds, so that a slow step does not look like one that hangs.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SIGN_OF_LIFE_S = 10.0

console = Console(highlight=False)


class Step(Protocol):
    """A step that is under way."""

    def note(self, text: str) -> None:
        """Say what the step is at, in a few words; replaces the last note."""


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Show `title` while the block runs, then whether it succeeded and how long it took.

    Exceptions pass through: the step is shown as failed, the caller reports the cause.
    """
    started, title = time.monotonic(), escape(title)  # a range such as [0, 10) is no markup
    outcome = "[red]failed[/]"
    try:
        with _live(title) if console.is_terminal else _plain(title, started) as shown:
            yield shown
        outcome = "[green]ok[/]"
    finally:
        console.print(f"{outcome}  {title}  [dim]{time.monotonic() - started:.1f} s[/]", soft_wrap=True)


class _LiveStep:
    def __init__(self, progress: Progress, title: str) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=None, note="")

    def note(self, text: str) -> None:
        self._progress.update(self._task, note=text)


@contextmanager
def _live(title: str) -> Iterator[Step]:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[note]}[/]"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield _LiveStep(progress, title)


class _PlainStep:
    def __init__(self) -> None:
        self.text = ""

    def note(self, text: str) -> None:
        self.text = text


@contextmanager
def _plain(title: str, started: float) -> Iterator[Step]:
    console.print(f"...  {title}", soft_wrap=True)
    shown, ended = _PlainStep(), threading.Event()

    def signs_of_life() -> None:
        while not ended.wait(SIGN_OF_LIFE_S):
            note = f": {shown.text}" if shown.text else ""
            console.print(f"     {time.monotonic() - started:.0f} s{note}", soft_wrap=True, markup=False)

    reporter = threading.Thread(target=signs_of_life, daemon=True)
    reporter.start()
    try:
        yield shown
    finally:
        ended.set()
        reporter.join()
