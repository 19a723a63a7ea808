"""Checks before the first run: each says what was found, and a failing one what to do."""

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from kafka_ingest.assembly import circles_of, sink_connections
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import check_version, open_database
from kafka_ingest.control.schema import SCHEMA_VERSION
from kafka_ingest.errors import InstallationError, KafkaAccessDeniedError, KafkaIngestError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import NEVER_PLANNED
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.planning.topics import topics_of_feed, topics_wanted
from kafka_ingest.settings.connections import (
    CONTROL_CONN_ID,
    FindConnection,
    control_database,
    kafka_settings,
    spark_master,
)
from kafka_ingest.settings.feed import DEFAULT_POOL, Feed
from kafka_ingest.settings.feed_claims import place_of_letters
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.sink_settings.local_directory import DATA_VARIABLE
from kafka_ingest.settings.store_connection import store_access
from kafka_ingest.sinks.choose import conn_id_of, format_of, sink_of
from kafka_ingest.sinks.choose import examine as examine_output
from kafka_ingest.sinks.usable_places import nearest_existing
from kafka_ingest.spark_launch.installation import CONNECTOR, installation
from kafka_ingest.spark_launch.java_options import SETTINGS_VARIABLE, lines_of
from kafka_ingest.spark_launch.spark_submission import check_master
from kafka_ingest.verbs.answer import Check
from kafka_ingest.verbs.check_airflow import check_one_host, looked_at, notifiers, pool
from kafka_ingest.verbs.check_feed import columns, driver, expressions, open_batch, schemas, uses_python

ASK_TIMEOUT_S = 5.0
OLDEST_JAVA = 17
RPC_PROTECTION = ("spark.authenticate", "spark.network.crypto.enabled")
"""Without them, the network traffic between driver and executors shows the read's settings, the secret included."""

JARS = ("kafka-clients-", "spark-token-provider-kafka-0-10_2.13-", "commons-pool2-")


def examine(files: list[FeedFile], find_connection: FindConnection, environment: Mapping[str, str]) -> Iterator[Check]:
    yield attempt("Java", java_version)
    yield attempt("Spark", spark_versions)
    yield attempt("archive of classes", class_archive)
    yield attempt("control tables", lambda: control_tables(find_connection, environment))
    feeds = [feed for file in files if (feed := file.feed or file.contested) is not None]
    with_python = {feed.spark.conn_id: feed for feed in reversed(feeds) if uses_python(feed)}
    started: set[str] = set()
    for file in files:
        feed = file.feed or file.contested
        if file.error is not None:
            yield Check(f"feed file {file.path.name}", "", file.error)
        elif feed is not None:
            yield Check(f"feed {feed.name}", f"{file.path} is valid")
        if feed is None:
            continue
        for about, look in questions(feed, find_connection, environment).items():
            yield attempt(f"feed {feed.name}: {about}", look)
        if feed.spark.conn_id not in started:
            started.add(feed.spark.conn_id)
            tried = with_python.get(feed.spark.conn_id, feed)
            look = partial(driver, tried, find_connection, environment)
            yield attempt(f"Spark connection {feed.spark.conn_id}", look)


def questions(
    feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]
) -> dict[str, Callable[[], str]]:
    decoding, everything = feed.decoding(), (feed, find_connection, environment)
    found: dict[str, Callable[[], str] | None] = {
        "Kafka": partial(kafka, feed, find_connection),
        "schemas": partial(schemas, *everything) if decoding.has_sources else None,
        "expressions": partial(expressions, *everything) if decoding.shape else None,
        "columns": partial(columns, *everything) if not decoding.is_raw else None,
        "open batch": partial(open_batch, *everything) if not decoding.is_raw else None,
        "Spark master": partial(master, feed, find_connection),
        "output": partial(output, *everything),
        "pool": partial(pool, feed.airflow.pool) if feed.airflow.pool != DEFAULT_POOL else None,
        "starts": looked_at if feed.start_when is not None else None,
        "alerts": partial(notifiers, feed.alerts.notifiers()) if feed.alerts is not None else None,
    }
    return {about: look for about, look in found.items() if look is not None}


def attempt(about: str, look: Callable[[], str]) -> Check:
    try:
        return Check(about, look())
    except KafkaIngestError as error:
        return Check(about, "", error)


