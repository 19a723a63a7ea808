"""The directory of one spark-submit call on this machine: this user's alone, so no other user decides what runs."""

import shutil
import tempfile
from pathlib import Path

from kafka_ingest.model.attempt_directory import BEGUN, JobSettings

PACKAGE = "kafka_ingest.zip"
SETTINGS = "settings.json"


def make_workplace() -> Path:
    """Make the directory; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="kafka-ingest-"))


def equip(workplace: Path, package: bytes, settings: JobSettings) -> None:
    """Put there what the job is made of, and what it is told."""
    (workplace / PACKAGE).write_bytes(package)
    settings.write(workplace / SETTINGS)


def begun_in(workplace: Path) -> frozenset[int]:
    """Return which of its attempts the job has begun, by their places; none where it noted none."""
    try:
        return frozenset(map(int, (workplace / BEGUN).read_text(encoding="utf-8").split()))
    except (FileNotFoundError, ValueError):
        return frozenset()


def remove_workplace(workplace: Path, *, but: Path | None = None) -> None:
    """Remove the directory; or all files in it but one, where that one is in it."""
    if but is None or but.parent != workplace:
        shutil.rmtree(workplace, ignore_errors=True)
        return
    for each in workplace.iterdir():
        if each != but:
            each.unlink()
