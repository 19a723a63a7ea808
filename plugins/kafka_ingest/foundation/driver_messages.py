"""What a database's driver says, without what a connection keeps secret."""

import re
from collections.abc import Mapping

SHOWN = frozenset({"host", "port"})


def without_secrets(message: str, password: str | None, options: Mapping[str, object]) -> str:
    """Return a message without the password and the options of a URL, which libpq quotes if it rejects them."""
    secrets = [password or "", *(str(value) for name, value in options.items() if name not in SHOWN)]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", message)
    return message
