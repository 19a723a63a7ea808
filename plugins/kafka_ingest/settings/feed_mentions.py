"""Whether a feed file that was not parsed may name something: a feed, or what another feed claims.

Parsing 2,000 files takes seconds, searching their texts milliseconds. A search may find too much, and then the file is
parsed; it never misses a claim. It relies on how YAML writes texts: each word of a value stands in the file as it is,
unless a double-quoted text has escapes. Only where two words meet may there be other white space, and ``'`` may be
doubled.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from kafka_ingest.foundation.stores.kinds import KINDS
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_claims import located
from kafka_ingest.settings.sink_settings.local_directory import DATA_VARIABLE
from kafka_ingest.sinks.usable_places import output_of, places_of

MaySay = Callable[[str], bool]
"""Whether a file's text may say what is looked for."""

BEGINS, ENDS = r"(?<![\w.-])", r"(?![\w.-])"
PASSES_ON: Final = ("topic_pattern", "topic")
"""Keys that stand in the file of a feed that writes to a topic what it reads by a pattern, whatever its defaults."""
BETWEEN: Final = r"/(?:\.?/)*"
PATH_ENDS: Final = r"(?![/.]*[\w-])"
FOLDER_ENDS: Final = r"(?![\w-])"


@dataclass(frozen=True, slots=True)
class Mention:
    """A value in a file's text; ``word`` is a part of it, which is quicker to look for, and mostly in no other file."""

    word: str
    pattern: str
    flags: re.RegexFlag = re.NOFLAG

    def is_in(self, text: str) -> bool:
        return self.word in text and re.search(self.pattern, text, self.flags) is not None


def may_name(name: str) -> MaySay:
    return any_of([mention(name)])


def may_share(feed: Feed, environment: Mapping[str, str]) -> MaySay:
    """Return the search for files whose feed may share its name, its group or its output with this one."""
    output = located(feed, environment)
    root = PurePath(os.path.normpath(environment.get(DATA_VARIABLE) or ""))
    own = places_of(output)
    if any(root.is_relative_to(folder) for folder in own):
        return lambda _: True  # every relative path is in this output
    group = [mention(feed.kafka.group)] if feed.kafka.group is not None else []
    holders = [folder for path in (*own, *output.parents) for folder in (path, output_of(path) or path) if folder.name]
    return any_of(
        [
            mention(feed.name),
            *group,
            *map(mention, list(feed.sink.address.values())[-1:]),
            *(each for folder in own for each in path_mentions(folder, root, FOLDER_ENDS)),
            *(each for folder in dict.fromkeys(holders) for each in path_mentions(folder, root, PATH_ENDS)),
        ]
    )


def may_read_of(feed: Feed) -> MaySay:
    """Return the search for files whose feed may read the topic that this one writes, if it writes one.

    By a pattern only such as write topics, too: only these pass records on.
    """
    if feed.sink.written_topic is None:
        return lambda _: False
    named, by_pattern, writes = (any_of([mention(each)]) for each in (feed.sink.written_topic[1], *PASSES_ON))
    return lambda text: named(text) or (by_pattern(text) and writes(text))


def any_of(mentions: list[Mention]) -> MaySay:
    """Return the search for any of these, in texts that may also say it with escapes."""
    return lambda text: ("\\" in text and '"' in text) or any(each.is_in(text) for each in mentions)


def mention(value: str) -> Mention:
    """Return how a name or group stands in a file."""
    return Mention(longest_word(value), BEGINS + as_written(value) + ENDS)


def path_mentions(path: PurePath, root: PurePath, ends: str) -> Iterator[Mention]:
    """Yield how a path may stand in a file: as it is, or relative to the root of outputs."""
    if path.parts[:1] in {(f"{each}:",) for each in KINDS}:
        written = BETWEEN.join(as_written(part) for part in path.parts[1:])
        yield Mention(longest_word(path.name), rf"{path.parts[0]}//(?:[\w.-]+@)?" + written + ends, re.IGNORECASE)
        return
    if path.is_absolute():
        written = "".join(BETWEEN + as_written(part) for part in path.parts[1:])
        yield Mention(longest_word(path.name), written + ends)
    if path.is_relative_to(root) and path != root:
        written = BETWEEN.join(as_written(part) for part in path.relative_to(root).parts)
        yield Mention(longest_word(path.name), BEGINS + written + ends)


def as_written(value: str) -> str:
    return r"\s+".join(re.escape(word).replace("'", "'+") for word in value.split())


def longest_word(value: str) -> str:
    """Return a part of a value that stands in any text that holds it; empty where there is none."""
    return max(re.split(r"[\s']+", value), key=len)
