"""What can come between a feed and the world: its process dies, a reply is lost, the storage fails, at any instant.

An instant lies before and after each call to the control tables, Kafka, the output, Spark and Airflow, and each call
that changes the file system. They have names, and they come in the same order each time.
"""

import copy
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.whole_feed import WholeFeed
from tests.fakes import InMemoryControlTables, Watched

from kafka_ingest.foundation.storage import opened

FILE_CALLS = ("fsync", "mkdir", "rename", "rmdir", "unlink")
PARTS = ("control", "kafka", "sink", "letters", "spark", "airflow")
UUID_TEXT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

QUESTIONS = frozenset(
    {
        *("control.feed", "control.feed_of_id", "control.batch", "control.batch_states", "control.attempts"),
        *("control.range_counts", "control.ledger", "control.newest_published"),
        *("control.newest_of_kinds", "control.stored_offsets"),
        *("control.coverage", "control.copied_ranges", "control.backfill_of", "control.open_backfills"),
        *(
            "control.batches_of_run",
            "control.starts_since",
            "control.committed_ahead",
            "control.committed_within",
            "control.copy_outputs",
            "control.committed_batches",
            "control.held_ranges",
        ),
        *("control.committed_ranges", "control.ledger_of_feed"),
        *("kafka.cluster_id", "kafka.topic_names", "kafka.describe_topics", "kafka.log_bounds", "kafka.unreadable_at"),
        *("kafka.epoch_ends", "kafka.offsets_at"),
        *("sink.attempt_directory", "sink.data_needs", "sink.known_batches", "sink.read_receipt"),
        *("letters.is_kept", "letters.receipt", "letters.removal", "letters.files", "letters.count", "letters.offsets"),
        *("sink.receipt", "sink.is_kept", "sink.check_can_remove", "sink.check_can_replace", "sink.rows_of"),
        *("sink.check_records", "sink.columns_there", "sink.misfits"),
    }
)
"""The calls that leave the world as it is: dying anywhere between two changes is dying in the same world."""


class Died(BaseException):
    """The process is gone: nothing catches this, and nothing it would still have done happens."""


class Instants:
    """The instants that a feed passes, in order; ``happens`` may raise at any of them."""

    def __init__(self, happens: Callable[[int, str], None] = lambda _number, _name: None) -> None:
        self.names: list[str] = []
        self._happens = happens

    def pass_by(self, name: str) -> None:
        self.names.append(name)
        self._happens(len(self.names) - 1, name)

    @property
    def calls(self) -> list[str]:
        """The calls that were made, in the order in which they began."""
        return [name.removeprefix("before ") for name in self.names if name.startswith("before ")]


def changes_the_world(name: str) -> bool:
    """Whether another world begins at an instant."""
    return name.startswith("after ") and name.removeprefix("after ") not in QUESTIONS


def is_of_a_part(name: str) -> bool:
    """Whether an instant lies around a call to a part, and not around one to the file system inside it."""
    return name.split(" ", 1)[1].split(".", maxsplit=1)[0] in PARTS


def dying_at(instant: int) -> Callable[[int, str], None]:
    """Return what ends the process at an instant; a dead process passes no later one."""

    def die(number: int, _name: str) -> None:
        if number >= instant:
            raise Died

    return die


def dying_before(call: str) -> Callable[[int, str], None]:
    """Return what ends the process before a call is made for the first time."""
    dead: list[str] = []

    def die(_number: int, name: str) -> None:
        if dead or name == f"before {call}":
            dead.append(name)
            raise Died

    return die


class OtherWorlds:
    """Finds the instants, among the chosen ones, at which the world is another than at the one before.

    A process that dies in the same world twice leaves the same twice. ``run`` is what Airflow remembers of a run.
    """

    def __init__(
        self, feed: WholeFeed, choice: Callable[[str], bool], run: Callable[[], object] = lambda: None
    ) -> None:
        self.found: list[int] = []
        self._feed = feed
        self._choice = choice
        self._run = run
        self._last: object = None

    def look(self, number: int, name: str) -> None:
        if not self._choice(name):
            return
        world = world_of(self._feed), self._run()
        if world != self._last:
            self.found.append(number)
        self._last = world


def world_of(feed: WholeFeed) -> object:
    """Return all that outlives a feed's process; where a database may have changed, something that has no equal."""
    if not isinstance(feed.control, InMemoryControlTables):
        return object()
    folder = feed.output.parent
    files = {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
    announced = list(feed.airflow.announced), set(feed.airflow.triggered)
    return feed.control.state, files, objects_of(feed), copy.deepcopy(feed.kafka.groups), announced


def objects_of(feed: WholeFeed) -> object:
    """Return what is in the feed's part of a store, and the uploads that have begun there; None without a store."""
    place = feed.settings.output.place.parent
    if isinstance(place, Path):
        return None
    files = opened(place, feed.access).fs
    below = {"Bucket": "lake", "Prefix": f"{place.key}/"}
    objects = files.call_s3("list_objects_v2", **below).get("Contents", [])
    uploads = files.call_s3("list_multipart_uploads", **below).get("Uploads", [])
    return [(each["Key"], each["ETag"]) for each in objects], [each["Key"] for each in uploads]


@contextmanager
def watched(
    feed: WholeFeed, happens: Callable[[int, str], None] = lambda _number, _name: None
) -> Iterator[tuple[WholeFeed, Instants]]:
    """Yield the same feed with all its calls to the world passing instants, and those instants."""
    instants = Instants(happens)

    def part(name: str) -> Watched:
        return Watched(
            getattr(feed, name),
            lambda call: instants.pass_by(f"before {name}.{call}"),
            lambda call: instants.pass_by(f"after {name}.{call}"),
        )

    with watched_files(instants):
        parts = {name: part(name) for name in PARTS if getattr(feed, name) is not None}
        yield replace(feed, **parts), instants


@contextmanager
def watched_files(instants: Instants) -> Iterator[None]:
    """Let every call of this process that changes the file system pass instants."""

    def around(call: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def passing(*arguments: Any, **named: Any) -> Any:
            name = f"os.{call} {label(call, arguments)}"
            instants.pass_by(f"before {name}")
            answer = function(*arguments, **named)
            instants.pass_by(f"after {name}")
            return answer

        return passing

    path_open = pathlib.Path.open

    def opened(path: Path, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        opening = around("open", path_open) if "x" in mode else path_open
        return opening(path, mode, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        for call in FILE_CALLS:
            patch.setattr(os, call, around(call, getattr(os, call)))
        patch.setattr(pathlib.Path, "open", opened)
        yield


def label(call: str, arguments: tuple[Any, ...]) -> str:
    """Return the name of the file that a call is about, with ids that differ from run to run left out."""
    path = arguments[1] if call == "rename" else arguments[0]
    if isinstance(path, int):
        return "…"  # a descriptor
    name = re.sub(r"\.[0-9a-f]{32}\.tmp$", ".tmp", Path(path).name)
    return UUID_TEXT.sub("<id>", name)
