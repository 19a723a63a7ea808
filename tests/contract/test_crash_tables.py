"""A crash between any two steps of the life of a batch whose output is a Delta or Iceberg table (invariant 5)."""

from pathlib import Path

import pytest
from tests.contract.lives import LIVES, Feeds, Life, damaged_files
from tests.contract.test_crash_at_every_boundary import (
    Recovery,
    another_run,
    assert_recovers,
    chosen,
    die,
    every_world_and_half_a_publish,
    instants_of_one_batch,
    same_run,
)
from tests.contract.whole_feed import Scheduler
from tests.fakes import InMemoryControlTables

pytestmark = pytest.mark.long


@pytest.mark.parametrize("recovery", [same_run, another_run])
@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_a_crash_between_any_two_steps_leaves_every_record_in_the_table_once(
    lake: Path, table: str, life: Life, recovery: Recovery
) -> None:
    feeds = Feeds(lake, InMemoryControlTables, table)
    names = instants_of_one_batch(feeds.new(life))
    for instant in chosen(names, every_world_and_half_a_publish):
        feed, scheduler = feeds.new(life), Scheduler()
        die(feed, scheduler, instant)
        recovery(feed, scheduler)
        assert_recovers(feed, scheduler, after=names[instant], may_fail=life is damaged_files)
