"""What is printed may get lost, as on a full disk: the command continues, and ends with one error that says so."""

import os
import sys
from typing import Any, TextIO

from kafka_ingest.errors import NotPrintedError


class Printed:
    """A stream of the command line's that does not fail: what comes after its first error goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        """Write a text, if that still works."""
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that still works."""
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        """Return everything else as the stream has it."""
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
    """Let nothing fail because it cannot be printed, and return both streams."""
    streams = Printed(sys.stdout), Printed(sys.stderr)
    sys.stdout, sys.stderr = streams
    return streams
