"""What differs between the columns of the raw format and those of a staged file. Importing this imports pyarrow."""

from collections.abc import Collection, Iterator

import pyarrow as pa
from pyiceberg.io.pyarrow import pyarrow_to_schema

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.iceberg.columns import RAW, in_words, own_fields
from kafka_ingest.sinks.tables.decoded_columns import is_own


def differences_of_file(schema: pa.Schema, options: TableOptions, unknown: Collection[str] = ()) -> Iterator[str]:
    """Yield where a staged file's columns are not those of the raw format, without those that the table lacks.

    Of decoded records only Kafka's own are looked at.
    """
    own, may_lack = own_fields(options), options.may_lack
    expected = {field.name for field in own if field.name in schema.names or field.name not in may_lack}
    found_names = {name for name in schema.names if is_own(name) or not options.decoded}
    for name in sorted(set(unknown) & set(schema.names)):
        yield f"column {name}: the table has none"
    for name in sorted(expected ^ found_names):
        yield f"column {name}: {'missing' if name in expected else 'not of the raw format'}"
    for field in own:
        if field.name not in schema.names:
            continue
        try:
            found = pyarrow_to_schema(pa.schema([schema.field(field.name)]), RAW.name_mapping)
        except (ValueError, TypeError) as error:
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {error}"
            continue
        if in_words(found.fields[0].field_type) != in_words(field.field_type):
            kind = in_words(found.fields[0].field_type)
            yield f"column {field.name}: expected {in_words(field.field_type)}, found {kind}"
