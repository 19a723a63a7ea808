"""The age of staged files: a clean-up of a table deletes old files that the table does not name."""

import time
from collections.abc import Iterable

from kafka_ingest.foundation.storage import Opened, changed_at, renew


def renew_older(files: Iterable[Opened], oldest_s: float) -> list[Opened]:
    """Renew the files that were changed more than ``oldest_s`` seconds ago, and return them."""
    now = time.time()
    old = [path for path in files if now - changed_at(path) > oldest_s]
    for path in old:
        renew(path)
    return old
