"""SIGKILL for processes of one home, chosen at random among those that run at the moment, found in Linux's /proc."""

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROLES: Mapping[str, Callable[[str], bool]] = {
    "Spark driver JVM": lambda command: "org.apache.spark.deploy.SparkSubmit" in command,
    "Python driver": lambda command: "write_batch.py" in command and "SparkSubmit" not in command,
    # LocalExecutor's workers that wait for work run no task.
    "Airflow task": lambda command: (
        command.startswith(("airflow worker", "airflow supervisor")) and "<idle>" not in command
    ),
    "kafka-ingest run": lambda command: "kafka-ingest run" in command,
}
"""What a process is, by its command line."""


@dataclass
class RandomKills:
    """Kills processes whose environment carries ``mark``, and no others; counts them by role."""

    mark: str
    choose: random.Random
    killed: Counter[str] = field(default_factory=Counter)

    def victims(self) -> dict[str, list[int]]:
        """Return the process ids that can be killed now, by role."""
        found: dict[str, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                ours = f"{self.mark}\0".encode() in (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace") if ours else ""
            except OSError:
                continue  # ended since then, or another user's
            for role, is_one in ROLES.items():
                if command and is_one(command):
                    found.setdefault(role, []).append(int(entry.name))
                    break
        return found

    def kill_one(self) -> str | None:
        """Kill one process of a role chosen first, so that the many do not crowd out the few; None where none runs."""
        victims = self.victims()
        if not victims:
            return None
        role = self.choose.choice(sorted(victims))
        try:
            os.kill(self.choose.choice(victims[role]), signal.SIGKILL)
        except ProcessLookupError:
            return None
        self.killed[role] += 1
        return role
