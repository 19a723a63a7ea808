"""The life of alerts in the control tables: each is said once when it begins, and once when it ends."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import NOON, ORDERS_FEED, gap, orders, plan_first, plan_of, snapshot_of
from tests.contract.conftest import SqlStore

from kafka_ingest.control.alert_store import CLAIM_EXPIRES
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.model.alert import AlertKind, AlertRules, Finding, Notifier
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.alert_life import (
    MANY_FEEDS,
    NotGivenError,
    Notice,
    StillBeingGivenError,
    changes_of,
    note_changes,
    say,
)
from kafka_ingest.observing.alert_rules import Look, WatchedFeed
from kafka_ingest.settings.feed_sections import Notify

REFUNDS_FEED = UUID("01890000-0000-7000-8000-00000000beef")
MAIL = Notify(notifier="shop.Mail", arguments={"to": "ops"}).as_notifier()
CHAT = Notify(notifier="shop.Chat").as_notifier()
RULES = AlertRules(lag=10, gap=True)
LAG = Finding(AlertKind.LAG, "11 offsets can be read, more than 10")
DOWN = Finding(AlertKind.UNREACHABLE, "no answer")


class Died(BaseException):
    """A process that is killed runs no handler."""


@dataclass
class Ops:
    """Whoever is notified, and the feeds' checks, with a clock that a test sets."""

    control: SqlControlTables
    now: datetime = NOON
    heard: list[tuple[str, str]] = field(default_factory=list)
    meanwhile: Callable[[Notice], object] = lambda _: None
    notifiers: dict[UUID, tuple[Notifier, ...]] = field(default_factory=lambda: {ORDERS_FEED: (MAIL,)})
    rules: AlertRules = RULES

    def feeds(self) -> dict[UUID, WatchedFeed]:
        known = {each.feed_id: each for each in self.control.feed_overviews()}
        return {
            feed_id: WatchedFeed(known[feed_id], self.rules, notifiers, conn_id="kafka_default")
            for feed_id, notifiers in self.notifiers.items()
        }

    def check(self, *found: Finding, unknown: Any = (), of: UUID | None = None, kept: Any = ()) -> list[str]:
        """Run a check that finds this of all feeds, or of one; return what failed."""
        looks = {feed_id: Look(found if of in {None, feed_id} else (), frozenset(unknown)) for feed_id in self.feeds()}
        note_changes(self.control, changes_of(self.control.alerts(), self.feeds(), looks, kept), self.now)
        return self.say()

    def say(self) -> list[str]:
        return say(self.control, self.feeds(), self._notify, lambda: self.now)

    def _notify(self, notice: Notice) -> None:
        self.meanwhile(notice)
        self.heard.append((notice.notifier.path, notice.title))

    def later(self, by: timedelta) -> None:
        self.now += by


@pytest.fixture
def ops(sql_control: SqlControlTables) -> Ops:
    plan_first(sql_control)
    return Ops(sql_control)


BEGUN, ENDED = ("shop.Mail", "Kafka feed orders: lag"), ("shop.Mail", "Kafka feed orders: lag ended")


def test_an_alert_is_said_once_when_it_begins_and_once_when_it_ends_and_is_then_forgotten(ops: Ops) -> None:
    for _ in range(3):
        assert ops.check(LAG) == []
    assert ops.heard == [BEGUN]
    [alert] = ops.control.alerts()
    assert (alert.feed, alert.text, alert.began_at, alert.ended_at) == ("orders", LAG.text, NOON, None)

    ops.later(timedelta(hours=1))
    for _ in range(2):
        ops.check()
    assert ops.heard == [BEGUN, ENDED]
    assert (ops.control.alerts(), ops.control.said()) == ([], [])
    ops.check(LAG)
    assert ops.heard == [BEGUN, ENDED, BEGUN]


def test_what_is_not_known_now_neither_begins_nor_ends(ops: Ops) -> None:
    ops.check(LAG)
    ops.check(unknown={AlertKind.LAG})
    assert ops.heard == [BEGUN]


