"""What no single module can promise: how Airflow loads the project, and versions that have to agree."""

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from alembic.script import ScriptDirectory
from packaging.requirements import Requirement

from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.control.upgrade import alembic_config
from kafka_ingest.foundation.stores.kinds import KINDS
from kafka_ingest.schemas import NEEDED
from kafka_ingest.sinks.delta import library as delta_library
from kafka_ingest.sinks.iceberg import output as iceberg_output
from kafka_ingest.sinks.postgresql import output as postgresql_output
from kafka_ingest.spark_launch.fetch_jars import jars_for, sum_of
from kafka_ingest.spark_launch.installation import CONNECTOR

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
PACKAGE = PLUGINS / "kafka_ingest"
OF_FORMATS = "requirements-protobuf.txt"
OF_LINEAGE = "requirements-openlineage.txt"
OF_MSK = "requirements-msk.txt"
PAGE_IN_PLUGINS = PLUGINS / "kafka_offsets_page.py"
OF_POSTGRESQL = "requirements-postgresql.txt"
OF_TABLES = ("requirements-delta.txt", "requirements-iceberg.txt")
OF_SINKS = (*OF_TABLES, OF_POSTGRESQL, *(kind.requirements for kind in KINDS.values()))


def pins(name: str) -> dict[str, str]:
    """Return the exact versions that a requirements file asks for."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("-r ")]
    assert all(re.fullmatch(r"==[^*]+", str(each.specifier)) for each in found), "every version is pinned exactly"
    return {each.name: str(each.specifier).removeprefix("==") for each in found}


IMPORT = re.compile(r"^ *(?:from ([\w.]+) import\b|import ([\w., ]+))", re.MULTILINE)
"""A statement that imports; ruff keeps each on a line of its own. A text that looks like one fails the test."""


def imported_packages(path: Path) -> set[str]:
    """Return the top-level names of all that a module imports, anywhere in it."""
    found = [one or more for one, more in IMPORT.findall(path.read_text())]
    return {each.split()[0].partition(".")[0] for names in found for each in names.split(",")}


def jvm_versions() -> dict[str, str]:
    """Return the versions of the JVM modules, by name."""
    dependencies = ET.parse(ROOT / "dev" / "jvm" / "ivy.xml").iter("dependency")  # noqa: S314
    return {each.attrib["name"]: each.attrib["rev"] for each in dependencies}


# ── How Airflow loads the project ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _modules_as_before() -> Iterator[None]:
    """Airflow's plugin loader puts what it imports into sys.modules by its bare file name."""
    before = dict(sys.modules)
    yield
    for name in sys.modules.keys() - before.keys():
        del sys.modules[name]
    sys.modules.update(before)


def test_airflows_ignore_file_is_exactly_the_packages_name() -> None:
    # With a trailing slash the pattern would match nothing in Airflow's syntax "regexp"; see the two tests below.
    assert (PLUGINS / ".airflowignore").read_text() == "kafka_ingest\n"


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.parametrize("syntax", ["glob", "regexp"])
def test_airflows_walk_through_the_plugins_folder_finds_the_page_and_no_module_of_the_package(syntax: str) -> None:
    from airflow._shared.module_loading.file_discovery import find_path_from_directory

    found = [Path(path) for path in find_path_from_directory(PLUGINS, ".airflowignore", syntax)]
    assert [path for path in found if path.suffix == ".py" or PACKAGE in path.parents] == [PAGE_IN_PLUGINS]


@pytest.mark.usefixtures("airflow_home", "_modules_as_before")
@pytest.mark.parametrize("syntax", ["glob", "regexp"])
def test_airflows_plugin_loader_imports_nothing_of_the_package_by_its_bare_name(syntax: str) -> None:
    from airflow._shared.plugins_manager.plugins_manager import _load_plugins_from_plugin_directory

    before = set(sys.modules)
    with patch.object(importlib.metadata, "entry_points", return_value=[]):
        plugins, import_errors = _load_plugins_from_plugin_directory(str(PLUGINS), ignore_file_syntax=syntax)
    bare_names = {path.stem for path in PACKAGE.rglob("*.py")}
    assert ([plugin.name for plugin in plugins], import_errors) == (["kafka_offsets"], {})
    assert (set(sys.modules) - before) & bare_names == set()


