"""How far consumer groups stand from the stored offsets of their feeds."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_ingest.errors import KafkaAccessDeniedError, KafkaUnavailableError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.ports.cluster import KafkaCluster

LOOK_S: Final = 5.0
"""The longest that one look takes, in all."""
MOST_ASKED: Final = 100
"""Kafka's client asks about one group at a time, over a connection of its own each."""

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupDrift:
    """How many offsets a group is behind the stored ones in some partitions, and ahead of them in others."""

    behind: int = 0
    ahead: int = 0

    @property
    def total(self) -> int:
        return self.behind + self.ahead


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A feed's consumer group, and the stored offsets that it should be at."""

    group: str
    stored: Offsets


@dataclass(frozen=True, slots=True)
class Known:
    """What was found of a feed's group, and for which stored offsets; ``drift`` is None where it has none there.

    ``has_failed``: Kafka did not say.
    """

    asked: Mirrored
    drift: GroupDrift | None
    asked_at: float
    has_failed: bool = False


def drift_of(stored: Offsets, found: Mapping[TopicPartition, int | None]) -> GroupDrift | None:
    """Return how far a group is away; None where it has no offset in any of the partitions."""
    apart = [offset - stored[tp] for tp, offset in found.items() if offset is not None and tp in stored]
    if not apart:
        return None
    return GroupDrift(sum(-each for each in apart if each < 0), sum(each for each in apart if each > 0))


class GroupDrifts:
    """What is known of all feeds' groups. Each look asks about some: of the feeds it is for, then the longest unasked.

    So that of thousands of feeds those that have drifted are found in time, and no view waits for them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[str, Known] = {}

    def of(self, feed: str, asked: Mirrored | None) -> GroupDrift | None:
        """Return how far a feed's group is away; None where that is not known for its stored offsets of now."""
        known = self._known.get(feed)
        return known.drift if known is not None and known.asked == asked else None

    def look(self, kafka: KafkaCluster, feeds: Mapping[str, Mirrored], first: Collection[str]) -> None:
        """Ask about the groups of some feeds; raises where Kafka does not answer at all."""
        ends_at = self._clock() + LOOK_S
        has_answered = False

        def turn(feed: str) -> tuple[bool, float]:
            known = self._known.get(feed)
            if known is None:
                return feed not in first, float("-inf")
            # One that was silent waits for its turn among all: asked first each time, it would take the others' time.
            return feed not in first or known.has_failed, known.asked_at

        for feed in sorted(feeds, key=turn)[:MOST_ASKED]:
            if self._clock() > ends_at:
                return
            asked = feeds[feed]
            try:
                drift = drift_of(asked.stored, kafka.group_offsets(asked.group, asked.stored.keys()))
            except KafkaAccessDeniedError:
                # Only this group cannot be read.
                drift = None
            except KafkaUnavailableError:
                # Perhaps only this group, such as where its coordinator is down: so it is if another one has an answer.
                self._known[feed] = Known(asked, None, self._clock(), has_failed=True)
                if not has_answered:
                    raise
                continue
            has_answered = True
            self._known[feed] = Known(asked, drift, self._clock())
