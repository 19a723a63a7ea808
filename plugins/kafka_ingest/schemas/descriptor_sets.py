"""Descriptor sets: what `protoc` makes of `.proto` files, and the one message type of theirs that records are."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from typing import Final, Self

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafka_ingest.model.record_schema import WrongSchemaError

BUILT_IN: Final = "google/protobuf/"
WELL_KNOWN_PACKAGE: Final = "google.protobuf"
WELL_KNOWN_MODULES: Final = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
RESERVED: Final = range(19_000, 20_000)
"""Numbers that Protobuf keeps for itself."""

ENTRY: Final = [(1, "key", True), (2, "value", True)]
NO_KEYS: Final = frozenset(
    getattr(FieldDescriptorProto, f"TYPE_{name}") for name in ("DOUBLE", "FLOAT", "BYTES", "ENUM", "MESSAGE", "GROUP")
)
"""Types of which a map's keys cannot be."""

MOST_FILES: Final = 1_000
NAMES_SHOWN: Final = 10

Files = Mapping[str, FileDescriptorProto]
"""By the names under which they import each other."""


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
        files = FileDescriptorSet.FromString(self.descriptors).file
        return pool_of({each.name: each for each in files}).FindMessageTypeByName(self.message)


def schema_of_set(content: bytes, message: str) -> MessageSchema:
    """Return a message type of a descriptor set; raises WrongSchemaError."""
    try:
        files = list(FileDescriptorSet.FromString(content).file)
    except DecodeError:
        files = []
    if not files or not all(is_named(each) for each in files):
        raise WrongSchemaError(
            "expected a descriptor set, as `protoc --include_imports --descriptor_set_out=FILE` writes it, found none"
        )
    return schema_of_files({each.name: each for each in files}, message)


def schema_of_files(files: Files, message: str) -> MessageSchema:
    """Return a message type of files, with those of the files that it needs; raises WrongSchemaError."""
    ordered = in_order(files)
    pool = pool_of(ordered)
    try:
        descriptor = pool.FindMessageTypeByName(message)
    except KeyError:
        known = sorted(name for each in files.values() for name in names_of(each) if not name.startswith("google."))
        shown = ", ".join(known[:NAMES_SHOWN]) + (", …" if len(known) > NAMES_SHOWN else "")
        raise WrongSchemaError(f"expected the message {message}, found {shown or 'no message'}") from None
    needed, waiting = set[str](), [descriptor.file.name]
    while waiting:
        if (name := waiting.pop()) not in needed:
            needed.add(name)
            waiting += ordered[name].dependency
    found = FileDescriptorSet()
    for name in ordered:
        if name in needed:
            pool.FindFileByName(name).CopyToProto(found.file.add())
    return MessageSchema(message, found.SerializeToString(deterministic=True))


def in_order(files: Files) -> Files:
    """Return files with what they import, imports first; raises WrongSchemaError.

    In the place of one that is not there is an empty one: most are imported for options alone, which say nothing of the
    bytes of a message.
    """
    if len(files) > MOST_FILES:
        raise WrongSchemaError(f"expected at most {MOST_FILES:,} files, found {len(files):,}")
    found: dict[str, FileDescriptorProto] = {}
    waiting = list(files)
    while waiting:
        if (name := waiting.pop()) not in found:
            found[name] = files.get(name) or built_in(name) or FileDescriptorProto(name=name)
            waiting += found[name].dependency
    try:
        order = tuple(TopologicalSorter({name: file.dependency for name, file in found.items()}).static_order())
    except CycleError as error:
        raise WrongSchemaError(
            f"expected files that do not import themselves, found {error.args[1][0][:200]}, which does"
        ) from None
    return {name: found[name] for name in order}


def pool_of(ordered: Files) -> descriptor_pool.DescriptorPool:
    """Return a pool with files, each of which comes after those that it imports; raises WrongSchemaError."""
    pool = descriptor_pool.DescriptorPool()
    for name, file in ordered.items():
        try:
            pool.Add(file)
        except TypeError as error:
            for imported in file.dependency:
                if ordered[imported] == FileDescriptorProto(name=imported):
                    raise WrongSchemaError(
                        f"expected the file {imported[:200]}, which {name[:200]} imports, in the descriptor set, found "
                        "none: make it with --include_imports"
                    ) from None
            raise WrongSchemaError(
                f"expected files that fit together, found {name[:200]}: {str(error)[:300]}"
            ) from None
        check_well_known(file)
        check_messages(file)
    return pool


def is_named(file: FileDescriptorProto) -> bool:
    """Whether a file has a name, and all names of files in it are text, which Protobuf's library does not check."""
    try:
        names: list[object] = [file.name, file.package, *file.dependency, *(each.name for each in file.message_type)]
    except UnicodeDecodeError:
        return False
    return bool(file.name) and all(isinstance(each, str) for each in names)


def check_well_known(file: FileDescriptorProto) -> None:
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


def built_in(name: str) -> FileDescriptorProto | None:
    """Return one of the files that Protobuf itself brings, such as google/protobuf/timestamp.proto."""
    stem = name.removeprefix(BUILT_IN).removesuffix(".proto")
    if stem == name or not stem.isidentifier():
        return None
    try:
        module = import_module(f"google.protobuf.{stem}_pb2")
    except ImportError:
        return None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def check_messages(file: FileDescriptorProto) -> None:
    """Raise WrongSchemaError where messages have what `protoc` refuses, and Protobuf's library here does not."""
    waiting = list(file.message_type)
    for message in waiting:
        waiting += message.nested_type
        if reserved := [each.name for each in message.field if each.number in RESERVED]:
            raise WrongSchemaError(f"expected numbers that Protobuf leaves to fields, found another for {reserved[0]}")
        fields = sorted((each.number, each.name, each.label == each.LABEL_OPTIONAL) for each in message.field)
        is_no_key = any(each.number == 1 and each.type in NO_KEYS for each in message.field)
        if message.options.map_entry and (fields != ENTRY or is_no_key):
            raise WrongSchemaError(f"expected entries of a map with a key and a value, found others in {message.name}")


def names_of(file: FileDescriptorProto) -> Iterable[str]:
    prefix = f"{file.package}." if file.package else ""
    waiting = [(f"{prefix}{each.name}", each) for each in file.message_type]
    for name, message in waiting:
        yield name
        waiting += [(f"{name}.{each.name}", each) for each in message.nested_type if not each.options.map_entry]
