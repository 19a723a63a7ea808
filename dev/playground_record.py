"""What `make up` wrote down of a playground: enough for a later command to describe and to stop it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from own_process import OwnProcess


@dataclass(frozen=True, slots=True)
class PlaygroundRecord:
    """The processes in the order in which they were started, and the two addresses people need.

    `complete` is False until everything answered: an `up` that was killed half-way leaves it so.
    """

    bootstrap_servers: str
    api_port: int
    processes: tuple[OwnProcess, ...] = ()
    complete: bool = False

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the record; None where nothing was started."""
        try:
            document = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return cls(**{**document, "processes": tuple(OwnProcess(**process) for process in document["processes"])})

    def write(self, path: Path) -> None:
        """Replace the record as a whole: a reader finds this one or the former, never half of one."""
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self), indent=2))
        partial.replace(path)

    def with_process(self, process: OwnProcess) -> Self:
        """Return the same with one more process."""
        return replace(self, processes=(*self.processes, process))

    def ended(self) -> Sequence[OwnProcess]:
        """Return the processes that do not run any more."""
        return [process for process in self.processes if not process.is_running()]