def java_version() -> str:
    """Return the version of the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise InstallationError(
            f"expected Java {OLDEST_JAVA} or newer {where}, found none. Install one, or set JAVA_HOME."
        )
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if found is None:
        raise InstallationError(
            f"expected {java} to start and to name its version, found: {' '.join(answer.stderr.split())[-1000:]}. "
            "Correct JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS and _JAVA_OPTIONS, or install another Java."
        )
    if int(found[1]) < OLDEST_JAVA:
        raise InstallationError(
            f"expected Java {OLDEST_JAVA} or newer, found {found[1]} at {java}. Install a newer one."
        )
    return f"{found[1]} at {java}"


def spark_versions() -> str:
    """Return Spark's version, after comparing all the parts that must carry it."""
    try:
        found = {name: importlib.metadata.version(name) for name in ("pyspark", "pyspark-client")}
    except importlib.metadata.PackageNotFoundError as error:
        raise InstallationError(
            f"expected pyspark and pyspark-client, found no {error.name}. Install requirements.txt."
        ) from error
    if len(set(found.values())) != 1:
        raise InstallationError(
            f"expected pyspark and pyspark-client of one version, found {found}: they install into one folder and "
            "corrupt each other. Install both as requirements.txt pins them."
        )
    version = found["pyspark"]
    installed = installation()
    names = [jar.name for jar in installed.jars]
    missing = [module for module in JARS if not any(name.startswith(module) for name in names)]
    if f"{CONNECTOR}-{version}.jar" not in names:
        missing.insert(0, f"{CONNECTOR}-{version}.jar")
    if missing:
        raise InstallationError(
            f"expected {', '.join(missing)} for Spark {version} in {installed.jars[0].parent}, found "
            f"{', '.join(names)}. Run `kafka-ingest jars`."
        )
    binary = shutil.which("spark-submit", path=installed.search_path)
    if binary is None:
        raise InstallationError("expected spark-submit on the PATH, found none. It comes with pyspark: install that.")
    return f"{version}, connector in {installed.jars[0].parent}, {binary}"


def class_archive() -> str:
    """Return the archive from which Java starts faster; without one everything works."""
    installed = installation()
    place = installed.archive_place
    if folder := os.environ.get(SETTINGS_VARIABLE):
        return (
            f"none while {SETTINGS_VARIABLE} is set: Spark puts {folder} before its jars, where no archive fits. Each "
            "run starts seconds later than with the same settings in the feed's spark.conf"
        )
    if place is None:
        return "none without a Java and a Spark"
    if archive := place.archive():
        return str(archive)
    if place.failed_log.exists():
        reason = f"none could be made, see {place.failed_log}; `make setup` tries again once that file is removed"
    elif damaged := place.damaged():
        reason = f"{damaged} is damaged and not used: its size is not the one in its name; `make setup` makes a new one"
    elif os.environ.get("SPARK_HOME"):
        reason = (
            f"none for the Spark in SPARK_HOME, {installed.spark_home}; `make setup` makes one for the installed "
            "pyspark"
        )
    else:
        reason = "none for this Java and these jars; `make setup` makes one"
    return f"{reason} (elsewhere: docs/team-server.md). Until then each run starts seconds later"


