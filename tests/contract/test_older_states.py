"""Control tables and output that an earlier commit left: answered from as before, and every open batch finished.

What is stored was made by that commit's own code with a real broker and Spark: `older_states/README.md`.
"""

import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.older_states.stored_project import HERE, Position, StoredProject

from unpack import unpack

TOPIC = "orders"
MANY = "many"
"""A topic of more partitions than are a file each."""

STORED = Path(__file__).with_name("older_states")
VERSION = "0f93359"
"""The commit whose code made them. Its control tables have the first schema, version 0.1.0's."""

SKIPPED = {(0, 7), (0, 8), *((2, offset) for offset in range(6))}
EXPIRED = {*((0, offset) for offset in range(5)), *((1, offset) for offset in range(3))}
LOST = {(1, 5), (1, 6)}
INVISIBLE = SKIPPED | EXPIRED | LOST
"""Which records are not in the output when the feed has read all of its topic."""

CHUNKED = {(2, offset) for offset in range(6)}
"""What the open chunks read: the interval that was skipped in partition 2."""

NOT_READ_YET = {*((0, offset) for offset in range(11, 19)), (1, 9), (1, 10), *((2, offset) for offset in range(7, 10))}
"""What the open live batch reads, or the next one."""

Restore = Callable[..., StoredProject]


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, unpacked: a folder for each state."""
    directory = tmp_path_factory.mktemp("older-states")
    with tarfile.open(STORED / f"{VERSION}.tar.xz") as packed:
        unpack(packed, directory)
    return directory


@pytest.fixture(scope="module")
def upgraded_tables() -> dict[str, bytes]:
    """The control tables of the states that were restored, as their upgrade left them."""
    return {}


@pytest.fixture
def restored(
    stored: Path, upgraded_tables: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Restore:
    """Return a function that restores a state in the folder of this process, with its control tables upgraded.

    They are upgraded once: where several tests restore a state, the others begin with a copy.
    """

    def restore(state: str) -> StoredProject:
        project = StoredProject(tmp_path / "home", stored, state)
        monkeypatch.chdir(project.home)
        if state in upgraded_tables:
            project.control_file.write_bytes(upgraded_tables[state])
            return project
        project.restore_control_tables()
        answer = project.kafka_ingest("db", "upgrade")
        assert answer.exit_code == 0, answer.stderr
        upgraded_tables[state] = project.control_tables_now()
        return project

    return restore


# ── What holds in the end ─────────────────────────────────────────────────────────────────────────────────────────────


def check_output(project: StoredProject, *, but: set[Position]) -> None:
    """Hold the output and coverage against what was produced."""
    produced = {position: value for position, value in project.topics[TOPIC].records.items() if position not in but}
    rows = [((row["kafka_partition"], row["kafka_offset"]), row["value"]) for row in project.rows()]
    assert rows == sorted(produced.items())
    coverage = project.answer("coverage", TOPIC, "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])


def check_every_record_once(project: StoredProject, *, but: set[Position]) -> None:
    """Hold output, coverage, stored offsets and consumer group against what was produced."""
    check_output(project, but=but)
    status = project.status()
    positions = {each["partition"]: (each["stored_offset"], each["group_offset"]) for each in status["partitions"]}
    assert positions == {partition: (end, end) for partition, end in project.topics[TOPIC].ends.items()}
    assert status["open_batch"] is None


def states_of(project: StoredProject) -> dict[str, str]:
    """Return the state of each batch."""
    return {batch["batch_id"]: batch["state"] for batch in project.batches()}


ONE = re.compile(r"\b1 (batch|chunk|gap|offset|partition|record|row)(?:es|s)\b")


def is_in(older: Any, newer: Any) -> bool:
    """Whether an answer says all that an older one says; it may say more of each thing, and not of more things."""
    if isinstance(older, dict):
        return all(key in newer and is_in(value, newer[key]) for key, value in older.items())
    if isinstance(older, list):
        return len(older) == len(newer) and all(map(is_in, older, newer))
    # Messages have counted in the singular since.
    return bool((ONE.sub(r"1 \1", older) if isinstance(older, str) else older) == newer)


# ── Open batches ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["planned", "attempt-recorded", "attempt-opened", "spark-killed", "discarded"])
def test_a_live_batch_that_was_left_planned_is_written_and_committed_by_the_next_run(
    restored: Restore, state: str
) -> None:
    project = restored(state)
    check_the_next_run_commits_the_open_batch(project)
    check_every_record_once(project, but=INVISIBLE)


@pytest.mark.parametrize("state", ["receipt", "written", "committing", "receipt-kept", "published"])
def test_a_live_batch_that_spark_had_written_is_committed_without_another_spark(restored: Restore, state: str) -> None:
    project = restored(state)
    with project.submitting(before_spark=lambda: pytest.fail("Spark is started")):
        check_the_next_run_commits_the_open_batch(project)
    check_every_record_once(project, but=INVISIBLE)


def test_a_batch_whose_partitions_share_files_is_committed_and_its_receipt_read_again(restored: Restore) -> None:
    project = restored("shared-files")
    [left_open] = project.open_batches
    [batch] = project.run(MANY)
    assert (batch["batch_id"], batch["result"]) == (left_open, "resumed")
    check_many(project)

    project.lose_control_tables()
    project.answer("adopt", MANY, "--execute", "--reason", "the disk died")
    check_many(project)


def check_many(project: StoredProject) -> None:
    """Hold the other feed's output and coverage against what was produced into its topic."""
    stored = project.topics[MANY]
    assert project.positions(MANY) == sorted(stored.records)
    assert project.stored_offsets(MANY) == stored.ends
    coverage = project.answer("coverage", MANY, "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])


def check_the_next_run_commits_the_open_batch(project: StoredProject) -> None:
    """Hold what the next run does against the one batch that was left open."""
    [left_open] = project.open_batches
    [batch] = project.run()
    assert (batch["batch_id"], batch["result"]) == (left_open, "resumed")
    assert states_of(project)[left_open] == "COMMITTED"


def test_a_group_that_was_not_moved_after_a_commit_is_brought_to_the_stored_offsets(restored: Restore) -> None:
    project = restored("committed")
    assert project.run() == []
    project.answer("mirror", TOPIC, "--repair")
    check_every_record_once(project, but=INVISIBLE)


@pytest.mark.parametrize("state", ["settled", "abandoned-written", "abandoned-committing"])
def test_where_no_batch_was_left_open_the_next_one_starts_at_the_stored_offsets(restored: Restore, state: str) -> None:
    project = restored(state)
    [batch] = project.run()
    assert batch["result"] == "planned"
    assert batch["batch_id"] not in {each["batch_id"] for each in project.said["batches"]["batches"]}
    check_every_record_once(project, but=INVISIBLE)


def test_a_batch_that_was_being_abandoned_is_abandoned_and_read_again(restored: Restore) -> None:
    project = restored("revoked")
    [revoked] = project.open_batches
    assert project.refusal("run", TOPIC)[:2] == (3, "BATCH_REVOKED")

    project.answer("abandon", revoked, "--reason", "not wanted")
    project.run()

    assert states_of(project)[revoked] == "ABANDONED"
    check_every_record_once(project, but=INVISIBLE)


def test_the_staged_files_of_a_batch_that_was_abandoned_are_published_after_all(restored: Restore) -> None:
    project = restored("abandoned-written")
    [abandoned] = [batch["batch_id"] for batch in project.batches() if batch["state"] == "ABANDONED"]
    with project.submitting(before_spark=lambda: pytest.fail("Spark is started")):
        project.answer("restore", abandoned, "--execute", "--reason", "wanted after all")
        assert project.run() == []
    check_every_record_once(project, but=INVISIBLE)


@pytest.mark.parametrize("state", ["spark-killed", "abandoned-written"])
def test_what_an_earlier_version_staged_is_removed_and_the_output_stays(restored: Restore, state: str) -> None:
    project = restored(state)
    project.run()
    for batch in project.batches():
        project.answer("clean", "--batch", batch["batch_id"], "--reason", "nobody needs it")

    staging = project.output / "orders.kafka-ingest" / "staging"
    assert [path for path in staging.rglob("*") if path.is_file()] == []
    check_every_record_once(project, but=INVISIBLE)


# ── Open backfills ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "state", ["chunks-planned", "chunk-opened", "chunk-receipt", "chunk-written", "chunk-committing", "chunk-published"]
)
def test_the_chunks_of_a_backfill_that_was_left_open_are_finished_and_close_their_gap(
    restored: Restore, state: str
) -> None:
    project = restored(state)
    left_open = project.open_batches
    assert len(left_open) == 3

    done = project.answer("backfill", TOPIC, "open")

    assert [chunk["batch_id"] for chunk in done["chunks"]] == left_open
    assert {states_of(project)[batch_id] for batch_id in left_open} == {"COMMITTED"}
    assert [gap[4] for gap in project.gaps() if gap[0] == 2] == ["closed"] * 3
    check_output(project, but=INVISIBLE - CHUNKED | NOT_READ_YET)


