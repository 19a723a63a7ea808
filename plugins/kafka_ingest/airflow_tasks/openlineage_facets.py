"""What a commit tells OpenLineage: from which topics and offsets, into which output, with which columns.

Only where its provider is installed and switched on: it is what brings OpenLineage's classes. It asks for the facets in
a fork of the task's process: all that needs a file or a connection is therefore found before.

Namespaces and names of datasets, by OpenLineage's naming rules: https://openlineage.io/docs/spec/naming.

Two producers that name a dataset alike are joined in the graph of lineage. Names hold no user and no password.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import urlsplit

import attrs
from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.plugins.listener import get_openlineage_listener
from airflow.providers.openlineage.plugins.macros import lineage_job_name, lineage_job_namespace, lineage_run_id
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    RunFacet,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.commit_batch import Committed, announcement
from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.foundation.storage import opened
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.dead_letters import IN_DELTA, IN_ICEBERG, output_of_dead_letters
from kafka_ingest.model.partition_term import output_of_late_rows
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import RangeCount, Receipt, WrittenFile
from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Scalar, Struct
from kafka_ingest.model.written_columns import BATCH_COLUMN, kind_of
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, REST, CatalogSettings
from kafka_ingest.sinks.iceberg.output import CATALOG, TABLE

MAX_FIELDS: Final = 500
"""So many fields of an output's columns, inner ones included, are in an event; the batch's facet counts the others."""

BATCH, RANGES = "kafkaIngest_batch", "kafkaIngest_offsetRanges"
"""The names of this project's own facets: custom ones begin with the project's name, by OpenLineage's rule."""

TABLE_FORMATS: Final = {"delta": "delta", "iceberg": "iceberg", IN_DELTA: "delta", IN_ICEBERG: "iceberg"}
"""The storage layers that OpenLineage knows."""

PATH_COLUMN: Final = Field(BATCH_COLUMN, Scalar("string"))
"""A column of all outputs: in tables it is written, in directories readers take it from the path."""

Fields = schema_dataset.SchemaDatasetFacetFields
Lineage = OperatorLineage[Any, Any]
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


@attrs.define
class BatchRunFacet(RunFacet):
    """The committed batch, as ``kafka-ingest batches`` lists it."""

    batchId: str  # noqa: N815 - facets have names of JSON
    feed: str
    kind: str
    rows: int
    deadLetters: int  # noqa: N815
    filtered: int
    topicsLeftOut: int  # noqa: N815
    rangesLeftOut: int  # noqa: N815
    fieldsLeftOut: int  # noqa: N815

    _additional_skip_redact: ClassVar[list[str]] = ["batchId", "kind"]


@attrs.define
class OffsetRangesInputDatasetFacet(InputDatasetFacet):
    """What was read of a topic. A start offset was read, an end offset was not."""

    partitions: int
    offsets: int
    ranges: list[dict[str, Any]]
    rangesLeftOut: int  # noqa: N815


def found_lineage(committed: Committed, parts: FeedParts) -> Lineage:
    plan, counts, shown = committed.batch.plan, committed.counts, ShownFields()
    said = announcement(plan, counts)
    outputs = outputs_of(plan, parts, shown)
    facet = BatchRunFacet(
        batchId=said["batch_id"],
        feed=said["feed"],
        kind=said["kind"],
        rows=said["rows"],
        deadLetters=said["dead_letters"],
        filtered=said["filtered"],
        topicsLeftOut=said["topics_left_out"],
        rangesLeftOut=said["ranges_left_out"],
        fieldsLeftOut=shown.left_out,
    )
    return OperatorLineage(inputs=inputs_of(plan, counts, said, parts), outputs=outputs, run_facets={BATCH: facet})


def send_each(lineages: Iterable[Lineage], task_instance: Any) -> Lineage:  # noqa: ANN401 - Airflow's own
    """Send the events of batches that one task committed, each as a run of the job that its feed's own DAG has.

    Returns what the task's own event says. With all of them in it, each output would be made of every topic.
    """
    namespace, adapter = lineage_job_namespace(), get_openlineage_listener().adapter
    parent = parent_run.ParentRunFacet(
        parent_run.Run(lineage_run_id(task_instance)), parent_run.Job(namespace, lineage_job_name(task_instance))
    )
    for found in lineages:
        batch = found.run_facets[BATCH]
        run = Run(batch.batchId, {**found.run_facets, "parent": parent})
        job = Job(namespace, f"{batch.feed}.commit")
        now = datetime.now(UTC).isoformat()
        adapter.emit(RunEvent(eventTime=now, run=run, job=job, eventType=RunState.START))
        adapter.emit(
            RunEvent(
                eventTime=now, run=run, job=job, eventType=RunState.COMPLETE, inputs=found.inputs, outputs=found.outputs
            )
        )
    return OperatorLineage()


class ShownFields:
    """Fields of columns in OpenLineage's form, the first :data:`MAX_FIELDS` of an event."""

    def __init__(self) -> None:
        self._shown = 0
        self.left_out = 0

    def of(self, columns: Struct) -> list[Fields]:
        return list(self._listed((field.name, field.type) for field in columns.fields))

    def _listed(self, fields: Iterable[tuple[str, RecordType]]) -> Iterator[Fields]:
        for name, found in fields:
            if self._shown < MAX_FIELDS:
                self._shown += 1
                yield Fields(
                    name=name,
                    type="map" if isinstance(found, MapOf) else kind_of(found),
                    fields=list(self._listed(inner_fields(found))) or None,
                )
            else:
                self.left_out += 1


