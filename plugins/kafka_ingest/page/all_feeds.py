"""The view of all feeds: a line each, the worst first.

Bounds of logs are asked for all feeds of a connection at once; what takes a record or a consumer group to be read, for
the feeds that are shown.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.foundation.counting import counted, grouped
from kafka_ingest.model.alert import Alert
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.due_feeds import is_late
from kafka_ingest.observing.feed_lines import ClusterLogs, FeedLine, Standing, known_rows, line_of, worst_first
from kafka_ingest.observing.group_drift import GroupDrift, Mirrored
from kafka_ingest.observing.record_ages import waiting
from kafka_ingest.page.drawings import SPARK_HEIGHT, SPARK_WIDTH, Column, Plot, plot
from kafka_ingest.page.kept_answers import REFRESH_PENDING_S, REFRESH_S, Answer
from kafka_ingest.page.rendering import PageOf
from kafka_ingest.page.sources import WAIT_S, Sources, isolation_of, settings_of
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


FEEDS_A_PAGE: Final = 50
HOURS: Final = 24
NO_FEED: Final = UUID(int=0)
"""In the place of the id of a feed that was never planned."""
DENIALS_SHOWN: Final = 5

SHARED: Final = (
    "Its name, group or output is also that of a feed that you may not see. `kafka-ingest feeds` names it to who may."
)


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One feed's line, the plots of its last day, the alerts that hold, and two ages in Kafka's time.

    ``oldest`` is that of the oldest waiting record, ``newest`` that of the newest committed one.
    """

    line: FeedLine
    plot: Plot | None
    rows_of_day: int
    lag_plot: Plot | None
    largest_lag: int
    oldest: timedelta | None
    newest: timedelta | None
    alerts: Sequence[Alert]


@dataclass(frozen=True, slots=True)
class AllFeeds:
    """What the view shows. ``problems`` say why numbers are missing."""

    rows: PageOf[FeedRow]
    search: str
    counts: Mapping[str, int]
    problems: tuple[str, ...]
    oldest_answer_s: float | None
    is_pending: bool

    @property
    def refresh_s(self) -> int:
        return REFRESH_PENDING_S if self.is_pending else REFRESH_S


def all_feeds(
    sources: Sources, readable_of: Callable[[Collection[str]], set[str]], *, search: str, page: int
) -> AllFeeds:
    """Return a page of the feeds that the user may read; control tables answer at once, Kafka where it has."""
    control = sources.control()
    overviews = {each.name: each for each in control.feed_overviews()}
    files = sources.feed_files()
    known = files.value or {}
    names = readable_of(overviews.keys() | known.keys())
    patience = Patience()
    of_connection = by_connection(overviews, known)
    looks = {conn_id: sources.logs(conn_id, feeds, wait_s=patience.left_s) for conn_id, feeds in of_connection.items()}
    # Of connections that only other feeds use, the user sees neither name nor error, which names brokers.
    used = {feed.kafka.conn_id for name in names if (feed := settings_of(known.get(name))) is not None}
    shown_looks = {conn_id: look for conn_id, look in looks.items() if conn_id in used}
    mirrored = {name: each for name in overviews if (each := mirrored_of(overviews[name], known.get(name))) is not None}
    of_all = rows_of(overviews, known, looks)
    ages = oldest_of_feeds(sources, of_all, looks, patience)
    newest = [
        sources.newest_ages(conn_id, {name: rows for name, (_, rows) in feeds.items()}, wait_s=patience.left_s)
        for conn_id, feeds in of_all.items()
    ]
    oldest = {name: age for answer in ages for name, age in (answer.value or {}).items()}
    newest_ages = {name: age for answer in newest for name, age in (answer.value or {}).items()}
    now = datetime.now(UTC)

    def line_now(name: str) -> FeedLine:
        drift, file = sources.drifts.of(name, mirrored.get(name)), without_others(known.get(name), names)
        return feed_line(name, overviews.get(name), file, looks, drift, oldest=oldest.get(name), now=now)

    lines = {name: line_now(name) for name in names}
    found = PageOf.of(worst_first(line for line in lines.values() if matches(line, search)), page, FEEDS_A_PAGE)
    shown_names = [line.name for line in found.items]
    drift_looks = looks_for_drift(sources, shown_names, known, mirrored, looks, patience)
    lines |= {name: line_now(name) for name in shown_names}
    shown = PageOf([lines[name] for name in shown_names], found.page, found.pages, found.total)
    ids = [line.overview.feed_id for line in shown.items if line.overview is not None]
    since = now - timedelta(hours=HOURS)
    hours, lags = control.rows_by_hour(ids, since), control.lag_by_hour(ids, since)
    alerts = grouped((alert.feed_id, alert) for alert in control.alerts() if alert.ended_at is None)
    rows = [
        FeedRow(
            line,
            plot=last_day(rows_of_feed, "rows", now),
            rows_of_day=sum(rows_of_feed.values()),
            lag_plot=last_day(lags_of_feed, "offsets to read", now),
            largest_lag=max(lags_of_feed.values(), default=0),
            oldest=oldest.get(line.name),
            newest=newest_ages.get(line.name),
            alerts=alerts.get(feed_id, ()),
        )
        for line in shown.items
        for feed_id in [line.overview.feed_id if line.overview is not None else NO_FEED]
        for rows_of_feed, lags_of_feed in [(hours.get(feed_id, {}), lags.get(feed_id, {}))]
    ]
    asked: list[Answer[Any]] = [files, *shown_looks.values(), *ages, *newest, *drift_looks]
    counts = Counter(standing for line in lines.values() for standing in line.standings)
    return AllFeeds(
        rows=PageOf(rows, shown.page, shown.pages, shown.total),
        search=search,
        counts={standing.name: counts[standing] for standing in Standing if counts[standing]},
        problems=(*problems_of(files, shown_looks, overviews, names), *denials_of(lines.values())),
        oldest_answer_s=max((each.age_s for each in shown_looks.values() if each.age_s is not None), default=None),
        is_pending=any(each.is_pending for each in asked),
    )


