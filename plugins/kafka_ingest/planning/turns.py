"""Whose turn it is where retention threatens some partitions: their loss must not cost the others their work. Pure.

A batch that loses a part of one range while it is read leaves that range out, and reads the others again. A partition
that lost records twice may lose more: read together, it would cost the others that again and again, and none of it
would ever be read. So such partitions are read apart from the others until something was read of them, in small
batches, which are quicker than retention; whichever waited longer comes first. Of an endangered batch, too, what lost
nothing is committed.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.planning.default_limit import LEAST_RECORDS
from kafka_ingest.planning.positions import Position

SHARE_OF_A_BATCH = 10


@dataclass(frozen=True, slots=True)
class Turn:
    """What the next batch reads. ``is_endangered``: these partitions lost records twice, and were not read since."""

    positions: Sequence[Position]
    is_endangered: bool = False

    def max_records(self, of_feed: int | None) -> int | None:
        """Return the batch's largest number of records: few of endangered partitions, to be faster than retention."""
        if not self.is_endangered:
            return of_feed
        return LEAST_RECORDS if of_feed is None else max(1, of_feed // SHARE_OF_A_BATCH)


def turn_of(positions: Collection[Position], feed: FeedSnapshot | None) -> Turn:
    """Return whose turn it is, of the partitions that have something to read."""
    behind_losses = feed.behind_losses if feed is not None else ()
    endangered = [position for position in positions if position.topic_partition in behind_losses]
    others = [position for position in positions if position.topic_partition not in behind_losses]
    both = (Turn(endangered, is_endangered=True), Turn(others))
    turns = [turn for turn in both if any(each.lag for each in turn.positions)]
    # Of those that waited equally long the endangered come first.
    return min(turns, key=lambda turn: (last_moved(turn, feed), not turn.is_endangered), default=Turn(()))


def last_moved(turn: Turn, feed: FeedSnapshot | None) -> float:
    """Return when the newest of some stored offsets was moved, by a commit or over a gap."""
    return max(moved_at(position, feed) for position in turn.positions)


def moved_at(position: Position, feed: FeedSnapshot | None) -> float:
    """Return when a stored offset was moved, in seconds: the latest time where this plan moves it, 0 for never."""
    if position.jump is not None:
        return math.inf
    row = feed.stored.get(position.topic_partition) if feed is not None else None
    return row.updated_at.timestamp() if row is not None and row.updated_at is not None else 0.0
