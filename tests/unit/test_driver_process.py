"""Where Spark's driver imports pyspark from."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_ingest.writing.driver_process import fast_imports, installed_before_zipped


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A folder of installed packages with pyspark, whose folder is also a whole Spark, and py4j."""
    for package in ("pyspark", "py4j"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    """Give back to the collector what a test took from it; what these tests' process imported stays taken."""
    yield
    gc.unfreeze()
    gc.freeze()


def search_path(libraries: Path) -> list[str]:
    archives = libraries / "pyspark" / "python" / "lib"
    return ["/attempt/package.zip", f"{archives}/pyspark.zip", f"{archives}/py4j-src.zip", "/jars", str(libraries)]


def test_an_installed_pyspark_is_taken_instead_of_the_archive_of_the_same_spark(libraries: Path) -> None:
    found = installed_before_zipped(search_path(libraries), str(libraries / "pyspark"))

    assert found == ["/attempt/package.zip", "/jars", str(libraries)]


@pytest.mark.parametrize("spark_home", [None, "", "/opt/spark"])
def test_the_archives_of_a_spark_that_is_not_installed_as_a_package_stay(
    libraries: Path, spark_home: str | None
) -> None:
    assert installed_before_zipped(search_path(libraries), spark_home) == search_path(libraries)


def test_the_archives_stay_where_this_python_does_not_look_for_the_installed_package(libraries: Path) -> None:
    path = search_path(libraries)[:-1]

    assert installed_before_zipped(path, str(libraries / "pyspark")) == path


def test_the_archives_stay_where_py4j_is_not_installed(libraries: Path) -> None:
    (libraries / "py4j" / "__init__.py").unlink()
    (libraries / "py4j").rmdir()

    assert installed_before_zipped(search_path(libraries), str(libraries / "pyspark")) == search_path(libraries)


def test_during_the_imports_pyspark_is_found_where_it_is_installed_and_nothing_looks_for_garbage(
    libraries: Path,
) -> None:
    path = search_path(libraries)
    with fast_imports(path, {"SPARK_HOME": str(libraries / "pyspark")}):
        assert path == ["/attempt/package.zip", "/jars", str(libraries)]
        assert not gc.isenabled()


def test_after_the_imports_garbage_is_looked_for_again_but_not_among_what_was_imported() -> None:
    with fast_imports([], {}):
        imported = [[]]
    later = [[]]

    assert gc.isenabled()
    looked_at = {id(each) for each in gc.get_objects()}
    assert id(later) in looked_at
    assert id(imported) not in looked_at
