"""The control tables of one database, composed of stores. Each store has one purpose, each method is a transaction.

The rest of the package uses the ports of :mod:`kafka_ingest.ports.control`, and no store: this module decides which
store answers.
"""

from sqlalchemy import Engine

from kafka_ingest.control.adoption_store import AdoptionStore
from kafka_ingest.control.alert_store import AlertStore
from kafka_ingest.control.attempt_store import AttemptStore
from kafka_ingest.control.batch_life import BatchLife
from kafka_ingest.control.batch_store import BatchStore
from kafka_ingest.control.coverage_store import CoverageStore
from kafka_ingest.control.database import check_version
from kafka_ingest.control.feed_store import FeedStore
from kafka_ingest.control.folding_store import FoldingStore
from kafka_ingest.control.gap_store import GapStore
from kafka_ingest.control.journal_store import JournalStore
from kafka_ingest.control.offset_store import OffsetStore
from kafka_ingest.control.output_store import OutputStore
from kafka_ingest.control.overview_store import OverviewStore
from kafka_ingest.control.plan_store import PlanStore


class SqlControlTables:
    """The control tables in a database. Its schema's version is checked once, before the first use."""

    def __init__(self, engine: Engine) -> None:
        check_version(engine)
        self._feeds = FeedStore(engine)
        self._batches = BatchStore(engine)
        self._life = BatchLife(engine)
        self._attempts = AttemptStore(engine)
        self._plans = PlanStore(engine)
        self._offsets = OffsetStore(engine)
        self._gaps = GapStore(engine)
        self._journal = JournalStore(engine)
        self._coverage = CoverageStore(engine)
        self._folding = FoldingStore(engine)
        self._output = OutputStore(engine)
        self._overview = OverviewStore(engine)
        self._adoption = AdoptionStore(engine)
        self._alerts = AlertStore(engine)
        self._answer_the_protocol()
        self._answer_people()
        self._take_steps()
        self._take_steps_of_operators()
        self._note_alerts()

    def _answer_the_protocol(self) -> None:
        """Answer :class:`~kafka_ingest.ports.control.ControlReader`."""
        self.feed = self._feeds.feed
        self.feed_of_id = self._feeds.feed_of_id
        self.batch = self._batches.batch
        self.stored_offsets = self._offsets.stored_offsets
        self.newest_published = self._batches.newest_published
        self.newest_of_kinds = self._batches.newest_of_kinds
        self.committed_counts = self._batches.committed_counts
        self.batch_states = self._batches.batch_states
        self.to_announce = self._batches.to_announce
        self.backfill_of = self._batches.backfill_of
        self.open_backfills = self._batches.open_backfills
        self.batches_of_run = self._batches.batches_of_run
        self.attempts = self._attempts.attempts
        self.ended_attempts = self._attempts.ended_attempts
        self.speeds = self._attempts.speeds
        self.range_counts = self._attempts.range_counts
        self.starts_since = self._offsets.starts_since
        self.coverage = self._coverage.coverage
        self.copied_ranges = self._coverage.copied_ranges
        self.copy_outputs = self._coverage.copy_outputs
        self.cut_off = self._coverage.cut_off
        self.committed_within = self._coverage.committed_within
        self.held_ranges = self._coverage.held_ranges
        self.committed_ahead = self._coverage.committed_ahead
        self.committed_batches = self._coverage.committed_batches
        self.committed_ranges = self._coverage.committed_ranges
        self.folded = self._folding.folded
        self.backfill_request = self._journal.backfill_request
        self.ledger_of_feed = self._journal.ledger_of_feed
        self.ledger = self._journal.ledger

    def _answer_people(self) -> None:
        """Answer :class:`~kafka_ingest.ports.control.ControlObserver`."""
        self.feed_summaries = self._feeds.feed_summaries
        self.batch_summaries = self._batches.batch_summaries
        self.feed_overviews = self._overview.feed_overviews
        self.not_rows = self._overview.not_rows
        self.batch_lines = self._overview.batch_lines
        self.rows_by_hour = self._overview.rows_by_hour
        self.lag_by_hour = self._overview.lag_by_hour
        self.gap_decisions = self._overview.gap_decisions
        self.alerts = self._alerts.alerts
        self.rows_by_partition = self._offsets.rows_by_partition
        self.gaps = self._gaps.gaps
        self.events = self._journal.events
        self.journal = self._journal.journal
        self.offset_rows = self._coverage.offset_rows
        self.folded_batches = self._folding.folded_batches

    def _take_steps(self) -> None:
        """Take the steps of :class:`~kafka_ingest.ports.control.ControlTables`."""
        self.record_plan = self._plans.record_plan
        self.record_backfill = self._plans.record_backfill
        self.open_attempt = self._attempts.open_attempt
        self.note_cleaned = self._attempts.note_cleaned
        self.pin = self._life.pin
        self.discard_written = self._life.discard_written
        self.begin_commit = self._life.begin_commit
        self.complete_commit = self._life.complete_commit
        self.abandon = self._life.abandon
        self.note_announced = self._batches.note_announced
        self.hold = self._gaps.hold
        self.note_holds = self._gaps.note_holds
        self.record_event = self._journal.record_event

    def _take_steps_of_operators(self) -> None:
        """Take the steps of :class:`~kafka_ingest.ports.control.OperatorTables`, folding included."""
        self.foldable = self._folding.foldable
        self.fold = self._folding.fold
        self.file_gap = self._gaps.file_gap
        self.acknowledge_gap = self._gaps.acknowledge_gap
        self.start_over = self._offsets.start_over
        self.reset_offsets = self._offsets.reset_offsets
        self.record_lost = self._output.record_lost
        self.record_removed = self._output.record_removed
        self.rename_feed = self._feeds.rename_feed
        self.adopt = self._adoption.adopt

    def _note_alerts(self) -> None:
        """Keep what :class:`~kafka_ingest.ports.control.AlertTables` notes; questions are answered above."""
        self.said = self._alerts.said
        self.note_alerts = self._alerts.note_alerts
        self.forget_alerts = self._alerts.forget_alerts
        self.claim = self._alerts.claim
        self.note_said = self._alerts.note_said
