"""The lineage of a commit in OpenLineage's own classes. Only its provider leads here: it is what brings them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

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

from kafka_ingest.airflow_tasks.lineage import Lineage, ReadFrom, WrittenTo
from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct

MAX_FIELDS: Final = 500
"""So many fields of an output's columns, inner ones included, are in an event; the batch's facet counts the others."""

BATCH, RANGES = "kafkaIngest_batch", "kafkaIngest_offsetRanges"
"""The names of this project's own facets: custom ones begin with the project's name, by OpenLineage's rule."""

TABLE_FORMATS: Final = frozenset({"delta", "iceberg"})
"""The storage layers that OpenLineage knows."""

Fields = schema_dataset.SchemaDatasetFacetFields


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


def facets_of(lineage: Lineage | None) -> OperatorLineage[Any, Any]:
    if lineage is None:
        return OperatorLineage()
    shown = ShownFields()
    return OperatorLineage(
        inputs=[input_of(each) for each in lineage.inputs],
        outputs=[output_of(each, shown) for each in lineage.outputs],
        run_facets={BATCH: batch_facet(lineage.totals, shown)},
    )


def send_each(lineages: Iterable[Lineage], task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ANN401 - Airflow's own
    """Send the events of batches that one task committed, each as a run of the job that its feed's own DAG has.

    Returns what the task's own event says. With all of them in it, each output would be made of every topic.
    """
    namespace, adapter = lineage_job_namespace(), get_openlineage_listener().adapter
    parent = parent_run.ParentRunFacet(
        parent_run.Run(lineage_run_id(task_instance)), parent_run.Job(namespace, lineage_job_name(task_instance))
    )
    for lineage in lineages:
        found = facets_of(lineage)
        run = Run(lineage.totals["batch_id"], {**found.run_facets, "parent": parent})
        job = Job(namespace, f"{lineage.totals['feed']}.commit")
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
                yield Fields(name=name, type=kind_of(found), fields=list(self._listed(inner_fields(found))) or None)
            else:
                self.left_out += 1


def kind_of(found: RecordType) -> str:
    match found:
        case Scalar(name):
            return name
        case Struct():
            return "struct"
        case ArrayOf():
            return "array"
        case MapOf():
            return "map"


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


def batch_facet(totals: Mapping[str, Any], shown: ShownFields) -> BatchRunFacet:
    return BatchRunFacet(
        batchId=totals["batch_id"],
        feed=totals["feed"],
        kind=totals["kind"],
        rows=totals["rows"],
        deadLetters=totals["dead_letters"],
        filtered=totals["filtered"],
        topicsLeftOut=totals["topics_left_out"],
        rangesLeftOut=totals["ranges_left_out"],
        fieldsLeftOut=shown.left_out,
    )


def input_of(read: ReadFrom) -> InputDataset:
    return InputDataset(
        namespace=read.name.namespace,
        name=read.name.name,
        inputFacets={
            "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=read.records),
            RANGES: OffsetRangesInputDatasetFacet(
                partitions=read.partitions,
                offsets=read.offsets,
                ranges=[range_document(each) for each in read.ranges],
                rangesLeftOut=read.ranges_left_out,
            ),
        },
    )


def range_document(offset_range: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": offset_range["topic"],
        "partition": offset_range["partition"],
        "startOffset": offset_range["start_offset"],
        "endOffset": offset_range["end_offset"],
        "rows": offset_range["rows"],
    }


def output_of(written: WrittenTo, shown: ShownFields) -> OutputDataset:
    facets: dict[str, DatasetFacet] = {}
    if written.columns is not None:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=shown.of(written.columns))
    if written.format in TABLE_FORMATS:
        facets["storage"] = storage_dataset.StorageDatasetFacet(storageLayer=written.format, fileFormat="parquet")
    if written.in_catalog is not None:
        table = symlinks_dataset.Identifier(written.in_catalog.namespace, written.in_catalog.name, "TABLE")
        facets["symlinks"] = symlinks_dataset.SymlinksDatasetFacet(identifiers=[table])
    return OutputDataset(
        namespace=written.name.namespace,
        name=written.name.name,
        facets=facets,
        outputFacets={
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                rowCount=written.rows, size=written.size_bytes, fileCount=written.files
            )
        },
    )
