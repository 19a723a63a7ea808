"""What feed files share: ``_defaults.yaml`` of their folder, and below it that of the folder above.

A feed's own key wins. Mappings are merged key by key, lists are replaced, and null takes away what the defaults say.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Final

import yaml

from kafka_ingest.settings.plain_yaml import read_plain_yaml, text_of

DEFAULTS: Final = "_defaults.yaml"
MISNAMED: Final = "_defaults.yml"

FOR_EACH: Final = "for_each_topic"
"""The key by which a file is for many topics (:mod:`.topics_file`)."""

Place = tuple[str | int, ...]
"""Where a value is in a document: the keys, and positions in lists, that lead to it."""

Document = Mapping[Any, Any]

OF_ONE_FEED: Final[tuple[Place, ...]] = (
    ("name",),
    *(("kafka", key) for key in ("topics", "topic_pattern", "group")),
    *(("sink", key) for key in ("path", "table", "topic")),
)
"""What no two feeds may share, and what is read. A feed is found by these in the text of its file."""

BY_FORMAT: Final[tuple[Place, ...]] = (("sink",), ("key",), ("value",))
"""Mappings whose other keys belong to their ``format``: one with another format replaces the defaults'."""

ONE_VALUE: Final[tuple[Place, ...]] = (("start",), ("sink", "partition_by"))
"""Mappings that are one value."""

NULL_SAYS_SOMETHING: Final[tuple[Place, ...]] = (("schedule",), ("limits", "max_records"))
"""Where null is not the same as nothing: runs by hand, and no limit."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What one file says, or what it says ``below`` some keys."""

    path: Path
    document: Document
    below: Place = ()


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of a folder, the more general file first; what they say together; why they cannot be used."""

    layers: tuple[Layer, ...] = ()
    document: Document | None = None
    error: str | None = None


def defaults_of(folder: Path) -> Defaults:
    """Return the defaults that files of a folder have; those of the folder above count where it has its own, too."""
    if (own := version_of(folder)) is None:
        return Defaults()
    above = version_of(folder.parent)
    return read_defaults(own) if above is None else read_defaults(above, own)


def version_of(folder: Path) -> tuple[Path, int, int, int] | None:
    path = folder / DEFAULTS
    try:
        found = path.stat()
    except OSError:
        return (path, 0, 0, 0) if os.path.lexists(path) else None
    return path, found.st_ino, found.st_size, found.st_ctime_ns


@lru_cache(maxsize=100)  # asked for each feed file
def read_defaults(*versions: tuple[Path, int, int, int]) -> Defaults:
    layers: list[Layer] = []
    for path, *_ in versions:
        try:
            document = read_plain_yaml(text_of(path))
        except (OSError, ValueError) as error:
            return Defaults(error=f"{path} cannot be read as YAML: {error}")
        if not isinstance(document, dict | None):
            return Defaults(error=f"{path}: expected a mapping of what feeds share, found {type(document).__name__}")
        layers.append(Layer(path, document or {}))
        for place in OF_ONE_FEED:
            if says(layers[-1].document, place):
                key = ".".join(map(str, place))
                return Defaults(error=f"{path}: expected what feeds share, found {key}, which is each feed's own")
    return Defaults(tuple(layers), reduce(merged, (layer.document for layer in layers)))


def merged(below: Document, own: Document, place: Place = ()) -> Document:
    if place in BY_FORMAT and own.get("format", below.get("format")) != below.get("format", own.get("format")):
        return own
    found = dict(below)
    for key, value in own.items():
        at, default = (*place, key), below.get(key)
        if value is None and key in below and at not in NULL_SAYS_SOMETHING:
            del found[key]
        elif isinstance(value, dict) and isinstance(default, dict) and at not in ONE_VALUE:
            found[key] = merged(default, value, at)
        else:
            found[key] = value
    return found


def says(document: object, place: Place) -> bool:
    for step in place:
        is_entry = isinstance(document, list) and isinstance(step, int) and step < len(document)
        if not is_entry and not (isinstance(document, dict) and step in document):
            return False
        document = document[step]  # type: ignore[index]  # one of the two
    return True


def source_of(place: Place, layers: Sequence[Layer]) -> Path | None:
    """Return the file from which a value is: of those that say something there the most particular one."""
    return next((layer.path for layer in reversed(layers) if says(layer.document, place)), None)


def all_layers(path: Path) -> tuple[Layer, ...]:
    """Return what the defaults of a feed file and the file itself say; raises OSError or ValueError."""
    own = read_plain_yaml(text_of(path))
    return (*defaults_of(path.parent).layers, Layer(path, own if isinstance(own, dict) else {}))


@dataclass(frozen=True, slots=True)
class Value:
    """A value, where it is in a feed, and from which line of which file it is."""

    place: Place
    value: Any
    path: Path
    line: int | None

    @property
    def key(self) -> str:
        return ".".join(map(str, self.place))


def written_values(path: Path, topic: str | None = None) -> Iterator[Value]:
    """Yield the values of a feed file, with its defaults; a list is one value. Raises OSError or ValueError.

    With ``topic`` those of the feed that a file for many topics makes of it, before placeholders are filled.
    """
    layers = all_layers(path) if topic is None else layers_of_topic(path, topic)
    lines = {layer.path: dict(lines_of(layer.path)) for layer in layers}
    for place, value in leaves(reduce(merged, (layer.document for layer in layers))):
        source = next((layer for layer in reversed(layers) if says(layer.document, place)), layers[-1])
        yield Value(place, value, source.path, lines[source.path].get((*source.below, *place)))


def layers_of_topic(path: Path, topic: str) -> tuple[Layer, ...]:
    """Return what the defaults of a file for many topics say, then its ``feed``, the file itself and the override."""
    *layers, own = all_layers(path)
    document = own.document
    shared = {key: document[key] for key in ("fleet", "schedule") if key in document}
    override = (document.get("overrides") or {}).get(topic) or {}
    feed = Layer(path, document.get("feed") or {}, ("feed",))
    topics = Layer(path, {"kafka": {"topics": [topic]}})
    return (*layers, feed, topics, Layer(path, shared), Layer(path, override, ("overrides", topic)))


def leaves(document: Document, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*place, key))
        else:
            yield (*place, key), value


def lines_of(path: Path) -> Iterator[tuple[Place, int]]:
    """Yield on which line each key of a file is, which was read as plain YAML before."""
    try:
        root = yaml.compose(text_of(path), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return
    open_nodes: list[tuple[Place, Any]] = [((), root)]
    for place, node in open_nodes:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            yield (*place, key.value), key.start_mark.line + 1
            open_nodes.append(((*place, key.value), value))
