"""``doctor``: check before the first run that all parts are installed, reachable and of matching versions."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from kafka_ingest.answers.answer import Answer
from kafka_ingest.checks.doctor import Check, examine
from kafka_ingest.errors import KafkaIngestError, UnknownFeedError
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files


def doctor(
    feed_name: str | None,
    find_connection: FindConnection,
    on_check: Callable[[Check], None],
    environment: Mapping[str, str] = os.environ,
) -> Answer:
    """Make all checks, of one feed or of all; ``on_check`` is called after each. The exit code is the worst error's."""
    files = read_feed_files(feeds_directory(environment))
    if feed_name is not None:
        named = [file for file in files if feed_name in {file.path.stem, file.name}]
        if not named:
            raise UnknownFeedError(
                f"expected a feed of {feeds_directory(environment)}, found {feed_name!r}; see `kafka-ingest feeds`"
            )
        files = named
    errors: list[KafkaIngestError] = []
    checks: list[dict[str, Any]] = []
    for check in examine(files, find_connection, environment):
        error = check.error
        if error is not None:
            errors.append(error)
        checks.append(
            {
                "check": check.about,
                "ok": error is None,
                "found": check.found or None,
                "error": {"code": error.code, "message": str(error)} if error is not None else None,
            }
        )
        on_check(check)
    return Answer({"checks": checks}, exit_code=max((error.exit_code for error in errors), default=0))
