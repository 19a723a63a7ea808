"""`kill -9` in the middle of Spark's read.

Of Spark itself, of the run that started it, and of the broker that it reads from.

The Spark that is killed, or that continues without its starter, is real; what comes after it is written by the
stand-in.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kafka_faults import create_topic
from tests.killing import (
    Processes,
    Produced,
    Running,
    SparkAttempt,
    all_batches,
    check_every_record_once,
    ending_all,
    kill,
    records_of,
    slowly,
    wait_for,
)
from tests.orchestration.conftest import java_like_spark
from tests.project import Answer
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


@pytest.fixture
def produced(quick: QuickProject, servers: str, name: str) -> Produced:
    """Records that Spark needs some seconds for, where it reads slowly: a record batch every half a second."""
    create_topic(servers, name, 3)
    quick.write_feed(name)
    made = Produced(servers, name)
    made.add(0, 5, batches=10)
    made.add(1, 3)
    return made


def run_until_spark_writes(quick: QuickProject, processes: Processes, attempt: int = 1) -> tuple[Running, SparkAttempt]:
    """Start a run whose Spark reads slowly, and wait until it is in the middle of that."""
    spark = SparkAttempt(quick, attempt)
    run = processes.run_feed(**slowly(quick))
    run.wait_until(spark.is_writing, f"Spark to write into attempt {attempt}")
    assert not spark.has_receipt()
    return run, spark


def published_attempts(quick: QuickProject) -> list[int]:
    """Return whose output each published batch is, oldest first."""
    receipts = sorted((quick.output / "orders.kafka-ingest" / "receipts").rglob("*.json"))
    return [json.loads(path.read_text())["receipt"]["attempt"] for path in receipts]


def error_of(answer: Answer) -> tuple[int, str]:
    """Return exit code and error code."""
    return answer.exit_code, answer.document["error"]["code"]


def check_nothing_came_of_it(quick: QuickProject) -> None:
    assert records_of(quick) == []
    assert [batch["state"] for batch in all_batches(quick)] == ["PLANNED"]
    assert set(quick.stored_offsets().values()) == {0}


def test_killed_while_it_writes_spark_leaves_nothing_visible(
    quick: QuickProject, processes: Processes, produced: Produced
) -> None:
    """Its Python goes first here, its Java in test_store, and both at once in test_ranges_left_out."""
    produced.add(0, 5, batches=100)  # time enough to be killed in
    run, spark = run_until_spark_writes(quick, processes)
    kill(spark.python)

    assert error_of(run.end()) == (1, "SPARK_FAILED")
    assert not spark.has_receipt()
    check_nothing_came_of_it(quick)
    [batch] = quick.run()
    assert (batch["result"], published_attempts(quick)) == ("resumed", [2])
    check_every_record_once(quick, produced)


def test_a_run_whose_batch_was_abandoned_while_spark_wrote_refuses_the_receipt_by_name(
    quick: QuickProject, produced: Produced
) -> None:
    def abandon() -> None:
        quick.answer("abandon", quick.status()["open_batch"]["batch_id"], "--reason", "its machine does not answer")

    with quick.submitting(before_spark=abandon):
        exit_code, code, message = quick.refusal("run", "orders")
    [abandoned] = quick.batches()
    assert (exit_code, code) == (2, "BATCH_STATE")
    assert f"batch {abandoned['batch_id']}: the receipt of attempt 1 is refused" in message
    assert "its machine does not answer" in message
    assert SparkAttempt(quick, 1).has_receipt()
    assert records_of(quick) == []
    quick.run()
    assert [batch["state"] for batch in quick.batches()] == ["COMMITTED", "ABANDONED"]
    check_every_record_once(quick, produced)


def test_two_runs_of_one_feed_at_the_same_moment_have_one_effect(
    quick: QuickProject, processes: Processes, produced: Produced
) -> None:
    java = str(java_like_spark(quick.home / "java"))
    both = [processes.run_feed(held_at="before:kafka_ingest.assembly:plan_batch", JAVA_HOME=java) for _ in range(2)]
    for run in both:
        run.wait_until_held()
    for run in both:
        run.resume()
    answers = [run.end() for run in both]

    assert [answer.exit_code for answer in answers] == [0, 0], answers
    [batch] = quick.batches()
    [first, second] = both if batch["committed_by"].endswith(f"/{both[0].pid}") else reversed(both)
    assert batch["committed_by"].endswith(f"/{first.pid}")
    assert [found["batch_id"] for found in first.said.document["batches"]] == [batch["batch_id"]]
    assert f"{batch['committed_by']} was first and committed" in second.said.stderr
    check_every_record_once(quick, produced)


# ── The broker ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_zombie_spark_outlives_its_brokers_death_and_what_it_writes_after_another_attempt_is_never_seen(
    tmp_path: Path, mortal_broker: EmbeddedBroker, name: str
) -> None:
    servers = mortal_broker.bootstrap_servers
    create_topic(servers, name, 3)
    quick = QuickProject(tmp_path / "quick", servers)
    quick.make_control_tables()
    quick.write_feed(name)
    produced = Produced(servers, name)
    produced.add(0, 5, batches=10)
    produced.add(1, 3)
    with ending_all(quick) as processes:
        run, zombie = run_until_spark_writes(quick, processes)
        mortal_broker.kill()
        mortal_broker.start()
        zombie.java.suspend()
        assert not zombie.has_receipt()
        run.kill()
        check_nothing_came_of_it(quick)
        quick.run()
        assert published_attempts(quick) == [2]
        check_every_record_once(quick, produced)

        zombie.java.resume()
        wait_for(zombie.has_receipt, "the zombie to finish its output")
        check_every_record_once(quick, produced)
        produced.add(2, 4)
        quick.run()
        assert published_attempts(quick) == [2, 1]
        check_every_record_once(quick, produced)
