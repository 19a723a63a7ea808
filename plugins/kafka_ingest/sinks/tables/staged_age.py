"""Whether another program's clean-up could take staged files at this moment.

It deletes old files that the table does not name: what it has listed, even if a file changes afterwards. So files that
are nearly that old are renewed, and committed only once a clean-up that saw them as old must have ended.
"""

import time
from collections.abc import Sequence

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.foundation.storage import Opened, changed_at, renew
from kafka_ingest.sinks.tables.table_format import CleanUp


def check_safe_from(clean_up: CleanUp, files: Sequence[Opened]) -> None:
    """Raise OutputUnavailableError where files are so old that a clean-up could take them; they are renewed."""
    now = time.time()
    old = [path for path in files if now - changed_at(path) > clean_up.oldest_s]
    for path in old:
        renew(path)
    if old:
        raise OutputUnavailableError(
            f"{old[0].parent}: {counted(len(old), 'staged file')} {are(len(old))} older than "
            f"{clean_up.oldest_s / 86_400:.3g} days, so that {clean_up.program} may take them while they are "
            "committed. They were renewed. No offset was moved; run this again when no "
            f"{clean_up.program} of this table is under way that began before now."
        )
