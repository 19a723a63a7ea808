"""Old batches that are folded, at any time: nothing that the control tables answer changes."""

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.answers import answers
from tests.histories.interruptions import Interruption
from tests.histories.machine import CRASHES, History


class FoldRules(History):
    """Rules of what keeps the control tables small."""

    most_folded: ClassVar[list[int]] = [0]
    """How many batches were folded in the longest history."""

    @precondition(lambda self: self.known is not None)
    @rule(newest_stay=st.integers(0, 3), interruption=CRASHES)
    def old_batches_are_folded(self, newest_stay: int, interruption: Interruption | None) -> None:
        """Nothing that the control tables answer changes, however far it came; a second time nothing is left to do."""
        with self.step():
            self.world.clean()
        before = answers(self.world)
        with self.step(interruption):
            self.world.fold(newest_stay)
        if interruption is not None:
            assert answers(self.world) == before
        self.world.fold(newest_stay)
        assert answers(self.world) == before
        again = self.world.tables.folded(self.feed.feed_id)
        self.most_folded[0] = max(self.most_folded[0], len(again.batches))
        self.world.fold(newest_stay)
        assert self.world.tables.folded(self.feed.feed_id) == again
