"""Whose turn it is where retention is at some partitions' heels: what they lose must not cost the others their work. Pure.

A batch that loses a part of one range while it is read is given up as a whole, and a partition that lost records twice may lose
more: read together, all would start over again and again. So such partitions are read apart from the others until something was
read of them, those that lost records at the same time together; those that waited longest come first. After each loss all others
have their turn, and those that lose nothing more are soon by themselves: their batch is committed, whatever becomes of the rest.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_ingest.boundaries import FeedSnapshot
from kafka_ingest.planning.default_limit import LEAST_RECORDS
from kafka_ingest.planning.positions import Position

SHARE_OF_A_BATCH = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """What the next batch reads. ``is_endangered``: these partitions lost records twice, and nothing was read of them since."""

    positions: Sequence[Position]
    is_endangered: bool = False

    def max_records(self, of_feed: int | None) -> int | None:
        """Return how many records the batch holds at most: of endangered partitions few, to be quicker than retention."""
        if not self.is_endangered:
            return of_feed
        return LEAST_RECORDS if of_feed is None else max(1, of_feed // SHARE_OF_A_BATCH)


def turn_of(positions: Collection[Position], feed: FeedSnapshot | None) -> Turn:
    """Return whose turn it is, of the partitions that have something to read."""
    together: dict[float | None, list[Position]] = {}
    for position in positions:
        together.setdefault(lost_at(position, feed), []).append(position)
    turns = [
        Turn(found, is_endangered=lost is not None)
        for lost, found in together.items()
        if any(each.lag for each in found)
    ]
    # Of those that waited equally long the endangered come first.
    return min(turns, key=lambda turn: (last_moved(turn, feed), not turn.is_endangered), default=Turn(()))


def lost_at(position: Position, feed: FeedSnapshot | None) -> float | None:
    """Return when a partition lost records last, in seconds, where it did so twice since it was read; None elsewhere."""
    is_behind_a_loss = feed is not None and position.topic_partition in feed.behind_losses
    return moved_at(position, feed) if is_behind_a_loss else None


def last_moved(turn: Turn, feed: FeedSnapshot | None) -> float:
    """Return when the newest of some stored offsets was moved, by a commit or over a gap."""
    return max(moved_at(position, feed) for position in turn.positions)


def moved_at(position: Position, feed: FeedSnapshot | None) -> float:
    """Return when a stored offset was moved, in seconds; 0 where it never was."""
    row = feed.stored.get(position.topic_partition) if feed is not None else None
    return row.updated_at.timestamp() if row is not None and row.updated_at is not None else 0.0
