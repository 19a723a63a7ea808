"""Staging on a disk and in another file system: the same answers, whatever opens the place."""

import errno
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.contract.builders import NOON, attempt_of, batch_id_of, orders, plan_of

from kafka_ingest.errors import OutputUnavailableError, StagedOutputUnusableError
from kafka_ingest.foundation.storage import opened, write_whole
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import DATA, DOCUMENT, FAILURE, RECEIPT, Place, RemotePlace
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.staged_files import DATA_REVOKED, StagedFiles

FIRST = "part-0.parquet"
INSIDE = "day=1/part-1.parquet"


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The folder of an output's staging."""
    if request.param == "disk":
        place = tmp_path / "orders.kafka-ingest" / "staging"
        place.mkdir(parents=True)
        yield place
        return
    yield RemotePlace(f"memory://lake{tmp_path}/orders.kafka-ingest/staging")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def staging(folder: Place) -> StagedFiles:
    return StagedFiles(folder)


def attempt(staging: StagedFiles, number: int = 1) -> Place:
    place = staging.attempt_directory(batch_id_of(1), number)
    staging.open_attempt(place, b'{"attempt": 1}')
    return place


def put(place: Place, content: bytes) -> None:
    opened(place.parent).mkdir(parents=True, exist_ok=True)
    write_whole(opened(place), content)


def rows(partition: int, offsets: range) -> bytes:
    table = {
        "kafka_topic": [orders(partition).topic] * len(offsets),
        "kafka_partition": pa.array([partition] * len(offsets), pa.int32()),
        "kafka_offset": list(offsets),
    }
    content = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(table), content)
    return content.getvalue()


def written(data: Place) -> Receipt:
    """Stage ten rows of two partitions, the second one's in a folder, and return the receipt of it."""
    plan = plan_of(*((orders(each), 0, 10) for each in range(2)), output=Path("/data/orders"))
    files: list[WrittenFile] = []
    for partition, name in enumerate((FIRST, INSIDE)):
        content = rows(partition, range(10))
        put(data / name, content)
        files.append(WrittenFile.of_one(name, len(content), 10, orders(partition), 0, 9))
    document = attempt_of(plan, 1).document_sha256
    return Receipt(plan.batch_id, 1, plan.fingerprint, document, 20, tuple(files), NOON, "spark local-1")


# ── Document, package, receipt, failure ───────────────────────────────────────────────────────────────────────────────


def test_each_attempt_of_each_batch_has_a_place_of_its_own_that_its_text_names(
    staging: StagedFiles, folder: Place
) -> None:
    places = [staging.attempt_directory(batch_id_of(batch), number) for batch in (1, 2) for number in (1, 2, 12)]
    assert len(set(places)) == 6
    assert str(places[0]) == f"{folder}/{batch_id_of(1)}/1"


def test_an_attempts_document_lies_in_its_place(staging: StagedFiles) -> None:
    assert opened(attempt(staging) / DOCUMENT).read_bytes() == b'{"attempt": 1}'


def test_a_receipt_is_read_as_it_was_written_and_is_none_before(staging: StagedFiles) -> None:
    place = attempt(staging)
    assert staging.read_receipt(place) is None
    staging.write_receipt(place, b"{}")
    assert staging.read_receipt(place) == b"{}"
    assert staging.read_receipt(staging.attempt_directory(batch_id_of(1), 2)) is None


def test_a_receipt_that_another_process_wrote_since_is_read(staging: StagedFiles) -> None:
    place = attempt(staging)
    assert staging.read_receipt(place) is None
    put(place / RECEIPT, b"{}")
    assert staging.read_receipt(place) == b"{}"


def test_what_spark_said_is_read_and_is_none_before(staging: StagedFiles) -> None:
    place = attempt(staging)
    assert (staging.read_failure(place), staging.end_of_failure(place, 9)) == (None, None)
    put(place / FAILURE, "lost: 3 \N{GREEK SMALL LETTER ALPHA} \xff".encode() + b"\xff")
    assert staging.read_failure(place) == "lost: 3 \N{GREEK SMALL LETTER ALPHA} \xff\N{REPLACEMENT CHARACTER}"
    assert staging.end_of_failure(place, 3) == ("\xff\N{REPLACEMENT CHARACTER}", True)
    assert staging.end_of_failure(place, 1_000) == (staging.read_failure(place), False)


# ── Verification ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_that_are_what_their_receipt_says_are_verified_in_folders_too(staging: StagedFiles) -> None:
    place = attempt(staging)
    staging.verify(place, written(place / DATA))


def test_an_attempt_without_rows_is_verified(staging: StagedFiles) -> None:
    place = attempt(staging)
    staging.verify(place, replace(written(place / "elsewhere"), files=(), rows_read=0))


