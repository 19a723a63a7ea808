"""What a commit tells OpenLineage: from which topics and offsets, into which output, with which columns.

Nothing of OpenLineage is imported here, and nothing is looked up unless its provider is installed and switched on.
:mod:`.openlineage_facets` makes facets of it, which the provider asks for in a fork of the task's process: all that
needs a file or a connection is therefore found before.

Namespaces and names of datasets, by OpenLineage's naming rules: https://openlineage.io/docs/spec/naming.

Two producers that name a dataset alike are joined in the graph of lineage. Names hold no user and no password.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from kafka_ingest.committing.announcement import announcement
from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.storage import opened
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.late_rows import SUFFIX
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.receipt import RangeCount, Receipt, WrittenFile
from kafka_ingest.model.record_schema import Field, Scalar, Struct
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, REST, CatalogSettings
from kafka_ingest.sinks.iceberg.output import CATALOG, TABLE

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts

KAFKA_PORT: Final = "9092"
"""Where a server's port is left out, clients take this one."""
POSTGRESQL_PORT: Final = 5432


class DatasetName(NamedTuple):
    """A dataset: the system that it is in, and its name there."""

    namespace: str
    name: str


def topic_name(bootstrap_servers: str, topic: str) -> DatasetName:
    """Return a topic's name: its cluster is named by the first of the bootstrap servers."""
    first = re.sub(r"^[A-Za-z_]+://", "", bootstrap_servers.split(",", maxsplit=1)[0].strip())
    host, colon, port = first.rpartition(":")
    if not colon or first.endswith("]"):
        host, port = first, KAFKA_PORT
    return DatasetName(f"kafka://{host}:{port}", topic)


def output_name(output: OutputLocation) -> DatasetName:
    """Return an output's name: that of its place, for a table of an engine, too."""
    place = output.place
    if isinstance(place, Path):
        return DatasetName("file", str(place))
    return DatasetName(f"{place.scheme}://{place.bucket}", place.key or "/")


def name_in_catalog(catalog: CatalogSettings, table: str) -> DatasetName | None:
    """Return the other name of an Iceberg table, by its catalog; None where the connection does not say it.

    As OpenLineage's integration of Spark names it, so that what Spark reads from the table is joined.
    """
    if catalog.kind == GLUE:
        region, account = (catalog.properties.get(name) for name in ("glue.region", "glue.id"))
        if region is None or account is None:
            return None
        return DatasetName(f"arn:aws:glue:{region}:{account}", f"table/{table.replace('.', '/')}")
    uri = urlsplit(str(catalog.properties.get("uri", "")))
    host = f"[{uri.hostname}]" if uri.hostname is not None and ":" in uri.hostname else uri.hostname
    if catalog.kind == REST:
        port = "" if uri.port is None else f":{uri.port}"
        return DatasetName(f"{uri.scheme}://{host}{port}{uri.path.rstrip('/')}", table)
    if uri.scheme.startswith("sqlite"):
        return DatasetName(f"sqlite:/{uri.path.lstrip('/')}", table)
    return DatasetName(f"postgres://{host}:{uri.port or POSTGRESQL_PORT}", f"{uri.path.lstrip('/')}.{table}")


log = logging.getLogger(__name__)

PROVIDER: Final = "airflow.providers.openlineage"
PATH_COLUMN: Final = Field(BATCH_COLUMN, Scalar("string"))
"""A column of all outputs: in tables it is written, in directories readers take it from the path."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """A dataset that a batch has read; ``ranges`` are the first ones, and ``ranges_left_out`` how many more there are.

    ``records`` are those that became rows, dead letters, or were filtered.
    """

    name: DatasetName
    partitions: int
    offsets: int
    records: int
    ranges: Sequence[Mapping[str, Any]]
    ranges_left_out: int


@dataclass(frozen=True, slots=True)
class WrittenTo:
    """A dataset that a batch has written; ``columns`` is None where no file says them."""

    name: DatasetName
    format: str
    rows: int
    size_bytes: int
    files: int
    columns: Struct | None = None
    in_catalog: DatasetName | None = None


@dataclass(frozen=True, slots=True)
class Lineage:
    """One committed batch. ``totals`` are its id, its kind and its counts, as the Asset event has them."""

    totals: Mapping[str, Any]
    inputs: tuple[ReadFrom, ...]
    outputs: tuple[WrittenTo, ...]


def lineage_of(committed: Committed, parts: "FeedParts") -> Lineage | None:
    """Return the lineage of what a caller committed; None where it is not wanted, and where it cannot be found.

    A batch does not fail for its lineage: the log says why there is none.
    """
    try:
        return found_lineage(committed, parts) if committed.by_us and is_asked() else None
    except Exception:
        log.warning("batch %s is committed, and its lineage is not sent", committed.batch.batch_id, exc_info=True)
        return None


def is_asked() -> bool:
    """Whether OpenLineage's provider is installed, and knows where events go."""
    if find_spec(PROVIDER) is None:
        return False
    from airflow.providers.openlineage import conf  # noqa: PLC0415 - it may not be there

    return not conf.is_disabled()


