"""Batches of JSON objects become rows of a file where all of them certainly fit; the others are handed back."""

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark import nearly_json

from kafka_ingest.model.record_schema import ArrayOf, RecordType, Struct, read_schema
from kafka_ingest.writing import object_batches
from kafka_ingest.writing.json_values import JsonReader, RefusedError
from kafka_ingest.writing.object_batches import (
    FOLDER,
    ID_HEADER,
    IS_LARGE,
    ManyLargeRecordsError,
    ObjectColumn,
    SentObjects,
    objects_of,
    other_records,
    rows_of,
    with_objects,
)
from kafka_ingest.writing.plain_objects import arrow_type
from kafka_ingest.writing.schema_ids import header_of

SCHEMA = read_schema(
    "id bigint, n int, name string, amount double, paid boolean, "
    "address struct<city: string, at: struct<x: double, y: string>>"
)
OTHER_TYPES = read_schema(
    "small smallint, ratio float, price decimal(12,3), large decimal(38,10), tags array<string>, "
    "rows array<struct<id: int, x: array<float>, price: decimal(5,1)>>, sizes array<array<double>>"
)
FIELDS = pa.schema(list(arrow_type(SCHEMA)))
GOOD, BAD = b'{"id": 1, "name": "x"}', b'{"id": "x"}'


def taken(texts: Sequence[bytes]) -> list[dict[str, Any]] | None:
    """Return the objects of a batch, None where it is not taken."""
    found, _ = objects_of(pa.array(texts, pa.binary()), FIELDS)
    return None if found is None else found.to_pylist()


@cache
def strict_reader(schema: Struct) -> JsonReader:
    return JsonReader(schema.fields_ddl, "ignore")


def read_strictly(text: bytes, schema: Struct = SCHEMA) -> dict[str, Any] | str:
    """Return what a strict reader makes of a text, or the class of what it refuses."""
    try:
        found: dict[str, Any] = with_names(strict_reader(schema).read(text), schema)
    except RefusedError as error:
        return error.dead_class
    return found


def with_names(value: Any, kind: RecordType) -> Any:
    """Return a value with objects' fields by their names."""
    match kind:
        case Struct(fields) if value is not None:
            return {field.name: with_names(each, field.type) for field, each in zip(fields, value, strict=True)}
        case ArrayOf(element) if value is not None:
            return [with_names(each, element) for each in value]
    return value


def test_an_object_that_is_taken_is_what_a_strict_reader_reads_and_most_good_ones_are_taken() -> None:
    writer = nearly_json.Writer(11)
    texts = [writer.record(SCHEMA).strip() for _ in range(600)]
    found = {text: taken([text]) for text in texts}

    wrong = [(text, rows) for text, rows in found.items() if rows is not None and rows != [read_strictly(text)]]
    assert wrong[:3] == []
    good = [text for text in texts if not isinstance(read_strictly(text), str)]
    assert sum(found[text] is not None for text in good) > len(good) * 0.5 > 100
    assert sum(rows is None for rows in found.values()) > 100


@pytest.mark.long
@pytest.mark.parametrize("schema", [SCHEMA, OTHER_TYPES], ids=["plain", "others"])
def test_an_object_with_unknown_fields_is_what_a_strict_reader_reads_unless_a_name_may_be_in_other_case(
    schema: Struct,
) -> None:
    writer, fields = nearly_json.Writer(13), pa.schema(list(arrow_type(schema)))
    texts = [writer.record(schema) for _ in range(1_500)]
    found = {text: objects_of(pa.array([text], pa.binary()), fields, may_have_unknown=True) for text in texts}

    read = {text: (objects.to_pylist(), is_sure) for text, (objects, is_sure) in found.items() if objects is not None}
    strictly = {text: read_strictly(text, schema) for text in texts}
    others = {text: strictly[text] for text, (rows, _) in read.items() if rows != [strictly[text]]}
    assert set(others.values()) <= {"OTHER_CASE"}
    assert not any(read[text][1] for text in others)
    good = [text for text in texts if not isinstance(strictly[text], str)]
    assert len(read) > len(good) * 0.6 > 400
    assert sum(not is_sure for _, is_sure in read.values()) > 50
    assert len(texts) - len(read) > 100


