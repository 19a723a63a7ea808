"""What an operator decides by the form of ``operate_feed``: the command line's own answers, in a user's name."""

import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import UUID

import pytest
from tests.by_form import ALICE, DO, Ask, asking_by_form
from tests.integration.conftest import MoveGroup
from tests.integration.test_operator_commands import journal
from tests.kafka_faults import recreate_topic
from tests.quick_project import Killed, QuickProject

from kafka_ingest.control.schema import FIRST_VERSION, SCHEMA_VERSION
from kafka_ingest.errors import ControlSchemaError, FeedChangedError, KafkaIngestError
from kafka_ingest.verbs import skip
from kafka_ingest.verbs.answer import Line

if TYPE_CHECKING:
    from kafka_ingest.verbs.check_installation import Check


@pytest.fixture
def ask(quick: QuickProject) -> Iterator[Ask]:
    """Give a form, as the task does."""
    with asking_by_form(quick) as asking:
        yield asking


def refusal(ask: Ask, *arguments: Any, **form: Any) -> tuple[str, str]:
    """Return the name and the text of the error that a form gets."""
    with pytest.raises(KafkaIngestError) as found:
        ask(*arguments, **form)
    return found.value.code, str(found.value)


@pytest.fixture
def open_batch(quick: QuickProject, orders: str) -> str:
    """A feed with an open batch."""
    quick.write_feed(orders)
    return quick.plan()["batch_id"]


# ── The same answers as the command line's ────────────────────────────────────────────────────────────────────────────


def test_a_dry_run_says_what_the_command_line_says_and_changes_nothing(
    quick: QuickProject, ask: Ask, orders: str, move_group: MoveGroup
) -> None:
    quick.write_feed(orders)
    [batch] = quick.run("orders", "--end-offset", f"{orders}:0=4")
    move_group("orders-ingest", orders, {0: 1})
    file = str(file_of(quick, batch))
    # Numbers, and where they lie: doctor's are of the machine.
    said: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({"action": "plan"}, ("plan", "orders", "--dry-run")),
        ({"action": "verify-coverage"}, ("coverage", "orders", "--verify")),
        ({"action": "locate", "record": f"{orders}:0=2"}, ("locate", "orders", orders, "0", "2")),
        ({"action": "dead-letters"}, ("dead-letters", "orders")),
        ({"action": "explain", "file": file}, ("explain", file)),
        (
            {"action": "preview", "records": 3, "show_values": True},
            ("preview", "orders", "--records", "3"),
        ),
        (
            {"action": "fold", "before": "2020-01-31"},
            ("fold", "orders", "--before", "2020-01-31", "--dry-run"),
        ),
        ({"action": "lost", "batch_id": batch["batch_id"]}, ("lost", "orders", "--batch", batch["batch_id"])),
        ({"action": "expire", "before": "2099-01-31"}, ("expire", "orders", "--before", "2099-01-31")),
        (
            {"action": "skip", "offset_range": f"{orders}:0=4-6"},
            ("skip", "orders", orders, "0", "4-6", "--reason", "why", "--dry-run"),
        ),
        (
            {"action": "reset", "to": "earliest", "topics": [f"{orders}:0"]},
            ("reset", "orders", "--to", "earliest", "--topic", f"{orders}:0"),
        ),
        ({"action": "topic-changed"}, ("topic-changed", "orders")),
        ({"action": "mirror"}, ("mirror", "orders")),
        ({"action": "clean"}, ("clean", "orders", "--dry-run")),
        ({"action": "adopt"}, ("adopt", "orders")),
        (
            {"action": "rename", "new_name": "sales"},
            ("rename-feed", "orders", "sales", "--reason", "why", "--dry-run"),
        ),
        ({"action": "db-upgrade"}, ("db", "upgrade", "--dry-run")),
    ]
    with closing(sqlite3.connect(quick.control_file)) as connection:
        before = list(connection.iterdump())
        for form, command in said:
            assert ask(**form).whole_document() == quick.kafka_ingest(*command, "--json").document, form
        assert list(connection.iterdump()) == before
    assert quick.group_offsets()[0] == 1


