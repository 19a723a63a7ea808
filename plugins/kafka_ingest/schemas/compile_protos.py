"""Registered `.proto` files, compiled: registries keep Protobuf's schemas as text, or as serializers compiled them.

Confluent's own files, which a registry knows without their being registered, as it knows those of Google.

As in github.com/confluentinc/schema-registry, protobuf-provider/src/main/proto. ``confluent/meta.proto`` is not among
them: it has nothing but options, and files that are there for options alone are not needed.

Options that producers have defined for themselves are taken out of `.proto` text.

They say nothing of the bytes of a message. But `protoc` refuses a text that uses one without the file that defines it,
and a registry takes such a text.
"""

import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.model.schema_source import RegisteredSchema
from kafka_ingest.schemas.descriptor_sets import BUILT_IN, MOST_FILES, is_named

TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\d[\w.]*[eE][-+]\d+|[\w.]+|\s+|.""", re.DOTALL
)
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
BEFORE_STATEMENTS: Final = frozenset({";", "{", "}"})


def without_custom_options(text: str) -> str:
    """Return the text of a file without the options whose names stand in parentheses, and without comments."""
    found = [word for word in TOKEN.findall(text) if not word.isspace() and not word.startswith(("//", "/*"))]
    words, kept, before = iter(found), list[str](), ";"
    for word in words:
        if word == "[":
            kept += list_without_custom(words)
        elif word == "option" and before in BEFORE_STATEMENTS:
            statement = [word, *up_to(words, ";"), ";"]
            kept += [] if statement[1] == "(" else statement
        else:
            kept.append(word)
        before = kept[-1] if kept else ";"
    return " ".join(kept)


def list_without_custom(words: Iterator[str]) -> list[str]:
    """Return the options of a field, up to the bracket that ends them, and the brackets where any are left."""
    inside, options = iter([*up_to(words, "]"), ","]), list[list[str]]()
    while option := list(up_to(inside, ",")):
        options.append(option)
    kept = [each for each in options if each[0] != "("]
    return ["[", *[word for each in kept for word in (*each, ",")][:-1], "]"] if kept else []


def up_to(words: Iterator[str], end: str) -> Iterator[str]:
    """Yield what comes before a sign that stands in no brackets that begin after here, and pass over that sign."""
    depth = 0
    for word in words:
        if word == end and not depth:
            return
        depth += (word in OPENING) - (word in CLOSING)
        yield word


CONFLUENT: Final = {
    "confluent/type/decimal.proto": 'syntax = "proto3"; package confluent.type; '
    "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }",
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
    "confluent/type/variant.proto": 'syntax = "proto3"; package confluent.type; '
    "message Variant { bytes metadata = 1; bytes value = 2; }",
}
"""By the names under which they are imported; the second is an older name of the first."""

COMPILER: Final = "grpc_tools.protoc"
COMPILER_TIMEOUT_S: Final = 60
SAID: Final = 400
LOG_LINE: Final = r"WARNING: |[IWEF]\d{4} "
"""How lines of the compiler's own log begin; the others are about the files."""

LONGEST_NAME: Final = 255
"""Of a file with its folders, in bytes."""

MOST_KEPT: Final = 64
"""A schema is often both what is read and what was written."""

IMPORT: Final = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?(?:"([^"\n]*)"|'([^'\n]*)')""")


@lru_cache(maxsize=MOST_KEPT)
def files_of(found: RegisteredSchema, main: str) -> dict[str, FileDescriptorProto]:
    """Return a registered schema under the name ``main``, and what it refers to; raises WrongSchemaError."""
    texts = {**dict(found.references), main: found.text}
    if len(texts) > MOST_FILES:
        raise WrongSchemaError(f"expected a schema of at most {MOST_FILES:,} files, found {len(texts):,}")
    check_names({*CONFLUENT, *texts})
    compiled = {name: file for name, text in texts.items() if (file := serialized(text)) is not None}
    for name, file in compiled.items():
        file.name = name
    imported = {each for file in compiled.values() for each in file.dependency}
    known = {
        each: CONFLUENT.get(each, "")
        for each in imported - texts.keys()
        if not each.startswith(BUILT_IN) and is_known(each)
    }
    sources = known | {name: text for name, text in texts.items() if name not in compiled}
    return compiled_files(sources, compiled) if sources else compiled


def serialized(text: str) -> FileDescriptorProto | None:
    """Return a file that is registered as it was compiled; None where it is text."""
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return file if is_named(file) else None


