"""The directory of one spark-submit call on this machine: this user's alone, so no other user decides what runs.

It has the part of this package that runs inside Spark, as a zip.
"""

import io
import shutil
import tempfile
import zipfile
from pathlib import Path

from kafka_ingest.model.place import BEGUN, JobSettings

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
INSIDE_SPARK = (
    "__init__.py",
    "errors.py",
    "foundation",
    "model",
    "ports/__init__.py",
    "ports/schemas.py",
    "schemas",
    "writing",
)


OLDEST_DATE = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can hold."""

READABLE_BY_ALL = 0o644


def package_zip() -> bytes:
    """Return the zip, with ``kafka_ingest/`` at its root: the same sources give the same bytes, at any date and mode.

    A zip holds dates from 1980 to 2107 only, and package builders and container images set others
    (``SOURCE_DATE_EPOCH=0``).
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in INSIDE_SPARK:
            source = PACKAGE_ROOT / name
            for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
                entry = zipfile.ZipInfo(str(Path("kafka_ingest") / file.relative_to(PACKAGE_ROOT)), OLDEST_DATE)
                entry.external_attr = READABLE_BY_ALL << 16
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


PACKAGE = "kafka_ingest.zip"
SETTINGS = "settings.json"


def make_workplace() -> Path:
    """Make the directory; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="kafka-ingest-"))


def equip(workplace: Path, package: bytes, settings: JobSettings) -> None:
    """Put the package and the job's settings there."""
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