def file_of(quick: QuickProject, batch: dict[str, Any]) -> Path:
    """Return a data file of a batch."""
    [file, *_] = (quick.output / "orders" / f"kafka_batch={batch['batch_id']}").glob("*.parquet")
    return file


def test_doctor_says_what_is_wrong_with_a_feeds_file_that_cannot_be_used(quick: QuickProject, ask: Ask) -> None:
    quick.write_feed("orders", nmae="x")
    checks: list[Check] = []

    found = ask(action="doctor", checks=checks)

    assert found.exit_code == 2
    assert [check["check"] for check in found.document["checks"]] == [check.about for check in checks]
    assert "nmae" in str([check.error for check in checks])


# ── Decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_decisions_are_made_with_a_reason_and_journalled_in_the_users_name(
    quick: QuickProject, ask: Ask, orders: str, move_group: MoveGroup
) -> None:
    quick.write_feed(orders)
    batch_id = quick.plan("--end-offset", f"{orders}:0=4")["batch_id"]

    abandoned = ask(action="abandon", batch_id=batch_id, **DO)
    ask(action="skip", offset_range=f"{orders}:0=0-2", **DO)
    ask(action="reset", shift_by=-1, topics=[f"{orders}:0"], **DO)
    move_group("orders-ingest", orders, {0: 9})
    mirrored = ask(action="mirror", **DO)
    ask(action="rename", new_name="sales", **DO)

    assert abandoned.document["state"] == "ABANDONED"
    assert (mirrored.exit_code, mirrored.document["drift"]) == (0, [])
    reasons = {
        kind: [(actor, detail["reason"]) for actor, detail in journal(quick, kind)]
        for kind in ("abandoned", "reset", "renamed")
    }
    [(skipped_by, gap)] = journal(quick, "gap")
    assert (skipped_by, gap["gaps"][0]["reason"]) == (ALICE, DO["reason"])
    assert reasons == {kind: [(ALICE, DO["reason"])] for kind in reasons}
    quick.write_feed(orders, name="sales")
    assert quick.stored_offsets("sales")[0] == 1


def test_files_that_are_gone_are_filed_as_a_gap_and_old_batches_leave_the_output(
    quick: QuickProject, ask: Ask, orders: str
) -> None:
    quick.write_feed(orders)
    [first] = quick.run("orders", "--end-offset", f"{orders}:0=4")
    [gone] = quick.run("orders")
    for file in (quick.output / "orders" / f"kafka_batch={gone['batch_id']}").glob("*.parquet"):
        file.unlink()

    assert ask(action="lost", batch_id=gone["batch_id"], **DO).document["gaps"]
    expired = ask(action="expire", before="2099-01-31", **DO).document

    assert (expired["executed"], first["batch_id"] in str(expired["batches"])) == (True, True)
    assert [[actor for actor, _ in journal(quick, kind)] for kind in ("gap", "expired")] == [[ALICE], [ALICE]]


