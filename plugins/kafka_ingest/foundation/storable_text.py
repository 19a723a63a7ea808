"""Text that any database, any JSON reader and any terminal takes, whatever bytes it was made of, and without secrets.

Arguments that are not UTF-8 reach Python as lone surrogates (PEP 383), JSON may name them as escapes, and neither
UTF-8 nor PostgreSQL has a form for them; PostgreSQL's text holds no NUL; a terminal obeys control characters.
"""

import re
from collections.abc import Mapping
from typing import Any

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
