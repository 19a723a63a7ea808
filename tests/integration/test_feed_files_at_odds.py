"""Feed files that are at odds with each other, or with the environment: what runs, what is refused, and who says so."""

import json
from pathlib import Path

import pytest
from tests.integration.test_ending_commands import let_a_month_pass
from tests.integration.test_restore import abandoned
from tests.quick_project import QuickProject


@pytest.fixture
def read_before(quick: QuickProject, orders: str) -> str:
    """Feed ``orders`` has a committed batch, and there is more to read. The topic."""
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    return orders


def test_a_copied_feed_file_does_not_switch_off_the_feed_that_was_there_first(
    quick: QuickProject, read_before: str
) -> None:
    # A user copies a file, changes the name, and forgets the group.
    quick.write_feed(read_before, name="copy", kafka={"topics": [read_before], "group": "orders-ingest"})

    code, name, message = quick.refusal("run", "copy")[:3]
    assert (code, name) == (2, "INVALID_FEED")
    assert "kafka.group 'orders-ingest' is also that of" in message
    assert quick.run("orders")[0]["state"] == "COMMITTED"

    shown = quick.kafka_ingest("status", "--json")
    assert shown.exit_code == 2
    document = json.loads(shown.stdout)
    assert [Path(error["file"]).name for error in document["errors"]] == ["copy.yaml", "orders.yaml"]
    assert [feed["feed"] for feed in document["feeds"]] == ["orders", "copy"]
    assert "is also that of" in quick.status()["feed_file"]["error"]


def test_a_copy_of_the_same_name_does_not_either(quick: QuickProject, read_before: str) -> None:
    original = quick.feeds / "orders.yaml"
    (quick.feeds / "a-copy.yaml").write_text(original.read_text())
    assert quick.run("orders")[0]["state"] == "COMMITTED"

    # The file that is named after the feed is not the one that the control tables know any more.
    quick.edit_feed(sink={"format": "parquet", "path": "elsewhere"})
    assert quick.refusal("plan", "orders")[:2] == (2, "INVALID_FEED"), read_before


@pytest.fixture
def contested(quick: QuickProject, orders: str) -> QuickProject:
    """Feed ``orders``, with a batch that was abandoned, and a copy of its file that claims its group."""
    quick.write_feed(orders)
    abandoned(quick)
    quick.write_feed(orders, name="copy", kafka={"topics": [orders], "group": "orders-ingest"})
    return quick


def test_a_contested_feed_that_keeps_running_is_cleaned_and_restored_from_the_shell(contested: QuickProject) -> None:
    [batch] = contested.batches()
    let_a_month_pass(contested)
    [shown] = contested.answer("clean", "orders", "--dry-run")["attempts"]
    assert shown["batch_id"] == batch["batch_id"]
    of_all = contested.kafka_ingest("clean", "--dry-run", "--json")
    assert (of_all.exit_code, of_all.document["attempts"]) == (2, [shown])
    assert [error["code"] for error in of_all.document["errors"]] == ["INVALID_FEED"] * 2

    restored = contested.answer("restore", batch["batch_id"], "--execute", "--reason", "it was the last copy")
    assert len(restored["into"]) == 1
    assert len(contested.positions("orders")) == 15


def test_a_contested_feed_is_examined_by_doctor_wherever_its_file_lies(contested: QuickProject) -> None:
    (contested.feeds / "orders.yaml").rename(contested.feeds / "team-a.yaml")
    answer = contested.kafka_ingest("doctor", "orders", "--json")
    assert answer.exit_code == 2
    found = {check["check"]: check["ok"] for check in answer.document["checks"]}
    assert found["feed file team-a.yaml"] is False
    assert found["feed orders: Kafka"] is found["feed orders: output"] is True
    assert "feed copy: Kafka" not in found


def test_a_broken_file_is_examined_by_doctor_under_the_name_that_it_says(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders, scedule="@daily")
    (quick.feeds / "orders.yaml").rename(quick.feeds / "team-a.yaml")
    checks = quick.kafka_ingest("doctor", "orders", "--json").document["checks"]
    [broken] = [check for check in checks if check["check"] == "feed file team-a.yaml"]
    assert "scedule: unknown key" in broken["error"]["message"]


def test_a_broken_file_is_in_status(quick: QuickProject, read_before: str) -> None:
    quick.write_feed(read_before, name="typo", scedule="@daily")
    shown = quick.kafka_ingest("status")
    assert shown.exit_code == 2
    assert "scedule: unknown key; did you mean schedule?" in shown.stderr
    assert "orders" in shown.stdout


def test_a_shell_with_another_root_than_the_tasks_splits_no_output(
    quick: QuickProject, read_before: str, tmp_path: Path
) -> None:
    elsewhere = {"KAFKA_INGEST_DATA": str(tmp_path / "elsewhere")}
    for command in (["run", "orders"], ["plan", "orders", "--dry-run"], ["backfill", "orders", f"{read_before}:0=0-1"]):
        refused = quick.kafka_ingest(*command, "--json", **elsewhere)
        assert refused.exit_code == 3, command
        assert refused.document["error"]["code"] == "OUTPUT_ELSEWHERE"
    assert "does KAFKA_INGEST_DATA differ" in quick.answer("status", "orders", **elsewhere)["output"]["error"]
    assert not (tmp_path / "elsewhere").exists()

    quick.run("orders")
    assert len(quick.positions("orders")) == 15


def test_the_output_of_a_feed_whose_file_is_broken_is_no_place_for_a_copy(
    quick: QuickProject, read_before: str
) -> None:
    quick.write_feed(read_before, name="other", nmae="x")
    answer = quick.kafka_ingest("backfill", "orders", f"{read_before}:0=0-1", "--copy-to", "other", "--json")
    assert answer.exit_code == 2
    assert "holds the output of feed other" in answer.document["error"]["message"]
