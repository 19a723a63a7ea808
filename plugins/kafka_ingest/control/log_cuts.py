"""What operators' resets say about a topic's log: where it was read again, and from where on it holds other records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, RowMapping, select

from kafka_ingest.control.rows import event_of
from kafka_ingest.control.schema import batch, event
from kafka_ingest.model.coverage import Rewind
from kafka_ingest.model.gap import Event
from kafka_ingest.model.offsets import OffsetRange, TopicPartition


def resets(connection: Connection, feed_id: UUID) -> list[Event]:
    query = select(event).where(event.c.feed_id == feed_id, event.c.kind == "reset").order_by(event.c.event_id)
    return [event_of(row) for row in connection.execute(query).mappings()]


def ids_before(decided: Sequence[Event]) -> dict[tuple[str, str | None], str | None]:
    """Return the current topic id of each earlier one where an operator confirmed that the records are the same."""
    found: dict[tuple[str, str | None], str | None] = {}
    for reset in decided:
        ids = {entry["topic"]: entry["topic_id"] for entry in reset.detail["partitions"]}
        for entry in reset.detail["removed"]:
            topic, before = entry["topic"], entry["topic_id"]
            if topic in reset.detail.get("same_records", ()) and ids.get(topic, before) != before:
                found |= {key: ids[topic] for key, id_then in found.items() if key[0] == topic and id_then == before}
                found[topic, before] = ids[topic]
    return found


@dataclass(frozen=True, slots=True)
class PlannedOn:
    """When a batch was planned, in the order of the feed's events; ``upto`` is None where only the time is known.

    The feed's lock orders plans and resets. Their times come from the clocks of the machines that wrote them.
    """

    upto: int | None
    at: datetime

    @classmethod
    def of_row(cls, row: RowMapping) -> "PlannedOn":
        """Return it from a row with ``PLANNED_ON``."""
        # `adopt` writes the time of the receipt as that of the commit: it knows when the batch was planned, and its
        # events have new numbers.
        is_adopted = row["committed_at"] is not None and row["committed_at"] == row["written_at"]
        return cls(None if is_adopted else row["ledger_upto"], row["planned_at"])

    def is_before(self, reset: Event) -> bool:
        """Whether an operator decided a reset after the plan."""
        return reset.at > self.at if self.upto is None else reset.event_id > self.upto


PLANNED_ON = (batch.c.ledger_upto, batch.c.planned_at, batch.c.committed_at, batch.c.written_at)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where logs were cut off, as operators decided, and when; under the topic ids that the same records have now."""

    by_log: Mapping[tuple[TopicPartition, str | None], Sequence[tuple[Event, int]]]
    """Each reset with the offset that it moved back to."""
    ids: Mapping[tuple[str, str | None], str | None]

    @classmethod
    def of(cls, decided: Sequence[Event]) -> "Cuts":
        """Return the cuts among what operators decided on stored offsets."""
        ids = ids_before(decided)
        by_log: dict[tuple[TopicPartition, str | None], list[tuple[Event, int]]] = {}
        for reset in decided:
            for rewind in rewinds_of(reset):
                if not rewind.same_records:
                    interval = rewind.offset_range
                    topic_id = ids.get((interval.topic, rewind.topic_id), rewind.topic_id)
                    log = by_log.setdefault((interval.topic_partition, topic_id), [])
                    log.append((reset, interval.start_offset))
        return cls(by_log, ids)

    def at(self, topic_partition: TopicPartition, topic_id: str | None, planned: PlannedOn) -> int | None:
        """Return from which offset on a log holds other records than a batch planned then, None if there is none."""
        if not self.by_log:
            return None
        id_now = self.ids.get((topic_partition.topic, topic_id), topic_id)
        log = self.by_log.get((topic_partition, id_now), ())
        return min((offset for reset, offset in log if planned.is_before(reset)), default=None)


def read_again_since(decided: Sequence[Event], upto: int | None, ids: Mapping[str, str | None]) -> list[OffsetRange]:
    """Return what resets after an event gave back to live runs, in topics that have these ids or the same records."""
    now = ids_before(decided)
    return [
        rewind.offset_range
        for reset in decided
        if reset.event_id > (upto or 0)
        for rewind in rewinds_of(reset)
        for topic in [rewind.offset_range.topic]
        if topic in ids
        and now.get((topic, rewind.topic_id), rewind.topic_id) == now.get((topic, ids[topic]), ids[topic])
    ]


def rewinds_of(reset: Event) -> list[Rewind]:
    """Return where one reset moved stored offsets back in the topic that they were counted in."""
    was = {(entry["topic"], entry["partition"], entry["topic_id"]): entry for entry in reset.detail["removed"]}
    found: list[Rewind] = []
    for entry in reset.detail["partitions"]:
        before = was.get((entry["topic"], entry["partition"], entry["topic_id"]))
        if before is None or before["next_offset"] is None or entry["next_offset"] is None:
            continue
        if entry["next_offset"] < before["next_offset"]:
            topic_partition = TopicPartition(entry["topic"], entry["partition"])
            interval = OffsetRange(topic_partition, entry["next_offset"], before["next_offset"])
            same = entry["topic"] in reset.detail["same_records"]
            found.append(Rewind(interval, entry["topic_id"], reset.at, reset.actor, reset.detail["reason"], same))
    return found