@pytest.mark.parametrize("name", [FIRST, INSIDE])
def test_a_file_that_is_missing_is_named(staging: StagedFiles, name: str) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    opened(place / DATA / name).unlink()
    with pytest.raises(StagedOutputUnusableError, match=f"{name} is missing in {place / DATA}"):
        staging.verify(place, receipt)


@pytest.mark.parametrize("name", ["part-9.parquet", "day=1/part-9.parquet"])
def test_a_file_that_the_receipt_does_not_name_is_named(staging: StagedFiles, name: str) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    put(place / DATA / name, b"late")
    with pytest.raises(StagedOutputUnusableError, match=f"{name} is not in the receipt in {place / DATA}"):
        staging.verify(place, receipt)


def test_a_file_of_another_size_is_named_with_both_sizes(staging: StagedFiles) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    put(place / DATA / FIRST, b"short")
    with pytest.raises(StagedOutputUnusableError, match=f"{FIRST} has 5 bytes instead of [0-9,]+ in {place / DATA}"):
        staging.verify(place, receipt)


def test_a_file_whose_footer_is_damaged_is_named(staging: StagedFiles) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    put(place / DATA / FIRST, bytes(receipt.files[0].size_bytes))
    with pytest.raises(StagedOutputUnusableError, match=f"{place / DATA / FIRST} is not a readable Parquet file"):
        staging.verify(place, receipt)


def test_a_file_whose_footer_counts_other_rows_is_named(staging: StagedFiles) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    wrong = WrittenFile.of_one(FIRST, receipt.files[0].size_bytes, 9, orders(0), 0, 9)
    with pytest.raises(StagedOutputUnusableError, match=f"{FIRST}: expected 9 rows, its footer says 10"):
        staging.verify(place, replace(receipt, files=(wrong, receipt.files[1])))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.timestamp("ms", "UTC"), r"timestamp\[ms, tz=UTC\]"),
        (pa.string(), "string"),
        (None, r"\(none\)"),
    ],
)
def test_a_file_with_another_type_than_was_promised_is_named_with_both(
    staging: StagedFiles, kind: pa.DataType | None, found: str
) -> None:
    place = attempt(staging)
    promised = {"at": "timestamp", "amount": "decimal(12,2)", "note": "struct", "note.tags": "array"}
    promised["note.tags[]"] = "string"
    columns = {
        "amount": pa.array([None] * 10, pa.decimal128(12, 2)),
        "note": pa.array([None] * 10, pa.struct({"tags": pa.list_(pa.string())})),
    }

    def receipt_with(more: dict[str, "pa.Array"]) -> Receipt:
        receipt = written(place / DATA)
        table = pa.table({"kafka_offset": range(10), **columns, **more})
        content = io.BytesIO()
        pyarrow.parquet.write_table(table, content)
        put(place / DATA / FIRST, content.getvalue())
        put(place / DATA / INSIDE, content.getvalue())
        files = [replace(each, size_bytes=len(content.getvalue())) for each in receipt.files]
        return replace(receipt, files=tuple(files), columns=promised)

    staging.verify(place, receipt_with({"at": pa.array([None] * 10, pa.timestamp("us", "UTC"))}))
    receipt = receipt_with({} if kind is None else {"at": pa.array([None] * 10, kind)})
    with pytest.raises(
        StagedOutputUnusableError, match=rf"{FIRST}: expected the types .*\n.*\n +at +timestamp +{found}$"
    ):
        staging.verify(place, receipt)


# ── Staging again ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("data", [DATA, DATA_REVOKED])
def test_files_are_staged_again_whole_or_by_their_rows_also_after_they_were_revoked(
    staging: StagedFiles, data: str
) -> None:
    source, target = attempt(staging), attempt(staging, 2)
    receipt = written(source / data)
    put(target / DATA / "left by a crash", b"x")
    wanted = [OffsetRange(orders(0), 0, 10), OffsetRange(orders(1), 3, 7)]

    staging.check_restageable(source, receipt)
    files = staging.restage(source, receipt, target, wanted)

    assert [(each.name, each.rows) for each in files] == [(FIRST, 10), ("day=1/0-part-1.parquet", 4)]
    staging.verify(target, replace(receipt, attempt=2, files=tuple(files), rows_read=14))


def test_files_that_were_cleaned_up_cannot_be_staged_again(staging: StagedFiles) -> None:
    source = attempt(staging)
    receipt = written(source / DATA)
    staging.remove(source)
    with pytest.raises(StagedOutputUnusableError, match=f"expected staged files in {source / DATA}, found none"):
        staging.check_restageable(source, receipt)


