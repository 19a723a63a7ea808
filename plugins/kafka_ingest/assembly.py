"""Put the real parts of one feed together: what the Airflow tasks and the command line share."""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from threading import Lock
from uuid import UUID

from kafka_ingest.batches.ask_together import ask_together
from kafka_ingest.batches.backfill_request import BackfillRequest
from kafka_ingest.batches.commit_batch import Committed, commit_batch
from kafka_ingest.batches.complete_periods import MOST_AT_ONCE, Waiting, complete_periods, count_late_rows
from kafka_ingest.batches.fitting_columns import ColumnRules, ComparedColumns, compare_columns
from kafka_ingest.batches.freeze_schemas import Schemas
from kafka_ingest.batches.known_feed import batch_of_feed, known_feed
from kafka_ingest.batches.known_output import check_output_known
from kafka_ingest.batches.mirror_group import Mirrored, mirror_group
from kafka_ingest.batches.output_places import Claimant, keeps_running
from kafka_ingest.batches.plan_backfill import BackfillOutcome, plan_backfill
from kafka_ingest.batches.plan_batch import Asked, PlanOutcome, plan_batch
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import open_database
from kafka_ingest.errors import (
    ColumnsChangedError,
    InvalidFeedError,
    KafkaIngestError,
    KafkaUnavailableError,
    OutputUnavailableError,
    WrongUseError,
)
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.tried import tried
from kafka_ingest.model.batch import NOBODY, Batch
from kafka_ingest.model.completion import Period
from kafka_ingest.model.decoding import Columns, Decoding
from kafka_ingest.model.omissions import NeverFound
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.schema_source import DescriptorSetFile, SchemaFile
from kafka_ingest.model.spark_settings import Heap
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.topics import TopicMemory
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.schemas import message_types, open_registry
from kafka_ingest.settings.connections import (
    CONTROL_CONN_ID,
    FindConnection,
    control_database,
    database_settings,
    kafka_settings,
    registry_settings,
    spark_master,
)
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_claims import located, refuse_cycles
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.settings.feed_files import (
    check_not_taken,
    feed_file_named,
    feeds_directory,
    read_feed_files,
    read_schema_file,
    the_one_of,
)
from kafka_ingest.settings.sink_settings.local_directory import in_object_store
from kafka_ingest.settings.store_connection import catalog_settings, store_access
from kafka_ingest.sinks.choose import SinkConnections, access_to, conn_id_of, format_found, sink_of
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster
from kafka_ingest.sinks.parquet.directory import write_success_files
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.spark_submission import SparkMaster, check_master
from kafka_ingest.spark_launch.start_failures import heap_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FeedParts:
    """One feed with its control tables, its Kafka and its Spark.

    Each connection is looked up when it is first needed: a commit must not fail because of Spark, which it does not
    use.
    """

    feed: Feed
    control: SqlControlTables
    find_connection: FindConnection
    environment: Mapping[str, str]
    clusters: Callable[[str], ConfluentKafkaCluster] | None = None
    """Where several feeds share the client of each cluster: by their Kafka connections."""
    found_after: datetime | None = None
    """Of a feed that a file for many topics made: the last plan of the file before it found the topic."""
    circles: Callable[[], Mapping[str, InvalidFeedError]] | None = None
    """Where several feeds share the answer: see :func:`circles_of`."""

    @cached_property
    def plan_settings(self) -> FeedPlanSettings:
        """The feed as the planner sees it."""
        return replace(self.feed.plan_settings(self.environment), found_after=self.found_after)

    @cached_property
    def _find_kafka(self) -> Callable[[], KafkaClientSettings]:
        find_connection, conn_id = self.find_connection, self.feed.kafka.conn_id
        return cache(lambda: kafka_settings(find_connection(conn_id)))

    @property
    def kafka_client(self) -> KafkaClientSettings:
        """How to reach Kafka."""
        return self._find_kafka()

    @cached_property
    def kafka(self) -> ConfluentKafkaCluster:
        """The questions asked of Kafka."""
        if self.clusters is not None:
            return self.clusters(self.feed.kafka.conn_id)
        # Without these parts: in a circle with them, the client would be closed by the garbage collector, which may run
        # in one of the client's own threads, and librdkafka ends the process there.
        return ConfluentKafkaCluster(self._find_kafka)

    @cached_property
    def master(self) -> SparkMaster:
        """Where Spark runs."""
        return spark_master(self.find_connection(self.feed.spark.conn_id))

    @cached_property
    def sinks(self) -> Sinks:
        """Finds the sink of an output."""
        return sinks_of(self.find_connection)

    def check_keeps_running(self, file: FeedFile) -> None:
        """Raise the file's error, unless its feed is contested and is the one that the control tables know."""
        if file.error is None:
            return
        rivals = [claimant(rival, self.environment) for rival in file.rivals]
        if file.contested is None or not keeps_running(claimant(self.feed, self.environment), rivals, self.control):
            raise file.error

    def check_spark(self) -> None:
        """Refuse a Spark that cannot be used, before anything is planned."""
        access = self.access(self.plan_settings.output)
        check_master(self.master, sink_is_shared=self.feed.sink.shared or access is not None, access=access)
        if access is not None:
            installation().check_store_jars(access.scheme)
        self.kafka_client.java_settings()
        self.check_schema_files()

    def check_schema_files(self) -> None:
        """Refuse records that could not be decoded, before anything is planned."""
        self.check_decoders()
        decoding = self.feed.decoding()
        for name, part in decoding.parts.items():
            if isinstance(part.source, SchemaFile | DescriptorSetFile):
                frozen = self.schemas.part(name, part, (), ())
                if decoding.columns is Columns.FLATTEN and name == "value":
                    self.schemas.check_flat(frozen)

    def check_no_circle(self) -> None:
        """Refuse records that come back to the feed, before anything is planned; an open batch needs no Kafka."""
        if self.feed.sink.written_topic is None:
            return
        known = self.control.feed(self.feed.name)
        if known is not None and known.open_batch is not None:
            return
        circles = self.circles() if self.circles is not None else circles_of(self.find_connection, self.environment)
        if (error := circles.get(self.feed.name)) is not None:
            raise error

    def check_decoders(self) -> None:
        """Refuse a format whose jars or packages are not installed."""
        decoding = self.feed.decoding()
        if decoding.has_avro:
            installation().check_avro_jars()
        if decoding.has_protobuf:
            _ = self.schemas.message_types

    @cached_property
    def schemas(self) -> Schemas:
        """Where the schemas of records are asked for."""
        return schemas_of(self.find_connection, self.environment)

    def plan(
        self, *, actor: str | None, end: EndPositions = None, max_records: int | None = None, asked: Asked | None = None
    ) -> PlanOutcome:
        """Run the plan task; a manual run may end earlier or read less. The group follows a jump over a gap at once.

        Without an actor only decide what the next batch would be. ``asked`` is what was asked with other feeds'.
        """
        self.check_spark()
        self.check_no_circle()
        settings = self.settings_of_run(max_records)
        outcome = plan_batch(settings, self, actor=actor, end=end, asked=asked)
        if actor is not None and outcome.moved:
            self.mirror(actor=actor)
        return outcome

    def settings_of_run(self, max_records: int | None) -> FeedPlanSettings:
        """Return the feed as the planner sees it, with a smaller limit where one run asks for it."""
        limits = [limit for limit in (self.plan_settings.max_records, max_records) if limit is not None]
        return replace(self.plan_settings, max_records=min(limits, default=None), surely_fits=self.heap.surely_fits)

    def plan_backfill(self, request: BackfillRequest, *, actor: str | None, once: bool = False) -> BackfillOutcome:
        """Run a backfill's plan task: claim its chunks, or with ``once`` return those that ``actor`` claimed before.

        Without an actor only decide what it would read.
        """
        if request.output is not None:
            self.check_of_no_topic(request.output)
        self.check_spark()
        self.check_no_circle()
        return plan_backfill(
            request, self.plan_settings, self, actor=actor, once=once, check_records=self.check_records
        )

    def check_of_no_topic(self, copy: OutputLocation) -> None:
        """Refuse a copy into the output of a feed that a file for many topics has made; others were compared before."""
        options = dict(copy.options)
        address = {key: options[key] for key in self.feed.sink.address if key in options}
        of_topics = [each for each in feed_files(self.find_connection, self.environment) if each.topic is not None]
        check_not_taken(copy.path, self.environment, address, of_topics)

    def check_records(self, output: OutputLocation, topics: Collection[str]) -> None:
        """Refuse records that no attempt could write into an output, before any batch claims them."""
        decoding = self.feed.decoding()
        if decoding.has_sources:
            decoding = self.schemas.frozen(decoding, topics, {})
        if (refused := self.compare_columns(decoding, output).refused) is not None:
            raise ColumnsChangedError(refused)

    def batch(self, batch_id: UUID) -> Batch:
        """Return one of the feed's batches; raises UnknownBatchError where it is another feed's."""
        return batch_of_feed(batch_id, self.feed.name, self.control)

    @property
    def column_rules(self) -> ColumnRules:
        """How the columns of the feed's records are found, and what happens to new ones."""
        return ColumnRules(self.schemas.columns, self.feed.on_new_fields)

    def compare_columns(self, decoding: Decoding, output: OutputLocation | None = None) -> ComparedColumns:
        """Compare the columns that the feed makes now with those of an output; ``decoding`` has its schemas.

        Raises ColumnsChangedError where the output cannot hold such records at all.
        """
        known, name = self.control.feed(self.feed.name), self.feed.name
        feed_id = known.feed_id if known is not None else NOBODY
        target = output or self.plan_settings.output
        return compare_columns(name, feed_id, target, decoding, self, self.column_rules)

    def never_found(self) -> Sequence[NeverFound]:
        """Return which fields no record of the newest batch in the feed's output had that they should have."""
        known, output = self.control.feed(self.feed.name), self.plan_settings.output
        newest = self.control.newest_published(known.feed_id) if known is not None else None
        if newest is None or newest.output != output:
            return ()
        receipt = self.sinks(output).archive.receipt(newest.batch_id)
        return self.feed.batch_limits().never_found(receipt) if receipt is not None else ()

    def access(self, output: OutputLocation) -> StoreAccess | None:
        """Return how to reach an output's store, None where it is on a disk."""
        return access_to(output, sink_connections(self.find_connection))

    @property
    def heap(self) -> Heap:
        """The memory of Spark's tasks."""
        return heap_of(self.master, self.feed.spark.conf, self.feed.decoding())

    def check_output_known(self) -> None:
        """Refuse an operator's request where the feed's output holds batches that the control tables do not know."""
        check_output_known(known_feed(self.control, self.feed.name), self.plan_settings, self.control, self.sinks)

    def mirror(self, *, actor: str) -> Mirrored:
        """Bring the consumer group to the stored offsets outside a commit."""
        feed = known_feed(self.control, self.feed.name)
        return mirror_group(feed.feed_id, self.feed.kafka.group, self, batch_id=None, actor=actor)

    def complete(self, *, actor: str | None) -> Waiting | None:
        """Record which hours or days are complete, and return the one that is waited for, None before any plan.

        Without an actor only look. Raises WrongUseError where the feed does not ask for it.
        """
        rules, feed = self.feed.complete_rules(), self.control.feed(self.feed.name)
        if feed is None:
            return None
        if actor is not None:
            count_late_rows(feed.feed_id, rules, self.control, self.sinks)
        now = datetime.now(UTC)
        waiting = complete_periods(feed, rules, self.control, self.kafka, actor=actor, now=now)
        if actor is not None and rules.success_file:
            output = self.plan_settings.output
            terms = TableOptions.of(dict(output.options)).partition_by
            while periods := self.control.periods_to_mark(feed.feed_id, rules.by, limit=MOST_AT_ONCE):
                write_success_files(output.path, rules, terms, periods)
                self.control.note_success_files(feed.feed_id, rules.by, periods, now)
        return waiting

    def periods_to_announce(self) -> list[Period]:
        """Return the hours or days that Airflow is to hear of now, oldest first."""
        rules, feed_id = self.feed.complete_rules(), known_feed(self.control, self.feed.name).feed_id
        return self.control.periods_to_announce(feed_id, rules.by, rules.on_late, limit=MOST_AT_ONCE)

    def commit(self, batch_id: UUID, *, actor: str) -> Committed:
        """Run the commit task."""
        return commit_batch(
            self.batch(batch_id).batch_id,
            self,
            group=self.feed.kafka.group,
            actor=actor,
            limits=self.feed.batch_limits(),
        )


