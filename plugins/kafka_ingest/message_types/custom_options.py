"""Options that producers have defined for themselves are taken out of `.proto` text.

They say nothing of the bytes of a message. But `protoc` refuses a text that uses one without the file that defines it,
and a registry takes such a text.
"""

import re
from collections.abc import Iterator
from typing import Final

TOKEN: Final = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\d[\w.]*[eE][-+]\d+|[\w.]+|\s+|.""",
    re.DOTALL,
)
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
BEFORE_STATEMENTS: Final = frozenset({";", "{", "}"})


def without_custom_options(text: str) -> str:
    """Return the text of a file without the options whose names stand in parentheses, and without comments."""
    found = [word for word in TOKEN.findall(text) if not word.isspace() and not word.startswith(("//", "/*"))]
    words, kept, before = iter(found), list[str](), ";"
    for word in words:
        if word == "[":
            kept += list_without_custom(words)
        elif word == "option" and before in BEFORE_STATEMENTS:
            statement = [word, *up_to(words, ";"), ";"]
            kept += [] if statement[1] == "(" else statement
        else:
            kept.append(word)
        before = kept[-1] if kept else ";"
    return " ".join(kept)


def list_without_custom(words: Iterator[str]) -> list[str]:
    """Return the options of a field, up to the bracket that ends them, and the brackets where any are left."""
    inside, options = iter([*up_to(words, "]"), ","]), list[list[str]]()
    while option := list(up_to(inside, ",")):
        options.append(option)
    kept = [each for each in options if each[0] != "("]
    return ["[", *[word for each in kept for word in (*each, ",")][:-1], "]"] if kept else []


def up_to(words: Iterator[str], end: str) -> Iterator[str]:
    """Yield what comes before a sign that stands in no brackets that begin after here, and pass over that sign."""
    depth = 0
    for word in words:
        if word == end and not depth:
            return
        depth += (word in OPENING) - (word in CLOSING)
        yield word