def test_several_things_of_a_kind_begin_and_end_each_for_itself_and_are_said_together(ops: Ops) -> None:
    first, second, third = (Finding(AlertKind.GAP, f"gap {number}", str(number)) for number in range(3))
    texts: list[str] = []
    ops.meanwhile = lambda notice: texts.append(notice.text)
    ops.check(first, second)
    ops.check(first, second, third)
    ops.check(second, third)
    assert texts == ["gap 0\ngap 1", "gap 2", f"ended, since {NOON:%Y-%m-%d %H:%M} UTC: gap 0"]


def test_a_notifier_that_raises_is_tried_again_by_the_next_check_and_holds_nobody_else_up(ops: Ops) -> None:
    ops.notifiers = {ORDERS_FEED: (MAIL, CHAT)}
    broken = True

    def raises(notice: Notice) -> None:
        if broken and notice.notifier is MAIL:
            raise NotGivenError("OSError: no route to host")

    ops.meanwhile = raises
    for _ in range(2):
        assert ops.check(LAG) == ["Kafka feed orders: lag: shop.Mail failed: OSError: no route to host"]
    assert ops.heard == [("shop.Chat", "Kafka feed orders: lag")]
    broken = False
    assert ops.check(LAG) == []
    assert ops.heard[1:] == [BEGUN]


def test_nobody_hears_of_the_end_of_what_they_never_heard_of(ops: Ops) -> None:
    def raises(_: Notice) -> None:
        raise NotGivenError("OSError: no route to host")

    ops.meanwhile = raises
    ops.check(LAG)
    ops.meanwhile = lambda _: None
    assert ops.check() == []
    assert (ops.heard, ops.control.alerts()) == ([], [])


def test_a_notifier_that_hangs_is_not_waited_for_again_by_the_same_check(ops: Ops) -> None:
    tried: list[str] = []

    def hangs(notice: Notice) -> None:
        tried.append(notice.title)
        raise StillBeingGivenError("no end within 60 s")

    ops.meanwhile = hangs
    failures = ops.check(LAG, Finding(AlertKind.GAP, "gap"))
    assert (len(failures), len(tried)) == (2, 1)


def test_what_a_slow_notifier_may_say_yet_is_not_said_again_at_once_and_its_end_is_said(ops: Ops) -> None:
    def delivers_late(_: Notice) -> None:
        raise StillBeingGivenError("no end within 60 s")

    ops.meanwhile = delivers_late
    ops.check(LAG)
    ops.meanwhile = lambda _: None
    ops.later(CLAIM_EXPIRES / 2)
    assert ops.check(LAG) == []
    assert ops.heard == []
    ops.check()
    assert ops.heard == [ENDED]


def test_a_check_that_dies_before_it_notifies_leaves_that_to_the_next_one(ops: Ops) -> None:
    def dies(_: Notice) -> None:
        raise Died

    ops.meanwhile = dies
    with pytest.raises(Died):
        ops.check(LAG)
    ops.meanwhile = lambda _: None
    ops.check(LAG)
    assert ops.heard == []  # the other process may be about to say it
    ops.later(CLAIM_EXPIRES)
    ops.check(LAG)
    ops.check(LAG)
    assert ops.heard == [BEGUN]


