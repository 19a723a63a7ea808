"""``mend-statistics``: let readers look for the bounds that all files of a table have, and for no others."""

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks, Statistics
from kafka_ingest.ports.parts import role_of
from kafka_ingest.verbs.request import Call, Request


class MendStatistics(Request):
    """Let readers of a Delta table look for the bounds that all of its files have: some miss rows without the others.

    One commit, which names columns; no file changes.
    """

    verb = command = "mend-statistics"
    does = "lets readers of a Delta table look for the bounds that all of its files have"

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        settings = parts.plan_settings
        if decided is None:
            _, _, found = recorded_statistics(settings, parts.control, parts.sinks)
        else:
            found = mend_statistics(settings, parts.control, parts.sinks, reason=decided.reason, actor=decided.actor)
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
            lines.append(
                Line(f"the table {verb} the columns of which all files have bounds: {listing(found.complete)}")
            )
        else:
            lines.append(
                Line(f"nothing to mend: all {counted(found.files, 'file')} have the bounds for which readers look")
            )
        return Answer(document, lines, only_shown=bool(found.lacking) and not executed)


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
        # Before the commit, which can be repeated: after a crash in between the output is as it was.
        control.record_event(feed.feed_id, "statistics_mended", actor=actor, batch_id=None, detail=detail)
        statistics.mend()
    return found
