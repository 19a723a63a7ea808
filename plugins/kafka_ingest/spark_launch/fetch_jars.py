"""Fetch jars and check them: from a repository as Maven lays it out, or from a folder where there is no internet.

A jar has its name only once its SHA-256 was found right. Two calls at once wait for one another.
"""

import fcntl
import hashlib
import json
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import requests

from kafka_ingest.errors import InstallationError, JarsUnavailableError
from kafka_ingest.foundation.durable_files import sync, temporary_beside
from kafka_ingest.spark_launch.installation import CONNECTOR_FOLDER, jars_root

KNOWN: Final = Path(__file__).with_name("jars.json")
"""By Spark's version and by what needs them, the jars' paths as in Maven Central; and of each path the SHA-256. Those
of stores are known for the versions that were tried with them."""


def jars_for(spark_version: str, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return what each of these needs with a version of Spark: paths in Maven Central, with their SHA-256.

    Raises InstallationError where that is not known.
    """
    known = known_jars()
    versions, sums = known["versions"], known["sha256"]
    if spark_version not in versions:
        raise InstallationError(
            f"expected a Spark whose jars are known ({', '.join(versions)}), found {spark_version}. Install one of "
            f"these, or put the connector of {spark_version} into {jars_root() / CONNECTOR_FOLDER} yourself."
        )
    of_version = versions[spark_version]
    if unknown := [name for name in names if name not in of_version]:
        those = [version for version, known_names in versions.items() if set(names) <= set(known_names)]
        raise InstallationError(
            f"expected some of {', '.join(of_version)}, whose jars for Spark {spark_version} are known, found "
            f"{', '.join(unknown)}. Install a Spark for which all are known ({', '.join(those) or 'there is none'})."
        )
    return {name: {path: sums[path] for path in of_version[name]} for name in names}


@cache
def known_jars() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return found


MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
TIMEOUT_S: Final = 60
CHUNK_BYTES: Final = 1 << 20

Source = Callable[[str], Iterable[bytes]]
"""Yields a jar's bytes, by its path; raises JarsUnavailableError."""


def fetch_jars(wanted: Mapping[str, Mapping[str, str]], root: Path, source: Source) -> dict[str, list[str]]:
    """Bring each folder's jars below ``root``; returns the names of those that were fetched.

    What is there already, with the right sum, is left alone; other versions of the same modules are removed. Raises
    InstallationError for a folder that cannot be written, or a jar that is another one.
    """
    fetched: dict[str, list[str]] = {}
    try:
        for name, jars in wanted.items():
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            with alone_in(folder):
                missing = [path for path, sha256 in jars.items() if sum_of(folder / Path(path).name) != sha256]
                for path in missing:
                    fetch(path, jars[path], folder, source)
                remove_others(folder, jars)
                fetched[name] = [Path(path).name for path in missing]
    except OSError as error:
        raise InstallationError(
            f"expected to be able to write the jars into {root}, found: {error}. Set KAFKA_INGEST_JARS to a folder "
            "that this user may write, and that tasks may read, for the tasks, too."
        ) from error
    return fetched


def fetch(path: str, sha256: str, folder: Path, source: Source) -> None:
    """Fetch one jar: under another name first, which goes away where anything fails."""
    target = folder / Path(path).name
    temporary = temporary_beside(target)
    found = hashlib.sha256()
    try:
        with temporary.open("xb") as file:
            for chunk in source(path):
                found.update(chunk)
                file.write(chunk)
        if found.hexdigest() != sha256:
            raise InstallationError(
                f"expected {target.name} with SHA-256 {sha256}, found {found.hexdigest()}. It was not kept. Look at "
                "what the repository or the folder holds under that name."
            )
        sync(temporary)
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync(folder)


def remove_others(folder: Path, jars: Mapping[str, str]) -> None:
    """Remove other versions of the jars: of two on a class path Java would take either."""
    kept = {Path(path).name for path in jars}
    modules = {Path(path).parent.parent.name for path in jars}
    for found in folder.glob("*.jar"):
        if found.name not in kept and found.name.rpartition("-")[0] in modules:
            found.unlink()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for another call in this folder, and remove what a killed one left."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in folder.glob(".*.jar.*.tmp"):
            left.unlink()
        yield
    finally:
        os.close(descriptor)


def sum_of(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def from_folder(folder: Path) -> Source:
    """Return what reads jars from a folder, where they lie side by side or as in a repository of Maven."""

    def read(path: str) -> Iterator[bytes]:
        found = next((each for each in (folder / Path(path).name, folder / path) if each.is_file()), None)
        if found is None:
            raise InstallationError(
                f"expected {Path(path).name} in {folder}, or {path} below it, found neither. It is at "
                f"{MAVEN_CENTRAL}/{path}."
            )
        with found.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return read


def from_repository(address: str) -> Source:
    """Return what reads jars from a repository; a name and a password may stand in its address, or in ``~/.netrc``."""
    if urlsplit(address).scheme not in {"http", "https"} or not urlsplit(address).hostname:
        raise InstallationError(f"expected https://… of a repository, as {MAVEN_CENTRAL}; a folder: --from")
    host = urlsplit(address).hostname
    session = requests.Session()
    # The machine's certificates, as pip and Java use them: a company's proxy may sign with its own.
    session.verify = ssl.get_default_verify_paths().cafile or True

    def read(path: str) -> Iterator[bytes]:
        try:
            with session.get(f"{address.rstrip('/')}/{path}", stream=True, timeout=TIMEOUT_S) as answer:
                answer.raise_for_status()
                yield from answer.iter_content(CHUNK_BYTES)
        except requests.RequestException as error:
            status = error.response.status_code if error.response is not None else type(error).__name__
            raise JarsUnavailableError(
                f"expected {path} from {host}, found {status}. Nothing of it was kept. Try again, name a repository "
                "that this machine reaches with --repository, or a folder with the jars with --from."
            ) from error

    return read
