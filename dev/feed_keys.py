"""Write the tables in ``docs/feed-keys.md``: they are made from the model of feed files, as its JSON Schema is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafka_ingest.settings.feed_schema import described_schema

PAGE = Path(__file__).resolve().parents[1] / "docs" / "feed-keys.md"
HEAD = "| key | type | default | since | meaning |\n|---|---|---|---|---|\n"
TABLE = re.compile(r"^\| key \|.*\n(?:\|.*\n)+", flags=re.MULTILINE)
Node = dict[str, Any]
WHOLE: Node = described_schema()


def resolved(node: Node) -> Node:
    """Return what a node refers to."""
    return WHOLE["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def alternatives(node: Node) -> Iterator[Node]:
    """Yield what a value may be."""
    node = resolved(node)
    either = node.get("anyOf") or node.get("oneOf") or ()
    if not either:
        yield node
    for each in either:
        yield from alternatives(each)


def kind(node: Node) -> str:
    """Return a type in words."""
    known = [each for each in alternatives(node) if each.get("type") != "null"]
    words = dict.fromkeys(word for each in known for word in words_of(each))
    return ", ".join([*words, *(["null"] if len(known) < len(list(alternatives(node))) else [])])


def words_of(node: Node) -> list[str]:
    """Return the words for one alternative."""
    if "enum" in node or "const" in node:
        return [f"`{each}`" for each in node.get("enum", [node.get("const")])]
    match node.get("type"):
        case "string":
            is_duration, is_time = "smhd" in node.get("pattern", ""), node.get("format") == "date-time"
            words = "duration" if is_duration else "time" if is_time else "text"
        case "array":
            words = f"list of {kind(node['items']).replace(', ', ' or ')}"
        case "boolean":
            words = "true or false"
        case "object" | None:
            words = "mapping"
        case _:
            ends = (("minimum", "from"), ("maximum", "to"))
            words = " ".join(["number", *(f"{word} {node[name]:,}" for name, word in ends if name in node)])
    return [words]


def written(default: object) -> str:
    """Return a default as a feed file writes it."""
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def rows(node: Node, place: str = "") -> Iterator[tuple[str, str, str, str, str, str]]:
    """Yield what each line of the table says, and of which format it is."""
    for each in alternatives(node):
        of = resolved(each.get("properties", {}).get("format", {})).get("const", "")
        for key, inner in each.get("properties", {}).items():
            path, is_required = f"{place}{key}", key in each.get("required", ())
            default = "required" if is_required else written(inner.get("default"))
            default = "" if default in ("`null`", "`{}`", "`[]`") else default
            yield path, kind(inner), default, inner["since"], inner["description"], of
            yield from rows(inner, f"{path}.")
            for entry in alternatives(inner):
                if entry.get("type") == "array":
                    yield from rows(entry["items"], f"{path}[].")


def tables() -> list[str]:
    """Return a table for each key at the top that holds others, after one of those at the top; equal rows are one."""
    found: dict[tuple[str, str, str, str, str], list[str]] = {}
    for *row, of in rows(WHOLE):
        # What a key has, a value has, too; what a topic's start has, the feed's.
        if not row[0].startswith(("key.", "kafka.topics[].start.")):
            path, words, default, since, meaning = row
            words = "`parquet`, `delta`, `iceberg`, `postgresql`, `kafka`" if path == "sink.format" else words
            words = "`raw`, `string`, `json`, `avro`, `protobuf`" if path == "value.format" else words
            default = "required" if path == "value.format" else default
            found.setdefault((path, words, default, since, meaning), []).append(of)
    top = [row for row in found if "." not in row[0]]
    parts = [top, *([row for row in found if row[0].startswith((f"{key[0]}.", f"{key[0]}[]."))] for key in top)]
    return [HEAD + "".join(line(row, found[row]) for row in part) for part in parts if part]


def line(row: tuple[str, str, str, str, str], formats: list[str]) -> str:
    """Return a line of a table; some keys are of some formats only."""
    path, words, default, since, meaning = row
    of = [each for each in formats if each]
    everywhere = not of or path.endswith(".format") or {"parquet", "kafka"} <= {*of}
    meaning += "" if everywhere else f" Of {', '.join(f'`{each}`' for each in of)}."
    return f"| `{path}` | {words} | {default} | {since} | {meaning} |\n"


def page() -> str:
    """Return the page with the tables as they should be."""
    made = iter(tables())
    text = TABLE.sub(lambda found: next(made, found[0]), PAGE.read_text())
    left = list(made)
    if left:
        raise SystemExit(f"expected a table for each part, found none for {left[0].splitlines()[2]}")
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
