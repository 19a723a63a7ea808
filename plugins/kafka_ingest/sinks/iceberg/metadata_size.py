"""How large a file of an Iceberg table's metadata may be, packed and unpacked. Importing this imports pyiceberg.

The library reads each as a whole. A packed file of some megabytes can be unpacked to thousands of times its size, so
that is tried first, a piece at a time.
"""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from importlib import import_module
from typing import IO, TYPE_CHECKING, cast

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.foreign_json import MOST_BYTES

if TYPE_CHECKING:
    from pyiceberg.io import InputStream

MOST_UNPACKED = 4 * MOST_BYTES
"""Of metadata with 100,000 snapshots, or a manifest of 500,000 files; engines begin another manifest at 8 MB."""
PIECE = 1024 * 1024
JSON, AVRO = ".metadata.json", ".avro"


def bounded(location: str, stream: "InputStream") -> "InputStream":
    """Return a file's stream at its beginning; raises OutputNotUsableError on metadata larger than any table's."""
    if not location.endswith((JSON, AVRO)):
        return stream
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    check(location, size, MOST_BYTES)
    unpacked = 0
    for piece in pieces(location, stream):
        unpacked += piece
        check(location, unpacked, MOST_UNPACKED)
    stream.seek(0)
    return stream


def check(location: str, found: int, most: int) -> None:
    """Raise OutputNotUsableError where so many bytes are too many."""
    if found > most:
        raise OutputNotUsableError(
            f"expected metadata of an Iceberg table of at most {most:,} bytes, found {found:,} or more in {location}. "
            "It was not used, nothing was written and no offset was moved. Expire snapshots or rewrite manifests of "
            "the table with an engine that has the memory; if it is not known who wrote that file, find out."
        )


def pieces(location: str, stream: "InputStream") -> Iterator[int]:
    """Yield how many bytes each piece of an unpacked file has; nothing of a file that is not packed."""
    if location.endswith(f".gz{JSON}"):
        yield from read_through(gzip.GzipFile(fileobj=cast("io.BufferedIOBase", stream)))
    elif location.endswith(AVRO):
        decoder = new_decoder(stream.read())
        header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        packing = header.meta.get(AVRO_CODEC_KEY)
        while True:
            try:
                decoder.read_int()
            except EOFError:
                return
            block = decoder.read_bytes()
            yield from unpacked_pieces(packing, block)
            decoder.skip(SYNC_SIZE)


def unpacked_pieces(packing: str | None, block: bytes) -> Iterator[int]:
    """Yield how many bytes each piece of an unpacked block has; of a packing that the library knows."""
    if packing == "zstandard":
        yield from read_through(import_module("zstandard").ZstdDecompressor().stream_reader(block))
    elif packing == "bzip2":
        yield from read_through(bz2.BZ2File(io.BytesIO(block)))
    elif packing == "deflate":
        unpacking = zlib.decompressobj(-15)
        while piece := unpacking.decompress(block, PIECE):
            yield len(piece)
            block = unpacking.unconsumed_tail


def read_through(unpacked: IO[bytes] | gzip.GzipFile) -> Iterator[int]:
    """Yield how many bytes each piece of a stream has."""
    while piece := unpacked.read(PIECE):
        yield len(piece)