def control_tables(find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return the control tables' place and version, after checking that all tasks would reach the same ones."""
    settings = control_database(find_connection(CONTROL_CONN_ID))
    if settings.sqlite_file is not None:
        check_one_host(settings.sqlite_file, environment)
    check_version(open_database(settings))
    return f"{settings}, schema {SCHEMA_VERSION}"


def kafka(feed: Feed, find_connection: FindConnection) -> str:
    """Return the cluster, after checking that it answers and has the feed's topics."""
    settings = kafka_settings(find_connection(feed.kafka.conn_id))
    settings.java_settings()
    cluster = ConfluentKafkaCluster(lambda: settings, at_most_s=ASK_TIMEOUT_S)
    cluster_id = cluster.cluster_id()
    plan_settings = feed.plan_settings({"KAFKA_INGEST_DATA": "/"})
    there = cluster.topic_names() if feed.kafka.topic_pattern else []
    described = cluster.describe_topics(topics_wanted(NEVER_PLANNED, plan_settings, there))
    topics = topics_of_feed(NEVER_PLANNED, plan_settings, described, cluster_id, datetime.now(UTC)).present
    if missing := cluster.missing_rights(topics, feed.kafka.group):
        raise KafkaAccessDeniedError(
            f"expected the user of connection {feed.kafka.conn_id!r} to have all rights that this feed needs, found it "
            f"without {listing(missing)}. Grant them (docs/security.md), or correct the user."
        )
    partitions = ", ".join(
        f"{topic} ({counted(len(found.partitions), 'partition')})" for topic, found in sorted(topics.items())
    )
    return f"cluster {cluster_id} at {settings.bootstrap_servers}, {partitions}"


def master(feed: Feed, find_connection: FindConnection) -> str:
    """Return the Spark master, after checking that it can be used safely, and what travels to it unencrypted."""
    found = spark_master(find_connection(feed.spark.conn_id))
    try:
        settings = kafka_settings(find_connection(feed.kafka.conn_id))
    except WrongUseError:
        settings = None  # the check of Kafka names it
    place = feed.output({DATA_VARIABLE: "/"}).place
    access = None
    if not isinstance(place, Path):
        access = store_access(place, find_connection(conn_id_of(place)))
        installation().check_store_jars(place.scheme)
    check_master(found, sink_is_shared=feed.sink.shared or access is not None, access=access)
    if found.is_local or settings is None or not settings.holds_secret:
        return found.master
    conf = {**site_conf(), **feed.spark.conf}
    off = [key for key in RPC_PROTECTION if conf.get(key, "false").lower() != "true"]
    if not off:
        return found.master
    return (
        f"{found.master}; the Kafka connection's secret travels to its executors unprotected, since "
        f"{' and '.join(off)} {'are' if len(off) > 1 else 'is'} off: docs/security.md"
    )


def site_conf() -> dict[str, str]:
    home = installation().spark_home
    lines = lines_of(os.environ.get(SETTINGS_VARIABLE) or (home / "conf" if home else None), "spark-defaults.conf")
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}  # noqa: PLR2004 - a name and its value


def output(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return the output's path, after checking that it can be created and written; nothing is created."""
    location = feed.output(environment)
    path = location.place
    examine_output(location, sink_connections(find_connection))
    if place_of_letters(feed, environment) is not None:
        examine_output(output_of_dead_letters(location), sink_connections(find_connection))
    sink = sink_of(location, sink_connections(find_connection))
    if feed.late_by is not None and sink.check_late is not None:
        sink.check_late()
    remark = sink.remark() if sink.remark is not None else ""
    if (most_rows := sink.most_rows) is not None:
        most_rows()
        if (error := circles_of(find_connection, environment).get(feed.name)) is not None:
            raise error
    existing = nearest_existing(path) if isinstance(path, Path) else path
    made = "" if existing == path else f"; it will be made below {existing}"
    guarantee = format_of(location).guarantee
    what = f"{path} can be written as {location.format}{made}. {guarantee}"
    return f"{what}{beside_control_tables(location, find_connection)}{remark}{lacks(feed, location, find_connection)}"


def beside_control_tables(output: OutputLocation, find_connection: FindConnection) -> str:
    """Return that an output's database has the control tables, too, where it has."""
    in_transaction = sink_of(output, sink_connections(find_connection)).in_transaction
    with contextlib.suppress(KafkaIngestError):  # the check of the control tables names it
        settings = control_database(find_connection(CONTROL_CONN_ID))
        tables = SqlControlTables(open_database(settings))
        if in_transaction is not None and in_transaction(tables.are_in):
            may_write = in_transaction(tables.may_be_written_in)
            why = "" if may_write else ", but its role has not all rights on them: offsets may move a transaction later"
            return f" The control tables are in the same database{why}."
    return ""


def lacks(feed: Feed, output: OutputLocation, find_connection: FindConnection) -> str:
    """Return what to do where some readers may miss rows, since they take missing bounds for others."""
    statistics = sink_of(output, sink_connections(find_connection)).statistics
    if statistics is None or not (columns := statistics.may_lack()):
        return ""
    return (
        f" Files may lack the bounds of {listing(columns)}, and some readers then find no rows by them: see "
        f"`kafka-ingest mend-statistics {feed.name}`."
    )