@pytest.mark.usefixtures("airflow_home", "_modules_as_before")
def test_the_page_comes_from_the_plugins_folder_only_where_the_package_does_not_bring_it() -> None:
    from airflow._shared.plugins_manager.plugins_manager import _load_plugins_from_plugin_directory

    # Airflow would show a second plugin of one name as an error.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [(name, value)] = project["entry-points"]["airflow.plugins"].items()
    brought = importlib.metadata.EntryPoint(name, value, "airflow.plugins")
    assert brought.load().name == "kafka_offsets"
    with patch.object(importlib.metadata, "entry_points", return_value=[brought]):
        assert _load_plugins_from_plugin_directory(str(PLUGINS)) == ([], {})


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.long
def test_airflow_imports_nothing_that_only_the_page_or_only_a_task_needs() -> None:
    # The plugin every component of Airflow imports, the DAG file the process that reads it, again and again.
    code = """
import sys
import airflow.plugins_manager, kafka_ingest
before = set(sys.modules)
import kafka_ingest.page.plugin
print(*sorted(set(sys.modules) - before))
import kafka_ingest.airflow_tasks.dags.feed_dags
print(*sorted({"pyspark", "pyarrow", "confluent_kafka", "kafka_ingest.assembly", "deltalake"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    by_plugin, by_dag_file = done.stdout.split("\n")[:2]
    assert by_plugin.split() == [f"kafka_ingest.page{name}" for name in ("", ".plugin")]
    assert by_dag_file == ""


def test_all_files_of_the_page_are_declared_as_the_packages_data() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    page = PACKAGE / "page"
    found = {file for pattern in declared["kafka_ingest.page"] for file in page.glob(pattern)}
    assert found == {file for file in page.rglob("*") if file.is_file() and file.suffix not in {".py", ".pyc"}}


@pytest.mark.usefixtures("airflow_home")
def test_without_the_ignore_file_airflow_would_find_the_package(tmp_path: Path) -> None:
    # The guard guards something: this is what the tests above would fail on.
    from airflow._shared.module_loading.file_discovery import find_path_from_directory

    (tmp_path / "kafka_ingest").symlink_to(PACKAGE)
    found = {Path(path).name for path in find_path_from_directory(tmp_path, ".airflowignore", "glob")}
    assert {"offsets.py", "batch.py"} <= found


@pytest.mark.parametrize("folder", ["dags", "jobs"])
def test_nothing_in_a_folder_on_airflows_path_hides_the_package(folder: str) -> None:
    assert list((ROOT / folder).rglob("kafka_ingest")) == []
    assert list((ROOT / folder).rglob("kafka_ingest.*")) == []


def test_no_module_of_the_package_carries_the_name_of_a_well_known_one() -> None:
    well_known = sys.stdlib_module_names | {"kafka", "airflow", "pyspark", "confluent_kafka", "sqlalchemy", "pydantic"}
    assert {path.stem for path in PACKAGE.rglob("*.py")} & well_known == set()


# ── One place for each rule ───────────────────────────────────────────────────────────────────────────────────────────

WRITES = {"insert", "insert_rows", "update"}


def writes_of_batches(path: Path) -> list[ast.FunctionDef]:
    """Return the functions of a module that write to the table ``batch``."""
    return [
        function
        for function in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(function, ast.FunctionDef) and any(map(is_write_of_batches, ast.walk(function)))
    ]


def is_write_of_batches(node: ast.AST) -> bool:
    """Whether a node is ``update(batch)``, ``insert(batch)``, ``insert_rows(…, batch, …)`` or ``batch.update()``."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        called, tables = node.func.attr, [node.func.value, *node.args]
    else:
        called, tables = getattr(node.func, "id", ""), node.args
    return called in WRITES and any("batch" in {getattr(t, "id", ""), getattr(t, "attr", "")} for t in tables)


def may_write_a_state(function: ast.FunctionDef) -> bool:
    """Whether a function gives a statement values among which a state is, or may be."""
    for node in ast.walk(function):
        names = [keyword.arg for keyword in node.keywords] if isinstance(node, ast.Call) else []
        keys = [getattr(key, "value", key) for key in node.keys] if isinstance(node, ast.Dict) else []
        is_values = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values"
        if "state" in names or "state" in keys or (is_values and None in names):
            return True
    return False


def test_only_one_module_writes_a_batchs_state() -> None:
    # It takes a Transition, which cannot be made without the table's leave.
    control = [path for path in (PACKAGE / "control").rglob("*.py") if "migrations" not in path.parts]
    writing = {path.name: writes_of_batches(path) for path in control}
    wanted = {"batch_statements.py", "batch_store.py", "folding_store.py"}
    assert wanted <= {name for name, found in writing.items() if found}
    found = {name: [each.name for each in functions if may_write_a_state(each)] for name, functions in writing.items()}
    assert {name: names for name, names in found.items() if names} == {
        "batch_statements.py": ["begin_batch", "begin_adopted_batch", "move_batch"]
    }


