"""The zip that the job imports the package from: complete, and free of everything that Spark's machines do not have."""

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from kafka_ingest.spark_launch import workplace as zipping
from kafka_ingest.spark_launch.workplace import INSIDE_SPARK, PACKAGE_ROOT

NOT_INSIDE_SPARK = {"airflow", "sqlalchemy", "alembic", "confluent_kafka", "pydantic", "yaml", "typer", "rich"}

IMPORT_FROM_ZIP = """
import sys
sys.path.insert(0, sys.argv[1])
import kafka_ingest.writing.write_batch
for name, module in sorted(sys.modules.items()):
    if name.partition(".")[0] == "kafka_ingest":
        print(module.__file__)
print("foreign:", *sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[2:])))
"""


@pytest.fixture(scope="module")
def package_zip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "kafka_ingest.zip"
    path.write_bytes(zipping.package_zip())
    return path


@cache
def imported_modules(source: bytes) -> set[str]:
    """Return the absolute names of all that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what is needed"
            found |= {node.module or ""}
    return found


def test_the_job_can_be_imported_from_the_zip_alone(package_zip: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-c", IMPORT_FROM_ZIP, str(package_zip), *sorted(NOT_INSIDE_SPARK)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *files, foreign = done.stdout.splitlines()
    assert f"{package_zip}/kafka_ingest/writing/write_batch.py" in files
    assert all(file.startswith(f"{package_zip}/") for file in files)
    assert foreign == "foreign:"


def test_nothing_in_the_zip_imports_what_is_not_inside_spark(package_zip: Path) -> None:
    with zipfile.ZipFile(package_zip) as archive:
        found = {
            (name, module)
            for name in archive.namelist()
            for module in imported_modules(archive.read(name))
            if module.partition(".")[0] in NOT_INSIDE_SPARK
        }
    assert found == set()


def test_everything_of_the_package_that_the_zip_imports_is_in_it(package_zip: Path) -> None:
    with zipfile.ZipFile(package_zip) as archive:
        names = set(archive.namelist())
        wanted = {module for name in names for module in imported_modules(archive.read(name))}
    modules = {name.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".") for name in names}
    assert {module for module in wanted if module.partition(".")[0] == "kafka_ingest"} <= modules


def test_the_package_is_at_the_root_of_the_zip_as_source_only(package_zip: Path) -> None:
    with zipfile.ZipFile(package_zip) as archive:
        names = archive.namelist()
        sources = {name: archive.read(name) for name in names}
    assert len(names) == len(set(names))
    assert all(name.startswith("kafka_ingest/") and name.endswith(".py") for name in names)
    assert sources == {name: (PACKAGE_ROOT.parent / name).read_bytes() for name in names}


def test_every_part_that_the_zip_is_made_of_exists() -> None:
    assert [name for name in INSIDE_SPARK if not (PACKAGE_ROOT / name).exists()] == []


@pytest.mark.parametrize("seconds", [0, -1, 315_532_799, 4_354_819_200, 2**34 + 7])
def test_the_same_sources_are_the_same_bytes_whatever_their_dates_modes_and_order_on_the_disk(
    package_zip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    copied = tmp_path / "kafka_ingest"
    for name in reversed(INSIDE_SPARK):
        source = PACKAGE_ROOT / name
        for file in sorted(source.rglob("*.py"), reverse=True) if source.is_dir() else [source]:
            to = copied / file.relative_to(PACKAGE_ROOT)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
            os.utime(to, (seconds, seconds))
            to.chmod(0o600)
    monkeypatch.setattr(zipping, "PACKAGE_ROOT", copied)

    (tmp_path / "old.zip").write_bytes(zipping.package_zip())

    assert (tmp_path / "old.zip").read_bytes() == package_zip.read_bytes()


def test_a_user_that_may_read_the_attempts_directory_may_read_what_is_unpacked_from_the_zip(package_zip: Path) -> None:
    with zipfile.ZipFile(package_zip) as archive:
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o644}