def compiled_files(texts: dict[str, str], compiled: dict[str, FileDescriptorProto]) -> dict[str, FileDescriptorProto]:
    """Return files, some of which have to be compiled; raises WrongSchemaError."""
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-protos-") as directory:
        folder = Path(directory)
        known = FileDescriptorSet(file=compiled.values())
        (folder / "known").write_bytes(known.SerializeToString())
        for name, text in {**CONFLUENT, **texts}.items():
            if name not in compiled and text:
                write(folder / "protos" / name, text)
        if complaint := complaint_of_compiler(folder, sorted(texts), has_known=bool(compiled)):
            write_without_options(folder / "protos", texts, compiled)
            if complaint_of_compiler(folder, sorted(texts), has_known=bool(compiled)):
                raise WrongSchemaError(f"expected .proto files that can be compiled, found: {complaint}")
        made = FileDescriptorSet.FromString((folder / "made").read_bytes()).file
    return {**{each.name: each for each in made}, **compiled}


def write(path: Path, text: str) -> None:
    """Write a file; raises WrongSchemaError where it is no text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.write_text(text, encoding="utf-8")
    except UnicodeEncodeError:
        raise WrongSchemaError("expected .proto text of whole characters, found half of one (a surrogate)") from None


def write_without_options(protos: Path, texts: Mapping[str, str], compiled: Collection[str]) -> None:
    """Write files again as they mean the same without producers' own options.

    In the place of those that are nowhere is an empty one: most are imported for such options alone.
    """
    for name, text in texts.items():
        if text:
            write(protos / name, without_custom_options(text))
        for imported in ("".join(each) for each in IMPORT.findall(text)):
            if is_file_name(imported) and imported not in compiled and not is_known(imported):
                stand_in(protos / imported)


def stand_in(path: Path) -> None:
    """Make an empty file where there is none."""
    if not path.exists() and not any(each.is_file() for each in path.parents):
        write(path, "")


def is_known(name: str) -> bool:
    """Whether any schema may import a file without its being registered."""
    return is_file_name(name) and (name in CONFLUENT or any((folder / name).is_file() for folder in includes()))


def complaint_of_compiler(folder: Path, names: list[str], *, has_known: bool) -> str | None:
    """Let `protoc` compile files into one set; return what it says where it does not.

    Raises WrongSchemaError where it takes too long.
    """
    inputs = ["--descriptor_set_in=known"] if has_known else []
    command = [
        *(sys.executable, "-m", COMPILER, f"-I{folder / 'protos'}", *(f"-I{each}" for each in includes())),
        *("--include_imports", "--descriptor_set_out=made", *inputs, *names),
    ]
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WrongSchemaError(
            f"expected a schema that is compiled within {COMPILER_TIMEOUT_S} s, found one that is not"
        ) from None
    if ended.returncode == 0:
        return None
    lines = ended.stderr.replace(f"{folder / 'protos'}/", "").splitlines()
    said = " ".join(line for line in lines if not re.match(LOG_LINE, line))
    return said[:SAID] or f"the compiler ended with {ended.returncode}"


def includes() -> list[Path]:
    """Return the folders with the files that any schema may import: Protobuf's own, and Google's common ones."""
    folders = []
    if (compiler := find_spec("grpc_tools")) is not None:
        folders += [Path(each) / "_proto" for each in compiler.submodule_search_locations or ()]
    if (common := find_spec("google.type")) is not None:
        folders += [Path(each).parent.parent for each in common.submodule_search_locations or ()]
    return [folder for folder in folders if folder.is_dir()]


def check_names(names: Collection[str]) -> None:
    """Raise WrongSchemaError unless all names are those of files below one folder."""
    wrong = [name for name in names if not is_file_name(name)]
    folders = {str(folder) for name in names for folder in PurePosixPath(name).parents}
    if wrong := [*wrong, *folders.intersection(names)]:
        raise WrongSchemaError(f"expected references with the names of files below a folder, found {wrong[0][:200]!r}")


def is_file_name(name: str) -> bool:
    """Whether a name is that of a file below a folder, written in one way only."""
    path = PurePosixPath(name)
    is_plain = name.strip() and name.isprintable() and str(path) == name and name[0] not in "-@."
    return bool(is_plain) and not path.is_absolute() and ".." not in path.parts and len(name.encode()) <= LONGEST_NAME