def assemble(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str] = os.environ) -> FeedParts:
    """Return a feed's parts; raises MissingConnectionError, InvalidConnectionError or ControlSchemaError."""
    return FeedParts(feed, control_tables(find_connection), find_connection, environment)


def assemble_all(
    files: Iterable[FeedFile], find_connection: FindConnection, environment: Mapping[str, str] = os.environ
) -> list[FeedParts]:
    """Return the parts of several files' feeds, which share the control tables, and the client of each cluster."""
    found = cache(find_connection)
    control = control_tables(found)
    clusters = cache(lambda conn_id: ConfluentKafkaCluster(lambda: kafka_settings(found(conn_id))))
    known_circles, one_asks = cache(partial(circles_of, found, environment, clusters)), Lock()

    def circles() -> Mapping[str, InvalidFeedError]:
        with one_asks:  # a cache alone lets all threads ask that come before the first answer
            return known_circles()

    return [
        FeedParts(each.contested or feed_of(each), control, found, environment, clusters, each.found_after, circles)
        for each in files
    ]


def ask_of_all(feeds: Sequence[FeedParts], end: EndPositions = None) -> dict[str, Asked]:
    """Return what the plans of feeds ask first, asked of each Kafka connection at once; what fails each asks again."""
    of_connection: dict[str, list[FeedParts]] = {}
    for each in feeds if len(feeds) > 1 else ():
        of_connection.setdefault(each.feed.kafka.conn_id, []).append(each)
    found: dict[str, Asked] = {}
    for conn_id, some in of_connection.items():
        asked = tried(partial(ask_those, end), some)
        if asked.error is not None:
            log.info("each feed of connection %s asks by itself: %s", conn_id, asked.error)
        found |= asked.result or {}
    return found


