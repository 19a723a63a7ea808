"""Message indexes: in the wire format of registries, which of a schema's messages a value is.

Behind the schema's id stand the number of indexes and the indexes, as zigzag varints: the place of a message among
those of its file, then of the message inside of it. For the first message of a file, a single 0 stands for both.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from kafka_ingest.model.record_schema import WrongSchemaError

SEVEN_BITS: Final = 0x7F
MORE: Final = 0x80


def first_message(file: FileDescriptorProto) -> str:
    """Return the full name of a file's first message; raises WrongSchemaError."""
    if not file.message_type:
        raise WrongSchemaError("expected a schema with a message, found one without any")
    return full_name(file, [file.message_type[0].name])


def path_of(file: FileDescriptorProto, message: str) -> list[int]:
    """Return the indexes of a file's message; raises WrongSchemaError where the file does not have it."""
    package = f"{file.package}." if file.package else ""
    found: list[int] = []
    candidates: Sequence[DescriptorProto] = file.message_type
    for name in message.removeprefix(package).split(".") if message.startswith(package) else [""]:
        place = next((place for place, each in enumerate(candidates) if each.name == name), None)
        if place is None:
            raise WrongSchemaError(f"expected a schema with the message {message}, found one without it")
        found.append(place)
        candidates = candidates[place].nested_type
    return found


def paths_in(messages: Sequence[DescriptorProto]) -> Iterator[list[int]]:
    """Yield the indexes of all messages, those inside of others included."""
    for place, each in enumerate(messages):
        yield [place]
        yield from ([place, *inner] for inner in paths_in(each.nested_type))


def beginnings(path: Sequence[int]) -> list[bytes]:
    """Return how the bytes after a schema's id may begin, for a message with these indexes."""
    in_full = b"".join(zigzag(number) for number in (len(path), *path))
    return [b"\0", in_full] if list(path) == [0] else [in_full]


def zigzag(number: int) -> bytes:
    """Return a number, not negative, as a zigzag varint."""
    left, written = number << 1, bytearray()
    while left > SEVEN_BITS:
        written.append(left & SEVEN_BITS | MORE)
        left >>= 7
    written.append(left)
    return bytes(written)


def full_name(file: FileDescriptorProto, names: Sequence[str]) -> str:
    """Return the full name of a message of a file."""
    return ".".join([*([file.package] if file.package else []), *names])