def without_others(file: FeedFile | None, readable: Collection[str]) -> FeedFile | None:
    """Return a feed's file whose error names no feed that the user may not read."""
    if file is None or file.error is None or all(rival.name in readable for rival in file.rivals):
        return file
    return replace(file, error=InvalidFeedError(SHARED))


def feed_line(
    name: str,
    overview: FeedOverview | None,
    file: FeedFile | None,
    looks: Mapping[str, Answer[ClusterLogs]],
    drift: GroupDrift | None,
    *,
    oldest: timedelta | None,
    now: datetime,
) -> FeedLine:
    """Return a feed's line; ``oldest`` is the age of the oldest record that waits, where it is known."""
    error = str(file.error) if file is not None and file.error is not None else None
    if overview is None:
        standings = (Standing.NEVER_PLANNED,) if error is None else (Standing.UNUSABLE, Standing.NEVER_PLANNED)
        return FeedLine(name, None, standings, file_error=error)
    feed = settings_of(file)
    look = looks.get(feed.kafka.conn_id) if feed is not None else None
    logs = look.value if look is not None else None
    return line_of(
        overview,
        logs,
        isolation_of(feed),
        drift=drift,
        file_error=error,
        is_late=feed is None or is_late(feed.schedule, oldest, overview.planned_at, now),
    )


def matches(line: FeedLine, search: str) -> bool:
    wanted = search.strip().casefold()
    topics = line.overview.topics if line.overview is not None else ()
    return any(wanted in text.casefold() for text in (line.name, *topics))


def last_day(by_hour: Mapping[datetime, int], what: str, now: datetime) -> Plot | None:
    this_hour = now.replace(minute=0, second=0, microsecond=0)
    begins = [this_hour - timedelta(hours=back) for back in reversed(range(HOURS))]
    columns = [Column(by_hour.get(at, 0), f"{at:%H}:00 UTC: {by_hour.get(at, 0):,} {what}") for at in begins]
    return plot(columns, width=SPARK_WIDTH, height=SPARK_HEIGHT) if by_hour else None


def problems_of(
    files: Answer[dict[str, FeedFile]],
    looks: Mapping[str, Answer[ClusterLogs]],
    overviews: Mapping[str, FeedOverview],
    names: Collection[str],
) -> tuple[str, ...]:
    found = [f"Kafka over connection {conn_id}: {look.error}" for conn_id, look in sorted(looks.items()) if look.error]
    if files.error is not None:
        found.append(f"The feed files cannot be read here, so Kafka was not asked: {files.error}")
    elif files.value is not None and (
        without := sorted(name for name in overviews if name in names and name not in files.value)
    ):
        of_them = ", ".join(without[:5]) + (f" and {len(without) - 5:,} more" if len(without) > 5 else "")  # noqa: PLR2004
        found.append(f"There is no feed file of {of_them}: of these only what is stored is shown.")
    return tuple(found)


def denials_of(lines: Iterable[FeedLine]) -> list[str]:
    found = sorted({why for line in lines for why in line.denied})
    return found[:DENIALS_SHOWN] + (
        [f"and {counted(len(found) - DENIALS_SHOWN, 'more topic')}"] * (len(found) > DENIALS_SHOWN)
    )
