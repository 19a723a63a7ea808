"""One Iceberg table in a catalog, as it is now: where it is, whether batches can be added to it, and how it is made.

The catalogs are PyIceberg's, apart from what reads and writes files, and from how long an answer may take. What changes
the table is in :mod:`.commits`, which also imports pyarrow: a plan needs only this, and waits for less. Importing this
imports pyiceberg.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform
from sqlalchemy.exc import DBAPIError

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.storage import opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import Transform
from kafka_ingest.model.place import Place
from kafka_ingest.model.table_options import HOW_TO_TAKE_IT, NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.iceberg.catalog_settings import REST, CatalogSettings, named_errors
from kafka_ingest.sinks.iceberg.columns import differences_of_mapping, differences_of_table, own_fields, taken_names
from kafka_ingest.sinks.iceberg.one_try import MAX_AGE_MS
from kafka_ingest.sinks.iceberg.places import METADATA, comparable, location_of, path_of, was_committed_to
from kafka_ingest.sinks.iceberg.table_io import Files

FORMAT_VERSION = 2
FIRST_FIELD_ID = 1000
"""Where Iceberg begins to number the fields of partitions."""


def why_not_written(table: Table, options: TableOptions) -> Iterator[str]:
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
    location = table.location().rstrip("/")
    if not isinstance(output, Path):
        return comparable(location) != location_of(output)
    found = path_of(location)
    return found is None or (found != output and found.resolve() != output.resolve())


CREATION_PAUSES_S = (0.01, 0.03, 0.1, 0.3)
MADE_BY_ANOTHER = ("already exists", "duplicate key")
"""What SQLite and PostgreSQL say of a table that another program has made, or is making."""


def catalog_of(settings: CatalogSettings, output: Place, access: StoreAccess | None) -> Catalog:
    files = Files(settings.properties, access, output)
    own = files.properties()
    if settings.kind == REST:
        rest: Catalog = import_module("kafka_ingest.sinks.iceberg.rest_catalog").BoundedRestCatalog(
            settings.name, files, own
        )
        return rest
    catalog = loaded(settings.name, own)
    vars(catalog)["_load_file_io"] = files.io
    return catalog


def loaded(name: str, properties: Mapping[str, Any]) -> Catalog:
    """Return the library's catalog. Of two that make a database's tables at once, one is refused, and looks again."""
    for pause_s in CREATION_PAUSES_S:
        try:
            return load_catalog(name, **properties)
        except DBAPIError as error:
            if not any(said in str(error) for said in MADE_BY_ANOTHER):
                raise
            time.sleep(pause_s)
    return load_catalog(name, **properties)


class IcebergTable:
    """The table of one output, by its catalog and name, in a directory, or in a store that ``access`` leads to."""

    def __init__(
        self,
        output: Place,
        settings: CatalogSettings,
        name: str,
        access: StoreAccess | None = None,
        form: TableOptions = NO_TABLE_OPTIONS,
    ) -> None:
        self.output = output
        self._access = access
        self.settings = settings
        self.name = name
        self.form = form
        self._keeps_reading = False
        self._kept: Table | None = None

    @cached_property
    def catalog(self) -> Catalog:
        return catalog_of(self.settings, self.output, self._access)

    def __str__(self) -> str:
        return f"Iceberg table {self.name} in {self.output}"

    @contextmanager
    def one_reading(self) -> Iterator[None]:
        """Read the table once within this, until a try to commit fails: a try is bound to what was read."""
        self._keeps_reading = True
        try:
            yield
        finally:
            self._keeps_reading, self._kept = False, None

    def open(self) -> Table | None:
        """Return the table as it is now, or was when it was first read within one reading; None where there is none."""
        if self._kept is None:
            table = self._as_it_is()
            if not self._keeps_reading:
                return table
            self._kept = table
        return self._kept

    def read_again(self) -> None:
        """Forget what was read within one reading: the table may be another now."""
        self._kept = None

    def _as_it_is(self) -> Table | None:
        table = self._loaded()
        if table is None:
            if not was_committed_to(opened(self.output / METADATA, self._access)):
                return None
            # Another committer may have made it since, and committed to it.
            if (table := self._loaded()) is None:
                raise OutputUnavailableError(
                    f"the catalog of connection {self.settings.conn_id!r} knows no table {self.name}, but "
                    f"{self.output / METADATA} shows that one was written. Is it the right catalog? Nothing was done "
                    "and no offset was moved. Register the table's newest metadata file in the catalog, or correct "
                    "sink.catalog and sink.table; if it was dropped on purpose, give the feed another sink.path."
                )
        if is_elsewhere(table, self.output):
            raise OutputNotUsableError(
                f"expected the Iceberg table {self.name} in {self.output}, found it at {table.location()}. Nothing "
                "was written and no offset was moved. Set sink.path to the table's location, or sink.table to another."
            )
        return table

    def _loaded(self) -> Table | None:
        with named_errors(str(self), self.settings):
            try:
                return self.catalog.load_table(self.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def check_writable(self) -> None:
        """Raise OutputNotUsableError where batches cannot be added to an existing table."""
        if (table := self.open()) is not None:
            self.check_fits(table)

    def columns_left_out(self) -> tuple[str, ...]:
        if not self.form.may_lack or (table := self.open()) is None:
            return ()
        return self.form.left_out(names_of(table))

    def check_fits(self, table: Table) -> None:
        """Raise OutputNotUsableError where batches cannot be added to the table as it was read."""
        with named_errors(str(self), self.settings):
            problems = list(why_not_written(table, self.form))
        if problems:
            own = {field.name for field in own_fields(self.form)}
            lacks = f" {HOW_TO_TAKE_IT}" if own - set(names_of(table)) else ""
            raise OutputNotUsableError(
                f"{self}: expected a table that files of the raw format can be added to, found {listing(problems)}. "
                "Nothing was written and no offset was moved. Change the table, or give the feed another one; "
                f"docs/sinks.md says which tables can be used.{lacks}"
            )


def names_of(table: Table) -> list[str]:
    return [field.name for field in table.schema().fields]


PROPERTIES_OF_NEW = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    MAX_AGE_MS: str(5 * 86_400_000),
    f"write.metadata.metrics.column.{BATCH_COLUMN}": "full",
    "write.metadata.metrics.column.key": "counts",
    "write.metadata.metrics.column.value": "counts",
}
"""Metadata stays small under many small commits; batches are found by their whole ids, and payloads are in no bound."""


def create(table: IcebergTable, columns: Schema | None = None) -> None:
    """Make the table, with its namespace only where there is none: that may need another right.

    ``columns`` are those of its first files, of decoded records.
    """
    schema = columns or Schema(*own_fields(table.form))
    make = partial(
        table.catalog.create_table,
        table.name,
        schema,
        location=location_of(table.output),
        partition_spec=spec_of(table.form, schema),
        properties={**PROPERTIES_OF_NEW, **dict(table.form.properties)},
    )
    try:
        make()
    except NoSuchNamespaceError:
        levels = table.name.split(".")[:-1]
        for number in range(1, len(levels) + 1):
            table.catalog.create_namespace_if_not_exists(".".join(levels[:number]))
        make()
