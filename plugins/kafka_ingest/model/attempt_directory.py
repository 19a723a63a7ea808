"""The names that both sides of the hand-over to Spark use: the files of an attempt's directory, and of a call's own."""

from enum import StrEnum

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

    def says(self, found: str) -> str:
        """Return the text of a failure."""
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
