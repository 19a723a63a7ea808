"""Asset events: of each committed batch, at least once; of complete hours or days, by key; and those that start DAGs.

Starts by the records that wait are an Asset each, whose events start the DAG beside its schedule. From Airflow 3.3 on
the triggerer watches; on all versions the DAG ``check_feeds`` looks, too, with the same memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import Asset, AssetAlias, AssetWatcher, BaseOperator, Context, TriggerRule

from kafka_ingest.airflow_tasks.dag_arguments import BY_ASSETS, MANUAL, SCHEDULED, TRIGGERED, only_runs, timetable
from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of, run_of
from kafka_ingest.batches.commit_batch import announcement
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan
from kafka_ingest.model.completion import OnLate, Period
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.model.waiting import AwaitedFeed
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts


class Announcements:
    """The events of one task by an alias, a feed's or that of many, and the note that they were recorded.

    Airflow records a task's events with its success, so the control tables note them only then: if a task dies in
    between, the feed's next run announces its batch. Consumers distinguish batches by their id.
    """

    def __init__(self, name: str = "backfills") -> None:
        # A plain outlet would announce every success of the task; the alias only what is added to it.
        self.alias = AssetAlias(name=f"kafka_ingest/{name}")
        self._added: list[tuple[FeedParts, Batch]] = []

    def add(self, context: Context, batch: Batch, counts: Sequence[RangeCount], parts: "FeedParts") -> None:
        self._added.append((parts, batch))
        context["outlet_events"][self.alias].add(
            asset_of(batch.plan, parts.feed), extra=announcement(batch.plan, counts)
        )

    def add_lost(self, context: Context, parts: "FeedParts") -> int:
        """Add the events of batches whose tasks died before they announced them, and return their number."""
        feed = parts.control.feed(parts.feed.name)
        found = parts.control.to_announce(feed.feed_id) if feed is not None else []
        for batch in found:
            self.add(context, batch, parts.control.range_counts(batch.batch_id), parts)
        return len(found)

    def note(self, context: Context) -> None:  # noqa: ARG002 - the signature of Airflow's ``on_success_callback``
        """Note what was announced, now that Airflow has recorded the success of the task and its events."""
        for feed_id, parts in {batch.plan.feed_id: parts for parts, batch in self._added}.items():
            batch_ids = [batch.batch_id for _, batch in self._added if batch.plan.feed_id == feed_id]
            parts.control.note_announced(feed_id, batch_ids)


def asset_of(plan: BatchPlan, feed: Feed) -> Asset:
    """Return the output as Airflow knows it: the feed's, or that of its copies."""
    place = plan.output.place
    uri = place.as_uri() if isinstance(place, Path) else str(place.without_connection)
    return Asset(uri) if plan.kind is BatchKind.COPY else Asset(name=f"kafka_ingest/{feed.name}", uri=uri)


def extra_of(announced: Sequence[Period]) -> dict[str, dict[str, Any]]:
    """Return what an event says of late rows, by key: how many there are and in batches after which.

    ``new_late_rows``: how many are announced now; ``announced_before``: when the key was noted as announced last.
    """
    late = [each for each in announced if each.late_rows]
    return {
        "late_rows": {each.key: each.late_rows for each in late},
        "late_after_batch": {each.key: str(each.counted_batch) for each in late},
        "new_late_rows": {each.key: each.late_rows - each.announced_rows for each in late},
        "announced_before": {each.key: each.announced_at.isoformat() for each in late if each.announced_at},
    }


def those_in(events: Iterable[tuple[str, Mapping[str, Any]]], due: Sequence[Period], *, late_too: bool) -> list[Period]:
    """Return what was announced by one of these events, each a key and its extra, and is not noted as announced yet.

    Rows may have been set aside since, which changes how many late rows there are, and announces nothing.
    """
    said: dict[tuple[str, str | None], int] = {}
    for key, extra in events:
        rows = extra.get("new_late_rows", extra.get("late_rows")) or {}
        at = key, (extra.get("announced_before") or {}).get(key)
        said[at] = max(rows.get(key, 0), said.get(at, 0))
    found: list[Period] = []
    for each in due:
        before = each.announced_at.isoformat() if each.announced_at else None
        rows = each.late_rows - each.announced_rows if late_too else 0
        if said.get((each.key, before), -1) >= rows:
            found.append(each)
    return found


