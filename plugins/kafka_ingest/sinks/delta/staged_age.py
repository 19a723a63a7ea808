"""At which age VACUUM takes staged files: it deletes what the table does not name, past the table's retention."""

import re
from collections.abc import Mapping

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


def oldest_s(configuration: Mapping[str, str]) -> float:
    """Return at which age of staged files VACUUM is near to taking them."""
    retention = retention_s(configuration)
    return retention - min(MARGIN_S, retention / 2)
