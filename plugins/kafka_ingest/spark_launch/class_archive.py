"""An archive of the classes that the write job loads, so that Java need not read and verify them again in each batch.

Java calls it application class-data sharing (JEP 350). It is made at set-up, for one Java and one class path; without a
matching archive, classes are loaded as usual.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OWNER_LENGTH = 8
KEY_LENGTH = 16

JAVAS_OWN = Path("lib", "server", "classes.jsa")
"""The archive of Java's own classes, on which another one is built: it fits no other."""


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Where the archive for one Java and one class path is, or would be: ``classes-OWNER-KEY-SIZE.jsa``.

    ``owner`` identifies where Java and its jars are, ``key`` their versions: after an upgrade a new archive replaces
    the former one. The size shows that an archive is complete: Java maps a truncated one unchecked, and crashes
    (SIGBUS).
    """

    folder: Path
    owner: str
    key: str

    @classmethod
    def of(cls, java: Path, jars: Iterable[Path], folder: Path) -> "ArchivePlace":
        """Return the place in a folder. It depends on what Java compares: paths, sizes, and times of change in seconds.

        A container's image keeps no finer times.
        """
        jars = sorted(jars)
        folders = sorted({str(jar.parent) for jar in jars})
        return cls(
            folder,
            owner=short_hash([str(java), *folders], OWNER_LENGTH),
            key=short_hash(described([java, java.parents[1] / JAVAS_OWN, *jars]), KEY_LENGTH),
        )

    @property
    def failed_log(self) -> Path:
        """The log of a failed try to make an archive; it exists only after such a failure."""
        return self.folder / f"{self._prefix}.log"

    def file(self, size: int) -> Path:
        return self.folder / f"{self._prefix}-{size}.jsa"

    def archive(self) -> Path | None:
        """Return the archive, if there is an intact one."""
        return next((file for file, found in self._archives() if file == self.file(found.st_size)), None)

    def damaged(self) -> Path | None:
        """Return a damaged archive, if there is one."""
        return next((file for file, found in self._archives() if file != self.file(found.st_size)), None)

    def former_files(self, archive: Path) -> list[Path]:
        """Return the files that an archive replaces: the owner's other archives, logs, and an interrupted set-up's."""
        return [file for file in self.folder.glob(f"classes-{self.owner}-*") if file != archive]

    @property
    def _prefix(self) -> str:
        return f"classes-{self.owner}-{self.key}"

    def _archives(self) -> Iterator[tuple[Path, os.stat_result]]:
        found = stats(sorted(self.folder.glob(f"{self._prefix}-*.jsa")))
        return ((file, status) for file, status in found if stat.S_ISREG(status.st_mode))


def java_binary(environment: Mapping[str, str], search_path: str) -> Path | None:
    """Return the Java that Spark's own scripts start: JAVA_HOME's, or the first on the search path."""
    if home := environment.get("JAVA_HOME"):
        found: str | None = str(Path(home) / "bin" / "java")
    else:
        found = shutil.which("java", path=search_path)
    return Path(found).resolve() if found is not None else None


def described(files: Iterable[Path]) -> list[str]:
    """Return a line for each file: its path, its size and when it was changed."""
    return [f"{file} {found.st_size} {int(found.st_mtime)}" for file, found in stats(files)]


def short_hash(lines: Iterable[str], length: int) -> str:
    """Return the first digits of the lines' SHA-256."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:length]


def stats(files: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    """Return the file system's data on each file that exists."""
    for file in files:
        try:
            yield file, file.stat()
        except OSError:  # removed, or a dangling link: everything works without it
            continue
