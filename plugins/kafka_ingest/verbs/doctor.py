"""``doctor``: check before the first run that all parts are installed, reachable and of matching versions."""

import os
from typing import Annotated, Any

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.assembly import feed_files
from kafka_ingest.checks.acls import commands_of
from kafka_ingest.checks.doctor import examine
from kafka_ingest.errors import KafkaIngestError, UnknownFeedError
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.verbs.request import Call, Deciding, Option, Request


class Doctor(Request):
    """Check before the first run that all parts are installed, reachable and of matching versions."""

    verb = command = "doctor"
    does = "only checks that all parts are installed, reachable and of matching versions"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS
    needs_feed = False

    acls: Annotated[
        str | None,
        Option("Check nothing: print the commands that give this user what feeds need of Kafka.", metavar="USER"),
    ] = None

    def answer(self, call: Call) -> Answer:
        """Make all checks, of one feed or of all. The exit code is the worst error's."""
        environment = os.environ
        if self.acls is not None:
            return self._commands(self.acls, call)
        try:
            files = feed_files(call.find_connection, environment)
        except KafkaIngestError:
            files = read_feed_files(feeds_directory(environment))  # a check says what is wrong with the tables
        if call.feed is not None:
            files = those_named(call.feed, files)
            if not files:
                raise unknown(call.feed)
        errors: list[KafkaIngestError] = []
        checks: list[dict[str, Any]] = []
        for check in examine(files, call.find_connection, environment):
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
            call.on_check(check)
        return Answer({"checks": checks}, exit_code=max((error.exit_code for error in errors), default=0))

    def _commands(self, user: str, call: Call) -> Answer:
        """Return the commands for the user, by the files: no plan finds topics that it may not see."""
        files = read_feed_files(feeds_directory(os.environ))
        if call.feed is not None:
            # A feed of a file for many topics is known by the control tables alone.
            files = those_named(call.feed, files) or those_named(call.feed, feed_files(call.find_connection))
            if not files:
                raise unknown(call.feed)
        principal = user if ":" in user else f"User:{user}"
        found = dict.fromkeys(line for file in files for line in commands_of(file, principal, call.find_connection))
        return Answer({"acls": list(found)}, [Line(line) for line in found])


def those_named(name: str, files: list[FeedFile]) -> list[FeedFile]:
    return [file for file in files if name in {file.path.stem, file.name}]


def unknown(name: str) -> UnknownFeedError:
    return UnknownFeedError(
        f"expected a feed of {feeds_directory(os.environ)}, found {name!r}; see `kafka-ingest feeds`"
    )
