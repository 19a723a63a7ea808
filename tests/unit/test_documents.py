"""The documents name what is there: commands and options, columns, errors, keys of feed files, pages and sections."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

import operate_table
from kafka_ingest import errors
from kafka_ingest.cli.app import app_of
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_files import read_feed_files
from kafka_ingest.sinks.delta.columns import RAW_COLUMNS
from kafka_ingest.verbs.operate_form import VERBS

ROOT = Path(__file__).resolve().parents[2]
OF_ALL = ("README.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md")
PAGES = (*(ROOT / name for name in OF_ALL), *sorted((ROOT / "docs").glob("*.md")))
PACKAGE = ROOT / "plugins" / "kafka_ingest"
LONGEST_LINE = 120
OWN_NAME = "NAME"
"""In a path, of what a reader is about to add."""


def commands(command: object, name: str = "") -> Iterator[tuple[str, TyperCommand]]:
    """Yield each command of the command line by the words that call it."""
    if isinstance(command, TyperGroup):
        for word, each in command.commands.items():
            yield from commands(each, f"{name} {word}".strip())
    elif isinstance(command, TyperCommand):
        yield name, command


COMMANDS = dict(commands(get_command(app_of())))


def sections(page: Path) -> dict[str, str]:
    """Return the text below each heading of the second and third level, by its heading."""
    parts = re.split(r"^#{2,3} ", page.read_text(), flags=re.MULTILINE)
    return {heading: text for heading, _, text in (part.partition("\n") for part in parts)}


def third_level(page: Path) -> list[str]:
    """Return the headings of the third level, in their order."""
    return re.findall(r"^### (.*)$", page.read_text(), flags=re.MULTILINE)


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page that are neither in a table nor in a code block."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.lstrip().startswith("|") and not line.startswith("    "):
            yield number, line


def example(page: Path) -> str:
    """Return the feed file that a page shows."""
    found = re.search(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL)
    assert found is not None
    return found[1]


def keys(settings: type[BaseModel]) -> Iterator[str]:
    """Yield the keys of a feed file, those of its sections included."""
    for name, field in settings.model_fields.items():
        yield name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys(field.annotation)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_command_has_its_section_and_no_section_names_another() -> None:
    """``docs/cli.md`` is the list of commands: a new command needs a section, a removed one loses it."""
    assert sorted(third_level(ROOT / "docs" / "cli.md")) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_s_section_names_its_options_and_no_others(name: str) -> None:
    """``--json`` is an option of every command, and is named once for all."""
    text = sections(ROOT / "docs" / "cli.md")[name]
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    assert set(re.findall(r"--[a-z][a-z-]*", text)) == known - {"--json"}


def test_the_page_on_forms_has_the_table_of_actions_that_is_made_from_the_requests() -> None:
    """Tried without a shell: a field that the page does not name is never filled in."""
    text = operate_table.PAGE.read_text()
    assert text == operate_table.page(), "python dev/operate_table.py writes it"
    assert len(re.findall(r"^\| `[a-z-]+` \|", text, flags=re.MULTILINE)) == len(VERBS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_to_pages_and_sections_that_are_there(page: Path) -> None:
    """Links into the web are not followed."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        other = page.parent / path if path else page
        assert other.exists(), f"{target}: no such page"
        assert not anchor or anchor in anchors(other), f"{target}: no such section"


