"""What a commit tells OpenLineage: from which topics and offsets, into which output, with which columns.

Nothing of OpenLineage is imported here, and nothing is looked up unless its provider is installed and switched on.
:mod:`.openlineage_facets` makes facets of it. The provider asks for them in a fork of the task's process: all that
needs a file or a connection is therefore found before.

Namespaces and names of datasets, by OpenLineage's naming rules: https://openlineage.io/docs/spec/naming.

Two producers that name a dataset alike are joined in the graph of lineage. Names hold no user and no password.
"""

import logging
import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from kafka_ingest.committing.commit_batch import Committed
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, REST, CatalogSettings

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts

log = logging.getLogger(__name__)

PROVIDER: Final = "airflow.providers.openlineage"
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


def lineage_of(committed: Committed, parts: "FeedParts") -> Any:  # noqa: ANN401 - a class of OpenLineage's provider
    """Return the lineage of what a caller committed; None where it is not wanted, and where it cannot be found.

    A batch does not fail for its lineage: the log says why there is none.
    """
    try:
        if not committed.by_us or not is_asked():
            return None
        from kafka_ingest.airflow_tasks.openlineage_facets import found_lineage  # noqa: PLC0415 - its provider is there

        return found_lineage(committed, parts)
    except Exception:
        log.warning("batch %s is committed, and its lineage is not sent", committed.batch.batch_id, exc_info=True)
        return None


def is_asked() -> bool:
    """Whether OpenLineage's provider is installed, and knows where events go."""
    if find_spec(PROVIDER) is None:
        return False
    from airflow.providers.openlineage import conf  # noqa: PLC0415 - it may not be there

    return not conf.is_disabled()
