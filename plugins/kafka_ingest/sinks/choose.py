"""Find the sink of an output: one entry for each format."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from kafka_ingest.errors import MissingConnectionError, OutputNotUsableError
from kafka_ingest.foundation.storage import names_in, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import KINDS, SCHEMES_IN_WORDS
from kafka_ingest.foundation.without_garbage_collection import importing
from kafka_ingest.model.dead_letters import IN_DATABASE, IN_DELTA, IN_ICEBERG, IN_STORE, DeadLettersOfFile
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation, Place, RemotePlace, local, place_of
from kafka_ingest.model.published_output import FileContents, FilePlace
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import WrittenColumns, written_columns
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks import delta, iceberg, kafka_topic, parquet, postgresql
from kafka_ingest.sinks.batch_folders import data_file, dead_letter_objects_sink
from kafka_ingest.sinks.iceberg.catalog_settings import FindCatalog
from kafka_ingest.sinks.kafka_topic.cluster import FindKafka
from kafka_ingest.sinks.parquet import directory as parquet_files
from kafka_ingest.sinks.postgresql.database import FindDatabase
from kafka_ingest.sinks.tables.publisher import place_in_table
from kafka_ingest.sinks.usable_places import BESIDE_OUTPUT, check_makeable, check_reachable, storage_errors


def no_connection(wanted: object) -> NoReturn:
    """Raise MissingConnectionError: nothing here looks up connections."""
    raise MissingConnectionError(f"expected a way to look up the connection {wanted}, found none")


@dataclass(frozen=True, slots=True)
class SinkConnections:
    """Connections by their ids. Each is looked up when it is first needed."""

    catalog: FindCatalog = no_connection
    store: Callable[[RemotePlace], StoreAccess] = no_connection
    """Finds how to reach a place in a store."""
    database: FindDatabase = no_connection
    kafka: FindKafka = no_connection


@dataclass(frozen=True, slots=True)
class Format:
    """The properties of a format.

    ``in_stores``: whether its outputs may be in object stores. ``guarantee`` is one sentence on what readers see;
    ``commit_imports`` are modules that take a while to import, and that only a commit needs. ``place_of`` says whose
    data file a path names, if it is one of the ``places_in_words``; ``is_at``: whether an output is of the format, by
    the names that are in it.
    """

    sink: Callable[[OutputLocation, SinkConnections], Sink]
    place_of: Callable[[Path], FilePlace | None] = lambda _: None
    places_in_words: str = ""
    guarantee: str = ""
    commit_imports: tuple[str, ...] = ()
    in_stores: bool = False
    is_at: Callable[[Collection[str]], bool] = lambda _: False


FORMATS: Mapping[str, Format] = {
    "parquet": Format(
        lambda output, _: parquet.parquet_sink(output.path, table_options(output)),
        parquet_files.file_place,
        parquet_files.IN_WORDS,
        parquet.GUARANTEE,
        ("kafka_ingest.sinks.parquet_contents",),
        is_at=lambda names: not {delta.LOG, iceberg.METADATA}.intersection(names),
    ),
    "delta": Format(
        lambda output, connections: delta.delta_sink(
            output.place, access_to(output, connections), table_options(output)
        ),
        partial(place_in_table, table_format="delta", folders=(delta.BATCHES,)),
        f"TABLE/{delta.BATCHES}/<batch>/<attempt>/<file> of a Delta table",
        delta.GUARANTEE,
        ("kafka_ingest.sinks.delta.add_actions",),
        in_stores=True,
        is_at=lambda names: delta.LOG in names,
    ),
    "iceberg": Format(
        lambda output, connections: iceberg.iceberg_sink(
            output, connections.catalog, access_to(output, connections), table_options(output)
        ),
        partial(place_in_table, table_format="iceberg", folders=(iceberg.DATA, iceberg.BATCHES)),
        f"TABLE/{iceberg.DATA}/{iceberg.BATCHES}/<batch>/<attempt>/<file> of an Iceberg table",
        iceberg.GUARANTEE,
        ("kafka_ingest.sinks.iceberg.commits", "kafka_ingest.sinks.iceberg.table_io", "pyiceberg.catalog.sql"),
        in_stores=True,
        is_at=lambda names: iceberg.METADATA in names,
    ),
    "postgresql": Format(
        lambda output, connections: postgresql.postgresql_sink(
            output, connections.database, access_to(output, connections), table_options(output)
        ),
        guarantee=postgresql.GUARANTEE,
        commit_imports=("kafka_ingest.sinks.postgresql.copied_rows", "psycopg"),
        in_stores=True,
    ),
    "kafka": Format(
        lambda output, connections: kafka_topic.kafka_sink(
            output, connections.kafka, access_to(output, connections), table_options(output)
        ),
        guarantee=kafka_topic.GUARANTEE,
        commit_imports=("kafka_ingest.sinks.kafka_topic.produced_rows",),
        in_stores=True,
    ),
}


def letters_as_files(output: OutputLocation, connections: SinkConnections) -> Sink:
    """Return the roles of dead letters beside a topic, or, of an earlier version, beside a table."""
    if isinstance(output.place, Path):
        return parquet.parquet_sink(output.path)
    return dead_letter_objects_sink(output.place, access_to(output, connections))


OF_DEAD_LETTERS: Mapping[str, Format] = {
    IN_STORE: Format(letters_as_files, in_stores=True),
    IN_DELTA: Format(
        lambda output, connections: delta.delta_dead_letters_sink(
            output.place, access_to(output, connections), table_options(output), letters_as_files(output, connections)
        ),
        in_stores=True,
    ),
    IN_ICEBERG: Format(
        lambda output, connections: iceberg.iceberg_dead_letters_sink(
            output,
            connections.catalog,
            access_to(output, connections),
            table_options(output),
            letters_as_files(output, connections),
        ),
        in_stores=True,
    ),
    IN_DATABASE: Format(
        lambda output, connections: postgresql.postgresql_dead_letters_sink(
            output, connections.database, access_to(output, connections)
        ),
        in_stores=True,
    ),
}
"""What no feed names: the outputs that dead letters have beside a table."""

NO_CONNECTIONS = SinkConnections()


def sink_of(output: OutputLocation, connections: SinkConnections = NO_CONNECTIONS) -> Sink:
    """Return the sink; raises OutputNotUsableError where the format is not known, or cannot be where the output is.

    ``connections`` are for formats that need some: a caller that serves any feed hands them in.
    """
    return format_there(output).sink(output, connections)


def examine(output: OutputLocation, connections: SinkConnections = NO_CONNECTIONS) -> None:
    check_makeable(output.place)
    sink_of(output, connections).publisher.examine()


def import_for_commit(output: OutputLocation) -> None:
    """Import what a commit to an output needs: a third of a second, or more than one, spent while Spark runs.

    Not in a process that is forked later: see :mod:`kafka_ingest.sinks.iceberg.output`.
    """
    with importing():
        for module in format_there(output).commit_imports:
            import_module(module)


def format_there(output: OutputLocation) -> Format:
    """Return the properties of an output's format; raises OutputNotUsableError where it cannot be in that place.

    Raises InstallationError where what reads and writes there is missing.
    """
    found, place = format_of(output), output.place
    if not isinstance(place, Path) and not (found.in_stores and place.scheme in KINDS):
        raise OutputNotUsableError(
            f"an output of format {output.format} cannot be in {output}: expected a local or mounted directory, or "
            f"format {' or '.join(name for name, each in FORMATS.items() if each.in_stores)} in {SCHEMES_IN_WORDS}"
        )
    check_reachable(place)
    return found


def access_to(output: OutputLocation, connections: SinkConnections) -> StoreAccess | None:
    place = output.place
    return None if isinstance(place, Path) else connections.store(place)


def conn_id_of(place: RemotePlace) -> str:
    return place.conn_id or KINDS[place.scheme].conn_id


def table_options(output: OutputLocation) -> TableOptions:
    """Return how records go into a table; raises OutputNotUsableError where a later version planned it."""
    try:
        return TableOptions.of(dict(output.options))
    except ValueError as error:
        raise OutputNotUsableError(
            f"the options of output {output} cannot be used: {error}; the batch was planned by another version of "
            "kafka_ingest"
        ) from error


def format_found(uri: str, options: Mapping[str, str], connections: SinkConnections) -> OutputLocation:
    """Return the output at an absolute path or a URI, of the format that is there; ``options`` are a table's.

    One in a database or a topic is not there, and is known by what is among them.

    Raises OutputNotUsableError where there is no output.
    """
    if kafka_topic.TOPIC in options:
        return OutputLocation.at("kafka", uri, options)
    if postgresql.CONN_ID in options:
        return OutputLocation.at("postgresql", uri, options)
    place = place_of(uri)
    try:
        access = access_to(OutputLocation("", uri), connections)
        with storage_errors(place):
            folder = opened(place, access)
            names = names_in(folder) if not isinstance(folder, Path) or folder.is_dir() else []
    except ValueError as error:
        raise OutputNotUsableError(f"expected a directory or {SCHEMES_IN_WORDS}, found {uri}: {error}") from error
    if not names:
        raise OutputNotUsableError(f"expected an output in {uri}, found nothing there. Is its storage mounted?")
    if above := [name for name in names if name.endswith(BESIDE_OUTPUT)]:
        raise OutputNotUsableError(f"expected one output in {uri}, found a folder of several: {listing(sorted(above))}")
    found = next(name for name, each in FORMATS.items() if each.is_at(names))
    return OutputLocation.at(found, uri, options)


def format_of(output: OutputLocation) -> Format:
    """Return the properties of an output's format; raises OutputNotUsableError where it is unknown."""
    found = FORMATS.get(output.format) or OF_DEAD_LETTERS.get(output.format)
    if found is None:
        raise OutputNotUsableError(
            f"expected a sink format out of {', '.join(FORMATS)}, found {output.format!r}; the batch was planned by "
            "another version of kafka_ingest"
        )
    return found