def test_no_text_of_sql_writes_to_batches() -> None:
    written = re.compile(r"(UPDATE|INSERT INTO|DELETE FROM)\s+batch\b", re.IGNORECASE)
    sources = [path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts]
    assert [path.name for path in sources if written.search(path.read_text())] == []


# ── Versions that have to agree ───────────────────────────────────────────────────────────────────────────────────────


def test_pyspark_and_pyspark_client_have_one_version_because_they_share_a_folder() -> None:
    installed = {name: importlib.metadata.version(name) for name in ("pyspark", "pyspark-client")}
    pinned = {name: pins("requirements.txt")[name] for name in ("pyspark", "pyspark-client")}
    assert len(set(installed.values())) == 1
    assert installed == pinned


def test_the_code_in_pysparks_folder_is_of_that_version_too() -> None:
    import pyspark

    assert pyspark.__version__ == pins("requirements.txt")["pyspark"]


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt", OF_FORMATS, OF_LINEAGE, *OF_SINKS])
def test_what_is_installed_is_what_is_pinned(file: str) -> None:
    pinned = pins(file)
    assert {name: importlib.metadata.version(name) for name in pinned} == pinned


def test_everything_that_the_package_imports_is_pinned() -> None:
    # What comes along with Airflow today may not come along tomorrow.
    owners = importlib.metadata.packages_distributions()
    imported = {module for path in PACKAGE.rglob("*.py") for module in imported_packages(path)}
    foreign = imported - sys.stdlib_module_names - {"kafka_ingest"}
    pinned = {name.lower() for file in ("requirements.txt", OF_FORMATS, OF_LINEAGE, *OF_SINKS) for name in pins(file)}
    pinned |= {"apache-airflow-task-sdk", "apache-airflow-core"}
    assert {name for name in foreign if not pinned & {owner.lower() for owner in owners[name]}} == set()


def test_each_pin_lies_in_the_range_that_the_wheel_asks_for_and_each_range_has_its_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ranges = {f"requirements-{extra}.txt": asked for extra, asked in project["optional-dependencies"].items()}
    assert ranges.keys() == {OF_FORMATS, OF_LINEAGE, OF_MSK, *OF_SINKS}
    for file, asked in {"requirements.txt": project["dependencies"], **ranges}.items():
        found = {each.name: each.specifier for each in map(Requirement, asked)}
        pinned = {**pins("requirements.txt"), **pins(file)}  # an extra may take less of what runs
        assert pins(file).keys() - {"pytest"} <= found.keys() <= pinned.keys(), file
        assert [name for name, taken in found.items() if not taken.contains(pinned[name])] == [], file


def test_the_two_requirements_files_pin_nothing_twice() -> None:
    assert pins("requirements.txt").keys() & pins("requirements-dev.txt").keys() == set()


def test_the_libraries_that_errors_name_are_the_ones_that_are_pinned() -> None:
    assert [pins(file) for file in OF_TABLES] == [
        {"deltalake": delta_library.VERSION},
        {"pyiceberg": iceberg_output.VERSION},
    ]
    assert set(pins(OF_POSTGRESQL).values()) == {postgresql_output.VERSION}
    assert {kind.library: pins(kind.requirements)[kind.library] for kind in KINDS.values()} == {
        kind.library: kind.version for kind in KINDS.values()
    }
    lines = (ROOT / "requirements-dev.txt").read_text().splitlines()
    assert {f"-r {file}" for file in (OF_FORMATS, OF_LINEAGE, *OF_SINKS)} <= set(lines)
    assert set(NEEDED.values()) == pins(OF_FORMATS).keys()


IMPORTED = """
import json, sys, kafka_ingest.cli.app, kafka_ingest.assembly
from pathlib import Path
from uuid import UUID
by_command_line = [*sys.modules]
import kafka_ingest.writing.write_batch
from kafka_ingest.sinks.staged_files import StagedFiles
staging = StagedFiles(Path(sys.argv[1]))
attempt = staging.attempt_directory(UUID(int=1), 1)
staging.open_attempt(attempt, b"{}")
staging.write_receipt(attempt, b"{}")
staging.read_receipt(attempt), staging.size_bytes(attempt), staging.remove(attempt)
print(json.dumps({"by the command line": by_command_line, "with a local place opened": [*sys.modules]}))
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What is imported in a process that imports the command line and the sinks, and then opens a local place."""
    place = str(tmp_path_factory.mktemp("place"))
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, place], cwd=PLUGINS, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "library",
    ["adbc_driver_manager", "deltalake", "google.protobuf", "psycopg", "ptars", "pyiceberg", "s3fs", "upath"],
)
def test_importing_the_sinks_and_the_command_line_does_not_import_a_table_formats_library(
    library: str, imported: dict[str, list[str]]
) -> None:
    # Their threads and connections are of no use in a process that is forked later, as Airflow forks its tasks.
    assert library not in imported["by the command line"]
    assert "kafka_ingest" in imported["by the command line"]


