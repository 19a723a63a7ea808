"""What the job is given beside the attempt's document, in a file that the submitter's user alone can read.

Other users can read arguments and Spark's settings, and the environment holds no text of more than 128 KiB, which
certificates may be.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BEGUN = "begun"
"""Beside that file: the places of the attempts that the job has begun, where it has several."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Of each attempt the Kafka client's settings, in Java's words; and how to reach their outputs' store, if any.

    ``limits_s``: how long each may take, in seconds; none where a feed is run alone, which its caller ends.
    """

    kafka: Sequence[Mapping[str, str]] = field(repr=False)
    store: str | None = field(default=None, repr=False)
    limits_s: Sequence[float] = ()

    def write(self, file: Path) -> None:
        """Write a new file, for this user alone."""
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as new:
            kafka = [dict(each) for each in self.kafka]
            json.dump({"kafka": kafka, "store": self.store, "limits_s": list(self.limits_s)}, new)

    @classmethod
    def take(cls, file: Path) -> "JobSettings":
        """Read the file and remove it: it may hold a secret."""
        document = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
        return cls(document["kafka"], document["store"], tuple(document["limits_s"]))
