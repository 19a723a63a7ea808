"""An archive of the classes that the write job loads, which saves Java from reading and checking them again in each batch.

Java calls it application class-data sharing (JEP 350). It is made at set-up, for one Java and one class path; where there is none
that fits, or Java finds that it does not, classes are loaded as ever.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

KEY_LENGTH = 16


def java_binary(environment: Mapping[str, str], search_path: str) -> Path | None:
    """Return the Java that Spark's own scripts start: JAVA_HOME's, or the first on the search path."""
    if home := environment.get("JAVA_HOME"):
        found: str | None = str(Path(home) / "bin" / "java")
    else:
        found = shutil.which("java", path=search_path)
    return Path(found).resolve() if found is not None else None


def class_archive(java: Path, jars: Iterable[Path], folder: Path) -> Path:
    """Return where the archive of this Java and these jars lies, or would lie, in a folder.

    Its name depends on where they are, their sizes and when they were changed: what Java itself compares.
    """
    described = "\n".join(f"{file} {found.st_size} {found.st_mtime_ns}" for file, found in stats([java, *sorted(jars)]))
    return folder / f"classes-{hashlib.sha256(described.encode()).hexdigest()[:KEY_LENGTH]}.jsa"


def stats(files: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Return what the file system says of each file that is there."""
    for file in files:
        try:
            yield file, file.stat()
        except FileNotFoundError:
            continue