@pytest.mark.parametrize("library", ["pyarrow", "pyspark"])
def test_the_command_line_loads_neither_pyarrow_nor_spark_before_a_record_is_asked_for(
    library: str, imported: dict[str, list[str]]
) -> None:
    assert library not in imported["by the command line"]


@pytest.mark.parametrize("library", ["upath", "fsspec"])
def test_a_local_place_is_opened_without_the_library_that_opens_others(
    library: str, imported: dict[str, list[str]]
) -> None:
    # A tenth of a second and more of each command, and inside Spark it may not be installed.
    assert library not in imported["with a local place opened"]


OUR_IMPORT = re.compile(r"^from (kafka_ingest[\w.]*) import (\([^)]*\)|.*)|^import (kafka_ingest[\w.]*)", re.MULTILINE)
"""At the top of a module: what is imported inside of a function is not read with the file."""


def file_of(module: str) -> Path | None:
    """Return the file of a module of the package; None where a name in it is none."""
    path = PLUGINS.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


def imported_with(path: Path) -> set[Path]:
    """Return the files of the package that are read where one outside of it is imported."""
    found, files = {PACKAGE / "__init__.py"}, [path]
    while files:
        for module, names, plain in OUR_IMPORT.findall(files.pop().read_text()):
            members = [f"{module}.{each.split()[0]}" for each in names.strip("()").split(",") if each.strip()]
            new = {file for each in (module or plain, *members) if (file := file_of(each))} - found
            found |= new
            files += new
    return found


def test_the_dag_file_of_feeds_reads_no_more_of_the_package_than_it_did() -> None:
    # Airflow imports it every half minute, in a process of its own. The number may fall; what only some feeds need,
    # such as a format's library, is imported where it is used.
    assert len(imported_with(PACKAGE / "airflow_tasks" / "dags" / "feed_dags.py")) <= 110


def test_a_plan_reads_no_noun_of_a_later_step() -> None:
    assert len(imported_with(PACKAGE / "batches" / "plan_batch.py")) <= 45


def test_only_sinks_name_what_lies_beside_an_output_and_how_readers_see_a_batch() -> None:
    names = (".kafka-ingest", "kafka_batch=", "data.revoked", "data.published")
    outside = [path for path in PACKAGE.rglob("*.py") if (PACKAGE / "sinks") not in path.parents]
    assert [(path.name, name) for path in outside for name in names if name in path.read_text()] == []


def test_each_module_that_a_docstring_names_is_there() -> None:
    files = [path.relative_to(PLUGINS) for path in PACKAGE.rglob("*.py")]
    modules = {f".{'.'.join(path.with_suffix('').parts)}" for path in files}
    modules |= {f".{'.'.join(path.parent.parts)}" for path in files}
    named = {
        (path.name, name)
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r":mod:`~?(kafka_ingest[.\w]*|[.][.\w]+)`", path.read_text())
    }
    gone = {(file, name) for file, name in named if not any(each.endswith(f".{name.lstrip('.')}") for each in modules)}
    assert len(named) > 10
    assert gone == set()


def test_the_kafka_connector_is_of_sparks_own_version() -> None:
    assert jvm_versions()[CONNECTOR] == pins("requirements.txt")["pyspark"]


def test_the_jars_that_are_installed_are_the_ones_that_are_named() -> None:
    jars = {jar.name for jar in (ROOT / ".jvm" / "spark").glob("*.jar")}
    spark_side = [CONNECTOR, "spark-token-provider-kafka-0-10_2.13", "kafka-clients", "commons-pool2"]
    assert jars == {f"{name}-{jvm_versions()[name]}.jar" for name in spark_side}


@pytest.mark.parametrize("name", ["spark", "avro"])
def test_the_jars_of_development_are_those_that_the_command_fetches(name: str) -> None:
    known = jars_for(pins("requirements.txt")["pyspark"], (name,))[name]
    folder = ROOT / ".jvm" / name
    assert {jar.name: sum_of(jar) for jar in folder.glob("*.jar")} == {
        Path(path).name: sha256 for path, sha256 in known.items()
    }


def test_the_schema_that_the_code_needs_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [SCHEMA_VERSION]


def test_migrations_follow_one_another_in_the_order_of_their_numbers() -> None:
    # The schema's version is compared as a text: "0010" is newer than "0009".
    revisions = [script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()]
    assert revisions == sorted(revisions, reverse=True)
    assert all(re.fullmatch(r"\d{4}", revision) for revision in revisions)


def test_the_oldest_python_is_the_same_wherever_it_is_named() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
