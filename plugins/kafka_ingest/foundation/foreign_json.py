"""JSON that another program may have written or changed: one reader, one error.

What Python's own takes besides JSON, or takes and others do not, is refused: NaN and infinite numbers, a name that an
object has twice (RFC 8259 leaves open which value counts), halves of characters, which neither UTF-8 nor a database
has, and what is larger or deeper than any document of ours.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NoReturn

MOST_BYTES = 64 * 1024 * 1024
"""Of a receipt of 300,000 files. Read, it takes some ten times as much memory."""
ENOUGH_BYTES = MOST_BYTES + 1
"""What is read of a file, so that one that is too large is refused."""
MOST_LEVELS = 100
MOST_BITS = 63
"""Of a whole number without its sign: what Kafka counts, and what databases can keep."""
HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""Of a character beyond the first 65,536, which JSON escapes as two; whether one is alone is checked then."""


class ForeignJsonError(ValueError):
    """A text is no JSON, or none that can be used."""


@contextmanager
def read_as_ours() -> Iterator[None]:
    """Give what a document raises by other names, types or values than ours one error, where its parts are taken."""
    try:
        yield
    except ForeignJsonError:
        raise
    except KeyError as error:
        raise ForeignJsonError(f"expected {error} in it, found none") from error
    except ValueError as error:
        raise ForeignJsonError(str(error)) from error
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ForeignJsonError(f"expected values of other types in it, found that {error}") from error


def whole(document: Mapping[str, Any], name: str) -> int:
    """Return a whole number of a document, which True and 1.0 are not; raises ForeignJsonError, or KeyError."""
    found = document[name]
    if type(found) is not int:
        raise ForeignJsonError(f"expected {name} to be a whole number, found {str(found)[:100]!r}")
    return found


def said(document: Mapping[str, Any], name: str) -> str:
    """Return a text of a document, without NUL, which no database stores; raises ForeignJsonError, or KeyError."""
    found = document[name]
    if not isinstance(found, str) or "\0" in found:
        raise ForeignJsonError(f"expected {name} to be a text, found {str(found)[:100]!r}")
    return found


def said_or_none(document: Mapping[str, Any], name: str) -> str | None:
    """Return a text of a document that may be null; raises as :func:`said` does."""
    return said(document, name) if document[name] is not None else None


def moment(document: Mapping[str, Any], name: str) -> datetime:
    """Return a point in time of a document, with its offset from UTC; raises ForeignJsonError, or KeyError."""
    found = datetime.fromisoformat(said(document, name))
    if found.tzinfo is None:
        raise ForeignJsonError(f"expected {name} with its offset from UTC, found {found}")
    return found


def read_foreign_json(content: bytes | str, most_bytes: int = MOST_BYTES, most_bits: int = MOST_BITS) -> Any:  # noqa: ANN401 - whatever JSON has
    """Return what a text says, in Python's own types; raises ForeignJsonError, and nothing else."""
    if len(content) > most_bytes:
        raise ForeignJsonError(f"expected at most {most_bytes:,} bytes of JSON, found {len(content):,}")
    try:
        text = content.decode() if isinstance(content, bytes) else content
        found = json.loads(text, parse_constant=no_number, object_pairs_hook=without_duplicates)
        check_values(found, most_bits)
        if HALF.search(text) or not (isinstance(content, bytes) or text.isascii()):
            json.dumps(found, ensure_ascii=False).encode()
    except ForeignJsonError:
        raise
    except RecursionError:
        raise ForeignJsonError(f"expected at most {MOST_LEVELS} levels of JSON, found more") from None
    except UnicodeEncodeError as error:
        raise ForeignJsonError(f"expected JSON with whole characters, found half of one: {error.reason}") from None
    except ValueError as error:
        raise ForeignJsonError(f"expected JSON, found {error}") from None
    return found


def read_foreign_object(content: bytes | str, most_bits: int = MOST_BITS) -> dict[str, Any]:
    """Return the object that a text is; raises ForeignJsonError, and nothing else."""
    found = read_foreign_json(content, most_bits=most_bits)
    if isinstance(found, dict):
        return found
    raise ForeignJsonError(f"expected a JSON object, found {type(found).__name__}")


def no_number(name: str) -> NoReturn:
    """Refuse what Python reads as a number, and JSON has not."""
    raise ForeignJsonError(f"expected finite numbers, found {name}")


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ForeignJsonError(f"expected each name of an object once, found {twice[:100]!r} twice")
    return found


def check_values(found: object, most_bits: int) -> None:
    """Raise ForeignJsonError where a number is too large, or values are nested too deep for recursion."""
    level: list[Any] = [[found]]
    for _ in range(MOST_LEVELS + 1):
        if not level:
            return
        within = level
        level = []
        for each in within:
            for value in each.values() if type(each) is dict else each:
                kind = type(value)
                if kind is dict or kind is list:
                    level.append(value)
                elif kind is int and value.bit_length() > most_bits:
                    raise ForeignJsonError(
                        f"expected whole numbers of at most {most_bits} bits, found {str(value)[:40]}"
                    )
                elif kind is float and not math.isfinite(value):  # JSON can write numbers larger than any
                    raise ForeignJsonError("expected finite numbers, found a larger one")
    if level:
        raise ForeignJsonError(f"expected at most {MOST_LEVELS} levels of JSON, found more")


UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters other than tab and line feed, and surrogates: in a string that Python decoded all are lone."""

ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""What a byte that is not UTF-8 is decoded to (PEP 383)."""


def storable(text: str) -> str:
    r"""Return a text in which characters that cannot be stored or shown are escapes: the byte 0xE9 is ``\xe9``."""
    return UNSTORABLE.sub(lambda found: escape(ord(found.group())), text)


def on_one_line(text: str) -> str:
    """Return a storable text without line breaks, which would draw lines of their own into a log."""
    return storable(" ".join(text.splitlines()))


def escape(code: int) -> str:
    """Return one character in the notation of Python and C; a byte that was no UTF-8 as that byte."""
    byte = code - 0xDC00 if code in ESCAPED_BYTES else code
    return f"\\x{byte:02x}" if byte < 0x100 else f"\\u{byte:04x}"  # noqa: PLR2004 - what two digits hold


def storable_document(value: Any) -> Any:  # noqa: ANN401 - JSON-able data of any shape
    """Return JSON-able data with all its texts storable, those that are keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(key) if isinstance(key, str) else key: storable_document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable_document(item) for item in value]
    return value


SHOWN = frozenset({"host", "port"})


def without_secrets(message: str, password: str | None, options: Mapping[str, object]) -> str:
    """Return a message without the password and the options of a URL, which libpq quotes if it rejects them."""
    secrets = [password or "", *(str(value) for name, value in options.items() if name not in SHOWN)]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", message)
    return message