def test_an_abandoned_batch_is_restored_once_in_the_users_name(quick: QuickProject, ask: Ask, orders: str) -> None:
    quick.write_feed(orders)
    with quick.stopping_before_the_commit(), pytest.raises(Killed):
        quick.kafka_ingest("run", "orders")
    [batch] = quick.batches()
    restoring = {"action": "restore", "batch_id": batch["batch_id"]}

    assert refusal(ask, **restoring)[0] == "BATCH_STATE"
    ask(action="abandon", batch_id=batch["batch_id"], **DO)
    assert f"has abandoned batches: {batch['batch_id']} ({DO['reason']})" in refusal(ask, action="restore")[1]
    shown = ask(**restoring)
    assert shown.whole_document() == quick.kafka_ingest("restore", batch["batch_id"], "--json").document
    assert (shown.only_shown, quick.stored_offsets()) == (True, {0: 0, 1: 0, 2: 0})

    done = ask(None, **restoring, **DO)

    lines = [each.text for each in done.shown if isinstance(each, Line)]
    assert lines[0] == f"committed 15 rows into {quick.output / 'orders'}"
    assert (done.document["executed"], lines[-1]) == (True, f"committed with {done.document['into'][0]}")
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    assert [(actor, detail["reason"]) for actor, detail in journal(quick, "restored")] == [(ALICE, DO["reason"])]
    again = ask(**restoring, **DO)
    assert (again.document["into"], again.only_shown) == ([], False)
    assert len(journal(quick, "restored")) == 1


