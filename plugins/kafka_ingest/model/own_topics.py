"""Topics that are no data, and that no pattern matches: Kafka's own, and the marks of Kafka as output."""

from typing import Final

KAFKAS_PREFIX: Final = "__"
MARKS_SUFFIX: Final = ".kafka-ingest"


def is_data(topic: str) -> bool:
    """Whether a topic may hold records that somebody means to read."""
    return not topic.startswith(KAFKAS_PREFIX) and not topic.endswith(MARKS_SUFFIX)
