"""``mend-statistics``: let readers look for the bounds that all files of a table have, and for no others."""

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import listing
from kafka_ingest.operating.mend_statistics import mend_statistics as mend
from kafka_ingest.operating.mend_statistics import recorded_statistics
from kafka_ingest.verbs.decided import Decided


def mend_statistics(parts: FeedParts, decided: Decided | None) -> Answer:
    """Mend the statistics of a feed's output, or show which bounds are missing."""
    settings = parts.plan_settings
    if decided is None:
        _, _, found = recorded_statistics(settings, parts.control, parts.sinks)
    else:
        found = mend(settings, parts.control, parts.sinks, reason=decided.reason, actor=decided.actor)
    executed = decided is not None and bool(found.lacking)
    document = {
        "feed": parts.feed.name,
        "files": found.files,
        "lacking": dict(found.lacking),
        "named": list(found.complete),
        "executed": executed,
    }
    lines = [
        Line(f"{name}: {count:,} of {counted(found.files, 'file')} lack its bounds", "yellow")
        for name, count in found.lacking.items()
    ]
    if found.lacking:
        verb = "names" if executed else "would name"
        lines.append(Line(f"the table {verb} the columns of which all files have bounds: {listing(found.complete)}"))
    else:
        lines.append(
            Line(f"nothing to mend: all {counted(found.files, 'file')} have the bounds for which readers look")
        )
    return Answer(document, lines, only_shown=bool(found.lacking) and not executed)