def test_a_feed_whose_file_has_its_new_name_already_is_renamed_to_it(
    quick: QuickProject, ask: Ask, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    (quick.feeds / "orders.yaml").unlink()
    quick.write_feed(orders, name="sales")

    assert ask("sales", action="rename", old_name="orders", **DO).document["is"] == "sales"
    assert quick.stored_offsets("sales")[0] == 10


def test_a_topic_that_was_made_again_is_decided_after_the_dry_run_has_shown_the_choices(
    quick: QuickProject, ask: Ask, orders: str, servers: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    recreate_topic(servers, orders)

    shown = ask(action="topic-changed")
    code, text = refusal(ask, action="topic-changed", **DO)
    done = ask(action="topic-changed", choice="start-over", **DO)

    [topic] = shown.document["topics"]
    assert "start-over" in topic["choices"]
    assert shown.only_shown
    said = [each.text for each in shown.shown if isinstance(each, Line)]
    assert any(text.startswith("  choice start-over ") for text in said), "options are fields here"
    assert (code, "expected choice, or open_batch accept," in text) == ("INVALID_OPERATION", True)
    assert done.document["executed"]
    assert quick.stored_offsets() == {0: 0}


def test_of_two_people_who_decide_at_once_one_has_an_effect_and_the_other_is_refused(
    quick: QuickProject, ask: Ask, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run("orders", "--end-offset", f"{orders}:0=4")
    both_have_decided, file_gap = threading.Barrier(2), skip.skip

    def filing(*arguments: Any, **options: Any) -> Any:
        both_have_decided.wait()
        return file_gap(*arguments, **options)

    def decide(actor: str) -> str | None:
        try:
            ask(actor=actor, action="skip", offset_range=f"{orders}:0=4-6", **DO)
        except FeedChangedError:
            return None
        return actor

    with patch.object(skip, "skip", filing), ThreadPoolExecutor(2) as threads:
        done = [actor for actor in threads.map(decide, ["airflow:alice@d/1", "airflow:bob@d/2"]) if actor is not None]

    assert len(done) == 1
    assert [actor for actor, _ in journal(quick, "gap")] == done
    assert quick.gaps() == [(0, 4, 6, "skipped", "open")]


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_form_leaves_open_is_refused_with_what_there_is(ask: Ask, open_batch: str, orders: str) -> None:
    held = f"Feed orders has open batches: {open_batch} (live, PLANNED); held: nothing; topics: {orders}."
    assert refusal(ask, action="abandon")[1].endswith(f"found none. {held} Nothing was changed.")
    assert held in refusal(ask, action="skip")[1]
    assert refusal(ask, None, action="skip")[1].endswith("found none. Feeds: orders. Nothing was changed.")
    assert refusal(ask, None, action="abandon")[1].endswith("Feeds in the control tables: orders. Nothing was changed.")


def test_what_an_action_cannot_use_is_refused_in_the_words_of_the_form(ask: Ask, open_batch: str) -> None:
    text = refusal(ask, action="reset", to="latest", shift_by=1)[1]
    assert text.startswith("expected to or shift_by, found both. to takes earliest, latest, ")
    assert "(`kafka-ingest batches` lists them)" in text
    assert "expected topics TOPIC or TOPIC:PARTITION," in refusal(ask, action="reset", to="latest", topics=["a:b"])[1]
    assert "found both" in refusal(ask, action="topic-changed", choice="forget", open_batch="accept")[1]
    assert f"batch {open_batch} is PLANNED" in refusal(ask, action="reset", to="latest")[1]


NO_REASONS: list[str | None] = [None, "", "  "]


def test_nothing_is_done_without_a_reason(ask: Ask, open_batch: str, quick: QuickProject) -> None:
    for reason in NO_REASONS:
        code, text = refusal(ask, action="abandon", batch_id=open_batch, dry_run=False, reason=reason)
        assert (code, "expected a reason with a few words" in text) == ("WRONG_USE", True), reason
        assert quick.batches()[0]["state"] == "PLANNED", reason


def test_a_hostile_reason_is_kept_as_text(ask: Ask, open_batch: str, quick: QuickProject) -> None:
    ask(action="abandon", batch_id=open_batch, dry_run=False, reason="'); DROP TABLE event; --\x1b[2J[red]\x00")
    [(_, detail)] = journal(quick, "abandoned")
    assert detail["reason"] == r"'); DROP TABLE event; --\x1b[2J[red]\x00"


def test_a_batch_of_another_feed_is_not_taken_for_the_chosen_ones(
    ask: Ask, open_batch: str, quick: QuickProject, orders: str
) -> None:
    quick.write_feed(orders, name="sales", sink={"format": "parquet", "path": "sales"})
    code, text = refusal(ask, "sales", action="abandon", batch_id=open_batch)
    assert (code, f"{open_batch}, which is of feed orders" in text) == ("INVALID_OPERATION", True)
    # A feed whose file was removed can be decided about by its batch.
    (quick.feeds / "orders.yaml").unlink()
    assert ask(None, action="abandon", batch_id=open_batch, **DO).document["state"] == "ABANDONED"
    code, text = refusal(ask, action="abandon", batch_id=open_batch)
    assert (code, "there is nothing to abandon" in text) == ("BATCH_STATE", True)


def test_of_files_that_are_no_known_batchs_it_is_not_even_said_whether_they_exist(
    quick: QuickProject, ask: Ask, orders: str, tmp_path: Path
) -> None:
    quick.write_feed(orders)
    [batch] = quick.run()
    file = file_of(quick, batch)
    copied, unknown = tmp_path / "copy" / file.parent.name, quick.output / "orders" / f"kafka_batch={UUID(int=1)}"
    for folder in (copied, unknown):
        folder.mkdir(parents=True)
        shutil.copy(file, folder)
    quick.write_feed(orders, name="sales", sink={"format": "parquet", "path": "sales"})

    hostile = ["/etc/passwd", "/etc/absent", "/", "~", file.name, "../x", f"{file}\0", "/" + "x/" * 2_000]
    for named in (*hostile, str(copied / file.name), str(unknown / file.name)):
        code, text = refusal(ask, None, action="explain", file=named)
        assert (code, f"found {named!r}. `locate` names" in text) == ("NOT_A_DATA_FILE", True), named
    assert "in the output of feed sales" in refusal(ask, "sales", action="explain", file=str(file))[1]
    assert "expected file, the absolute path" in refusal(ask, None, action="explain")[1]
    assert refusal(ask, None, action="explain", file="s3://lake/x.parquet")[0] == "WRONG_USE"
    explained = ask(None, action="explain", file=f"{file.parent}/../{file.parent.name}/{file.name}").document
    assert (explained["batch_id"], explained["receipt"]) == (batch["batch_id"], {"differences": []})


def test_what_records_hold_is_shown_to_who_asks_for_it_only(quick: QuickProject, ask: Ask, orders: str) -> None:
    quick.write_feed(orders)
    hidden = ask(action="preview", records=2)
    assert [sorted(row) for row in hidden.document["rows"]] == [["kafka_offset", "kafka_partition", "kafka_topic"]] * 2
    assert [each.text for each in hidden.shown if isinstance(each, Line)] == [
        "  key: binary",
        "  value: binary",
        "  kafka_headers: array",
        "  kafka_headers[]: struct",
        "  kafka_headers[].key: string",
        "  kafka_headers[].value: binary",
        "2 of 2 records can be decoded; nothing was committed",
        "what the records hold is not shown: show_values shows it, in this log and in the XCom",
    ]
    assert quick.batches() == []


def test_a_feed_that_cannot_be_used_is_refused_by_its_own_error(quick: QuickProject, ask: Ask, orders: str) -> None:
    quick.write_feed(orders, nmae="x")
    quick.write_feed(orders, name="sales")
    skipping = {"action": "skip", "offset_range": f"{orders}:0=0-1"}
    assert refusal(ask, **skipping)[0] == "INVALID_FEED"
    assert refusal(ask, "unknown", **skipping)[0] == "UNKNOWN_FEED"
    assert "which is not in the control tables" in refusal(ask, "sales", **skipping)[1]
    quick.run("sales")
    assert (
        "no stored offsets of topic 'payments'"
        in refusal(ask, "sales", action="skip", offset_range="payments:0=0-1")[1]
    )
    assert refusal(ask, "sales", action="abandon", batch_id=str(UUID(int=1)))[0] == "UNKNOWN_BATCH"


def test_control_tables_are_upgraded_after_the_dry_run_has_said_which_revisions_are_pending(
    quick: QuickProject, ask: Ask
) -> None:
    quick.write_feed("orders")
    quick.control_file.unlink()
    upgrading = {"action": "db-upgrade", "create": True}

    code, text = refusal(ask, None, action="db-upgrade")
    shown = ask(None, **upgrading)
    with pytest.raises(ControlSchemaError):
        ask(action="plan")
    assert not quick.control_file.exists(), "looking makes no file"
    done = ask(None, **upgrading, **DO)
    again = ask(None, **upgrading, **DO)

    assert (code, "create" in text) == ("CONTROL_SCHEMA", True)
    pending = [each["revision"] for each in shown.document["pending"]]
    assert pending == [f"{number:04}" for number in range(int(FIRST_VERSION), int(SCHEMA_VERSION) + 1)]
    assert (done.document["version_before"], done.document["version_now"]) == (None, SCHEMA_VERSION)
    assert again.document["version_before"] == SCHEMA_VERSION


def test_older_and_newer_control_tables_are_refused_and_only_older_ones_upgraded(quick: QuickProject, ask: Ask) -> None:
    quick.write_feed("orders")
    before = f"{int(SCHEMA_VERSION) - 1:04}"
    for version, said, pending in (
        (before, "Run `kafka-ingest db upgrade`", [SCHEMA_VERSION]),
        ("9999", "newer", None),
    ):
        with closing(sqlite3.connect(quick.control_file)) as connection, connection:
            connection.execute("UPDATE kafka_ingest_schema SET version_num = ?", [version])
        assert said in refusal(ask, action="adopt")[1]
        if pending is None:
            assert refusal(ask, None, action="db-upgrade")[0] == "CONTROL_SCHEMA"
        else:
            assert [each["revision"] for each in ask(None, action="db-upgrade").document["pending"]] == pending


def test_locked_control_tables_are_said_to_be_locked(
    quick: QuickProject, ask: Ask, open_batch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_ingest.control.database.BUSY_TIMEOUT_S", 0.01)
    with closing(sqlite3.connect(quick.control_file)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, text = refusal(ask, action="abandon", batch_id=open_batch, **DO)
    assert (code, "database is locked" in text) == ("CONTROL_TABLES_UNAVAILABLE", True)
    assert quick.batches()[0]["state"] == "PLANNED"
