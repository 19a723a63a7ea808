"""What files for many topics came to is remembered in the control tables."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from tests.contract.builders import NOON, plan_first
from tests.contract.conftest import SqlStore

from kafka_ingest.model.topics import FilePlan, SeenTopic

PLAN = FilePlan("shop.yaml", NOON, r"shop\.(.*)")
ORDERS = SeenTopic("shop.yaml", "shop.orders", "kafka_default", "id-1", "shop-orders", NOON)
AUDIT = SeenTopic("shop.yaml", "shop.audit", "kafka_default", None, None)


def test_the_last_plan_of_a_file_counts_and_a_topic_that_became_a_feed_is_never_forgotten(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control)
    assert control.topic_memory().seen == ()
    assert control.topic_memory().planned == (("orders", frozenset({"orders"})),)
    control.note_topics(PLAN, [ORDERS, AUDIT])
    assert (control.topic_memory().plans, set(control.topic_memory().seen)) == ((PLAN,), {ORDERS, AUDIT})

    later = replace(PLAN, planned_at=NOON + timedelta(hours=1), pattern="shop")
    again = replace(ORDERS, topic_id="id-2", feed="first", found_after=None)
    control.note_topics(later, [again])
    assert control.topic_memory().plans == (later,)
    assert control.topic_memory().seen == (replace(again, found_after=NOON),)
    control.note_topics(later, [])
    assert [each.feed for each in control.topic_memory().seen] == ["first"]


def test_files_do_not_touch_one_anothers_topics(database: SqlStore) -> None:
    control = database.connect()
    control.note_topics(PLAN, [ORDERS, AUDIT])
    control.note_topics(replace(PLAN, file="b/two.yaml"), [replace(AUDIT, file="b/two.yaml")])
    assert len(control.topic_memory().seen) == 3


def test_of_two_first_plans_at_once_both_are_noted(database: SqlStore) -> None:
    processes = [database.connect() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda process: process.note_topics(PLAN, [ORDERS, AUDIT]), processes))
    assert set(processes[0].topic_memory().seen) == {ORDERS, AUDIT}