# ── Size and removal ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempt_is_as_large_as_all_that_lies_in_its_place(staging: StagedFiles) -> None:
    place = attempt(staging)
    receipt = written(place / DATA)
    staging.write_receipt(place, b"12345")
    assert staging.size_bytes(place) == len(b'{"attempt": 1}') + receipt.size_bytes + 5
    assert staging.size_bytes(staging.attempt_directory(batch_id_of(1), 2)) == 0


def test_an_attempt_is_removed_with_its_data_and_the_others_stay(staging: StagedFiles) -> None:
    place, other = attempt(staging), attempt(staging, 2)
    written(place / DATA)
    size = staging.size_bytes(other)

    staging.remove(place)
    staging.remove(place)

    assert (staging.size_bytes(place), staging.size_bytes(other)) == (0, size)
    assert not opened(place).exists()


def test_a_batchs_folder_goes_with_its_last_attempt(staging: StagedFiles, folder: Place) -> None:
    place = attempt(staging)
    staging.remove(place)
    assert not opened(place.parent).exists()
    staging.open_attempt(place, b"{}")
    assert opened(folder / str(batch_id_of(1))).exists()


def test_what_is_no_attempt_of_this_output_is_not_removed(staging: StagedFiles, folder: Place) -> None:
    place = attempt(staging)
    of_another = folder.parent.parent / "refunds.kafka-ingest" / folder.name / place.parent.name / place.name
    for other in (folder, place.parent, place / DATA, of_another):
        with pytest.raises(ValueError, match="expected the directory of an attempt below"):
            staging.remove(other)
    assert opened(place / DOCUMENT).exists()


@pytest.mark.parametrize("is_published", [False, True])
def test_data_that_lies_elsewhere_is_removed_with_its_attempt_unless_it_is_published(
    folder: Place,
    *,
    is_published: bool,
) -> None:
    staging = StagedFiles(folder, None, folder.parent.parent / "orders", lambda *_: is_published)
    place = attempt(staging)
    data = staging.data_place(place)
    receipt = written(data)
    staging.verify(place, receipt)

    staging.remove(place)

    assert not opened(place).exists()
    assert opened(data / FIRST).exists() == is_published


# ── In a file system that is no disk ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[StagedFiles]:
    yield StagedFiles(RemotePlace(f"memory://lake{tmp_path}/staging"))
    fsspec.filesystem("memory").store.clear()


def lost(*_: object, **__: object) -> None:
    raise OSError(errno.ECONNRESET, "connection reset by peer")


STEPS: dict[str, tuple[str, Callable[[StagedFiles, Place], object]]] = {
    "open_attempt": ("pipe_file", lambda staging, place: staging.open_attempt(place, b"{}")),
    "write_receipt": ("pipe_file", lambda staging, place: staging.write_receipt(place, b"{}")),
    "read_receipt": ("cat_file", lambda staging, place: staging.read_receipt(place)),
    "read_failure": ("cat_file", lambda staging, place: staging.read_failure(place)),
    "end_of_failure": ("cat_file", lambda staging, place: staging.end_of_failure(place, 9)),
    "verify": ("find", lambda staging, place: staging.verify(place, written(place / DATA))),
    "size_bytes": ("find", lambda staging, place: staging.size_bytes(place)),
    "remove": ("rm", lambda staging, place: staging.remove(place)),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_file_system_that_fails_proves_nothing_about_the_data(
    remote: StagedFiles, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = attempt(remote)
    call, take = STEPS[step]
    monkeypatch.setattr(type(fsspec.filesystem("memory")), call, lost)
    with pytest.raises(OutputUnavailableError, match=f"{place}.* could not be read or written: .*reset by peer"):
        take(remote, place)


def test_documents_and_receipts_are_one_put_each(remote: StagedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is written piece by piece is closed, and so kept, also where a piece failed.
    memory = type(fsspec.filesystem("memory"))
    put_whole, names = memory.pipe_file, []

    def noted(self: object, path: str, value: bytes, **options: object) -> None:
        names.append(path.rpartition("/")[2])
        put_whole(self, path, value, **options)

    monkeypatch.setattr(memory, "pipe_file", noted)
    place = attempt(remote)
    remote.write_receipt(place, b"{}")
    assert names == [DOCUMENT, RECEIPT]


def test_what_the_file_system_remembers_of_a_listing_is_asked_again(
    remote: StagedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[object] = []
    monkeypatch.setattr(type(fsspec.filesystem("memory")), "invalidate_cache", lambda *_: forgotten.append(1))
    remote.read_receipt(remote.attempt_directory(batch_id_of(1), 1))
    assert forgotten