def test_fields_that_are_not_read_have_to_be_json_and_objects_may_have_space_around() -> None:
    good = [b"[1, null, {}]", b'"-Infinity"', b'"NaN", "y": "Info"', b'{"id": "x", "id": {"address": [[]]}}', b"1e300"]
    bad = [
        b"NaN",
        b"[-Infinity]",
        b'{"a":Inf}',
        b'"\\ud800"',
        b"9" * 1_001,
        b"[" * 999 + b"]" * 999,
        b"01",
        b"'x'",
        b"1 2",
    ]
    for value, is_taken in [*((each, True) for each in good), *((each, False) for each in bad)]:
        texts = [b' {"id": 1, "x": %b}\r\n' % value, b"\t{} "]
        objects, is_sure = objects_of(pa.array(texts, pa.binary()), FIELDS, may_have_unknown=True)
        assert (objects is not None) == is_taken, value
        if objects is not None:
            assert (objects["id"].to_pylist(), is_sure) == ([1, None], False)


def test_a_text_with_perhaps_too_many_elements_or_numbers_beyond_their_types_is_not_taken() -> None:
    fields = pa.schema(list(arrow_type(OTHER_TYPES)))
    for text in (
        b'{"sizes": [[' + b"1," * 1_000_000 + b"1]]}",
        b'{"price": 1e10}',
        b'{"price": 0.0005}',
        b'{"rows": [{}, {"price": 12345}]}',
        b'{"sizes": [[], [1, -0]]}',
        b'{"ratio": 3.5e38}',
        b'{"small": 32768}',
    ):
        assert objects_of(pa.array([text], pa.binary()), fields)[0] is None


OBJECTS_READ = [
    ObjectColumn("of_value", "value", pa.schema([("id", pa.int64()), ("name", pa.string())]), may_have_unknown=True),
    ObjectColumn("of_key", "key", pa.schema([("id", pa.int64())]), may_have_unknown=False),
]


