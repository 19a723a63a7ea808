"""What the command line says of a feed that is stopped, of a run that asks for more than it gets, and of wrong use."""

import json
import os
import pty
import shutil
import sqlite3
import subprocess
import termios
from contextlib import closing, suppress
from pathlib import Path

import pyspark
import pytest
from tests.command_forks import command_forks
from tests.kafka_faults import PATIENCE_S, add_partitions, create_topic, delete_records, plain_records, produce
from tests.project import KAFKA_INGEST, Project
from tests.quick_project import QuickProject

from kafka_ingest.spark_launch.installation import installation


def remember(quick: QuickProject) -> Path:
    """Copy the control tables as they are now."""
    copy = quick.home / "older.db"
    with closing(sqlite3.connect(quick.control_file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    return copy


def restore(quick: QuickProject, copy: Path) -> None:
    """Put an older copy in the control tables' place."""
    for file in quick.control_file.parent.glob(f"{quick.control_file.name}*"):
        file.unlink()
    shutil.copy(copy, quick.control_file)


# ── What status says of a feed that every plan stops ──────────────────────────────────────────────────────────────────


def test_status_counts_lost_offsets_apart_from_the_lag(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.plan("--end-offset", f"{orders}:0=0")
    delete_records(servers, orders, 0, 4)
    partition = quick.partition(0)
    assert (partition["lost"], partition["lag"], partition["headroom"]) == (4, 6, -4)
    assert "4 offsets were deleted before they were read" in quick.kafka_ingest("status", "orders").stdout


HOSTILE = "-Duser.timezone=Asia/Tokyo -Duser.language=tr -Dfile.encoding=ISO-8859-9"


def test_doctor_starts_the_driver_as_a_run_does_and_refuses_a_sqlite_file_where_tasks_run_on_other_hosts(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    with quick.submitting(spark_is_its_own=True):
        well = {
            check["check"]: check for check in quick.answer("doctor", JAVA_TOOL_OPTIONS=HOSTILE, LC_ALL="C")["checks"]
        }
        agent = quick.kafka_ingest("doctor", "--json", JAVA_TOOL_OPTIONS="-javaagent:/no/such.jar")
    assert well["control tables"]["ok"]
    assert well["Spark connection spark_default"]["found"].startswith(
        f"its driver starts: Spark {pyspark.__version__}, "
    )
    assert agent.exit_code == 2
    broken = {check["check"]: check["error"]["message"] for check in agent.document["checks"] if not check["ok"]}
    assert broken.keys() == {"Java", "Spark connection spark_default"}
    assert "expected a Java agent that the options of Java name" in broken["Spark connection spark_default"]
    assert "/no/such.jar" in broken["Java"]

    answer = quick.kafka_ingest("doctor", "--json", AIRFLOW__CORE__EXECUTOR="CeleryExecutor")

    assert answer.exit_code == 2
    [broken] = [check for check in answer.document["checks"] if not check["ok"]]
    assert broken["check"] == "control tables"
    assert broken["error"]["code"] == "INVALID_CONNECTION"
    assert "CeleryExecutor" in broken["error"]["message"]


def test_doctor_reports_that_no_archive_of_classes_fits_and_that_nothing_is_wrong_with_that(
    quick: QuickProject, orders: str, tmp_path: Path
) -> None:
    quick.write_feed(orders)
    for jar in installation().jars:
        (tmp_path / jar.name).symlink_to(jar)

    answer = quick.kafka_ingest("doctor", "--json", KAFKA_INGEST_SPARK_JARS=str(tmp_path))

    [archive] = [check for check in answer.document["checks"] if check["check"] == "archive of classes"]
    assert archive["ok"]
    assert "`make setup` makes one" in archive["found"]


def test_status_names_partitions_that_came_after_the_last_plan(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    add_partitions(servers, orders, 4)
    [problem] = quick.status()["topics"]
    assert f"{orders}-3 came after the last plan" in problem["reason"]
    quick.plan()
    assert quick.status()["topics"] == []


def test_status_says_that_the_output_holds_batches_which_the_tables_do_not_know(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    assert quick.status()["output"] is None
    quick.plan("--end-offset", f"{orders}:0=0")
    older = remember(quick)
    quick.run()
    restore(quick, older)
    assert "kafka-ingest adopt orders" in quick.status()["output"]["error"]
    assert "kafka-ingest adopt orders" in quick.kafka_ingest("status", "orders").stdout


def test_topics_that_the_feed_file_names_no_more_do_not_count_into_the_lag(
    quick: QuickProject, servers: str, orders: str
) -> None:
    refunds = f"{orders}-refunds"
    create_topic(servers, refunds, 1)
    quick.write_feed(orders, kafka={"topics": [orders, refunds]})
    quick.run()
    quick.edit_feed(kafka={"topics": [orders]})
    quick.plan()
    produce(servers, refunds, 0, plain_records(5))
    partition = quick.partition(0, topic=refunds)
    assert (partition["is_read"], partition["lag"]) == (False, None)
    shown = quick.kafka_ingest("status", "orders").stdout
    assert "not read: the feed file does not name its topic" in shown


# ── What a run asks for ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_open_batch_continues_as_planned_and_says_that_what_the_run_asks_for_is_not_applied(
    quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders)
    quick.plan()
    assert "is not applied" in quick.kafka_ingest("plan", "orders", "--max-records", "1").stderr
    ran = quick.kafka_ingest("run", "orders", "--end-offset", f"{orders}:0=2")
    assert "is not applied" in ran.stderr
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}


def test_a_bounded_run_does_not_make_small_batches_wait_again(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, limits={"min_records": 100, "max_wait": "1h"})
    assert quick.plan()["result"] == "waiting"
    since = quick.status()["waiting_since"]
    assert since is not None
    assert quick.plan("--end-offset", f"{orders}:0=0")["result"] == "nothing_new"
    assert quick.status()["waiting_since"] == since


def test_the_plan_shows_where_partitions_begin_also_where_nothing_is_read(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, start="latest")
    shown = quick.kafka_ingest("plan", "orders", "--dry-run").stdout
    assert shown.count("start rule: latest") == 3
    assert "nothing new" in shown


# ── Another name ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_renamed_in_the_tables_first_the_feed_stops_until_its_file_has_the_name(
    quick: QuickProject, orders: str
) -> None:
    path = quick.write_feed(orders)
    quick.run()
    quick.answer("rename-feed", "orders", "sales", "--reason", "a better name")
    assert quick.refusal("plan", "orders")[:2] == (3, "OUTPUT_UNKNOWN")
    path.write_text(path.read_text().replace("name: orders\n", "name: sales\n"))
    assert quick.plan(name="sales")["result"] == "nothing_new"
    assert [batch["state"] for batch in quick.batches("sales")] == ["COMMITTED"]


NO_NAMES: list[str] = ["two words", "", "../sales", "sáles"]


def test_a_name_that_no_feed_file_can_have_is_refused(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    quick.run()
    for new in NO_NAMES:
        assert quick.refusal("rename-feed", "orders", new, "--reason", "why")[:2] == (2, "WRONG_USE"), new
        assert quick.plan()["result"] == "nothing_new", new


# ── Wrong use, answered in JSON ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def project(tmp_path: Path, servers: str) -> Project:
    """A project whose commands are processes: what wrong use comes to is decided before any command runs."""
    return Project(tmp_path / "project", servers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "--json"), "FEED"),
        (("plan", "orders", "--max-records", "0", "--json"), "--max-records"),
        (("batches", "--limit", "0", "--json"), "--limit"),
        (("topic-changed", "orders", "--choice", "bogus", "--json"), "bogus"),
        (("no-such-command", "--json"), "no-such-command"),
    ],
)
def test_with_json_wrong_use_is_answered_with_an_object_too(
    project: Project, arguments: tuple[str, ...], message: str
) -> None:
    stdout, stderr = project.home / "stdout", project.home / "stderr"
    command = [str(KAFKA_INGEST), *arguments]
    process = command_forks().start(
        command, directory=project.home, environment=project.environment, stdout=stdout, stderr=stderr
    )
    assert process.wait(PATIENCE_S) == 2
    error = json.loads(stdout.read_text())["error"]
    assert (error["code"], error["exit_code"]) == ("WRONG_USE", 2)
    assert message in error["message"]


NO_TIMES: list[str] = ["2026", "20260101", "1767225603000", "1.5", "2026-01-01T00:00:00", "soon"]


def test_an_end_time_that_would_be_guessed_is_refused(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    for time in NO_TIMES:
        assert quick.refusal("run", "orders", "--end-timestamp", time)[:2] == (2, "INVALID_RUN_REQUEST"), time
        assert quick.status()["partitions"] == [], time


# ── Terminals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(quick: QuickProject, columns: int, *arguments: str) -> list[str]:
    """Run the command line on a terminal of its own, so many columns wide, and return the lines that it shows."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, columns))
    environment = {key: value for key, value in quick.environment.items() if key not in {"COLUMNS", "LINES"}}
    # A fork would have the standard input, and with it the size, of the terminal that the tests run on.
    with subprocess.Popen(
        [KAFKA_INGEST, *arguments], stdout=terminal, stdin=terminal, env=environment | {"TERM": "dumb"}
    ) as process:
        os.close(terminal)
        shown = b""
        with suppress(OSError):  # how Linux says that the other side has closed
            while part := os.read(controller, 65536):
                shown += part
    os.close(controller)
    assert process.returncode == 0
    return shown.decode().splitlines()


def test_run_answers_how_long_each_step_of_a_batch_took(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    [batch] = quick.run()
    assert list(batch["step_seconds"]) == ["plan", "write", "commit"]
    assert all(seconds > 0 for seconds in batch["step_seconds"].values())
    assert sum(batch["step_seconds"].values()) == pytest.approx(batch["seconds"], abs=0.002)


def test_several_feeds_are_run_at_once_and_one_that_fails_leaves_the_others_alone(
    quick: QuickProject, orders: str
) -> None:
    for name in ("a", "b"):
        quick.write_feed(orders, name=name)
    quick.write_feed("no-such-topic", name="gone")
    quick.write_feed(orders, name="broken", sink={"format": "parquet"})

    every = quick.kafka_ingest("run", "--all", "--json")
    first, *lines, last = quick.kafka_ingest("run", "b", "gone", "a", "b").stdout.splitlines()

    assert every.exit_code == 2
    found = {feed["feed"]: feed for feed in every.document["feeds"]}
    assert [found[name]["batches"][0]["rows"] for name in ("a", "b")] == [15, 15]
    codes = {name: feed["error"] and feed["error"]["code"] for name, feed in found.items()}
    assert codes == {"a": None, "b": None, "broken": "INVALID_FEED", "gone": "UNKNOWN_TOPIC"}
    assert first == last
    assert first.startswith("1 of 3 feeds failed: gone: UNKNOWN_TOPIC feed gone: topic 'no-such-topic' does not exist")
    assert [line.split()[0] for line in lines] == ["b:", "gone:", "a:"]
    assert lines[0] == "  b: nothing new"
    assert quick.group_offsets("a") == quick.stored_offsets("a")
    wrong = quick.kafka_ingest("run", "a", "--all", "--json")
    assert (wrong.exit_code, wrong.document["error"]["code"]) == (2, "WRONG_USE")


def test_nothing_is_cut_on_a_terminal_of_60_80_or_120_columns(quick: QuickProject, servers: str, orders: str) -> None:
    produce(servers, orders, 0, plain_records(1_200))
    quick.write_feed(orders)
    [batch] = quick.run()
    for columns in (60, 80, 120):
        for command, words in (("status", {"1,210", orders}), ("batches", {batch["batch_id"], "COMMITTED"})):
            lines = on_a_terminal(quick, columns, command, "orders")
            assert all(len(line) <= columns for line in lines), lines
            assert words <= set(" ".join(lines).split()), lines


def test_run_completes_the_days_that_all_partitions_have_passed_and_partitions_shows_them(
    quick: QuickProject, orders: str
) -> None:
    sink = {"format": "parquet", "path": "orders", "partition_by": {"dt": "day(kafka_timestamp)"}}
    quick.write_feed(orders, complete={"by": "day", "success_file": "in_output"}, sink=sink)
    quick.run()

    found = quick.answer("partitions", "orders", "--limit", "100")

    days = [each["key"][:10] for each in found["complete"]]
    assert len(days) >= 30, "of the last month, since the topic's records are older"
    assert {each["announced_at"] for each in found["complete"]} == {None}, (
        "Airflow hears of them by the feed's next run"
    )
    assert found["waiting"]["began_at"] > found["complete"][0]["key"]
    for place in ("orders.kafka-ingest/complete", "orders"):
        folders = sorted(path.parent.name for path in quick.output.glob(f"{place}/*/_SUCCESS"))
        assert folders == [f"dt={day}" for day in reversed(days)]
    assert quick.kafka_ingest("verify", str(quick.output / "orders")).exit_code == 0
