"""What the job is given beside the attempt's document, in a file that the submitter's user alone can read.

Other users can read arguments and Spark's settings, and the environment holds no text of more than 128 KiB, which
certificates may be.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The Kafka client's settings, in Java's words; and how to reach the output's store, where it is in one."""

    kafka: Mapping[str, str] = field(repr=False)
    store: str | None = field(default=None, repr=False)

    def write(self, file: Path) -> None:
        """Write a new file, for this user alone."""
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
            json.dump({"kafka": dict(self.kafka), "store": self.store}, new)

    @classmethod
    def take(cls, file: Path) -> "JobSettings":
        """Read the file and remove it: it may hold a secret."""
        document = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
        return cls(document["kafka"], document["store"])