@pytest.mark.parametrize("page", ["README.md", "docs/output.md"])
def test_the_table_of_columns_has_the_columns_of_the_output(page: str) -> None:
    """In their order; the raw format's columns are the same in each format."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", (ROOT / page).read_text(), flags=re.MULTILINE)
    assert [row for row in rows if row in RAW_COLUMNS] == list(RAW_COLUMNS)


def test_the_errors_of_the_troubleshooting_table_are_errors_of_the_code() -> None:
    """By the names that commands print."""
    table = sections(ROOT / "README.md")["Troubleshooting"]
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", table))
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    codes = {kind().code for kind in kinds if issubclass(kind, errors.KafkaIngestError)}
    assert named
    assert named <= codes


@pytest.mark.parametrize("page", ["README.md", "docs/feed-files.md"])
def test_the_feed_file_of_a_page_can_be_used(page: str, tmp_path: Path) -> None:
    """As it stands there."""
    (tmp_path / "orders.yaml").write_text(example(ROOT / page))
    assert [file.error for file in read_feed_files(tmp_path)] == [None]


def test_the_page_on_feed_files_names_every_key() -> None:
    """A setting that users are not shown is one that they do not have."""
    text = example(ROOT / "docs" / "feed-files.md")
    assert [key for key in keys(Feed) if not re.search(rf"\b{key}:", text)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_end_before_column_120(page: Path) -> None:
    """Tables and code blocks are as wide as they have to be."""
    assert [number for number, line in prose(page) if len(line) > LONGEST_LINE] == []


def paths_in(text: str) -> list[str]:
    """Return the files and folders of this repository that a text names, without those that do not exist yet."""
    named = re.findall(r"`([\w.-]+(?:/[\w.-]*)+|\w+\.(?:py|toml|txt))`", text)
    return [path for path in named if OWN_NAME not in path]


def found(path: str) -> Path:
    """Return a path that a document names, from the package or from the repository."""
    return PACKAGE / path if (PACKAGE / path).exists() else ROOT / path


def test_the_architecture_names_files_and_folders_that_are_there() -> None:
    """Of the package without its own folder."""
    named = paths_in((ROOT / "docs" / "architecture.md").read_text())
    assert named
    assert [path for path in named if not found(path).exists()] == []


def test_each_folder_of_the_package_is_in_the_table_of_parts() -> None:
    """A new room has to say what it may call, and what it never does."""
    folders = {f"{each.name}/" for each in PACKAGE.iterdir() if (each / "__init__.py").exists()}
    assert folders - set(paths_in(sections(ROOT / "docs" / "architecture.md")["The parts"])) == set()


def calls_in_table() -> Iterator[tuple[list[str], set[str]]]:
    """Yield the folders of each part whose calls are listed one by one, and these."""
    for row in sections(ROOT / "docs" / "architecture.md")["The parts"].splitlines():
        cells = row.split(" | ")
        if len(cells) == len(("part", "where", "does", "calls", "never")) and "what is below" not in cells[3]:
            folders = [path[:-1] for path in paths_in(cells[1]) if path.count("/") == 1 and (PACKAGE / path).is_dir()]
            if folders:
                yield folders, set(re.findall(r"`(\w+)`", cells[3]))


def imported_by(folder: str) -> set[str]:
    """Return the parts of the package that a folder imports, without itself and what every part stands on."""
    text = "\n".join(path.read_text() for path in (PACKAGE / folder).rglob("*.py"))
    parts = re.findall(r"^\s*(?:from|import) kafka_ingest\.(\w+)", text, flags=re.MULTILINE)
    return set(parts) - {folder, "model", "errors", "foundation"}


def test_the_table_of_parts_says_what_each_part_imports() -> None:
    """Where it lists them: the parts on top may call whatever is below."""
    said = list(calls_in_table())
    assert [folders[0] for folders, _ in said][:2] == ["page", "observing"]
    assert said == [(folders, set().union(*map(imported_by, folders))) for folders, _ in said]


def test_what_has_to_be_touched_for_a_new_part_is_in_the_files_that_the_architecture_names() -> None:
    """Each name in a step of "Where do I add …" is in one of the files of that step."""
    _, _, steps = (ROOT / "docs" / "architecture.md").read_text().partition("## Where do I add")
    lost = []
    for step in re.findall(r"^\d+\. (.*?)(?=^\d+\. |^#|\Z)", steps, flags=re.MULTILINE | re.DOTALL):
        files = [path for named in paths_in(step) if (path := found(named)).is_file()]
        text = "\n".join(path.read_text() for path in files)
        names = re.findall(r"`([A-Za-z_]*[A-Z_][A-Za-z_]+)`", step)
        lost += [name for name in names if name != OWN_NAME and not re.search(rf"\b{name}\b", text)]
    assert lost == []


def test_each_page_has_a_door() -> None:
    """``docs/README.md`` leads to every page by the question that it answers."""
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - set(re.findall(r"\]\(([\w-]+\.md)", (ROOT / "docs" / "README.md").read_text())) == set()


def test_the_picture_of_a_batch_names_folders_that_are_there() -> None:
    """Below each box's title are the folders of the package that do it."""
    picture = sections(ROOT / "README.md")["How it works"]
    named = {folder for names in re.findall(r'<br/>([a-z_, ]+)"', picture) for folder in names.split(", ")}
    assert "batches" in named
    assert [folder for folder in sorted(named) if not (ROOT / "plugins" / "kafka_ingest" / folder).is_dir()] == []
