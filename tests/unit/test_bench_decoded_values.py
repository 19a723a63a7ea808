"""The benchmark's records of ten fields: what serializers made of them, and a checksum that knows every value."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import order_templates
import pyarrow as pa
import pyarrow.parquet
import pytest
from decoded_values import decoded
from order_serializers import message_class, serializer
from order_templates import numbered, templates
from order_values import AVRO_SCHEMA, FORMATS, NAMES, whole
from positions import METADATA, Positions, positions_in
from talking import BenchmarkError
from topic_data import TopicData

from schema_registry import SchemaRegistryServer, running_schema_registry

DATA = TopicData("orders", 7, partitions=2, form="json")
ENDS = DATA.end_offsets()
POSITION_TYPES = {"partition": pa.int32(), "offset": pa.int64(), "quantity": pa.int32()}


@pytest.fixture(autouse=True)
def few_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_templates, "TEMPLATES", 300)


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with running_schema_registry() as server:
        yield server


def rows() -> list[dict[str, Any]]:
    """Return the records of the topic as they should be stored."""
    made = templates(DATA)
    orders = [
        (partition, whole(number, template.rest))
        for partition, count in DATA.counts().items()
        for first, chosen in numbered(DATA, partition, count, made)
        for number, template in enumerate(chosen, first)
    ]
    places = [(partition, offset) for partition, count in DATA.counts().items() for offset in range(count)]
    return [
        {**dict.fromkeys(METADATA, "x"), "key": b"x", **order, "partition": partition, "offset": offset}
        for (partition, order), (_, offset) in zip(orders, places, strict=True)
    ]


def stored(found: list[dict[str, Any]], directory: Path) -> Positions:
    columns = {name: pa.array([row[name] for row in found], POSITION_TYPES.get(name)) for name in found[0]}
    pyarrow.parquet.write_table(pa.table(columns), directory / "a.parquet")
    return positions_in([directory / "a.parquet"], NAMES)


def test_what_is_stored_as_it_was_made_has_the_expected_checksum_in_any_order(tmp_path: Path) -> None:
    assert stored(rows(), tmp_path) == stored(rows()[::-1], tmp_path) == decoded(DATA, ENDS)


@pytest.mark.parametrize("name", NAMES)
def test_one_other_value_of_any_field_has_another_checksum(name: str, tmp_path: Path) -> None:
    found = rows()
    other = {bool: lambda each: not each, str: lambda each: each + " "}.get(type(found[3][name]), lambda each: each + 1)
    found[3][name] = other(found[3][name])

    assert stored(found, tmp_path).checksum != decoded(DATA, ENDS).checksum


@pytest.mark.parametrize("name", ["order_id", "note"])
def test_values_that_are_swapped_between_records_have_another_checksum(name: str, tmp_path: Path) -> None:
    found = rows()
    found[1][name], found[2][name] = found[2][name], found[1][name]

    assert stored(found, tmp_path).checksum != decoded(DATA, ENDS).checksum


def test_a_null_is_refused_with_its_field(tmp_path: Path) -> None:
    found = rows()
    found[0]["paid"] = None

    with pytest.raises(BenchmarkError, match=r"expected a value of each field in .*, found nulls in paid"):
        stored(found, tmp_path)


def test_a_missing_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"expected topic, .*, placed_ms, note in .*: all write the same"):
        stored([{name: value for name, value in row.items() if name != "note"} for row in rows()], tmp_path)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_holds_the_same_values_behind_an_id_where_its_schema_is_registered(
    form: str, registry: SchemaRegistryServer
) -> None:
    order = whole(1_000_000_000, templates(DATA)[0].rest)
    written = serializer(form, "orders", registry.url)(order)
    assert written is not None

    if form == "json":
        assert json.loads(written) == order
        return
    schema_id = int.from_bytes(written[1:5])
    assert (written[0], registry.subjects["orders-value"][-1]) == (0, schema_id)
    if form == "avro":
        assert fastavro.schemaless_reader(io.BytesIO(written[5:]), json.loads(AVRO_SCHEMA), None) == order
    else:
        message = message_class().FromString(written[6:])  # behind the index 0 of the message
        assert {name: getattr(message, name) for name in NAMES} == order
