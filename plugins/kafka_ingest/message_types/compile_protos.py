"""Registered `.proto` files, compiled: registries keep Protobuf's schemas as text, or as serializers compiled them."""

import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kafka_ingest.message_types.descriptor_sets import is_named
from kafka_ingest.model.record_schema import WrongSchemaError
from kafka_ingest.model.schema_source import RegisteredSchema

COMPILER: Final = "grpc_tools.protoc"
COMPILER_TIMEOUT_S: Final = 60
SAID: Final = 400
LOG_LINE: Final = r"WARNING: |[IWEF]\d{4} "
"""How lines of the compiler's own log begin; the others are about the files."""

MOST_KEPT: Final = 64
"""A schema is often both what is read and what was written."""

Files = dict[str, FileDescriptorProto]
"""By the names under which they import each other."""


@lru_cache(maxsize=MOST_KEPT)
def files_of(found: RegisteredSchema, main: str) -> Files:
    """Return a registered schema under the name ``main``, and what it refers to; raises WrongSchemaError."""
    texts = {main: found.text, **dict(found.references)}
    compiled = {name: of for name, text in texts.items() if (of := serialized(text)) is not None}
    if len(compiled) < len(texts):
        return compiled_files({name: text for name, text in texts.items() if name not in compiled}, compiled)
    for name, file in compiled.items():
        file.name = name
    return compiled


def serialized(text: str) -> FileDescriptorProto | None:
    """Return a file that is registered as it was compiled; None where it is text."""
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        return None
    return file if is_named(file) else None


def compiled_files(texts: dict[str, str], compiled: Files) -> Files:
    """Return files, some of which have to be compiled; raises WrongSchemaError."""
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-protos-") as directory:
        folder = Path(directory)
        for name, text in texts.items():
            path = folder / "protos" / checked(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        known = FileDescriptorSet()
        for name, file in compiled.items():
            file.name = name
            known.file.add().CopyFrom(file)
        (folder / "known").write_bytes(known.SerializeToString())
        run_compiler(folder, sorted(texts), has_known=bool(compiled))
        made = FileDescriptorSet.FromString((folder / "made").read_bytes()).file
    return {**{each.name: each for each in made}, **compiled}


def run_compiler(folder: Path, names: list[str], *, has_known: bool) -> None:
    """Let `protoc` compile files into one set; raises WrongSchemaError with what it says."""
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
    if ended.returncode != 0:
        lines = ended.stderr.replace(f"{folder / 'protos'}/", "").splitlines()
        said = " ".join(line for line in lines if not re.match(LOG_LINE, line))
        raise WrongSchemaError(f"expected .proto files that can be compiled, found: {said[:SAID]}")


def includes() -> list[Path]:
    """Return the folders with the files that any schema may import: Protobuf's own, and Google's common ones."""
    folders = []
    if (compiler := find_spec("grpc_tools")) is not None:
        folders += [Path(each) / "_proto" for each in compiler.submodule_search_locations or ()]
    if (common := find_spec("google.type")) is not None:
        folders += [Path(each).parent.parent for each in common.submodule_search_locations or ()]
    return [folder for folder in folders if folder.is_dir()]


def checked(name: str) -> PurePosixPath:
    """Return the name of a file as a path below a folder; raises WrongSchemaError."""
    path = PurePosixPath(name)
    if not name.strip() or not name.isprintable() or path.is_absolute() or ".." in path.parts or name[0] in "-@":
        raise WrongSchemaError(f"expected references with the names of files below a folder, found {name[:200]!r}")
    return path