def test_a_copy_that_was_left_open_is_finished_in_its_own_output(restored: Restore) -> None:
    project = restored("copy-published")

    project.answer("backfill", TOPIC, "open")

    assert project.positions("copied") == [(1, 7), (1, 8), (2, 6), (2, 7), (2, 8), (2, 9)]
    check_output(project, but=INVISIBLE | NOT_READ_YET)


# ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", ["settled", "written", "discarded", "abandoned-committing", "chunk-committing"])
def test_each_answer_says_what_the_earlier_version_answered(restored: Restore, state: str) -> None:
    project = restored(state)
    for question, older in project.said.items():
        newer = project.kafka_ingest(question, TOPIC, "--json").document
        assert is_in(older, newer), f"{question}: expected {older}, found {newer}"


def test_each_file_is_explained_and_its_records_are_located_in_it(restored: Restore) -> None:
    project = restored("settled")
    files = sorted(Path(HERE, "output", TOPIC).glob("*/*.parquet"))
    visible = set(project.positions())
    for file in files:
        explained = project.answer("explain", str(file))
        assert (explained["batch"]["state"], explained["receipt"]["differences"]) == ("COMMITTED", [])
        [span] = explained["intervals"]
        found = project.answer("locate", TOPIC, TOPIC, str(explained["partition"]), str(span["start_offset"]))
        [batch] = found["batches"]
        assert (found["state"], batch["batch_id"]) == ("committed", explained["batch_id"])
        assert [each["path"] for each in batch["files"] if each["holds_record"]] == [str(file)]
        visible -= {(explained["partition"], offset) for offset in range(span["start_offset"], span["end_offset"])}
    assert visible == set()


