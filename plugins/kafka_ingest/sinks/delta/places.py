"""Where the data files of a Delta table are: ``P/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's log names. Not hidden: VACUUM never deletes from hidden directories, not even what OPTIMIZE
replaced.
"""

import re

from kafka_ingest.foundation.foreign_json import (
    ENOUGH_BYTES,
    ForeignJsonError,
    read_as_ours,
    read_foreign_object,
    whole,
)
from kafka_ingest.foundation.storage import Opened, read_at_most

BATCH_KEY, FINGERPRINT_KEY = "kafka_ingest.batch_id", "kafka_ingest.plan_fingerprint"
PROOF_KEY = "userMetadata"
"""What a commit calls its batch's proof: the only thing that DESCRIBE HISTORY shows besides what it does."""

BATCHES = "batches"
LOG, LAST_CHECKPOINT = "_delta_log", "_last_checkpoint"
NOT_IN_PATHS = re.compile(r"\\|%[0-9A-Fa-f]{2}")
"""What delta-rs reads as another path than the one that it writes."""


def entry_name(version: int) -> str:
    return f"{version:020d}.json"


def noted_checkpoint(log: Opened) -> int:
    """Return the version of the newest checkpoint as a log notes it; 0 where it notes none that can be read.

    That is a hint, which may be late, or name one that is gone.
    """
    try:
        with read_as_ours():
            return max(0, whole(read_foreign_object(read_at_most(log / LAST_CHECKPOINT, ENOUGH_BYTES)), "version"))
    except (FileNotFoundError, ForeignJsonError):
        return 0