def found_lineage(committed: Committed, parts: "FeedParts") -> Lineage:
    plan, counts = committed.batch.plan, committed.counts
    said = announcement(plan, counts)
    return Lineage(
        {name: value for name, value in said.items() if name not in {"ranges", "topics"}},
        tuple(inputs_of(plan, counts, said, parts)),
        tuple(outputs_of(plan, parts)),
    )


def inputs_of(
    plan: BatchPlan, counts: Sequence[RangeCount], said: Mapping[str, Any], parts: "FeedParts"
) -> list[ReadFrom]:
    """Return the topics that a batch has read, as many as the Asset event names; of a replay the dead letters."""
    if plan.replays:
        outputs = {parts.control.batch(each.batch_id).plan.output for each in plan.replays}
        names = [output_name(output_of_dead_letters(output)) for output in sorted(outputs)]
        return [read_from(name, counts, said["ranges"]) for name in names]
    servers = parts.kafka_client.bootstrap_servers
    of_topics: dict[str, list[RangeCount]] = {}
    for count in counts:
        of_topics.setdefault(count.offset_range.topic, []).append(count)
    ranges: dict[str, list[Mapping[str, Any]]] = {}
    for each in said["ranges"]:
        ranges.setdefault(each["topic"], []).append(each)
    topics = [each["topic"] for each in said["topics"]]
    return [read_from(topic_name(servers, topic), of_topics[topic], ranges.get(topic, ())) for topic in topics]


def read_from(name: DatasetName, counts: Sequence[RangeCount], ranges: Sequence[Mapping[str, Any]]) -> ReadFrom:
    return ReadFrom(
        name,
        partitions=len(counts),
        offsets=sum(count.offset_range.span for count in counts),
        records=sum(count.rows + count.dead_letters + count.filtered for count in counts),
        ranges=ranges,
        ranges_left_out=len(counts) - len(ranges),
    )


def outputs_of(plan: BatchPlan, parts: "FeedParts") -> list[WrittenTo]:
    receipt = parts.sinks(plan.output).archive.receipt(plan.batch_id)
    if receipt is None:
        raise OutputConflictError(f"expected the receipt of batch {plan.batch_id} in {plan.output}, found none")
    columns = columns_of(receipt, plan.output, parts)
    found = [
        written_to(
            plan.output,
            [file for file in receipt.files if not file.is_late],
            columns=columns and with_batch(columns),
            in_catalog=in_catalog_of(plan.output, parts),
        )
    ]
    if late := [file for file in receipt.files if file.is_late]:
        found.append(written_to(replace(plan.output, uri=f"{plan.output.uri}{SUFFIX}"), late))
    if receipt.dead_letters:
        found.append(written_to(output_of_dead_letters(plan.output), receipt.dead_letters))
    return found


def columns_of(receipt: Receipt, output: OutputLocation, parts: "FeedParts") -> Struct | None:
    """Return the columns of a published batch, as its first file has them; None where it has no file."""
    inspector = parts.sinks(output).inspector
    if inspector is None or not receipt.files:
        return None
    place = inspector.path(receipt.batch_id, receipt.files[0])
    return data_file(opened(place, parts.access(output))).columns()


def written_to(
    output: OutputLocation,
    files: Sequence[WrittenFile],
    *,
    columns: Struct | None = None,
    in_catalog: DatasetName | None = None,
) -> WrittenTo:
    return WrittenTo(
        output_name(output),
        output.format,
        rows=sum(file.rows for file in files),
        size_bytes=sum(file.size_bytes for file in files),
        files=len(files),
        columns=columns,
        in_catalog=in_catalog,
    )


def in_catalog_of(output: OutputLocation, parts: "FeedParts") -> DatasetName | None:
    options = dict(output.options)
    if CATALOG not in options or TABLE not in options:
        return None
    return name_in_catalog(catalog_settings(parts.find_connection(options[CATALOG])), options[TABLE])


def with_batch(columns: Struct) -> Struct:
    return columns if PATH_COLUMN.name in columns.names else Struct((*columns.fields, PATH_COLUMN))
