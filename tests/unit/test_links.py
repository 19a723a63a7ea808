"""What beside an output is a symbolic link, or no file, is neither read nor removed: it may lead to any file."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.storage import read_at_most, read_each, read_end, read_whole
from kafka_ingest.sinks.staged_files import StagedFiles

BATCH_ID = UUID("01890000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    "read",
    [read_whole, lambda path: read_at_most(path, 9), lambda path: read_end(path, 9),
     lambda path: list(read_each(path.parent, [path.name], 9))],
)  # fmt: skip
def test_a_document_is_read_itself_and_not_what_a_link_or_a_pipe_leads_to(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    (tmp_path / "private").write_text("secret")
    (tmp_path / "failure.txt").symlink_to(tmp_path / "private")
    os.mkfifo(tmp_path / "receipt.json")
    with pytest.raises(OSError, match=r"expected a file, found a symbolic link; remove it: .*failure"):
        read(tmp_path / "failure.txt")
    for no_file in (tmp_path / "receipt.json", tmp_path):
        with pytest.raises(OSError, match="expected a file, found something else"):
            read(no_file)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "absent")
    assert read(tmp_path / "private") in (b"secret", [b"secret"])


@pytest.fixture
def staged(tmp_path: Path) -> StagedFiles:
    """The attempts of a table in a directory with a batch, beside which there are another program's files."""
    (tmp_path / "theirs" / "1").mkdir(parents=True)
    (tmp_path / "theirs" / "1" / "file").touch()
    folder = tmp_path / "orders.kafka-ingest" / "staging"
    folder.mkdir(parents=True)
    (tmp_path / "orders" / "batches").mkdir(parents=True)
    return StagedFiles(folder, None, tmp_path / "orders" / "batches")


@pytest.mark.parametrize("folder", ["orders.kafka-ingest/staging", "orders/batches"])
@pytest.mark.parametrize("name", [str(BATCH_ID), f"{BATCH_ID}/1"])
def test_an_attempt_is_neither_opened_nor_removed_through_a_link(
    staged: StagedFiles, tmp_path: Path, folder: str, name: str
) -> None:
    link, theirs = tmp_path / folder / name, tmp_path / "theirs"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(theirs)
    directory = staged.attempt_directory(BATCH_ID, 1)
    for use in (lambda: staged.open_attempt(directory, b"{}"), lambda: staged.remove(directory)):
        with pytest.raises(OutputUnavailableError, match=f"expected no symbolic link below .*{link.name}"):
            use()
    assert [each.name for each in theirs.rglob("*")] == ["1", "file"]


def test_an_attempt_is_opened_and_removed_below_an_output_that_is_a_link_itself(tmp_path: Path) -> None:
    (tmp_path / "disk" / "staging").mkdir(parents=True)
    (tmp_path / "orders.kafka-ingest").symlink_to(tmp_path / "disk")
    staged = StagedFiles(tmp_path / "orders.kafka-ingest" / "staging")
    directory = staged.attempt_directory(BATCH_ID, 1)
    staged.open_attempt(directory, b"{}")
    assert (tmp_path / "disk" / "staging" / str(BATCH_ID) / "1" / "plan.json").read_bytes() == b"{}"
    staged.remove(directory)
    assert list((tmp_path / "disk" / "staging").iterdir()) == []