class CompletionEvents:
    """The events of one task, and the note that they were recorded, which Airflow does with the task's success.

    Where its process dies in between, the next run asks Airflow which events there are: a key that came again would
    start its consumers again.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._rules = feed.complete_rules()
        # Not the commit's alias: Airflow attaches keys to the events of concrete assets only (AIP-76).
        self.asset = Asset(name=f"kafka_ingest/{feed.name}/{self._rules.by}s")
        self._added: list[Period] = []
        self._parts: FeedParts | None = None

    def add(self, context: Context, parts: "FeedParts") -> list[str]:
        """Add the events of what is complete and not announced to the task's, and return their keys."""
        self._parts, due = parts, parts.periods_to_announce()
        known = self._known(due, context)
        if known:
            self._note(known)
        self._added = [each for each in due if each not in known]
        if not self._added:
            return []
        events = context["outlet_events"][self.asset]
        events.extra = {"feed": self._feed.name, "by": self._rules.by.value, **extra_of(self._added)}
        keys = [each.key for each in self._added]
        events.add_partitions(keys)
        return keys

    def note(self, context: Context) -> None:  # noqa: ARG002 - the signature of Airflow's ``on_success_callback``
        """Note what was announced, now that Airflow has recorded the success of the task and its events."""
        self._note(self._added)

    def _known(self, due: Sequence[Period], context: Context) -> list[Period]:
        """Return those of which Airflow has an event already, with as many late rows where these are announced."""
        if not due:
            return []
        # Its clock and ours may differ.
        told_at = (each.announced_at or each.completed_at for each in due)
        since = min(at for at in told_at if at is not None) - timedelta(days=1)
        events = context["inlet_events"][self.asset].after(since.isoformat())
        said = [(str(event.partition_key), event.extra or {}) for event in events]
        return those_in(said, due, late_too=self._rules.on_late is not OnLate.COUNT)

    def _note(self, announced: Sequence[Period]) -> None:
        if self._parts is not None:
            feed_id = known_feed(self._parts.control, self._feed.name).feed_id
            self._parts.control.note_periods_announced(feed_id, self._rules.by, announced, datetime.now(UTC))


class CompleteOperator(BaseOperator):
    """Completes a feed's hours or days, also where a run had nothing to commit: idle ones pass by time alone.

    It succeeds only where it announces some: Airflow records an event of a plain outlet with each success, and one
    without a key would start the wrong DAGs.
    """

    def __init__(self, *, feed: Feed, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's own arguments
        self.events = CompletionEvents(feed)
        super().__init__(
            outlets=[self.events.asset],
            inlets=[self.events.asset],
            on_success_callback=[self.events.note],
            trigger_rule=TriggerRule.NONE_FAILED,
            **kwargs,
        )
        self.feed = feed

    def execute(self, context: Context) -> list[str]:
        with errors_for_airflow():
            parts = parts_of(self.feed)
            if (waiting := parts.complete(actor=run_of(context))) is not None:
                self.log.info("waiting for %s: %s", waiting.began_at, listing(waiting.waits_for))
            keys = self.events.add(context, parts)
        if not keys:
            raise AirflowSkipException("nothing is complete that is not announced")
        self.log.info("announced %s", listing(keys))
        return keys


def awaited_feed(feed: Feed) -> AwaitedFeed | None:
    """Return what is awaited of a feed; None where its schedule alone starts it."""
    if feed.start_when is None:
        return None
    return AwaitedFeed(feed.name, feed.fleet or feed.name, feed.start_when.rule(), feed.kafka.isolation)


def awaited_feeds(files: Iterable[FeedFile]) -> dict[str, list[AwaitedFeed]]:
    """Return what is awaited of the feeds that can be used, by their connections."""
    feeds = [file.feed for file in files if file.feed is not None]
    return grouped((feed.kafka.conn_id, each) for feed in feeds if (each := awaited_feed(feed)) is not None)


def asset_of_starts(dag_id: str, watchers: Sequence[AssetWatcher] = ()) -> Asset:
    return Asset(name=f"kafka_ingest/start/{dag_id}", watchers=list(watchers))


def starts_by_what_waits(
    dag_id: str, schedule: str | None, feeds: Sequence[Feed], of_topics: Sequence[Feed] = ()
) -> dict[str, Any]:
    """Return the arguments of DAG that say when the runs of these feeds start.

    Each of ``of_topics`` stands for feeds that plans find, and that the triggerer has to look for.
    """
    awaited = grouped((feed.kafka.conn_id, each) for feed in feeds if (each := awaited_feed(feed)) is not None)
    with_topics = {feed.kafka.conn_id for feed in of_topics if feed.start_when is not None}
    # A task that asks for starts needs no trigger.
    from kafka_ingest.airflow_tasks.start_trigger import RecordsWaitTrigger, listed  # noqa: PLC0415

    watchers = [
        AssetWatcher(
            conn_id,
            RecordsWaitTrigger(
                dag_id=dag_id,
                conn_id=conn_id,
                feeds=[listed(each) for each in awaited.get(conn_id, ())],
                has_feeds_of_topics=conn_id in with_topics,
            ),
        )
        for conn_id in sorted(awaited.keys() | with_topics)
    ]
    asset = asset_of_starts(dag_id, watchers if AIRFLOW_V_3_3_PLUS else ())
    by_time = timetable("CronTriggerTimetable", schedule, timezone="UTC") if schedule is not None else None
    either = [asset] if by_time is None else timetable("AssetOrTimeSchedule", timetable=by_time, assets=[asset])
    return {"schedule": either, **only_runs(SCHEDULED, MANUAL, TRIGGERED, BY_ASSETS)}
