"""What the command line says of itself."""

from importlib.metadata import version

from typer.testing import CliRunner

from kafka_ingest.cli.app import PANELS, app


def test_each_command_is_listed_in_one_panel_in_the_order_in_which_it_is_used() -> None:
    names = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback is not None]
    assert [*names, "db"] == [name for listed in PANELS.values() for name in listed]
    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).output
    assert [said.index(f"─ {panel} ─") for panel in PANELS] == sorted(said.index(f"─ {panel} ─") for panel in PANELS)


def test_the_version_is_that_of_what_is_installed() -> None:
    answer = CliRunner().invoke(app, ["--version"])
    assert (answer.exit_code, answer.output.strip()) == (0, f"kafka-ingest {version('kafka-ingest')}")
