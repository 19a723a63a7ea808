"""``mirror``: how far the consumer group is from the stored offsets, and its repair."""

from kafka_ingest.answers.answer import Answer, Line, mirror_lines
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.verbs.request import Call, Deciding, Request


class Mirror(Request):
    """Show how far the consumer group is from the stored offsets; --repair sets it to them. Exit code 1: not equal."""

    verb = command = "mirror"
    like = "--repair"
    does = "sets the consumer group to the stored offsets"
    deciding = Deciding.REPAIR

    def answer(self, call: Call) -> Answer:
        """Show the drift; where it is decided, set the group to the stored offsets first."""
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