def columns_of_file(path: Place) -> WrittenColumns:
    return written_columns(data_file(local(path)).columns())


def rows_of_file(path: Place) -> list[dict[str, Any]]:
    """Return the rows of a data file on a disk, by the names of their columns, long values cut."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.parquet_contents import rows_in_short  # noqa: PLC0415

    return rows_in_short(local(path))


def dead_letters_in_file(path: Place, *, samples: int) -> DeadLettersOfFile:
    """Return how many dead letters a file on a disk holds of each cause, with the first ones of each."""
    # A third of a second for pyarrow, which only a question about records should pay.
    from kafka_ingest.sinks.dead_letter_files import dead_letters_in, letters_in  # noqa: PLC0415

    with letters_in(local(path)) as letters:
        return dead_letters_in(letters, samples=samples)


class DataFilesOfAllFormats:
    """Data files by their paths alone: each format recognizes its own places."""

    def place_of(self, path: Path) -> FilePlace | None:
        found = (each.place_of(path) for each in FORMATS.values())
        return next((place for place in found if place is not None), None)

    def places_in_words(self) -> str:
        return "; ".join(each.places_in_words for each in FORMATS.values() if each.places_in_words)

    def contents(self, path: Path, *, intervals: int) -> FileContents:
        return data_file(path).contents(intervals=intervals)
