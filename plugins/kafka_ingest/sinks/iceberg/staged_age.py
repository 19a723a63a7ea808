"""Whether another program's clean-up could take staged files at this moment.

``remove_orphan_files`` deletes files that no snapshot names and that are older than three days, unless it is asked for
another age. It deletes what it has listed, even if a file changes afterwards. So files that are nearly that old are
renewed, and committed only once a clean-up that saw them as old must have ended.
"""

from collections.abc import Iterable

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.sinks.tables.staged_age import renew_older

OLDEST_S = 2 * 86_400.0


def check_safe_from_clean_up(files: Iterable[Opened]) -> None:
    """Raise OutputUnavailableError where files are so old that a clean-up could take them; they are renewed."""
    old = renew_older(files, OLDEST_S)
    if not old:
        return
    raise OutputUnavailableError(
        f"{old[0].parent}: {counted(len(old), 'staged file')} {are(len(old))} older than {OLDEST_S / 86_400:.0f} "
        f"days, so that "
        "remove_orphan_files may take them while they are committed. They were renewed. No offset was moved; run this "
        "again after every remove_orphan_files of this table that runs now has finished."
    )
