"""What a Delta table notes of its newest checkpoint: a hint, which may be late, or name one that is gone."""

from kafka_ingest.foundation.foreign_json import (
    ENOUGH_BYTES,
    ForeignJsonError,
    read_as_ours,
    read_foreign_object,
    whole,
)
from kafka_ingest.foundation.storage import Opened, read_at_most

NAME = "_last_checkpoint"


def noted_checkpoint(log: Opened) -> int:
    """Return the version of the newest checkpoint as a log notes it; 0 where it notes none that can be read."""
    try:
        with read_as_ours():
            return max(0, whole(read_foreign_object(read_at_most(log / NAME, ENOUGH_BYTES)), "version"))
    except (FileNotFoundError, ForeignJsonError):
        return 0
