"""`kill -9` of `kafka-ingest run` at the calls that matter.

The next run continues there, and every record is there once.
"""

from collections.abc import Iterator

import pytest
from tests.kafka_faults import create_topic
from tests.killing import (
    Processes,
    Produced,
    all_batches,
    check_every_record_once,
    ending_all,
    kill_a_run_that_spark_wrote_for,
    records_of,
)
from tests.quick_project import QuickProject

PLANS = "kafka_ingest.control.plan_store"
ATTEMPTS = "kafka_ingest.control.plan_store"
LIFE = "kafka_ingest.control.batch_life"
KEPT = "kafka_ingest.sinks.kept_receipts:KeptReceipts"


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


@pytest.fixture
def produced(quick: QuickProject, servers: str, name: str) -> Produced:
    """Records of a feed that was run before: a first batch of them is committed."""
    create_topic(servers, name, 3)
    made = Produced(servers, name)
    quick.write_feed(name)
    made.add(0, 3)
    quick.run()
    made.add(0, 4)
    made.add(1, 5)
    return made


def states(quick: QuickProject) -> list[str]:
    """Return the state of every batch, newest first."""
    return [batch["state"] for batch in all_batches(quick)]


def attempts_with_a_directory(quick: QuickProject) -> int:
    """Return how many there are of the open batch."""
    batch_id = quick.status()["open_batch"]["batch_id"]
    directory = quick.output / "orders.kafka-ingest" / "staging" / batch_id
    return len(list(directory.iterdir())) if directory.exists() else 0


def check_the_next_run_completes_it(quick: QuickProject, produced: Produced) -> None:
    """Produce a few more records, run the feed as a user would, and compare everything."""
    produced.add(1, 2)
    produced.add(2, 1)
    quick.run("orders", "--until-caught-up")
    check_every_record_once(quick, produced)
    assert quick.run() == []


@pytest.mark.parametrize(
    ("killed_at", "state", "attempts"),
    [
        (f"after:{PLANS}:insert_plan", None, 0),  # in the middle of the plan's transaction
        (f"after:{PLANS}:PlanStore.record_plan", "PLANNED", 0),
        (f"after:{ATTEMPTS}:AttemptStore.open_attempt", "PLANNED", 0),
        ("before:kafka_ingest.cli.arguments:run_spark_submit", "PLANNED", 1),
    ],
    ids=[
        "while the plan is recorded",
        "planned",
        "attempt recorded",
        "before Spark is started",
    ],
)
def test_killed_before_spark_is_started_a_run_leaves_a_whole_plan_or_none(
    quick: QuickProject,
    processes: Processes,
    produced: Produced,
    killed_at: str,
    state: str | None,
    attempts: int,
) -> None:
    before = records_of(quick)
    run = processes.run_feed(held_at=killed_at)
    run.wait_until_held()
    run.kill()

    assert states(quick) == ([state] if state else []) + ["COMMITTED"]
    assert records_of(quick) == before
    assert quick.stored_offsets() == {0: 3, 1: 0, 2: 0}
    if state is not None:
        assert attempts_with_a_directory(quick) == attempts
    check_the_next_run_completes_it(quick, produced)


@pytest.mark.parametrize(
    ("killed_at", "state"),
    [
        (f"after:{LIFE}:set_range_counts", "PLANNED"),  # in the middle of the pin's transaction
        (f"after:{LIFE}:BatchLife.pin", "WRITTEN"),
        (f"after:{LIFE}:BatchLife.begin_commit", "COMMITTING"),
        (
            "after:kafka_ingest.sinks.kept_receipts:KeptReceipts.keep",
            "COMMITTING",
        ),  # the receipt is kept, the files are not renamed
    ],
    ids=["while it pins", "pinned", "committing", "receipt kept"],
)
def test_killed_before_the_files_are_renamed_a_run_leaves_nothing_visible(
    quick: QuickProject, processes: Processes, produced: Produced, killed_at: str, state: str
) -> None:
    before = records_of(quick)
    kill_a_run_that_spark_wrote_for(quick, processes, killed_at)

    assert states(quick) == [state, "COMMITTED"]
    assert records_of(quick) == before
    assert quick.stored_offsets() == quick.group_offsets() == {0: 3, 1: 0, 2: 0}
    check_the_next_run_completes_it(quick, produced)
    assert quick.batches()[1]["attempt"] == 1, "what Spark has written is used, and Spark not started again"


@pytest.mark.parametrize(
    ("killed_at", "state", "stored", "group"),
    [
        # In the middle of the commit's transaction:
        (f"after:{LIFE}:advance_stored_offsets", "COMMITTING", {0: 3, 1: 0, 2: 0}, {0: 3, 1: 0, 2: 0}),
        (f"after:{LIFE}:BatchLife.complete_commit", "COMMITTED", {0: 7, 1: 5, 2: 0}, {0: 3, 1: 0, 2: 0}),
        (
            "after:kafka_ingest.cluster.kafka_cluster:GroupQuestions.set_group_offsets",
            "COMMITTED",
            {0: 7, 1: 5, 2: 0},
            {0: 7, 1: 5, 2: 0},
        ),
    ],
    ids=["while the offsets move", "committed", "mirrored"],
)
def test_killed_after_the_files_are_renamed_a_run_leaves_all_of_the_batch_visible_and_offsets_that_follow(
    quick: QuickProject,
    processes: Processes,
    produced: Produced,
    killed_at: str,
    state: str,
    stored: dict[int, int],
    group: dict[int, int],
) -> None:
    kill_a_run_that_spark_wrote_for(quick, processes, killed_at)

    assert states(quick) == [state, "COMMITTED"]
    assert records_of(quick) == sorted(produced.values.items())
    assert quick.stored_offsets() == stored
    assert quick.group_offsets() == group
    check_the_next_run_completes_it(quick, produced)
