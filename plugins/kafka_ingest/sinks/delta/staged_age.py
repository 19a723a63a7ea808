"""Whether another program's clean-up could take staged files at this moment.

VACUUM deletes files that the table does not name and that are older than the table's retention. It deletes what it has
listed, even if a file changes afterwards. So files that are nearly that old are renewed, and committed only once a
VACUUM that saw them as old must have ended.
"""

import re
from collections.abc import Mapping, Sequence

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.sinks.tables.staged_age import renew_older

RETENTION = "delta.deletedFileRetentionDuration"
DEFAULT_RETENTION_S = 7 * 86_400.0
LEAST_RETENTION_S = 3_600.0
"""With less, files that are renewed may be too old again when the task is tried again."""
MARGIN_S = 86_400.0
UNITS_S = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0, "week": 7 * 86_400.0}
INTERVAL = re.compile(r"(?:interval\s+)?([0-9]{1,12})\s+([a-z]+?)s?", re.IGNORECASE)


def retention_s(configuration: Mapping[str, str]) -> float:
    """Return how long VACUUM keeps files that a table does not name; the default where the setting cannot be read."""
    found = INTERVAL.fullmatch(configuration.get(RETENTION, "").strip())
    if found is None or found[2].lower() not in UNITS_S:
        return DEFAULT_RETENTION_S
    return int(found[1]) * UNITS_S[found[2].lower()]


def check_safe_from_clean_up(files: Sequence[Opened], configuration: Mapping[str, str]) -> None:
    """Raise OutputUnavailableError where files are so old that VACUUM could take them; they are renewed."""
    retention = retention_s(configuration)
    oldest = retention - min(MARGIN_S, retention / 2)
    old = renew_older(files, oldest)
    if not old:
        return
    raise OutputUnavailableError(
        f"{old[0].parent}: {counted(len(old), 'staged file')} {are(len(old))} older than {oldest / 86_400:.3g} "
        f"days, so that a VACUUM may "
        "take them while they are committed. They were renewed. No offset was moved; run this again when no VACUUM of "
        "this table is under way that began before now."
    )
