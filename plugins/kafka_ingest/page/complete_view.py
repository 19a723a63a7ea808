"""The part of a feed's view on its complete hours or days: the newest ones, the one that is waited for, and on whom."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kafka_ingest.committing.complete_periods import Waiting
from kafka_ingest.model.completion import CompletionRules, Period
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.sources import Sources
from kafka_ingest.settings.feed import Feed

PERIODS_A_PAGE: Final = 24
MOST_REASONS: Final = 10


@dataclass(frozen=True, slots=True)
class CompleteView:
    """What it shows: ``waiting`` is as Kafka's answers came, ``reasons`` the first ones of what is waited for.

    Before a run has looked Kafka is not asked: it would be for records.
    """

    rules: CompletionRules
    periods: Sequence[Period]
    more_periods: bool
    waiting: Answer[Waiting]

    @property
    def reasons(self) -> list[str]:
        """What is waited for first."""
        return [] if self.waiting.value is None else [str(each) for each in self.waiting.value.waits_for[:MOST_REASONS]]

    @property
    def reasons_left_out(self) -> int:
        """How much more is waited for."""
        return 0 if self.waiting.value is None else len(self.waiting.value.waits_for) - len(self.reasons)


def complete_view(
    sources: Sources, snapshot: FeedSnapshot, feed: Feed | None, before: datetime | None
) -> CompleteView | None:
    """Return what is complete of a feed, newest first, or older than a time; None where its file asks for none."""
    if feed is None or feed.complete is None:
        return None
    rules, control = feed.complete_rules(), sources.control()
    # One more for the one that is waited for, and one to see whether there are more.
    found = control.periods(snapshot.feed_id, rules.by, before=before, limit=PERIODS_A_PAGE + 2)
    complete = [each for each in found if each.completed_at is not None]
    more = len(complete) > PERIODS_A_PAGE
    was_looked = found or control.periods(snapshot.feed_id, rules.by, limit=1)
    waiting: Answer[Waiting] = sources.waiting(snapshot, feed) if was_looked else Answer()
    return CompleteView(rules, complete[:PERIODS_A_PAGE], more, waiting)
