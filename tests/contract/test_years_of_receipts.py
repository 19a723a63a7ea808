"""Receipts by the day, found as quickly and as surely after years of batches."""

import os
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from tests.contract.builders import batch_id_of
from tests.contract.staged_files import DAY, Staged

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.sinks.kept_receipts import KeptReceipts, day_of
from kafka_ingest.sinks.parquet import parquet_sink

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "orders"


def published(output: Path, *numbers: int) -> list[Staged]:
    staged = [Staged(output, number=number) for number in numbers]
    for each in staged:
        each.publish()
    return staged


def known(output: Path, since: int | None = None) -> list[str]:
    return parquet_sink(output).publisher.known_batches(batch_id_of(since) if since is not None else None)


def ids(*numbers: int) -> list[str]:
    return [str(batch_id_of(number)) for number in numbers]


@pytest.fixture
def names_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the directories that are listed."""
    real, listed = os.scandir, []

    def scandir(path: Path) -> object:
        listed.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return listed


# ── By the day ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_receipt_lies_in_the_folder_of_the_day_that_its_batchs_id_names(output: Path):
    [staged] = published(output, 1)
    receipts = output.with_name("orders.kafka-ingest") / "receipts"
    assert [path.relative_to(receipts) for path in receipts.rglob("*.json")] == [Path(DAY, f"{batch_id_of(1)}.json")]
    assert staged.kept.is_file()


def test_a_days_folder_is_for_the_same_users_as_the_one_that_it_lies_in(output: Path):
    staged = Staged(output)
    staged.kept.parent.parent.chmod(0o2777)
    staged.publish()
    assert staged.kept.parent.stat().st_mode & 0o7777 == 0o2777


@pytest.mark.parametrize(
    ("batch_id", "day"),
    [
        ("019a2b00-0000-7000-8000-000000000000", "2025-10-28"),
        ("00000000-0000-7000-8000-000000000000", "1970-01-01"),
        ("ffffffff-ffff-7fff-bfff-ffffffffffff", None),
        ("d9428888-122b-41e1-b85c-61ab3c5a2c3f", None),
    ],
    ids=["a day", "the first day", "beyond the calendar", "an id that says no time"],
)
def test_the_day_is_read_from_the_id_where_that_names_one(batch_id: str, day: str | None):
    assert day_of(UUID(batch_id)) == day


def test_the_newest_batches_are_found_without_reading_the_names_of_other_days(output: Path, names_read: list[str]):
    published(output, 1, 2, 3)
    receipts = output.with_name("orders.kafka-ingest") / "receipts"
    for day in ("2019-01-01", "2021-06-30"):
        (receipts / day).mkdir()
    assert known(output, since=1) == ids(1, 2, 3)
    names_read.clear()

    assert known(output, since=2) == ids(2, 3)

    assert names_read == ["orders", "receipts", DAY]


def test_a_damaged_receipt_is_named_where_it_lies(output: Path):
    [staged] = published(output, 1)
    staged.kept.write_text("[")
    with pytest.raises(OutputConflictError, match=f"{staged.kept}: expected the receipt of a published batch, found"):
        staged.sink.archive.receipt(batch_id_of(1))


# ── Names in the output ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_visible_batch_without_a_receipt_is_known_each_time_it_is_asked(output: Path):
    published(output, 1)
    assert known(output, since=1) == ids(1)
    (output / f"kafka_batch={batch_id_of(9)}").mkdir()

    assert known(output, since=2) == known(output, since=2) == ids(9)
    published(output, 2)
    assert known(output, since=2) == ids(2, 9)


def test_receipts_that_a_backup_left_behind_are_missed_though_publications_continued(output: Path):
    batches = published(output, 1)
    assert known(output, since=1) == ids(1)
    batches += published(output, 2)
    batches[1].kept.unlink()

    assert known(output, since=2) == known(output, since=2) == ids(2)


def test_a_receipt_that_lies_beside_the_mark_of_its_revoked_batch_is_not_taken_for_a_published_one(output: Path):
    staged = Staged(output)
    staged.sink.publisher.revoke(staged.directory, batch_id_of(1))
    KeptReceipts(staged.kept.parent.parent).keep(staged.published)
    assert staged.kept.exists(), "a publisher that lost against the revoking operator kept it too late"
    assert not staged.sink.archive.is_kept(batch_id_of(1))
    assert known(output, since=1) == []
