"""The part of this package that runs inside Spark, as a zip for ``--py-files``."""

import zipfile
from pathlib import Path

PACKAGE_ROOT = Path(__file__).resolve().parents[1]
INSIDE_SPARK = (
    "__init__.py",
    "attempt_directory.py",
    "batch.py",
    "durable_files.py",
    "errors.py",
    "offsets.py",
    "receipt.py",
    "without_garbage_collection.py",
    "writing",
)


def write_package_zip(path: Path) -> None:
    """Write the zip, with ``kafka_ingest/`` at its root."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in INSIDE_SPARK:
            source = PACKAGE_ROOT / name
            for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
                archive.write(file, Path("kafka_ingest") / file.relative_to(PACKAGE_ROOT))