def keyed(key: bytes | None, values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Return a batch of records with a key."""
    keys = pa.array([key for _ in values], pa.binary())
    return pa.RecordBatch.from_arrays([keys, pa.array(values, pa.binary())], names=["key", "value"])


def test_objects_that_fit_are_handed_back_beside_the_bytes_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", 0)
    given = [
        keyed(b'{"id": 7}', [GOOD, None]),
        keyed(None, [b'{"id": 1, "x": 2}']),
        keyed(b'{"id": 7}', [GOOD, BAD]),
        keyed(b'{"id": 7, "x": 2}', [GOOD]),
    ]

    found = list(with_objects(given, OBJECTS_READ, with_bytes=True))
    emptied = list(with_objects(given, OBJECTS_READ, with_bytes=False))

    assert [each.select(["key", "value"]) for each in found] == given
    assert [each.select(["key", "value"]) for each in emptied] == [
        keyed(b"", [b"", None]),
        keyed(None, [b""]),
        *given[2:],
    ]
    assert [each.select(["of_value", "of_key"]) for each in emptied] == [
        each.select(["of_value", "of_key"]) for each in found
    ]
    one, key, no = {"id": 1, "name": "x"}, {"id": 7}, {"fits": False, "sure": False, "value": None}
    assert [[*each["of_value"].to_pylist(), each["of_key"][0].as_py()] for each in found] == [
        [{"fits": True, "sure": True, "value": v} for v in (one, None, key)],
        [
            {"fits": True, "sure": False, "value": {"id": 1, "name": None}},
            {"fits": True, "sure": True, "value": None},
        ],
        [no, no, no],
        [no, no],
    ]


def test_of_small_batches_that_fit_as_one_all_are_handed_back_in_their_order() -> None:
    given = [keyed(None, [b'{"id": %d}' % number]) for number in range(5)]
    [found] = with_objects(given, OBJECTS_READ, with_bytes=True)
    assert [each["value"]["id"] for each in found["of_value"].to_pylist()] == [0, 1, 2, 3, 4]
    assert found["value"].to_pylist() == [b'{"id": %d}' % number for number in range(5)]


def test_of_a_batch_all_or_nothing_is_taken_as_each_of_its_records_alone() -> None:
    writer, chance = nearly_json.Writer(12), random.Random(12)  # noqa: S311 - no secret
    texts = [writer.record(SCHEMA).strip() for _ in range(400)]
    alone = {text: taken([text]) for text in texts}
    whole = 0
    for _ in range(500):
        batch = chance.sample(texts, chance.randrange(2, 4))
        each = [alone[text] for text in batch]
        fits = None not in each
        assert taken(batch) == ([row for rows in each for row in rows or ()] if fits else None), batch
        whole += fits
    assert 20 < whole < 225


@pytest.mark.parametrize(
    "texts",
    [
        [b'{"id": 1', b', "n": 2}'],
        [b'{"id": 1}{"id": 2}', b""],
        [b'{"id": 1}{"id": 2}', b'{"name": "}'],
        [b'{"name": "a}', b'{b", "id": 1}'],
        [b'{"address": {}', b'{"id": 1}}'],
        [b'{"address": {"city": "}', b'{"}}{}'],
        [b'{"id": 1}\0}', b'{"id": 2}{"id": 3}'],
        [b'{"id": 1}', b'{"id": 2}\0{"n": 1}'],
        [b'{"id": 1}\n{"id": 2}', b"{}"],
        [b"{}{}", b"{}"],
        [b'{"name": "\xff"}', b"{}"],
        [b'{"amount": NaN}', b"{}"],
        [b'{"address": {"at": {"x": -Infinity}}}', b"{}"],
        [b'{"address": {"city": "a", "city": "b"}}', b"{}"],
        [b'{"id": 1, "id": null}', b"{}"],
        [b'{"ID": 1}', b"{}"],
        [b'{"id": 1, "unknown": 2}', b"{}"],
        [b'{"name": "\\ud800"}', b"{}"],
        [b"{" + b'"address": {' * 100_000 + b"}", b"{}"],
        [b'{"id": ' + b"[" * 1_000_000 + b"}", b"{}"],
        [b'{"id": ' + b"9" * 1_000_000 + b"}", b"{}"],
        [b'{"amount": 0.' + b"3" * 1_000 + b"}", b"{}"],
        [b'{"amount": -0}', b"{}"],
    ],
    ids=range(23),
)
def test_records_that_complete_one_another_or_are_not_certain_are_not_taken(texts: list[bytes]) -> None:
    assert taken(texts) is None
    assert taken(texts[::-1]) is None


# ── A task ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Counter:
    """An accumulator, as a worker sees it."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int) -> None:
        self.value += count


def sent(
    *,
    flatten: bool = True,
    key_is_text: bool = False,
    row_group_bytes: int = 1_000_000,
    heads: Sequence[bytes] = (),
    may_have_unknown: bool = False,
) -> SentObjects:
    """Return what a worker is sent for the columns of these tests."""
    return SentObjects(
        file_prefix="",
        file_suffix="",
        fields=pa.schema([("id", pa.int64()), ("name", pa.string())]),
        may_have_unknown=may_have_unknown,
        heads=heads,
        given=["kafka_offset", "key", "value"],
        constants={"kafka_topic": "orders", "kafka_topic_id": None},
        columns=["kafka_topic", "kafka_offset", "key", "value", "kafka_topic_id"],
        required=frozenset({"kafka_offset"}),
        without_dictionary=frozenset({"kafka_offset"}),
        without_statistics=frozenset({"key"}),
        row_group_bytes=row_group_bytes,
        flatten=flatten,
        key_is_text=key_is_text,
        written=Counter(),
        large=Counter(),
        found=Counter(),
    )


def batches_of(*batches: Sequence[bytes | None], large: int | None = None) -> list[pa.RecordBatch]:
    """Return batches with these values as workers are given them; the one at the offset ``large`` is too large."""
    numbers = iter(range(sum(map(len, batches))))
    made = []
    for values in batches:
        offsets = [next(numbers) for _ in values]
        columns = {
            "kafka_offset": pa.array(offsets, pa.int64()),
            "key": pa.array([b"k" for _ in values], pa.binary()),
            "value": pa.array(values, pa.binary()),
            IS_LARGE: pa.array([offset == large for offset in offsets], pa.bool_()),
        }
        fields = [pa.field(name, column.type, nullable=name != "kafka_offset") for name, column in columns.items()]
        made.append(pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(fields)))
    return made


def offsets_handed_back(batches: Sequence[pa.RecordBatch], job: SentObjects, file: Path) -> list[int]:
    return [offset for each in other_records(batches, job, str(file)) for offset in each["kafka_offset"].to_pylist()]


def with_folders(batches: Sequence[pa.RecordBatch], folders: Sequence[str]) -> list[pa.RecordBatch]:
    """Return batches of a table with partitions, each record in the next folder."""
    of_records = iter(folders)
    return [
        batch.append_column(FOLDER, pa.array([next(of_records) for _ in range(batch.num_rows)], pa.string()))
        for batch in batches
    ]