def ask_those(end: EndPositions, feeds: Sequence[FeedParts]) -> dict[str, Asked]:
    """Ask for feeds of one Kafka connection; those whose settings are wrong say so in their own plans."""
    settings = (tried(lambda each: each.plan_settings, each).result for each in feeds)
    return ask_together([each for each in settings if each is not None], feeds[0].control, feeds[0].kafka, end)


def assemble_named(
    name: str, find_connection: FindConnection, environment: Mapping[str, str] = os.environ
) -> FeedParts:
    """Return the parts of the feed of that name; raises its file's error, or UnknownFeedError where there is none."""
    file = file_of_feed(name, find_connection, environment)
    feed, control = file.contested or feed_of(file), control_tables(find_connection)
    parts = FeedParts(feed, control, find_connection, environment, found_after=file.found_after)
    parts.check_keeps_running(file)
    return parts


def feed_files(find_connection: FindConnection, environment: Mapping[str, str] = os.environ) -> list[FeedFile]:
    """Return all feed files, with what those for many topics came to at their last plans in their places."""
    directory = feeds_directory(environment)
    files = read_feed_files(directory, environment)
    if all(file.topics is None for file in files):
        return files
    return with_topics(files, control_tables(find_connection).topic_memory(), environment)


def files_of_topics(fleet: str, files: Iterable[FeedFile]) -> dict[str, FeedFile]:
    """Return the feeds that a fleet's files for many topics came to, by their names."""
    of_topics = ((each, each.feed) for each in files if each.topic is not None)
    return {feed.name: each for each, feed in of_topics if feed is not None and feed.fleet == fleet}


