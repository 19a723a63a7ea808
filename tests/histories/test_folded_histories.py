"""Long random histories in which old batches are folded again and again.

Coverage, gaps, backfills and adopting are as without.

``HISTORIES=deep`` tries many more, and others each time.
"""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.histories.fold_rules import FoldRules
from tests.histories.test_random_histories import DEEP, FIXED, Histories

FEW = settings(FIXED, max_examples=10)


class FoldedHistories(Histories, FoldRules):
    """What can happen, and batches that are folded.

    What logs that are cut off and restored backups do, the others try.
    """

    the_backup_is_restored_and_adopts = None
    a_log_is_cut_off_and_a_plan_sees_it = None

    def run_to_the_end(self) -> None:
        """Let a live batch be the last, whose receipt says how far the feed had come."""
        self.world.topics.heal()
        self.produce([3], 0)
        super().run_to_the_end()


@pytest.mark.long
def test_whatever_happens_to_a_feed_its_folded_batches_are_accounted_for_as_before(migrated_sqlite_file: Path) -> None:
    chosen = DEEP if os.environ.get("HISTORIES") == "deep" else FEW
    run_state_machine_as_test(lambda: FoldedHistories(migrated_sqlite_file), settings=chosen)
    assert FoldRules.most_folded[0] > 1, "there was something to be folded"
