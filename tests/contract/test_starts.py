"""A start that is asked for is remembered in the control tables: one process gets it, once for the same offsets."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from tests.contract.builders import NOON, ORDERS_FEED, plan_first
from tests.contract.conftest import SqlStore


def test_of_several_processes_one_gets_a_start_and_again_once_offsets_moved_or_none_came(
    database: SqlStore,
) -> None:
    control, *processes = (database.connect() for _ in range(5))
    plan_first(control)
    start = {ORDERS_FEED: "a"}
    with ThreadPoolExecutor(4) as threads:
        claimed = list(threads.map(lambda process: len(process.claim_starts(start, NOON)), processes))
    assert sorted(claimed) == [0, 0, 0, 1]
    [known] = control.feed_standings()
    assert (known.start_position, known.start_asked_at) == ("a", NOON)

    def claim(position: str, minutes: float) -> bool:
        return bool(control.claim_starts({ORDERS_FEED: position}, NOON + timedelta(minutes=minutes)))

    assert not claim("a", 9.9)
    assert claim("b", 9.9)
    assert not claim("b", 19)
    assert claim("b", 20)
    assert not claim("b", 20)
