"""How PyIceberg reads and writes a table's files: durably on a disk, and in a store as all that is there.

Each file of metadata is durable before a catalog names it: otherwise a power cut shortly after a commit could leave a
catalog that names an empty file, and no reader could open the table. In a store it is one put, with the client, the
credentials and the limits of the connection. Named by its path in the catalog's properties (``py-io-impl``). Importing
this imports pyiceberg, without pyarrow, for which a plan would wait: the library's own reads data files on a disk.

What is in the table's own place may be read, written and deleted, whatever its metadata names: that is data which
others can write, and its log of metadata and its properties name places and classes. The library reads each file of it
as a whole. A packed one of some megabytes can be unpacked to thousands of times its size, so that is tried first, a
piece at a time.
"""

import bz2
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import IO, Any, cast

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.foundation.foreign_json import MOST_BYTES
from kafka_ingest.foundation.storage import Opened, access_from_json, opened, size_of
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place, RemotePlace
from kafka_ingest.sinks.iceberg.places import METADATA, comparable, location_of, path_of

PLACE, ACCESS = "kafka_ingest.place", "kafka_ingest.store"
"""The properties of a catalog's files that say where the table is, and how to reach its store.

The second holds secrets, and stays in this process.
"""

CHOOSES = re.compile(r"(?:write\.)?py-|s3\.retry-strategy-impl$|write\.(?:.+\.path$|object-storage\.)")
"""Properties by which the library imports and calls a class, or writes elsewhere than a table's own folders.

A test looks for all that the library imports by a name.
"""

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
MADE = re.compile(rf"\d+-{UUID}(?:\.gz)?\.metadata\.json|{UUID}-m\d+\.avro|snap-\d+-\d+-{UUID}\.avro")
"""How the library, and the format's own, name metadata, manifests and lists of manifests."""


def check_chooses_nothing(properties: Mapping[str, str]) -> None:
    """Raise OutputNotUsableError where a table's properties choose classes of Python or other places for its files."""
    if chosen := sorted(filter(CHOOSES.match, properties)):
        raise OutputNotUsableError(
            f"expected an Iceberg table whose properties leave to this program how and where files are written, found "
            f"the property {chosen[0]}. Nothing of it was used, nothing was written and no offset was moved. If it is "
            f"not known who set it, find out; remove it by ALTER TABLE … UNSET TBLPROPERTIES ('{chosen[0]}')."
        )


def properties_of(output: Place, access: StoreAccess | None = None) -> dict[str, str]:
    """Return the properties that say where a table is; ``access`` leads to its store, None on a disk."""
    return {PLACE: location_of(output), **({ACCESS: access.as_json()} if access is not None else {})}


def check_inside(location: str, properties: Mapping[str, Any]) -> None:
    """Raise OutputNotUsableError where a file is not below the table's place."""
    root = properties[PLACE]
    if is_below(location, root):
        return
    raise OutputNotUsableError(
        f"expected an Iceberg table whose files are all below {root}, found that its metadata names {location}. That "
        "was neither read nor written, and no offset was moved. Set sink.path to the table's location, or sink.table "
        "to another, or rewrite the table's files with an engine that puts them there."
    )


def is_below(location: str, root: str) -> bool:
    """Whether a location is in a place, or in a directory by another name of it, wherever symbolic links lead."""
    path, folder = path_of(location), path_of(root)
    if ".." in location.split("/"):
        return False
    if path is None or folder is None:
        return path is folder and (comparable(location) or "").startswith(f"{comparable(root)}/")
    return folder.resolve() in path.resolve().parents


def check_deletable(location: str, properties: Mapping[str, Any]) -> None:
    """Raise PermissionError where a file is not the table's own metadata, by a name that the library gives it.

    Those who delete leave a file that cannot be deleted to ``remove_orphan_files``.
    """
    root: str = properties[PLACE]
    folder = f"{root}/{METADATA}"
    if not (is_below(location, root) and is_below(location, folder) and MADE.fullmatch(location.rpartition("/")[2])):
        raise PermissionError(f"expected metadata of the table in {folder}, found {location}")


DATA_FILE = ".parquet"


class TableFileIO(FileIO):
    """Reads and writes the files of one table."""

    def new_input(self, location: str) -> InputFile:
        check_inside(location, self.properties)
        path = self.opened(location)
        is_data = isinstance(path, Path) and path.suffix == DATA_FILE
        return self._of_the_library.new_input(location) if is_data else TableFile(location, path)

    def new_output(self, location: str) -> OutputFile:
        check_inside(location, self.properties)
        return TableFile(location, self.opened(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        check_deletable(name, self.properties)
        path = self.opened(name)
        path.unlink() if isinstance(path, Path) else path.fs.rm(path.path)

    def opened(self, location: str) -> Opened:
        """Return what reads and writes at a location, which engines may call by another scheme of the store."""
        path = path_of(location)
        return path if path is not None else opened(RemotePlace(comparable(location) or location), self._access)

    @cached_property
    def _access(self) -> StoreAccess | None:
        return access_from_json(self.properties[ACCESS]) if ACCESS in self.properties else None

    @cached_property
    def _of_the_library(self) -> FileIO:
        found: FileIO = import_module("pyiceberg.io.pyarrow").PyArrowFileIO()
        return found


class TableFile(InputFile, OutputFile):
    """One file."""

    def __init__(self, location: str, path: Opened) -> None:
        super().__init__(location)
        self._path = path

    def __len__(self) -> int:
        return size_of(self._path)

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - the library's own signature
        return bounded(self.location, self._path.open("rb"))

    def to_input_file(self) -> InputFile:
        return self

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - the library's own signature
        """Open it for writing; raises FileExistsError where it may not be overwritten.

        In a store, closing it puts it as a whole, and the store itself refuses to overwrite. The library would ask
        first, which is two requests more, and prevents nothing.
        """
        if isinstance(self._path, Path):
            make_directory_durably(self._path.parent)
            return DurableStream(self._path, overwrite=overwrite)
        stream: OutputStream = self._path.fs.open(self._path.path, "wb" if overwrite else "xb")
        return stream


class DurableStream(io.BufferedWriter):
    """Writes a file whose content and name are on the disk once it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        sync(self._path.parent)


FILE_IO = "kafka_ingest.sinks.iceberg.table_io.TableFileIO"


@dataclass(frozen=True, slots=True)
class Files:
    """What reads and writes the files of the table in ``output``, and no others.

    The library lets properties of a table, or of a server, name the class that does so, and how it does it. It would be
    imported, and nothing would be flushed, or put with the store's credentials. Here the connection's properties count
    alone.
    """

    own: Mapping[str, Any]
    access: StoreAccess | None
    output: Place

    def properties(self, offered: Mapping[str, str] = EMPTY_DICT) -> dict[str, Any]:
        """Return the connection's properties; credentials that a catalog offers are used where the store has none."""
        access = self.access.with_offered(offered) if self.access is not None else None
        return {**self.own, "py-io-impl": FILE_IO, **properties_of(self.output, access)}

    def io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        """Return what reads and writes a table's files, in the library's place: it asks for each table that it loads.

        Raises OutputNotUsableError where the table's properties choose something else.
        """
        del location  # all files are in the one place
        check_chooses_nothing(properties)
        return load_file_io(self.properties())


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
    while piece := unpacked.read(PIECE):
        yield len(piece)
