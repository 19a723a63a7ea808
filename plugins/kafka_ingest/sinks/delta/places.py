"""Where the data files of a Delta table are: ``P/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's log names. Not hidden: VACUUM never deletes from hidden directories, not even what OPTIMIZE
replaced.
"""

import re

BATCHES = "batches"
LOG = "_delta_log"
NOT_IN_PATHS = re.compile(r"\\|%[0-9A-Fa-f]{2}")
"""What delta-rs reads as another path than the one that it writes."""


def entry_name(version: int) -> str:
    """Return the name of a version's entry in the log."""
    return f"{version:020d}.json"
