"""`make test-quick` starts no JVM and no server, and says what it leaves out; nobody keeps a list of its tests."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.what_tests_need import (
    DATABASE,
    LONG,
    NEEDS_OF_FOLDERS,
    REAL_PARTS,
    SERVERS,
    NotQuickError,
    left_out,
    need,
    shared_by,
    turns,
)

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("program", sorted(SERVERS))
def test_a_quick_test_that_starts_a_jvm_or_a_server_fails(program: str) -> None:
    # This is one: nothing here switches the guard on.
    installed = f"/opt/somewhere/{program}"
    for command in ([program, "--version"], [installed], [sys.executable, "-I", "wrapper.py", installed]):
        with pytest.raises(NotQuickError, match=f"starts {program}"):
            subprocess.run(command, check=False)
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0


def test_a_script_that_stands_in_for_a_server_is_started(tmp_path: Path) -> None:
    script = tmp_path / "java"
    script.write_text("#!/bin/sh\nexit 7\n")
    script.chmod(0o755)
    assert subprocess.run([str(script)], check=False).returncode == 7


def test_a_test_needs_what_its_folder_its_fixtures_its_parameters_and_its_marks_say() -> None:
    assert need("unit", ["tmp_path"], ["in_memory", 3, None], ["parametrize"]) is None
    assert need("orchestration", ["tmp_path"], [], []) == REAL_PARTS
    assert need("contract", ["broker"], [], []) == REAL_PARTS
    assert need("contract", ["postgresql_server"], [], []) == DATABASE
    assert need("contract", ["upgraded_tables"], [], []) == DATABASE
    assert need("contract", ["store"], ["postgresql"], []) == DATABASE
    assert need("contract", ["store"], ["sqlite"], []) == DATABASE
    assert need("model", [], [], ["parametrize", "long"]) == LONG
    assert need("integration", ["postgresql_server"], [], ["long"]) == REAL_PARTS, "by what takes longest"


def test_the_folders_of_tests_with_real_parts_are_there() -> None:
    assert {folder for folder in NEEDS_OF_FOLDERS if not list((TESTS / folder).glob("test_*.py"))} == set()


def test_what_is_left_out_is_counted_by_what_it_needs() -> None:
    assert left_out(Counter({DATABASE: 1_084, LONG: 802})) == [
        "left out: the tests in integration, orchestration, spark, which need a real broker, Spark or Airflow",
        "left out: 802 tests that need a while, to try very many cases, to write many tables or to wait",
        "left out: 1,084 tests that need control tables in SQLite or PostgreSQL",
    ]


def test_files_whose_tests_share_a_spark_or_an_airflow_are_known_by_what_they_say() -> None:
    spark = ("spark/test_decode.py", "spark/test_shape.py", "spark/test_write_batch.py", "integration/test_tables.py")
    airflow = ("test_backfill_dag.py", "test_dag_integrity.py", "test_feed_dag_runs.py", "test_page.py")
    others = ("integration/test_adopt.py", "orchestration/test_airflow_tasks.py", "unit/test_what_tests_need.py")

    assert {shared_by(TESTS / name) for name in spark} == {"in a kept Spark"}
    assert {shared_by(TESTS / "orchestration" / name) for name in airflow} == {"in forks of an Airflow"}
    assert {shared_by(TESTS / name) for name in others} == {None}


def test_files_that_share_something_come_first_then_what_waits_and_what_computes_in_turn_and_quick_ones_last() -> None:
    shares, shares_other, waits, waits_too, quick = (
        TESTS / name
        for name in (
            "spark/test_shape.py",
            "orchestration/test_page.py",
            "integration/test_adopt.py",
            "integration/test_fold.py",
            "unit/test_offsets.py",
        )
    )
    computes, computes_too, asks = (TESTS / "contract" / name for name in ("a.py", "b.py", "c.py"))
    needs = dict.fromkeys((waits, waits_too, shares_other, shares), REAL_PARTS) | dict.fromkeys(
        (computes, computes_too), LONG
    )
    turn = turns({quick: None, asks: DATABASE, **needs})
    expected = [shares, shares_other, waits, computes, waits_too, computes_too, asks, quick]
    assert sorted(turn, key=turn.__getitem__) == expected
