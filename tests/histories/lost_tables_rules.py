"""Control tables that are lost, and rebuilt from the output: from nothing, or from an older backup."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.checks import resets
from tests.histories.machine import History
from tests.histories.recorded import last_recorded

from kafka_ingest.control.control_tables import SqlControlTables


class LostTablesRules(History):
    """Rules of the control tables as a whole."""

    @rule(is_lost=st.booleans())
    def the_output_is_adopted_by_empty_tables(self, is_lost: bool) -> None:  # noqa: FBT001 - drawn
        """They show what the receipts record; where the others are lost, the history continues with them."""
        tables = self.world.empty_tables()
        if self.adopt(tables):
            self.check_adopted(tables)
            if is_lost and not self.rewinds_that_no_receipt_records():
                self.continue_with(tables)

    @rule()
    def a_backup_is_made(self) -> None:
        self.world.back_up()

    @precondition(lambda self: self.world.backup is not None)
    @rule()
    def the_backup_is_restored_and_adopts(self) -> None:
        if self.rewinds_that_no_receipt_records():
            return
        tables = self.world.tables_in(self.world.backup)
        if self.adopt(tables):
            # Attempts of an older copy may have been cleaned up, or revoked, since.
            self.world.was_damaged = self.world.is_restored = True
            self.continue_with(tables)

    def continue_with(self, tables: SqlControlTables) -> None:
        """Lose the control tables; backups of theirs are of a past that never was."""
        self.world.continue_with(tables)
        self.world.backup = None
        self.checks.tables_replaced()
        with self.step():
            self.world.mirror()

    def rewinds_that_no_receipt_records(self) -> bool:
        """Whether a log was cut off since the newest receipt: after a loss of the tables it has to be rewound again."""
        feed, recorded = self.feed, last_recorded(self.world.recorded, self.world.sink.publisher.published_receipts())
        if feed is None:
            return False
        known = {(kind, at) for kind, at, _, _ in recorded.ledger} if recorded is not None else set()
        ledger = [
            event for event in self.world.tables.ledger_of_feed(feed.feed_id) if (event.kind, event.at) not in known
        ]
        return bool(self.world.cuts) or any(way.is_back for way, _, _ in resets(ledger))
