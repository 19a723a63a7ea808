"""How commands answer: a table for people, one JSON object for scripts, an exit code for both."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.markup import escape

from kafka_ingest.errors import KafkaIngestError, NotPrintedError
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.verbs.answer import JSON_VERSION, Answer, FittingTable, Line, error_document

READABLE = 1_000_000  # characters

TO_EXECUTE = "nothing was changed: --execute --reason … does it"

STOPPED = (
    "Stopped. An open batch stays as it is: the next run continues it, `kafka-ingest backfill FEED open` a backfill's."
)

# A pipe or a file has no width: lines are not wrapped there, so that grep finds them.
WIDTH_OF_A_FILE = 200

out = Console(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else WIDTH_OF_A_FILE)
progress = Console(stderr=True, highlight=False)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object, with the version of its form; a large one on one line, which is much faster."""
    whole = {"version": JSON_VERSION, **document}
    text = json.dumps(whole, default=str)
    sys.stdout.write((text if len(text) > READABLE else json.dumps(whole, indent=2, default=str)) + "\n")


def show(answer: Answer, *, as_json: bool, to_do: str | None = None) -> None:
    """Print a command's answer and exit as it says; ``to_do``: how to do what was only shown."""
    if as_json:
        print_json(answer.document)
    else:
        for each in answer.shown:
            print_shown(each)
        if answer.only_shown and to_do is not None:
            out.print(to_do)
    if answer.exit_code:
        raise typer.Exit(answer.exit_code)


def print_shown(shown: Line | FittingTable) -> None:
    """Print a part of an answer; a warning on stderr, so that it is never part of one."""
    if isinstance(shown, Line):
        (progress if shown.aside else out).print(shown.text, style=shown.style, markup=False, soft_wrap=True)
    else:
        out.print(shown)


def print_error_json(code: str, message: str, exit_code: int) -> None:
    print_json(error_document(code, message, exit_code))


def unexpected_in_json(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Answer with an object also for an unexpected error: Python's ``sys.excepthook`` for ``--json``."""
    if isinstance(error, Exception):
        print_error_json("UNEXPECTED", f"{kind.__name__}: {error}", 1)
    sys.__excepthook__(kind, error, trace)


@contextlib.contextmanager
def answers(*, as_json: bool) -> Iterator[None]:
    try:
        yield
    except KafkaIngestError as error:
        if as_json:
            print_error_json(error.code, str(error), error.exit_code)
        else:
            progress.print(f"[red]{error.code}[/red] {escape(storable(str(error)))}", soft_wrap=True)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt:
        if as_json:
            print_error_json("STOPPED", STOPPED, 128 + signal.SIGINT)
        else:
            progress.print(STOPPED)
        raise typer.Exit(128 + signal.SIGINT) from None
    except SystemExit as ended:
        if as_json and ended.code == 128 + signal.SIGTERM:
            print_error_json("STOPPED", STOPPED, 128 + signal.SIGTERM)
        raise


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Show that a step is running, and how long it took; on stderr, so that it is never part of an answer."""
    started = time.monotonic()
    live = progress.status(f"{title} …") if progress.is_terminal else contextlib.nullcontext()
    with live:
        yield
    progress.print(f"{title:<40} {time.monotonic() - started:6.1f} s")


@contextlib.contextmanager
def counting(what: str) -> Iterator[Callable[..., None]]:
    """Show a long step's progress, continuously on a terminal; on stderr, so that it is never part of an answer."""
    started, done = time.monotonic(), 0
    live = progress.status(f"0 {what} …") if progress.is_terminal else None

    def advance(by: int = 1) -> None:
        nonlocal done
        done += by
        if live is not None:
            live.update(f"{done:,} {what}, {time.monotonic() - started:,.0f} s")

    with live or contextlib.nullcontext():
        yield advance
    progress.print(f"{what:<33} {done:>6,} {time.monotonic() - started:6.1f} s")


class Printed:
    """A stream of the command line's that does not fail: what comes after its first error goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self._stream, name)

    def _lose(self, error: OSError) -> None:
        self.error = self.error or error
        # What is buffered would fail again, at the latest when the process ends.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)


def check_printed(*streams: Printed) -> None:
    """Raise NotPrintedError where something got lost; nothing where a reader went away, as ``head`` does."""
    for stream in streams:
        stream.flush()
        if stream.error is not None and not isinstance(stream.error, BrokenPipeError):
            raise NotPrintedError(
                f"expected to print to {stream.name}, found: {stream.error.strerror}. The command has run to its end "
                "all the same: `kafka-ingest status` and `batches` show what it did."
            )


def printing() -> tuple[Printed, Printed]:
    streams = Printed(sys.stdout), Printed(sys.stderr)
    sys.stdout, sys.stderr = streams
    return streams
