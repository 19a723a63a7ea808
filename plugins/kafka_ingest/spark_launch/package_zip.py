"""The part of this package that runs inside Spark, as a zip next to the attempt's document."""

import io
import zipfile
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
INSIDE_SPARK = (
    "__init__.py",
    "errors.py",
    "foundation",
    "message_types",
    "model",
    "ports/__init__.py",
    "ports/schemas.py",
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
