"""Where the data files of a Delta table are: ``P/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's log names. Not hidden: VACUUM never deletes from hidden directories, not even what OPTIMIZE
replaced.
"""

BATCHES = "batches"
LOG = "_delta_log"


def entry_name(version: int) -> str:
    """Return the name of a version's entry in the log."""
    return f"{version:020d}.json"