def with_topics(files: list[FeedFile], memory: TopicMemory, environment: Mapping[str, str]) -> list[FeedFile]:
    """Return files with what those for many topics came to in their places."""
    from kafka_ingest.settings.topic_feeds import all_feeds  # noqa: PLC0415 - only some folders have such a file

    return all_feeds(files, memory, feeds_directory(environment), environment)


def file_of_feed(name: str, find_connection: FindConnection, environment: Mapping[str, str] = os.environ) -> FeedFile:
    """Return the file of one feed, as :func:`file_finder` finds it."""
    return file_finder(find_connection, environment)(name)


def file_finder(
    find_connection: FindConnection, environment: Mapping[str, str] = os.environ
) -> Callable[[str], FeedFile]:
    """Return what finds files of feeds, which may be contested or broken, or of many topics; raises UnknownFeedError.

    The folder is read once, and so are the control tables, where a file for many topics asks for them.
    """
    directory = feeds_directory(environment)
    files = read_feed_files(directory, environment)
    memory = cache(lambda: control_tables(find_connection).topic_memory())
    of_topics = cache(lambda: with_topics(files, memory(), environment))

    def file_of(name: str) -> FeedFile:
        found = the_one_of(name, files)
        # Else it is of a file of its own; or its file gives it a new name since its last plan.
        if any(file.topics is not None for file in files) and (
            found is None or any(each.feed == name for each in memory().seen)
        ):
            found = the_one_of(name, of_topics()) or found
        return found or feed_file_named(name, directory, environment, files=files)

    return file_of


