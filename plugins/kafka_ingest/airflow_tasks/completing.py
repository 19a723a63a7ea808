"""The task that finds out which hours or days of a feed are complete, and announces each by its key."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Asset, BaseOperator, Context, TriggerRule

from kafka_ingest.airflow_tasks.in_airflow import errors_for_airflow, parts_of, run_of
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.model.completion import OnLate, Period
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.feed import Feed


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

    def add(self, context: Context, parts: FeedParts) -> list[str]:
        """Add the events of what is complete and not announced to the task's, and return their keys."""
        self._parts, due = parts, parts.periods_to_announce()
        known = self._known(due, context)
        if known:
            self._note(known)
        self._added = [each for each in due if each not in known]
        if not self._added:
            return []
        events = context["outlet_events"][self.asset]
        late: dict[str, Any] = {each.key: each.late_rows for each in self._added if each.late_rows}
        after: dict[str, Any] = {each.key: str(each.counted_batch) for each in self._added if each.late_rows}
        of_feed = {"feed": self._feed.name, "by": self._rules.by.value}
        events.extra = {**of_feed, "late_rows": late, "late_after_batch": after}
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
        said: dict[str, int] = {}
        for event in context["inlet_events"][self.asset].after(since.isoformat()):
            late: Any = (event.extra or {}).get("late_rows") or {}
            key = str(event.partition_key)
            said[key] = max(late.get(key, 0), said.get(key, 0))
        announces = self._rules.on_late is OnLate.ANNOUNCE
        return [each for each in due if said.get(each.key, -1) >= (each.late_rows if announces else 0)]

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
        """Return the keys of the hours or days that are announced."""
        with errors_for_airflow():
            parts = parts_of(self.feed)
            if (waiting := parts.complete(actor=run_of(context))) is not None:
                self.log.info("waiting for %s: %s", waiting.began_at, listing(waiting.waits_for))
            keys = self.events.add(context, parts)
        if not keys:
            raise AirflowSkipException("nothing is complete that is not announced")
        self.log.info("announced %s", listing(keys))
        return keys
