"""Schema files: named in a feed file, and read when they are needed."""

from collections.abc import Mapping

from kafka_ingest.errors import InvalidSchemaError
from kafka_ingest.settings.feed_files import feeds_directory
from kafka_ingest.settings.plain_yaml import content_of


def read_schema_file(name: str, environment: Mapping[str, str]) -> bytes:
    """Return what is in a schema file, which is in the folder of the feed files where its path is not absolute."""
    path = feeds_directory(environment) / name
    try:
        return content_of(path)
    except (OSError, ValueError) as error:
        raise InvalidSchemaError(
            f"expected a schema file at {path}, found none that can be read: {error}. Correct its name in the feed "
            "file, or put the file there. Nothing was moved."
        ) from None