def circles_of(
    find_connection: FindConnection,
    environment: Mapping[str, str],
    clusters: Callable[[str], ConfluentKafkaCluster] | None = None,
) -> dict[str, InvalidFeedError]:
    """Return an error for each feed whose records come back to it by several connections to one cluster.

    Brokers are asked only where the topics' names allow it. A cluster that does not answer counts as one of its own.
    """
    ask = clusters or (lambda conn_id: ConfluentKafkaCluster(lambda: kafka_settings(find_connection(conn_id))))

    @cache
    def cluster_of(conn_id: str) -> str:
        try:
            return ask(conn_id).cluster_id()
        except KafkaIngestError as error:
            log.warning("to which cluster connection %s leads is unknown: %s", conn_id, error)
            return conn_id

    files = [file for file in feed_files(find_connection, environment) if file.feed is not None]
    by_name = {file.path for file in refuse_cycles(files, lambda _: "") if file.error is not None}
    suspects = [file for file in files if file.path in by_name]
    found = zip(suspects, refuse_cycles(suspects, cluster_of) if suspects else (), strict=True)
    return {feed_of(file).name: refused.error for file, refused in found if refused.error is not None}


def claimant(feed: Feed, environment: Mapping[str, str]) -> Claimant:
    """Return a feed as far as it matters to which one of two keeps running."""
    topics = [topic.name for topic in feed.kafka.listed]
    path = located(feed, environment)
    output: OutputLocation | None = None
    if in_object_store(feed.sink.path):
        output = feed.output(environment)
    elif path.is_absolute():
        output = OutputLocation.local(feed.sink.format, path)
    return Claimant(feed.name, output, topics, feed.kafka.topic_pattern)


def let_in(settings: KafkaClientSettings) -> KafkaClientSettings:
    """Return an output's settings once a broker accepts them: later clients would repeat a refused password.

    Raises what says why none does: KafkaLoginRefusedError, KafkaTlsRefusedError, OutputUnavailableError.
    """
    try:
        KafkaClient(lambda: settings).check_let_in()
    except KafkaUnavailableError as error:
        raise OutputUnavailableError(str(error)) from error
    return settings


def sink_connections(find_connection: FindConnection) -> SinkConnections:
    """Return what sinks look up, out of Airflow's connections."""
    return SinkConnections(
        catalog=lambda conn_id: catalog_settings(find_connection(conn_id)),
        store=lambda place: store_access(place, find_connection(conn_id_of(place))),
        database=lambda conn_id: database_settings(find_connection(conn_id)),
        kafka=cache(lambda conn_id: OutputCluster(let_in(kafka_settings(find_connection(conn_id))))),
    )


def sinks_of(find_connection: FindConnection) -> Sinks:
    """Return what finds the sink of an output, with the connections that it needs."""
    return partial(sink_of, connections=sink_connections(find_connection))


def schemas_of(find_connection: FindConnection, environment: Mapping[str, str]) -> Schemas:
    """Return where schemas are asked for, with the connections that this needs."""
    return Schemas(
        lambda conn_id: open_registry(registry_settings(find_connection(conn_id))),
        lambda path: read_schema_file(path, environment),
        message_types,
    )


def output_at(text: str, find_connection: FindConnection, address: Mapping[str, str | None]) -> OutputLocation:
    """Return the output in a place, whichever format it has; a table's by its connection and name, as options have it.

    Raises OutputNotUsableError where there is none.
    """
    if not text.strip():
        raise WrongUseError("expected the place of an output, found an empty text")
    uri = text if in_object_store(text) else str(Path(text).absolute())
    options = {name: value for name, value in address.items() if value is not None}
    return format_found(uri, options, sink_connections(find_connection))


def kafka_at(bootstrap: str | None, conn_id: str | None, find_connection: FindConnection) -> ConfluentKafkaCluster:
    """Return the questions asked of Kafka at some servers without TLS and login, or of a connection."""
    if (bootstrap is None) == (conn_id is None):
        raise WrongUseError("expected either --bootstrap or --kafka, found both")
    if bootstrap is not None:
        return ConfluentKafkaCluster(lambda: KafkaClientSettings("--bootstrap", {"bootstrap.servers": bootstrap}))
    return ConfluentKafkaCluster(lambda: kafka_settings(find_connection(conn_id or "")))


def control_tables(find_connection: FindConnection) -> SqlControlTables:
    """Return the control tables of the connection ``kafka_ingest``."""
    return SqlControlTables(open_database(control_database(find_connection(CONTROL_CONN_ID))))
