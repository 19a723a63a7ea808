"""What becomes of dead letters: the feed's file changes what it decodes, and they are replayed, two replays at once."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.backfill_rules import CHUNKS, BackfillRules
from tests.histories.interruptions import Interruption
from tests.histories.machine import INTERRUPTIONS
from tests.histories.spark_stand_in import JSON, TEXT

from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, StoredDeadLetters
from kafka_ingest.errors import RangesTakenError
from kafka_ingest.model.decoding import RAW, Decoding


class ReplayRules(BackfillRules):
    """Rules of dead letters. Chunks of replays are worked on and abandoned as those of backfills are."""

    @rule(decoding=st.sampled_from([JSON, JSON, TEXT, RAW]))
    def the_feed_file_says_what_records_are(self, decoding: Decoding) -> None:
        self.world.decoding = decoding

    @precondition(lambda self: self.known is not None and bool(self.checks.letters))
    @rule(
        decoding=st.sampled_from([TEXT, TEXT, JSON]),
        chunk=CHUNKS,
        is_planned_only=st.booleans(),
        interruption=INTERRUPTIONS,
    )
    def dead_letters_are_replayed(
        self,
        decoding: Decoding,
        chunk: int,
        is_planned_only: bool,  # noqa: FBT001 - drawn
        interruption: Interruption | None,
    ) -> None:
        """All that no open replay has taken up; where it has taken up all, this one is refused."""
        self.world.decoding = decoding
        request = BackfillRequest(StoredDeadLetters(), {}, mode=Mode.REPLAY, max_records=chunk)
        self.plan_and_work(request, interruption, RangesTakenError, is_planned_only=is_planned_only)