def test_a_check_that_dies_after_it_has_notified_says_it_once_more_when_its_claim_has_expired(
    ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise Died

    with monkeypatch.context() as killed:
        killed.setattr(ops.control, "note_said", dies)
        with pytest.raises(Died):
            ops.check(LAG)
    ops.later(CLAIM_EXPIRES)
    for _ in range(3):
        ops.check(LAG)
    assert ops.heard == [BEGUN, BEGUN]


def test_what_may_have_been_said_before_a_check_died_is_said_to_have_ended(ops: Ops) -> None:
    def dies(_: Notice) -> None:
        raise Died

    ops.meanwhile = dies
    with pytest.raises(Died):
        ops.check(LAG)
    ops.meanwhile = lambda _: None
    ops.check()
    assert ops.heard == [ENDED]


def test_of_two_checks_that_find_the_same_at_once_one_begins_the_alert(ops: Ops, database: SqlStore) -> None:
    rival = Ops(database.connect(), heard=ops.heard)
    looks = {ORDERS_FEED: Look([LAG])}
    changes = changes_of(ops.control.alerts(), ops.feeds(), looks)
    rival.check(LAG)
    note_changes(ops.control, changes, ops.now)
    assert ops.say() == []
    assert (ops.heard, len(ops.control.alerts())) == ([BEGUN], 1)


def test_a_check_that_comes_while_another_one_notifies_does_not_notify_too(ops: Ops, database: SqlStore) -> None:
    rival = Ops(database.connect(), heard=ops.heard)
    ops.meanwhile = lambda _: rival.check(LAG)
    ops.check(LAG)
    assert ops.heard == [BEGUN]


def test_a_notifier_that_is_added_hears_of_what_holds_and_one_that_is_removed_of_nothing_more(ops: Ops) -> None:
    ops.check(LAG)
    ops.notifiers = {ORDERS_FEED: (CHAT,)}
    ops.check(LAG)
    ops.check()
    chat = [("shop.Chat", "Kafka feed orders: lag"), ("shop.Chat", "Kafka feed orders: lag ended")]
    assert ops.heard == [BEGUN, *chat]
    assert ops.control.alerts() == []


def test_what_a_file_does_not_ask_for_any_more_is_forgotten_without_a_word(ops: Ops) -> None:
    ops.check(LAG)
    ops.rules = AlertRules(gap=True)
    ops.check()
    assert (ops.heard, ops.control.alerts()) == ([BEGUN], [])


def test_alerts_of_a_file_that_cannot_be_read_stay_and_those_of_one_that_is_gone_are_forgotten(ops: Ops) -> None:
    ops.check(LAG)
    ops.notifiers = {}
    ops.check(kept={ORDERS_FEED})
    assert [alert.kind for alert in ops.control.alerts()] == [AlertKind.LAG]
    ops.check()
    assert (ops.heard, ops.control.alerts()) == ([BEGUN], [])


def test_a_cluster_that_is_down_is_said_once_to_each_notifier_and_not_for_each_feed(ops: Ops) -> None:
    refunds = plan_of((TopicPartition("refunds", 0), 0, 9), number=9, feed_id=REFUNDS_FEED, feed_name="refunds")
    plan_first(ops.control, refunds)
    ops.notifiers = {ORDERS_FEED: (MAIL,), REFUNDS_FEED: (MAIL,)}
    texts: list[str] = []
    ops.meanwhile = lambda notice: texts.append(notice.text)
    ops.check(DOWN)
    assert (ops.heard, texts) == ([("shop.Mail", "Kafka feeds orders, refunds: unreachable")], ["no answer"])


def test_what_begins_with_many_feeds_at_once_is_one_notification(ops: Ops) -> None:
    for number in range(MANY_FEEDS):
        feed_id, name = UUID(int=REFUNDS_FEED.int + number), f"feed-{number}"
        plan = plan_of((TopicPartition(name, 0), 0, 9), number=20 + number, feed_id=feed_id, feed_name=name)
        plan_first(ops.control, plan)
        ops.notifiers[feed_id] = (MAIL,)
    ops.check(LAG, of=ORDERS_FEED)
    ops.check(LAG)
    assert ops.heard == [BEGUN, ("shop.Mail", "Kafka feeds feed-0, feed-1, feed-2 and 7 more: lag")]
    ops.heard.clear()
    ops.check()
    assert ops.heard == [("shop.Mail", "Kafka feeds feed-0, feed-1, feed-2 and 8 more: lag ended")]


def test_gaps_are_summed_up_by_the_decisions_that_made_them(ops: Ops) -> None:
    for number in (0, 1):
        ops.control.file_gap(
            snapshot_of(ops.control), gap(orders(number), 900, 900 + 10 * (number + 1)), seed=None, actor="ops"
        )
    found = ops.control.gap_decisions()[ORDERS_FEED]
    assert [(each.cause, each.decided_by, each.partitions, each.offsets) for each in found] == [
        (GapCause.SKIPPED, "ops", 1, 10),
        (GapCause.SKIPPED, "ops", 1, 20),
    ]
