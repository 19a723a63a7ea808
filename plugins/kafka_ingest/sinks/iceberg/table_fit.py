"""Whether files of the raw format can be added to an Iceberg table. Importing this imports pyiceberg."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

from kafka_ingest.model.partition_term import Transform
from kafka_ingest.model.place import Place
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.iceberg.columns import differences_of_mapping, differences_of_table, own_fields, taken_names
from kafka_ingest.sinks.iceberg.places import comparable, location_of, path_of

FORMAT_VERSION = 2
FIRST_FIELD_ID = 1000
"""Where Iceberg begins to number the fields of partitions."""


def why_not_written(table: Table, options: TableOptions) -> Iterator[str]:
    """Yield why files cannot be added to a table; nothing where they can."""
    if table.metadata.format_version != FORMAT_VERSION:
        yield f"format version {table.metadata.format_version}, expected {FORMAT_VERSION}"
    if (found := terms_in(table)) != (expected := [str(term) for term in options.partition_by]):
        asked = ", ".join(expected) or "nothing"
        yield f"partitioned by {', '.join(found) or 'nothing'}, sink.partition_by asks for {asked}"
    yield from differences_of_table(table.schema(), options)
    names, mapping = [field.name for field in own_fields(options)], table.name_mapping()
    yield from differences_of_mapping(table.schema(), mapping, names)
    if mapping is not None:
        to_add = options.to_add(names, [field.name for field in table.schema().fields])
        taken = taken_names(table.schema().as_struct(), mapping.root)
        yield from (why for path, why in taken if path in to_add)
    if table.spec().fields:
        # Half a second, which plans of other tables need not wait for.
        yield from import_module("kafka_ingest.sinks.iceberg.added_files").missing_bounds(table)


def terms_in(table: Table) -> list[str]:
    """Return what new files of a table are partitioned by, as a feed file has it."""
    found = []
    for field in table.spec().fields:
        column = table.schema().find_column_name(field.source_id)
        found.append(str(column) if isinstance(field.transform, IdentityTransform) else f"{field.transform}({column})")
    return found


def spec_of(options: TableOptions, schema: Schema) -> PartitionSpec:
    """Return the specification of a new table of this schema, whose ids the catalog replaces."""
    transforms = {Transform.IDENTITY: IdentityTransform, Transform.DAY: DayTransform, Transform.HOUR: HourTransform}
    fields = []
    for number, term in enumerate(options.partition_by, start=FIRST_FIELD_ID):
        name = f"{term.column}_{term.transform}" if term.is_of_time else term.column
        source = schema.find_field(term.column).field_id
        fields.append(PartitionField(source, number, transforms[term.transform](), name))
    return PartitionSpec(*fields)


def is_elsewhere(table: Table, output: Place) -> bool:
    """Whether a table's location is another than the feed's place."""
    location = table.location().rstrip("/")
    if not isinstance(output, Path):
        return comparable(location) != location_of(output)
    found = path_of(location)
    return found is None or (found != output and found.resolve() != output.resolve())
