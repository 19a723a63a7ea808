"""Reads YAML that holds plain values only: mappings, lists, texts, whole numbers, true, false and null.

The parser's events are put together here, within limits and without recursion: no text can take more than its size in
time or memory, as YAML's tags, aliases and numbers of any length may. All else that YAML 1.1 knows stays the text that
was written: times, numbers with a point or a leading zero, ``0x1f``, and ``12:30``, which YAML 1.1 takes for 750.

Two parsers make events: libyaml, which comes with PyYAML on most machines and is several times as fast, and PyYAML's
own. They differ in rare texts only, so what libyaml refuses, and what may be such a text, PyYAML's own parser decides:
a file means the same on every machine, and its error has the same words.
"""

import contextlib
import os
import re
import stat
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

MAX_BYTES: Final = 1024 * 1024
"""How large a file may be, also with its aliases written out."""

MAX_VALUES: Final = 100_000
"""How many keys and values a file may hold, aliases written out: the stored offsets of 50,000 partitions."""

MAX_DEPTH: Final = 20
MAX_DIGITS: Final = 40

READ_DIFFERENTLY: Final = re.compile("[\ufeff?\t\ud800-\udfff]|[|>][-+0-9]*#")
"""What the parsers read differently: a byte order mark inside a text, ``?`` and tabs in flow, a comment after ``|``."""

NOT_STORABLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
WHOLE_NUMBER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
WORDS: Final = {
    word: value
    for value, names in {None: ("null", "~"), True: ("true", "yes", "on"), False: ("false", "no", "off")}.items()
    for name in names
    for word in (name, name.capitalize(), name.upper())
} | {"": None}
"""What YAML 1.1 means by these words where they are not quoted."""


FAST_LOADER: Final[type[Any] | None] = getattr(yaml, "CSafeLoader", None)
"""libyaml's; none where PyYAML was built without it."""


class NotPlainError(ValueError):
    """The text is no YAML, or holds more than plain values, or too much; the message says where."""


@dataclass(slots=True)
class OpenNode:
    """A mapping or list that is not complete yet; ``values`` and ``size`` count what is in it, aliases written out."""

    content: dict[Hashable, Any] | list[Any]
    anchor: str | None
    values: int = 1
    size: int = 1
    has_key: bool = False
    key: Hashable = None


@dataclass(frozen=True, slots=True)
class Node:
    """A complete value, and its size."""

    value: Any
    values: int
    size: int


def text_of(path: Path) -> str:
    """Return the text in a file; raises OSError, ValueError where it is not a file, too large or not UTF-8."""
    return content_of(path).decode("utf-8")


def content_of(path: Path) -> bytes:
    """Return what is in a file; raises OSError, or ValueError where it is no file or too large.

    Opened without waiting: opening a named pipe would block forever.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("expected a file, found something else under this name")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes, found more")
    return content


def read_plain_yaml(text: str) -> Any:  # noqa: ANN401 - whatever the text holds
    """Return what a YAML text holds, None where it is empty; raises NotPlainError."""
    if FAST_LOADER is not None and not READ_DIFFERENTLY.search(text):
        with contextlib.suppress(NotPlainError):
            return Reading().read(text, FAST_LOADER)
    return Reading().read(text, yaml.SafeLoader)


class Reading:
    """One text that is being read."""

    def __init__(self) -> None:
        self.open: list[OpenNode] = []
        self.anchors: dict[str, Node] = {}
        self.documents: list[Any] = []

    def read(self, text: str, loader: type[Any]) -> Any:  # noqa: ANN401 - whatever the text holds
        if len(text) > MAX_BYTES:
            raise NotPlainError(f"expected at most {MAX_BYTES:,} characters, found {len(text):,}")
        try:
            for event in yaml.parse(text, Loader=loader):
                self.take(event)
        except yaml.YAMLError as error:
            raise NotPlainError(str(error)) from error
        return self.documents[0] if self.documents else None

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent() if self.documents:
                raise self.refused(event, "expected one document, found a second one ('---')")
            case yaml.AliasEvent():
                if event.anchor not in self.anchors:
                    raise self.refused(event, f"alias *{event.anchor} names nothing that stands before it")
                self.add(event, self.anchors[event.anchor])
            case yaml.ScalarEvent():
                self.check_untagged(event)
                node = Node(self.scalar(event), 1, 1 + len(event.value))
                self.anchor(event.anchor, node)
                self.add(event, node)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self.check_untagged(event)
                if len(self.open) == MAX_DEPTH:
                    raise self.refused(event, f"expected at most {MAX_DEPTH} levels, found more")
                self.open.append(OpenNode({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                ended = self.open.pop()
                node = Node(ended.content, ended.values, ended.size)
                self.anchor(ended.anchor, node)
                self.add(event, node)

    def add(self, event: yaml.Event, node: Node) -> None:
        if not self.open:
            self.documents.append(node.value)
            return
        parent = self.open[-1]
        parent.values, parent.size = parent.values + node.values, parent.size + node.size
        # Those around it grow at their own ends; what is in none yet cannot be more than the file itself.
        if parent.values > MAX_VALUES or parent.size > MAX_BYTES:
            raise self.refused(
                event, f"expected at most {MAX_VALUES:,} values and {MAX_BYTES:,} characters, aliases written out"
            )
        if isinstance(parent.content, list):
            parent.content.append(node.value)
        elif parent.has_key:
            parent.content[parent.key], parent.has_key = node.value, False
        else:
            parent.key, parent.has_key = self.key(event, node.value, parent.content), True

    def key(self, event: yaml.Event, key: object, before: dict[Hashable, Any]) -> Hashable:
        """Return a mapping's key: a text or whole number, not a duplicate; plain YAML silently keeps the last one."""
        if key == "<<":
            raise self.refused(event, "merge keys ('<<') are not read: write the keys out")
        if isinstance(key, bool) or not isinstance(key, str | int):
            hint = "" if isinstance(key, dict | list) else ", which YAML makes of an unquoted word; write it in quotes"
            raise self.refused(event, f"expected a text as key, found {type(key).__name__}{hint}")
        if key in before:
            raise self.refused(event, f"key {key!r} comes twice")
        return key

    def scalar(self, event: yaml.ScalarEvent) -> str | int | bool | None:
        text: str = event.value
        if found := NOT_STORABLE.search(text):
            raise self.refused(event, f"expected text that can be stored, found the character U+{ord(found[0]):04X}")
        if not event.implicit[0]:
            return text
        if text in WORDS:
            return WORDS[text]
        if not WHOLE_NUMBER.fullmatch(text):
            return text
        if len(text) > MAX_DIGITS:
            raise self.refused(event, f"expected a number of at most {MAX_DIGITS} digits, found {len(text):,}")
        return int(text.replace("_", ""))

    def anchor(self, name: str | None, node: Node) -> None:
        """Keep what aliases after it may name. An alias inside its own anchor finds nothing: no value holds itself."""
        if name is not None:
            self.anchors[name] = node

    def check_untagged(self, event: yaml.NodeEvent) -> None:
        """Refuse a tag: it would say to make something else of a value than is written."""
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise self.refused(event, f"expected plain values, found the tag {tag[:100]!r}")

    def refused(self, event: yaml.Event, reason: str) -> NotPlainError:
        mark = event.start_mark
        return NotPlainError(f"line {mark.line + 1}: {reason}" if mark is not None else reason)
