"""What a Delta table notes of its newest checkpoint: a hint, which may be late, or name one that is gone."""

import json

from kafka_ingest.foundation.storage import Opened, read_whole

NAME = "_last_checkpoint"


def noted_checkpoint(log: Opened) -> int:
    """Return the version of the newest checkpoint as a log notes it; 0 where it notes none that can be read."""
    try:
        return int(json.loads(read_whole(log / NAME))["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0
