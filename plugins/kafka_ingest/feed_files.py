"""The folder of feed files: one YAML file, one feed. A broken file carries its error and harms no other."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from kafka_ingest.errors import InvalidBackfillError, InvalidFeedError, UnknownFeedError
from kafka_ingest.feed import DATA_VARIABLE, Feed
from kafka_ingest.output_places import is_taken
from kafka_ingest.setting_types import describe

FEEDS_VARIABLE = "KAFKA_INGEST_FEEDS"


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A feed file and what is in it: a feed, or the error that says why it cannot be used."""

    path: Path
    feed: Feed | None
    error: InvalidFeedError | None = None
    name: str | None = None
    """What the file says its feed is called, also where it cannot be used."""


def feeds_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of feed files: KAFKA_INGEST_FEEDS, or ``dags/feeds`` beside ``plugins/``."""
    named = environment.get(FEEDS_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / "dags" / "feeds"


def read_feed_files(directory: Path, environment: Mapping[str, str] = os.environ) -> list[FeedFile]:
    """Return all feed files of a folder, by file name.

    Two feeds may not share a name, an output or a consumer group: nobody can know which was meant, so all of them are
    refused until it is settled.
    """
    if not directory.is_dir():
        raise InvalidFeedError(f"expected a folder of feed files, found none at {directory}. Set {FEEDS_VARIABLE}.")
    files = [read_feed_file(path) for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])]
    return refuse_shared(files, environment)


def read_feed_file(path: Path) -> FeedFile:
    """Return a feed file, with its error where it cannot be used."""
    if path.exists() and not path.is_file():
        # A named pipe would be waited for, for ever.
        return FeedFile(
            path,
            None,
            InvalidFeedError(f"{path}: cannot be read: expected a file, found something else under this name"),
        )
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=StrictLoader)  # noqa: S506 - derived from SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        return FeedFile(path, None, InvalidFeedError(f"{path}: cannot be read as YAML: {error}"))
    if not isinstance(document, dict):
        found = "an empty file" if document is None else type(document).__name__
        return FeedFile(
            path, None, InvalidFeedError(f"{path}: expected a mapping with name, kafka and sink, found {found}")
        )
    name = document["name"] if isinstance(document.get("name"), str) else None
    try:
        return FeedFile(path, Feed.model_validate(document), None, name)
    except ValidationError as error:
        return FeedFile(path, None, InvalidFeedError(f"{path}: {'; '.join(describe(error))}"), name)


def feed_named(name: str, directory: Path, environment: Mapping[str, str] = os.environ) -> Feed:
    """Return one feed; raises UnknownFeedError, or the error of the file that should hold it."""
    files = read_feed_files(directory, environment)
    for file in files:
        if file.feed is not None and file.feed.name == name:
            return file.feed
    for file in files:
        if file.error is not None and name in {file.path.stem, file.name}:
            raise file.error
    names = [file.feed.name for file in files if file.feed is not None]
    broken = [str(file.path) for file in files if file.error is not None]
    raise UnknownFeedError(
        f"expected one of the feeds in {directory}: {', '.join(names) or 'there are none'}; found {name!r}."
        + (f" These files cannot be used: {', '.join(broken)} (`kafka-ingest feeds` says why)." if broken else "")
    )


def refuse_shared(files: list[FeedFile], environment: Mapping[str, str]) -> list[FeedFile]:
    """Give an error to every feed that shares its name or group with another, or whose output and another's overlap."""
    claimed: dict[tuple[str, str], set[Path]] = {}
    for file in files:
        for claim in claims(file.feed, environment) if file.feed is not None else []:
            claimed.setdefault(claim, set()).add(file.path)

    rivals: dict[Path, dict[Path, str]] = {file.path: {} for file in files}
    for file in files:
        for what, value in touches(file.feed, environment) if file.feed is not None else []:
            for other in claimed.get((what, value), set()) - {file.path}:
                rivals[file.path].setdefault(other, f"{what} {value!r}")
                rivals[other].setdefault(file.path, f"{what} {value!r}")
    return [refused(file, rivals[file.path]) if rivals[file.path] else file for file in files]


def refused(file: FeedFile, rivals: Mapping[Path, str]) -> FeedFile:
    """Return a feed file with the error that names the others."""
    shared = "; ".join(f"{what} is also that of {path}" for path, what in sorted(rivals.items()))
    message = f"{file.path}: {shared}. Two feeds may not share it; all of them are off until one is changed."
    return FeedFile(file.path, None, InvalidFeedError(message), file.name)


def claims(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is one feed's alone: its name, its group, its output and the folder beside it."""
    output = located(feed, environment)
    owned = [("name", feed.name), ("sink.path", str(output)), ("sink.path", f"{output}.kafka-ingest")]
    return [*owned, ("kafka.group", feed.kafka.group)] if feed.kafka.group else owned


def touches(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return all that must not be another feed's: what it claims, and every folder its output lies in."""
    above = [("sink.path", str(folder)) for folder in located(feed, environment).parents]
    return [*claims(feed, environment), *above]


def located(feed: Feed, environment: Mapping[str, str]) -> Path:
    """Return where a feed's output is, as far as it can be told: a relative path without a root stays relative."""
    root = environment.get(DATA_VARIABLE) or ""
    return Path(os.path.normpath(Path(root) / feed.sink.path))


def check_not_taken(output: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Raise InvalidBackfillError where a directory is, lies in, or holds what is a feed's output."""
    for file in read_feed_files(feeds_directory(environment), environment):
        if file.feed is None:
            continue
        of_feed = located(file.feed, environment)
        if is_taken(output, of_feed):
            raise InvalidBackfillError(
                f"expected an output of the copy's own, found {output}, which is, lies in, or holds the output of feed "
                f"{file.feed.name}, {of_feed}. Nothing was planned; name another directory."
            )


class StrictLoader(yaml.SafeLoader):
    """YAML in which a key that comes twice is an error; plain YAML lets the last one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """Return a mapping; raises a YAML error at the second occurrence of a key."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} cannot be a key", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} comes twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)
