"""Long random histories: whatever happens to a feed, in whatever order, no record is lost, repeated or unaccounted for.

``HISTORIES=deep`` tries many more, and others each time; ``--hypothesis-seed`` names one such choice.
"""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.histories.kafka_rules import KafkaRules
from tests.histories.lost_tables_rules import LostTablesRules
from tests.histories.operator_rules import OperatorRules
from tests.histories.replay_rules import ReplayRules
from tests.histories.run_rules import RunRules

FIXED = settings(
    max_examples=5,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)
DEEP = settings(FIXED, max_examples=1_000, stateful_step_count=60, derandomize=False)


class Histories(KafkaRules, RunRules, OperatorRules, ReplayRules, LostTablesRules):
    """All that can happen."""


@pytest.mark.long
def test_whatever_happens_to_a_feed_every_record_is_seen_once_or_is_on_record(migrated_sqlite_file: Path) -> None:
    chosen = DEEP if os.environ.get("HISTORIES") == "deep" else FIXED
    run_state_machine_as_test(lambda: Histories(migrated_sqlite_file), settings=chosen)
