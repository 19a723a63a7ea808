"""What Kafka is asked for the view of all feeds.

Bounds of logs are asked for all feeds of a connection at once; what takes a record or a consumer group to be read,
for the feeds that are shown.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, known_rows
from kafka_ingest.observing.group_drift import Mirrored
from kafka_ingest.observing.record_ages import waiting
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.sources import WAIT_S, Sources, settings_of
from kafka_ingest.settings.feed_file import FeedFile

Rows: TypeAlias = Mapping[str, Mapping[str, tuple[Isolation, Sequence[StoredOffset]]]]
"""Stored offsets that Kafka has answered about, of feeds by their names, by connection."""
Ages: TypeAlias = Answer[dict[str, timedelta | None]]


class Patience:
    """How long a view still waits for answers: it asks several questions, and waits for all of them together."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self._ends_at = time.monotonic() + wait_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())


def by_connection(
    overviews: Mapping[str, FeedOverview], files: Mapping[str, FeedFile]
) -> dict[str, list[FeedOverview]]:
    """Return which feeds are read over each connection; without those whose file is not known."""
    return grouped(
        (feed.kafka.conn_id, overview)
        for name, overview in overviews.items()
        if (feed := settings_of(files.get(name))) is not None
    )


def rows_of(
    overviews: Mapping[str, FeedOverview], files: Mapping[str, FeedFile], looks: Mapping[str, Answer[ClusterLogs]]
) -> Rows:
    """Return the stored offsets of all feeds that Kafka has answered about, whichever user may read them.

    What is asked of them is one question for all viewers: none makes another by what it searches for.
    """
    found: dict[str, dict[str, tuple[Isolation, Sequence[StoredOffset]]]] = {}
    for name, overview in overviews.items():
        feed = settings_of(files.get(name))
        look = looks.get(feed.kafka.conn_id) if feed is not None else None
        if feed is None or look is None or look.value is None or look.value.cluster_id != overview.cluster_id:
            continue
        known, _ = known_rows(overview, look.value)
        # A question about a topic that may not be seen, or about one that is gone, would fail for all of them.
        rows = [row for row in known if isinstance(look.value.bounds.get(row.topic_partition), LogBounds)]
        found.setdefault(feed.kafka.conn_id, {})[name] = (feed.kafka.isolation, rows)
    return found


def oldest_of_feeds(
    sources: Sources, of_all: Rows, looks: Mapping[str, Answer[ClusterLogs]], patience: Patience
) -> list[Ages]:
    answers = []
    for conn_id, feeds in of_all.items():
        logs = looks[conn_id].value
        bounds = logs.bounds if logs is not None else {}
        places = {name: waiting(rows, bounds, isolation) for name, (isolation, rows) in feeds.items()}
        answers.append(sources.oldest_ages(conn_id, places, wait_s=patience.left_s))
    return answers


def newest_of_feeds(sources: Sources, of_all: Rows, patience: Patience) -> list[Ages]:
    return [
        sources.newest_ages(conn_id, {name: rows for name, (_, rows) in feeds.items()}, wait_s=patience.left_s)
        for conn_id, feeds in of_all.items()
    ]


def mirrored_of(overview: FeedOverview, file: FeedFile | None) -> Mirrored | None:
    """Return a feed's consumer group and where it should be; None where its file names none."""
    feed = settings_of(file)
    if feed is None or feed.kafka.group is None:
        return None
    stored = {
        tp: row.next_offset
        for tp, row in overview.stored.items()
        if row.next_offset is not None and tp.topic in overview.topics
    }
    return Mirrored(feed.kafka.group, stored)


def looks_for_drift(
    sources: Sources,
    shown: Collection[str],
    files: Mapping[str, FeedFile],
    mirrored: Mapping[str, Mirrored],
    looks: Mapping[str, Answer[ClusterLogs]],
    patience: Patience,
) -> list[Answer[None]]:
    """Ask about consumer groups over each connection of these feeds, where Kafka answers at all."""
    of_connection: dict[str, dict[str, Mirrored]] = {}
    for name, each in mirrored.items():
        if (feed := settings_of(files.get(name))) is not None:
            of_connection.setdefault(feed.kafka.conn_id, {})[name] = each
    return [
        sources.look_for_drift(conn_id, feeds, chosen, wait_s=patience.left_s)
        for conn_id, feeds in of_connection.items()
        if looks[conn_id].value is not None
        and looks[conn_id].error is None
        and (chosen := [name for name in shown if name in feeds])
    ]
