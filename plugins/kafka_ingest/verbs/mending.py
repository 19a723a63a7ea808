"""``mirror`` and ``mend-statistics``: set right what others see, a consumer group and the bounds of a table."""

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks, Statistics
from kafka_ingest.ports.parts import role_of
from kafka_ingest.verbs.answer import Answer, Line, mirror_lines
from kafka_ingest.verbs.request import Call, Deciding, Request


class Mirror(Request):
    """Show how far the consumer group is from the stored offsets; --repair sets it to them. Exit code 1: not equal."""

    verb = command = "mirror"
    like = "--repair"
    does = "sets the consumer group to the stored offsets"
    deciding = Deciding.REPAIR

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        name, group = parts.feed.name, parts.feed.kafka.group
        feed = known_feed(parts.control, name)
        if group is None:
            raise WrongUseError(f"feed {name} names no kafka.group: it leaves Kafka untouched")
        parts.check_output_known()
        failure = None
        if decided is not None:
            failure = parts.mirror(actor=decided.actor).failure
        stored = {
            tp: row.next_offset for tp, row in feed.stored.items() if tp.topic in feed.topics and not row.is_pending
        }
        found = parts.kafka.group_offsets(group, stored.keys())
        drift = {tp: offset for tp, offset in sorted(found.items()) if offset != stored[tp]}
        document = {
            "feed": name,
            "group": group,
            "failure": failure,
            "drift": [
                {"topic": tp.topic, "partition": tp.partition, "group_offset": offset, "stored_offset": stored[tp]}
                for tp, offset in drift.items()
            ],
        }
        lines = mirror_lines(failure)
        for tp, offset in drift.items():
            lines.append(Line(f"{tp}: group {'has none' if offset is None else f'{offset:,}'}, stored {stored[tp]:,}"))
        if not drift and failure is None:
            lines.append(
                Line(f"consumer group {group} is at the stored offsets of all {counted(len(stored), 'partition')}")
            )
        return Answer(document, lines, 1 if drift or failure else 0, only_shown=bool(drift) and decided is None)


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
