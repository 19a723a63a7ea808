"""Descriptor sets: what `protoc` makes of `.proto` files, and the one message type of theirs that records are."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Final, Self

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError

from kafka_ingest.model.record_schema import WrongSchemaError

BUILT_IN: Final = "google/protobuf/"
WELL_KNOWN_PACKAGE: Final = "google.protobuf"
WELL_KNOWN_MODULES: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
MOST_FILES: Final = 1_000
NAMES_SHOWN: Final = 10


@dataclass(frozen=True)
class MessageSchema:
    """A message type, with the files that describe it: ``descriptors`` is a FileDescriptorSet, imports included."""

    message: str
    descriptors: bytes

    @property
    def text(self) -> str:
        """The schema as text, which :meth:`of_text` reads back."""
        return json.dumps({"message": self.message, "descriptors": b64encode(self.descriptors).decode()})

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read a schema's text."""
        document = json.loads(text)
        return cls(document["message"], b64decode(document["descriptors"]))

    @cached_property
    def descriptor(self) -> Descriptor:
        """The message type."""
        files = descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
        return pool_of({each.name: each for each in files}).FindMessageTypeByName(self.message)


def schema_of_set(content: bytes, message: str) -> MessageSchema:
    """Return a message type of a descriptor set; raises WrongSchemaError."""
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(content).file)
    except DecodeError:
        files = []
    if not files or not all(is_named(each) for each in files):
        raise WrongSchemaError(
            "expected a descriptor set, as `protoc --include_imports --descriptor_set_out=FILE` writes it, found none"
        )
    return schema_of_files({each.name: each for each in files}, message)


def schema_of_files(files: Mapping[str, descriptor_pb2.FileDescriptorProto], message: str) -> MessageSchema:
    """Return a message type of files, with those of the files that it needs; raises WrongSchemaError."""
    pool = pool_of(files)
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        known = sorted(name for each in files.values() for name in names_of(each) if not name.startswith("google."))
        shown = ", ".join(known[:NAMES_SHOWN]) + (", …" if len(known) > NAMES_SHOWN else "")
        raise WrongSchemaError(f"expected the message {message}, found {shown or 'no message'}") from None
    needed: dict[str, FileDescriptor] = {}
    collect_files(descriptor.file, needed)
    found = descriptor_pb2.FileDescriptorSet()
    for each in needed.values():
        each.CopyToProto(found.file.add())
    return MessageSchema(message, found.SerializeToString(deterministic=True))


def pool_of(files: Mapping[str, descriptor_pb2.FileDescriptorProto]) -> descriptor_pool.DescriptorPool:
    """Return a pool with files and what they import; raises WrongSchemaError."""
    if len(files) > MOST_FILES:
        raise WrongSchemaError(f"expected at most {MOST_FILES:,} files, found {len(files):,}")
    for each in files.values():
        check_well_known(each)
    pool, added = descriptor_pool.DescriptorPool(), set[str]()
    for name in files:
        add_file(name, files, pool, added, importing=())
    return pool


def is_named(file: descriptor_pb2.FileDescriptorProto) -> bool:
    """Whether a file has a name, and all names of files in it are text, which Protobuf's library does not check."""
    try:
        names: list[object] = [file.name, file.package, *file.dependency]
    except UnicodeDecodeError:
        return False
    return bool(file.name) and all(isinstance(each, str) for each in names)


def check_well_known(file: descriptor_pb2.FileDescriptorProto) -> None:
    """Raise WrongSchemaError where a file has a message called as one of Protobuf's own, with other fields.

    Libraries know these by their names, and read their fields without looking.
    """
    if file.package != WELL_KNOWN_PACKAGE:
        return
    own = {
        found.full_name: {(each.number, each.name, each.type, each.is_repeated) for each in found.fields}
        for module in WELL_KNOWN_MODULES
        for found in import_module(f"google.protobuf.{module}_pb2").DESCRIPTOR.message_types_by_name.values()
    }
    for message in file.message_type:
        name = f"{file.package}.{message.name}"
        fields = {(each.number, each.name, each.type, each.label == each.LABEL_REPEATED) for each in message.field}
        if name in own and fields != own[name]:
            raise WrongSchemaError(
                f"expected {name} as Protobuf itself brings it, found one with other fields in {file.name[:200]}"
            )


def add_file(
    name: str,
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
    pool: descriptor_pool.DescriptorPool,
    added: set[str],
    importing: tuple[str, ...],
) -> None:
    """Add a file to a pool, after those that it imports; raises WrongSchemaError."""
    if name in added:
        return
    if name in importing:
        raise WrongSchemaError(f"expected files that do not import themselves, found {name[:200]}, which does")
    file = files.get(name) or built_in(name)
    if file is None:
        raise WrongSchemaError(
            f"expected the file {name[:200]}, which {importing[-1][:200] if importing else 'the schema'} imports, in "
            "the descriptor set, found none: make it with --include_imports"
        )
    for imported in file.dependency:
        add_file(imported, files, pool, added, (*importing, name))
    try:
        pool.Add(file)
    except TypeError as error:
        raise WrongSchemaError(f"expected files that fit together, found {name[:200]}: {str(error)[:300]}") from None
    added.add(name)


def built_in(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return one of the files that Protobuf itself brings, such as google/protobuf/timestamp.proto."""
    stem = name.removeprefix(BUILT_IN).removesuffix(".proto")
    if stem == name or not stem.isidentifier():
        return None
    try:
        module = import_module(f"google.protobuf.{stem}_pb2")
    except ImportError:
        return None
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def collect_files(file: FileDescriptor, found: dict[str, FileDescriptor]) -> None:
    """Collect a file and what it imports, imports first."""
    if file.name in found:
        return
    for imported in file.dependencies:
        collect_files(imported, found)
    found[file.name] = file


def names_of(file: descriptor_pb2.FileDescriptorProto) -> Iterable[str]:
    """Yield the full names of a file's messages."""
    prefix = f"{file.package}." if file.package else ""
    waiting = [(f"{prefix}{each.name}", each) for each in file.message_type]
    for name, message in waiting:
        yield name
        waiting += [(f"{name}.{each.name}", each) for each in message.nested_type if not each.options.map_entry]