def test_each_partition_of_a_table_has_a_file_and_what_is_handed_back_has_the_records_own_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", 1)
    monkeypatch.setattr(object_batches, "MOST_FOLDERS", 2)
    given = with_folders(
        batches_of([GOOD] * 3, [BAD], [GOOD] * 2, [GOOD]), ["d=1/", "d=2/", "d=1/", *["d=2/"] * 3, "d=3/"]
    )

    back = list(other_records(given, sent(row_group_bytes=200), str(tmp_path / "part.parquet")))

    assert [(each.schema.names, each["kafka_offset"].to_pylist()) for each in back] == [
        (["kafka_offset", "key", "value"], [offset]) for offset in (3, 6)
    ]
    files = {
        path.relative_to(tmp_path).as_posix(): pq.read_table(path, partitioning=None) for path in tmp_path.glob("*/*")
    }
    assert {name: rows["kafka_offset"].to_pylist() for name, rows in files.items()} == {
        "d=1/part.parquet": [0, 2],
        "d=2/part.parquet": [1, 4, 5],
    }


def test_after_schema_ids_that_are_known_objects_are_taken_unless_a_header_says_another(tmp_path: Path) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    known, other, named = b"\0\0\0\0\7", b"\0\0\0\0\x08", [("__value_schema_id", b"x")]
    cases: list[tuple[bytes | None, Any]] = [
        (known + GOOD, [("trace", b"x")]),
        (None, None),
        (other + GOOD, None),
        (GOOD, None),
        (known + GOOD, named),
    ]
    given = [
        batch.append_column("kafka_headers", pa.array([headers], kind))
        for batch, (_, headers) in zip(batches_of(*([value] for value, _ in cases)), cases, strict=True)
    ]
    job = sent(heads=[known])

    assert offsets_handed_back(given, job, tmp_path / "part.parquet") == [2, 3, 4]

    assert pq.read_table(tmp_path / "part.parquet")["id"].to_pylist() == [1, None]
    assert header_of("value") == ID_HEADER


def test_objects_with_unknown_fields_are_written_unless_one_of_the_others_may_be_there_in_other_case(
    tmp_path: Path,
) -> None:
    given = batches_of([b'{"id": 1, "name": "x", "y": 5}', None], [b'{"ID": 1, "name": "x"}'], [b'{"id": 1}'])
    assert offsets_handed_back(given, sent(may_have_unknown=True), tmp_path / "part.parquet") == [2]
    assert offsets_handed_back(given, sent(), tmp_path / "other.parquet") == [0, 1, 2]


def test_what_fits_is_written_and_a_batch_with_something_else_is_handed_back(tmp_path: Path) -> None:
    job, file = sent(), tmp_path / "part.parquet"

    back = offsets_handed_back(batches_of([GOOD, None, b"{}"], [GOOD, BAD], [GOOD]), job, file)

    assert (back, job.written.value, job.large.value, job.found.value) == ([3, 4], 4, 0, 0b11)
    rest = {"kafka_topic": "orders", "key": b"k", "kafka_topic_id": None}
    assert pq.read_table(file).to_pylist() == [
        {"kafka_offset": offset, "id": number, "name": name} | rest
        for offset, number, name in ((0, 1, "x"), (1, None, None), (2, None, None), (5, 1, "x"))
    ]
    schema = pq.read_schema(file)
    assert schema.names == ["kafka_topic", "kafka_offset", "key", "id", "name", "kafka_topic_id"]
    assert not schema.field("kafka_offset").nullable


def test_small_batches_are_read_as_one_but_alone_after_something_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once: list[int] = []

    def noted(batch: pa.RecordBatch, job: SentObjects) -> pa.RecordBatch | None:
        read_at_once.append(batch.num_rows)
        return rows_of(batch, job)

    monkeypatch.setattr(object_batches, "rows_of", noted)
    given = batches_of(*([GOOD] * 2 for _ in range(4)), [GOOD, BAD], *([GOOD] * 2 for _ in range(4)))
    two_batches = pa.Table.from_batches(given[3:5]).drop_columns([IS_LARGE]).nbytes
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", two_batches)
    monkeypatch.setattr(object_batches, "ALONE", 2)
    job, file = sent(), tmp_path / "part.parquet"

    assert offsets_handed_back(given, job, file) == [8, 9]

    assert read_at_once == [4, 4, 4, 2, 2, 2, 4]
    assert job.written.value == 16
    assert pq.read_table(file)["kafka_offset"].to_pylist() == [*range(8), *range(10, 18)]


def test_a_large_batch_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = batches_of([GOOD], [GOOD] * 5)
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", large.drop_columns([IS_LARGE]).nbytes)
    monkeypatch.setattr(object_batches, "as_one", lambda batches: pytest.fail(f"{len(batches)} were put together"))
    job = sent()
    assert offsets_handed_back([small, large, small], job, tmp_path / "part.parquet") == []
    assert job.written.value == 7


