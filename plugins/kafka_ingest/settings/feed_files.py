"""The folder of feed files: one YAML file, one feed. A broken file carries its error and harms no other."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from configparser import Error as ConfigError
from configparser import RawConfigParser
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from kafka_ingest.batches.output_places import is_taken
from kafka_ingest.errors import InvalidBackfillError, InvalidFeedError, InvalidSchemaError, UnknownFeedError
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.dead_letters import directory_of_dead_letters
from kafka_ingest.model.partition_term import place_of_late_rows
from kafka_ingest.settings.defaults import DEFAULTS
from kafka_ingest.settings.feed_claims import place_of, refuse_cycles, refuse_shared
from kafka_ingest.settings.feed_file import SUFFIXES, FeedFile, read_feed_file
from kafka_ingest.settings.plain_yaml import content_of, text_of
from kafka_ingest.sinks.usable_places import places_of

FEEDS_VARIABLE = "KAFKA_INGEST_FEEDS"
FEEDS_FOLDER = "feeds"
NO_ADDRESS: Final[Mapping[str, str]] = {}


def feeds_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of feed files: KAFKA_INGEST_FEEDS; or ``feeds/`` in Airflow's folder of DAGs.

    Airflow is not imported for that: its folder is named by the environment, is ``dags/`` here, or stands in
    ``airflow.cfg``.
    """
    if named := environment.get(FEEDS_VARIABLE):
        return Path(named)
    here, home = Path.cwd() / "dags", Path(environment.get("AIRFLOW_HOME") or "~/airflow").expanduser()
    dags = environment.get("AIRFLOW__CORE__DAGS_FOLDER")
    if not dags and not (here / FEEDS_FOLDER).is_dir():
        config = RawConfigParser(strict=False)
        with contextlib.suppress(ConfigError, OSError, ValueError):
            config.read(home / "airflow.cfg", encoding="utf-8")
        dags = config.get("core", "dags_folder", fallback=str(home / "dags"))
    return (Path(dags).expanduser() if dags else here) / FEEDS_FOLDER


def read_schema_file(name: str, environment: Mapping[str, str]) -> bytes:
    """Return what is in a schema file, which is in the folder of the feed files where its path is not absolute."""
    path = feeds_directory(environment) / name
    try:
        return content_of(path)
    except (OSError, ValueError) as error:
        raise InvalidSchemaError(
            f"expected a schema file at {path}, found none that can be read: {error}. Correct its name in the feed "
            "file, or put the file there. Nothing was moved."
        ) from None


def feed_paths(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise InvalidFeedError(f"expected a folder of feed files, found none at {directory}. Set {FEEDS_VARIABLE}.")
    return sorted(
        path
        for folder in feed_folders(directory)
        for path in folder.iterdir()
        if path.suffix in SUFFIXES and path.name != DEFAULTS
    )


def feed_folders(directory: Path) -> list[Path]:
    """Return a folder and those in it whose files are feeds, too: they have defaults, which may be empty."""
    with os.scandir(directory) as entries:
        names = [each.name for each in entries if not each.name.startswith(".") and each.is_dir()]
    return [directory, *(directory / name for name in sorted(names) if os.path.lexists(directory / name / DEFAULTS))]


def folder_of_feeds(path: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of feed files that a file is in, also where it is in a folder there."""
    directory = feeds_directory(environment)
    return directory if directory in path.parents else path.parent


def read_feed_files(directory: Path, environment: Mapping[str, str] = os.environ) -> list[FeedFile]:
    """Return all feed files of a folder, by file name.

    Two feeds may not share a name, an output or a consumer group; files alone cannot say which of them was there first.
    """
    with without_garbage_collection():
        return refuse_cycles(refuse_shared(read_those(feed_paths(directory)), environment))


def read_those(paths: Iterable[Path]) -> list[FeedFile]:
    """Return these files, each by itself; one that was removed after it was listed is not there, rather than broken."""
    files = [read_feed_file(path) for path in paths]
    return [file for file in files if file.feed is not None or os.path.lexists(file.path)]


def checked_against_others(file: FeedFile, environment: Mapping[str, str] = os.environ) -> FeedFile:
    """Return a feed's file, with an error where its feed shares something with another file of its folder."""
    feed = file.feed or file.contested
    if feed is None:
        return file
    alone = replace(file, feed=feed, error=None, contested=None, rivals=())
    with without_garbage_collection():
        paths = feed_paths(folder_of_feeds(file.path, environment))
        files = [alone, *read_those(path for path in paths if path != file.path)]
        return refuse_cycles(refuse_shared(files, environment))[0]


def texts_of(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            yield path, text_of(path)


def feed_file_named(
    name: str,
    directory: Path,
    environment: Mapping[str, str] = os.environ,
    *,
    files: list[FeedFile] | None = None,
) -> FeedFile:
    """Return the file of one feed, which may be contested or broken; raises UnknownFeedError.

    ``files`` are all of the folder, where they have been read.
    """
    files = read_feed_files(directory, environment) if files is None else files
    if (file := the_one_of(name, files)) is not None:
        return file
    names = [file.feed.name for file in files if file.feed is not None]
    broken = [str(file.path) for file in files if file.error is not None]
    raise UnknownFeedError(
        f"expected one of the feeds in {directory}: {', '.join(names) or 'there are none'}; found {name!r}."
        + (f" These files cannot be used: {', '.join(broken)} (`kafka-ingest feeds` says why)." if broken else "")
    )


def the_one_of(name: str, files: list[FeedFile]) -> FeedFile | None:
    """Return the file of that feed: a usable one, a contested one, or a broken one that seems to be meant."""
    usable = (file for file in files if file.feed is not None and file.feed.name == name)
    contested = (file for file in files if file.contested is not None and file.contested.name == name)
    broken = (file for file in files if file.error is not None and name in {file.path.stem, file.name})
    return next(chain(usable, contested, broken), None)


def check_not_taken(
    output: Path,
    environment: Mapping[str, str] = os.environ,
    address: Mapping[str, str] = NO_ADDRESS,
    files: Iterable[FeedFile] | None = None,
) -> None:
    """Raise InvalidBackfillError where a directory is, is in, or holds a feed's output; broken files count, too.

    Or where a feed's table has this ``address``, which may be away from its directory. Of all ``files``, or of these.
    """
    for file in read_feed_files(feeds_directory(environment), environment) if files is None else files:
        feed = file.feed or file.contested
        if feed is not None and address and address in feed.sink.addresses(letters=True, late=True):
            kind, found = list(address.items())[-1]
            raise InvalidBackfillError(
                f"expected a {kind} of the copy's own, found {found}, that of feed {feed.name}: a copy's is called as "
                "the last name of its directory. Nothing was planned; name another directory."
            )
        if file.sink_path is None:
            continue
        of_feed = place_of(file.sink_path, environment)
        for what, place in (
            ("output", of_feed),
            ("dead letters", directory_of_dead_letters(of_feed)),
            ("late rows", place_of_late_rows(of_feed)),
        ):
            if is_taken(places_of(output), places_of(place)):
                raise InvalidBackfillError(
                    f"expected an output of the copy's own, found {output}, which is, is in, or holds the {what} of "
                    f"feed {file.name or file.path}, {place}. Nothing was planned; name another directory."
                )
