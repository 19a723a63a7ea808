"""``doctor``: check before the first run that all parts are installed, reachable and of matching versions."""

import os
import re
import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Final

from kafka_ingest.assembly import feed_files
from kafka_ingest.cluster.client_settings import with_ports
from kafka_ingest.errors import KafkaIngestError, UnknownFeedError
from kafka_ingest.model.topics import MARKS_SUFFIX
from kafka_ingest.settings.connections import FindConnection, kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.feed_sections import GroupStart
from kafka_ingest.settings.topics_file import PLACEHOLDER
from kafka_ingest.verbs.answer import Answer, Line
from kafka_ingest.verbs.check_installation import examine
from kafka_ingest.verbs.request import Call, Deciding, Option, Request

Right = tuple[str, tuple[str, ...]]
"""The options that name a resource, and the operations on it."""

PREFIXED: Final = " --resource-pattern-type prefixed"
OF_OUR_OWN: Final = "kafka_ingest"
"""The group, and the prefix of transactional ids, of Kafka as output."""


def commands_of(file: FeedFile, principal: str, find_connection: FindConnection) -> list[str]:
    """Return the commands that give a principal, such as ``User:ingest``, what a file needs, one for each resource.

    A file for many topics needs what its pattern selects: without a right on them, no plan finds any. Of names with
    placeholders it needs all that begin as they do.
    """
    of_many = file.topics
    feed = of_many.specimen if of_many is not None else feed_of(file)
    pattern = of_many.pattern if of_many is not None else feed.kafka.topic_pattern
    group, (conn_id, topic) = feed.kafka.group, feed.sink.written_topic or ("", None)
    if of_many is not None:
        group, topic = of_many.document.get("kafka", {}).get("group"), of_many.document["sink"].get("topic")
    rights = [(feed.kafka.conn_id, right) for right in rights_to_read(feed, pattern, group)]
    if topic is not None:
        rights += [(conn_id, right) for right in rights_to_write(topic)]
    servers = {conn_id: with_ports(kafka_settings(find_connection(conn_id)).bootstrap_servers) for conn_id, _ in rights}
    return [
        " ".join(
            (
                f"kafka-acls.sh --bootstrap-server {shlex.quote(servers[conn_id])} --add",
                f"--allow-principal {shlex.quote(principal)}",
                *(f"--operation {each}" for each in operations),
                resource,
            )
        )
        for conn_id, (resource, operations) in rights
    ]


def named(option: str, name: str) -> str:
    """Return the options that name a resource, or all that begin as far as a name with placeholders says."""
    plain, *more = PLACEHOLDER.split(name, maxsplit=1)
    if not more:
        return f"--{option}={shlex.quote(name)}"
    return f"--{option}={shlex.quote(plain)}{PREFIXED}" if plain else f"--{option}='*'"


def rights_to_read(feed: Feed, pattern: str | None, group: str | None) -> Iterator[Right]:
    """Yield what planning, reading and committing needs: READ includes DESCRIBE."""
    asks_configs = feed.alerts is not None and feed.alerts.headroom is not None
    operations = ("Read", *(("DescribeConfigs",) if asks_configs else ()))
    if pattern is None:
        yield from ((f"--topic={topic.name}", operations) for topic in feed.kafka.listed)
    else:
        prefix = literal_prefix(pattern)
        yield f"--topic={prefix}{PREFIXED}" if prefix else "--topic='*'", operations
    if group is not None:
        yield named("group", group), ("Read",)
    starts = [feed.start, *(topic.start for topic in feed.kafka.listed)]
    for other in dict.fromkeys(each.group for each in starts if isinstance(each, GroupStart)):
        yield named("group", other), ("Describe",)


def rights_to_write(topic: str) -> Iterator[Right]:
    yield named("topic", topic), ("Write", "DescribeConfigs")
    yield named("topic", f"{topic}{MARKS_SUFFIX}"), ("Create", "Read", "Write", "DescribeConfigs")
    yield f"--transactional-id={OF_OUR_OWN}.{PREFIXED}", ("Write",)
    yield "--cluster", ("DescribeConfigs",)
    yield f"--group={OF_OUR_OWN}", ("Read",)


def literal_prefix(pattern: str) -> str:
    """Return how all topics begin that a pattern matches, as far as it says so in plain characters."""
    if "|" in pattern:
        return ""
    pattern = re.sub(r"\A(?:\^|\\A)", "", pattern)
    found = re.match(r"(?:[A-Za-z0-9_-]|\\[.-])*", pattern)
    text = found[0] if found is not None else ""
    if pattern[len(text) : len(text) + 1] in {"*", "?", "{"}:  # of the last one there may be none
        text = re.sub(r"\\?.\Z", "", text)
    return text.replace("\\", "")


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
