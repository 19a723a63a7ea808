"""Metadata of an Iceberg table is read where it is as large as a table's can be, packed and unpacked."""

import bz2
import gzip
import io
import zlib
from collections.abc import Callable

import pytest
import zstandard

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.sinks.iceberg import table_io
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings, named_errors
from kafka_ingest.sinks.iceberg.table_io import bounded

TABLE = "file:///lake/orders/metadata"


def deflate(content: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(content) + packing.flush()


def number(value: int) -> bytes:
    """Return a whole number as Avro writes it."""
    value, found = value << 1, b""
    while value >= 0x80:
        value, found = value >> 7, found + bytes([value & 0x7F | 0x80])
    return found + bytes([value])


def text(content: bytes) -> bytes:
    return number(len(content)) + content


def manifest(packing: str, *blocks: bytes) -> bytes:
    """Return an Avro file with blocks of one record each."""
    header = b"Obj\x01" + number(1) + text(b"avro.codec") + text(packing.encode()) + number(0) + b"s" * 16
    return header + b"".join(number(1) + text(block) + b"s" * 16 for block in blocks)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "deflate": deflate,
    "zstandard": zstandard.ZstdCompressor().compress,
    "bzip2": bz2.compress,
}


@pytest.mark.parametrize("packing", PACKED)
def test_a_manifest_is_read_up_to_the_limit_of_all_its_unpacked_blocks_together(
    packing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_io, "MOST_UNPACKED", 3_000_000)
    pack = PACKED[packing]
    fits = manifest(packing, pack(b"a" * 1_500_000), pack(b"b" * 1_500_000))
    assert bounded(f"{TABLE}/x-m0.avro", io.BytesIO(fits)).read() == fits

    bomb = manifest(packing, pack(b"a" * 1_500_000), pack(b"b" * 1_500_001))
    assert len(bomb) < 10_000
    with pytest.raises(OutputNotUsableError, match=r"at most 3,000,000 bytes, found .* or more in file:.*x-m0\.avro"):
        bounded(f"{TABLE}/x-m0.avro", io.BytesIO(bomb))


def test_a_packed_metadata_file_is_read_up_to_the_same_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_io, "MOST_UNPACKED", 3_000_000)
    fits, bomb = gzip.compress(bytes(3_000_000)), gzip.compress(bytes(3_000_001))
    assert bounded(f"{TABLE}/1.gz.metadata.json", io.BytesIO(fits)).read() == fits
    with pytest.raises(OutputNotUsableError, match=r"at most 3,000,000 bytes, found .*no offset was moved"):
        bounded(f"{TABLE}/1.gz.metadata.json", io.BytesIO(bomb))


@pytest.mark.parametrize("packing", PACKED)
def test_a_damaged_manifest_is_a_failure_of_the_storage(packing: str) -> None:
    for damaged in (manifest(packing, b"\xff\xff\xff"), b"Obj"):
        with pytest.raises(OutputUnavailableError), named_errors("it", CatalogSettings("lake", "lake", {})):
            bounded(f"{TABLE}/x-m0.avro", io.BytesIO(damaged))


@pytest.mark.parametrize("name", ["1.metadata.json", "x-m0.avro", "1.gz.metadata.json"])
def test_a_file_that_is_too_large_as_it_is_is_not_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_io, "MOST_BYTES", 1_000)
    with pytest.raises(OutputNotUsableError, match=f"at most 1,000 bytes, found 1,001 or more in .*{name}"):
        bounded(f"{TABLE}/{name}", io.BytesIO(b"x" * 1_001))
    assert bounded(f"{TABLE}/00000.parquet", io.BytesIO(b"x" * 1_001)).read() == b"x" * 1_001