def test_what_is_not_in_the_output_is_located_as_such(restored: Restore) -> None:
    project = restored("settled")
    for partition, offset in sorted(INVISIBLE):
        found = project.answer("locate", TOPIC, TOPIC, str(partition), str(offset))
        if (partition, offset) in EXPIRED:
            assert [batch["record"] for batch in found["batches"]] == ["expired"]
        else:
            assert (found["state"], found["gap"]["state"]) == ("gap", "open")


# ── From the receipts alone ───────────────────────────────────────────────────────────────────────────────────────────


def test_adopting_the_receipts_brings_back_what_the_earlier_control_tables_said(restored: Restore) -> None:
    # Its live batch was published last: what was decided before is in receipts, what was found out after one is not.
    project = restored("committed")
    project.lose_control_tables()
    assert project.refusal("run", TOPIC)[:2] == (3, "OUTPUT_UNKNOWN")

    project.answer("adopt", TOPIC, "--execute", "--reason", "the disk died")

    assert placed(project.answer("coverage", TOPIC)) == placed(project.said["coverage"])
    assert listed(project.batches()) == listed(project.said["batches"]["batches"])
    assert project.run() == []
    check_every_record_once(project, but=INVISIBLE)


@pytest.mark.parametrize("state", ["written", "receipt-kept", "published"])
def test_adopting_takes_an_open_batch_whose_receipt_was_kept_and_reads_others_again(
    restored: Restore, state: str
) -> None:
    project = restored(state)
    project.lose_control_tables()
    project.answer("adopt", TOPIC, "--execute", "--reason", "the disk died")

    if state == "written":  # No receipt was kept since a file was lost, so none says so.
        [lost] = project.kafka_ingest("coverage", TOPIC, "--verify", "--json").document["verified"]["differences"]
        project.answer("lost", TOPIC, "--batch", lost["batch_id"], "--execute", "--reason", "a disk failed")
    assert [batch["result"] for batch in project.run()] == (["planned"] if state == "written" else [])
    project.answer("mirror", TOPIC, "--repair")
    check_every_record_once(project, but=INVISIBLE)


def test_gaps_that_an_earlier_version_recorded_are_read_after_their_control_tables_were_lost(restored: Restore) -> None:
    project = restored("chunk-published")
    project.lose_control_tables()
    project.answer("adopt", TOPIC, "--execute", "--reason", "the disk died")

    project.answer("backfill", TOPIC, "gaps")
    project.run()

    assert {gap[4] for gap in project.gaps()} == {"closed"}
    check_every_record_once(project, but=INVISIBLE & EXPIRED)


def placed(coverage: dict[str, Any]) -> dict[int, Any]:
    """Return where each offset is, by partition: what does not depend on when, and by whom, it was written down."""
    return {
        each["partition"]: (
            each["topic_id"],
            each["first_offset"],
            each["stored_offset"],
            each["live"],
            each["backfilled"],
            each.get("expired", []),
            [(gap["start_offset"], gap["end_offset"], gap["cause"], gap["state"]) for gap in each["gaps"]],
            each["accounted"],
        )
        for each in coverage["partitions"]
    }


def listed(batches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what is said of batches, and was not decided by who adopted them."""
    return [
        (
            each["batch_id"],
            each["kind"],
            each["state"],
            each["rows"],
            each["size_bytes"],
            each["output"],
            each["planned_at"],
        )
        for each in batches
    ]
