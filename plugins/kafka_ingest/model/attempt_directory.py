"""What both sides of the hand-over to Spark use: the names of an attempt's files, and the file with secret settings."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

DOCUMENT = "plan.json"
DATA = "data"
RECEIPT = "receipt.json"
FAILURE = "failure.txt"
DEAD_LETTERS = "dead-letters"
"""A directory like the attempt's own, for the records that could not be decoded: they are published elsewhere."""


class FailureCode(StrEnum):
    """How a failure begins that the job itself names: then comes a colon, and what was found."""

    NO_EXECUTORS = "NO_EXECUTORS"
    """The cluster gave the application no executor in time."""
    TOO_MANY_TABLE_PARTITIONS = "TOO_MANY_TABLE_PARTITIONS"
    """A batch has records of too many days or hours for a table that is partitioned by them."""
    UNKNOWN_SCHEMA_IDS = "UNKNOWN_SCHEMA_IDS"
    """Records begin with schema ids that the registry was not asked for; they follow."""
    EXPRESSION_REFUSED = "EXPRESSION_REFUSED"
    """Spark refuses an expression of the feed file, or what its ``transform`` does."""
    ROWS_REFUSED = "ROWS_REFUSED"
    """The output refuses rows of what was written; they follow. The next attempt makes dead letters of them."""

    def says(self, found: str) -> str:
        return f"{self}: {found}"


def read_code(failure: str) -> tuple[FailureCode | None, str]:
    """Return the code of a failure, and what follows it; None where the job did not name it."""
    code, _, found = failure.partition(": ")
    return (FailureCode(code), found) if code in FailureCode.__members__ else (None, failure)


MAX_WAIT_FOR_EXECUTORS = "spark.kafkaIngest.maxWaitForExecutors"
"""How many seconds the job waits for an executor: in Spark's settings, the job reads nothing else about the feed."""

AVRO_LIMITS = {
    "org.apache.avro.limits.string.maxLength": "67108864",
    "org.apache.avro.limits.bytes.maxLength": "67108864",
    "org.apache.avro.limits.collectionItems.maxLength": "1000000",
}
"""Java's system properties for Avro: a few bytes may claim to be billions, for which it would take memory first.

Elements may take no bytes (null, or a record of nothing else): no size of a record shows how much memory they take.
"""


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
