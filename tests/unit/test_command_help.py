"""What the command line says of itself."""

import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from kafka_ingest.cli.app import OF_GROUP, PANELS, app_of
from kafka_ingest.verbs.operate_form import IN_ORDER


def test_each_command_is_listed_in_one_panel_in_the_order_in_which_it_is_used() -> None:
    said = CliRunner().invoke(app_of(["--help"]), ["--help"], env={"COLUMNS": "100"}).output
    places = [said.index(f"─ {panel} ─") for panel in PANELS]
    assert places == sorted(places)
    names = [name for commands in PANELS.values() for name in commands]
    listed = [said.index(f"│ {name} ") for name in names]
    assert listed == sorted(listed)


def test_each_verb_that_has_a_command_is_listed() -> None:
    places = [place for commands in (*PANELS.values(), OF_GROUP) for place in commands.values()]
    for verb in IN_ORDER:
        if verb.command is not None:
            name = verb.command.rpartition(" ")[2]
            place = {**OF_GROUP, **{key: each for commands in PANELS.values() for key, each in commands.items()}}[name]
            assert place == f"{verb.__module__.removeprefix('kafka_ingest.')}:{verb.__name__}"
            assert places.count(place) == 1


IMPORTING_A_COMMAND = """
import gc, sys
from kafka_ingest.cli.app import app_of
found = []
gc.callbacks.append(lambda phase, info: found.append(info["generation"]))
app_of(["run", "orders"])
print(found.count(2), *sys.modules)
"""


def test_a_command_imports_no_other_verb_and_what_it_imports_is_not_looked_through_for_garbage() -> None:
    program = [sys.executable, "-c", IMPORTING_A_COMMAND]
    all_looked_through, *found = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    assert {each for each in found if each.startswith("kafka_ingest.verbs.")} <= {
        f"kafka_ingest.verbs.{name}" for name in ("answer", "plan", "request", "topics_of_files")
    }
    assert int(all_looked_through) == 0


def test_the_version_is_that_of_what_is_installed() -> None:
    answer = CliRunner().invoke(app_of(), ["--version"])
    assert (answer.exit_code, answer.output.strip()) == (0, f"kafka-ingest {version('kafka-ingest')}")
