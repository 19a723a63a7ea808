"""The bill of materials beside the wheel: what it needs, in the versions of this environment, and Spark's jars."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_structure import pins

import sbom
from kafka_ingest.spark_launch.fetch_jars import known_jars


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    wheel = tmp_path_factory.mktemp("dist") / "kafka_ingest-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    found = sbom.bill(wheel)
    assert json.dumps(found) == json.dumps(sbom.bill(wheel)), "the same wheel and environment give the same bytes"
    return found


def test_it_has_what_is_pinned_to_run_and_no_tool_of_development(bill: dict[str, Any]) -> None:
    found = {each["name"]: each["version"] for each in bill["components"] if each["purl"].startswith("pkg:pypi/")}
    pinned = {sbom.canonical(name): version for name, version in pins("requirements.txt").items() if name != "pytest"}
    assert pinned.items() <= found.items()
    assert {"pytest", "mypy", "ruff", "kafka-ingest"} & found.keys() == set()


def test_it_has_each_jar_of_the_pinned_spark_with_its_sum(bill: dict[str, Any]) -> None:
    known = known_jars()
    paths = {path for paths in known["versions"][pins("requirements.txt")["pyspark"]].values() for path in paths}
    jars = {each["name"]: each for each in bill["components"] if each["purl"].startswith("pkg:maven/")}
    assert {path.split("/")[-3] for path in paths} == jars.keys()
    connector = next(path for path in paths if "spark-sql-kafka" in path)
    assert jars["spark-sql-kafka-0-10_2.13"]["hashes"] == [{"alg": "SHA-256", "content": known["sha256"][connector]}]


def test_it_names_the_wheel_by_its_sum_and_each_dependency_is_a_component(bill: dict[str, Any], tmp_path: Path) -> None:
    wheel = bill["metadata"]["component"]
    assert wheel["hashes"][0]["content"] == "69f51477f05c46bfa5ff0027a1fcde274695311a38adfb85611ffeb93c8b146b"
    refs = {wheel["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    assert {each["ref"] for each in bill["dependencies"]} <= refs
    assert {ref for each in bill["dependencies"] for ref in each["dependsOn"]} <= refs
    (tmp_path / "other.whl").write_bytes(b"another wheel")
    assert sbom.bill(tmp_path / "other.whl")["serialNumber"] != bill["serialNumber"]