def test_batches_that_were_taken_as_one_count_each_when_others_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = [[GOOD]] * (2 * object_batches.TRIED), [[BAD]] * object_batches.TRIED
    given = batches_of(*good, *bad, *good)
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", 4 * given[0].drop_columns([IS_LARGE]).nbytes)
    back = offsets_handed_back(given, sent(), tmp_path / "part.parquet")
    assert back == list(range(len(good), len(good) + len(bad)))


def test_an_object_may_stay_one_column_and_a_key_may_be_text(tmp_path: Path) -> None:
    job, file = sent(flatten=False, key_is_text=True), tmp_path / "part.parquet"

    assert offsets_handed_back(batches_of([GOOD, None, b'{"id": null}']), job, file) == []

    found = pq.read_table(file)
    assert found["value"].to_pylist() == [{"id": 1, "name": "x"}, None, {"id": None, "name": None}]
    assert found["key"].to_pylist() == ["k"] * 3


def test_a_batch_with_a_key_that_is_no_text_is_handed_back(tmp_path: Path) -> None:
    [batch] = batches_of([GOOD])
    batch = batch.set_column(1, "key", pa.array([b"\xff"], pa.binary()))
    assert offsets_handed_back([batch], sent(key_is_text=True), tmp_path / "part.parquet") == [0]


def test_a_large_record_is_neither_written_nor_handed_back(tmp_path: Path) -> None:
    job = sent()
    assert offsets_handed_back(batches_of([GOOD, None, GOOD], [BAD], large=1), job, tmp_path / "part.parquet") == [3]
    assert (job.written.value, job.large.value) == (2, 1)


def test_a_batch_of_large_records_only_is_nothing_to_write(tmp_path: Path) -> None:
    job = sent(row_group_bytes=10)
    assert offsets_handed_back(batches_of([GOOD] * 3, [None], large=3), job, tmp_path / "part.parquet") == []
    assert (job.written.value, job.large.value) == (3, 1)


def test_where_most_of_many_records_are_large_the_workers_give_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, batches = str(tmp_path / "part.parquet"), batches_of([None], [GOOD], large=0)
    assert list(other_records(batches, sent(), file)) == []
    monkeypatch.setattr(object_batches, "SEEN", 1)
    with pytest.raises(ManyLargeRecordsError):
        list(other_records(batches, sent(), file))


def test_rows_that_wait_to_be_written_keep_no_bytes_of_values_in_memory() -> None:
    sink = pa.BufferOutputStream()
    [batch] = batches_of([b'{"id": 1' + b" " * 8_000 + b"}"] * 100)
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    [received] = pa.ipc.open_stream(sink.getvalue())
    rows = rows_of(received.drop_columns([IS_LARGE]), sent())
    assert rows is not None
    assert rows.get_total_buffer_size() < 100_000


def test_columns_inside_of_others_have_dictionaries_too(tmp_path: Path) -> None:
    file = tmp_path / "part.parquet"
    offsets_handed_back(batches_of([GOOD] * 100), sent(flatten=False), file)
    group = pq.read_metadata(file).row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert columns["value.name"].has_dictionary_page
    assert not columns["kafka_offset"].has_dictionary_page
    assert columns["key"].statistics is None
    assert file.stat().st_mode & 0o777 == 0o644


def test_where_most_batches_do_not_fit_the_task_looks_at_no_more_of_them(tmp_path: Path) -> None:
    job, tried = sent(), object_batches.TRIED
    back = offsets_handed_back(batches_of(*([BAD] * 1 for _ in range(tried)), [GOOD]), job, tmp_path / "part.parquet")
    assert (back, job.written.value) == (list(range(tried + 1)), 0)


def test_a_task_without_a_record_that_fits_writes_no_file(tmp_path: Path) -> None:
    offsets_handed_back(batches_of([BAD]), sent(), tmp_path / "part.parquet")
    assert list(tmp_path.iterdir()) == []


def test_rows_are_written_in_groups_and_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "part.parquet"
    monkeypatch.setattr(object_batches, "TOGETHER_BYTES", 0)
    offsets_handed_back(batches_of(*([GOOD] * 3 for _ in range(5))), sent(row_group_bytes=100), file)
    assert pq.read_metadata(file).num_row_groups > 1
    assert pq.read_table(file)["kafka_offset"].to_pylist() == list(range(15))