def inner_fields(found: RecordType) -> Sequence[tuple[str, RecordType]]:
    """Return what is in a type; elements, keys and values have the names that OpenLineage's specification gives."""
    match found:
        case Scalar():
            return ()
        case Struct(fields):
            return [(field.name, field.type) for field in fields]
        case ArrayOf(element):
            return [("_element", element)]
        case MapOf(value, key):
            return [("_key", Scalar(key)), ("_value", value)]


def inputs_of(
    plan: BatchPlan, counts: Sequence[RangeCount], said: Mapping[str, Any], parts: FeedParts
) -> list[InputDataset]:
    """Return the topics that a batch has read, as many as the Asset event names; of a replay the dead letters."""
    if plan.replays:
        outputs = {parts.control.batch(each.batch_id).plan.output for each in plan.replays}
        names = [output_name(output_of_dead_letters(output)) for output in sorted(outputs)]
        return [input_of(name, counts, said["ranges"]) for name in names]
    servers = parts.kafka_client.bootstrap_servers
    of_topics = grouped((count.offset_range.topic, count) for count in counts)
    ranges = grouped((each["topic"], each) for each in said["ranges"])
    topics = [each["topic"] for each in said["topics"]]
    return [input_of(topic_name(servers, topic), of_topics[topic], ranges.get(topic, ())) for topic in topics]


def input_of(name: DatasetName, counts: Sequence[RangeCount], ranges: Sequence[Mapping[str, Any]]) -> InputDataset:
    """Return a dataset that a batch has read; ``ranges`` are the first ones of those that are counted."""
    records = sum(count.rows + count.dead_letters + count.filtered for count in counts)
    return InputDataset(
        namespace=name.namespace,
        name=name.name,
        inputFacets={
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=records),
            RANGES: OffsetRangesInputDatasetFacet(
                partitions=len(counts),
                offsets=sum(count.offset_range.span for count in counts),
                ranges=[{written: each[ours] for ours, written in OF_RANGES.items()} for each in ranges],
                rangesLeftOut=len(counts) - len(ranges),
            ),
        },
    )


OF_RANGES: Final = {
    **{name: name for name in ("topic", "partition", "rows")},
    "start_offset": "startOffset",
    "end_offset": "endOffset",
}


def outputs_of(plan: BatchPlan, parts: FeedParts, shown: ShownFields) -> list[OutputDataset]:
    receipt = parts.sinks(plan.output).archive.receipt(plan.batch_id)
    if receipt is None:
        raise OutputConflictError(f"expected the receipt of batch {plan.batch_id} in {plan.output}, found none")
    facets: dict[str, DatasetFacet] = {}
    if (columns := columns_of(receipt, plan.output, parts)) is not None:
        if PATH_COLUMN.name not in columns.names:
            columns = Struct((*columns.fields, PATH_COLUMN))
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=shown.of(columns))
    facets |= other_names(plan.output, parts)
    found = [output_of(plan.output, [file for file in receipt.files if not file.is_late], facets)]
    if late := [file for file in receipt.files if file.is_late]:
        found.append(output_of(output_of_late_rows(plan.output), late))
    if receipt.dead_letters:
        letters = output_of_dead_letters(plan.output)
        found.append(output_of(letters, receipt.dead_letters, other_names(letters, parts)))
    return found


def other_names(output: OutputLocation, parts: FeedParts) -> dict[str, DatasetFacet]:
    """Return the facet that says how a catalog calls an output; none where it has no other name."""
    options = dict(output.options)
    if CATALOG not in options or TABLE not in options:
        return {}
    table = name_in_catalog(catalog_settings(parts.find_connection(options[CATALOG])), options[TABLE])
    if table is None:
        return {}
    identifier = symlinks_dataset.Identifier(table.namespace, table.name, "TABLE")
    return {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[identifier])}


def columns_of(receipt: Receipt, output: OutputLocation, parts: FeedParts) -> Struct | None:
    """Return the columns of a published batch, as its first file has them; None where it has no file."""
    inspector = parts.sinks(output).inspector
    if inspector is None or not receipt.files:
        return None
    place = inspector.path(receipt.batch_id, receipt.files[0])
    return data_file(opened(place, parts.access(output))).columns()


def output_of(
    output: OutputLocation, files: Sequence[WrittenFile], facets: Mapping[str, DatasetFacet] = {}
) -> OutputDataset:
    name, more = output_name(output), dict(facets)
    if (layer := TABLE_FORMATS.get(output.format)) is not None:
        more["storage"] = storage_dataset.StorageDatasetFacet(storageLayer=layer, fileFormat="parquet")
    return OutputDataset(
        namespace=name.namespace,
        name=name.name,
        facets=more,
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=sum(file.rows for file in files),
                size=sum(file.size_bytes for file in files),
                fileCount=len(files),
            )
        },
    )
