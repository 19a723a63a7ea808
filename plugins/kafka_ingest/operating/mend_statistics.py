"""An operator mends what an output's metadata record of its files: readers skipped files that have rows they want.

The line in the journal comes before the commit, which can be repeated: a crash in between leaves the output as it was.
"""

from kafka_ingest.batches.used_output import check_output_there
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.table_statistics import TableStatistics
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks, Statistics
from kafka_ingest.ports.role_of_format import role_of


def recorded_statistics(
    settings: FeedPlanSettings, control: OperatorTables, sinks: Sinks
) -> tuple[FeedSnapshot, Statistics, TableStatistics]:
    """Return what is recorded of the files of a feed's current output; nothing is changed.

    Raises NotOfThisFormatError for a format whose readers take no bounds that are missing for others.
    """
    feed = known_feed(control, settings.name)
    check_output_there(feed.feed_id, settings.output, control, sinks)
    statistics = role_of(settings.output, sinks(settings.output).statistics, "have statistics that need mending")
    return feed, statistics, statistics.look()


def mend_statistics(
    settings: FeedPlanSettings, control: OperatorTables, sinks: Sinks, *, reason: str, actor: str
) -> TableStatistics:
    """Mend them, and return what was recorded before; where nothing lacks, nothing is done or noted."""
    feed, statistics, found = recorded_statistics(settings, control, sinks)
    if found.lacking:
        detail = {"reason": reason, "lacking": dict(found.lacking), "named": list(found.complete)}
        control.record_event(feed.feed_id, "statistics_mended", actor=actor, batch_id=None, detail=detail)
        statistics.mend()
    return found
