"""An Iceberg table whose catalog is reached over REST, for the contract that all sinks keep."""

import hashlib
import os
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from tests.contract.sink_outputs import IcebergOutput
from tests.rest_catalog import URI, WAREHOUSE

from kafka_ingest.model.place import OutputLocation
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.choose import SinkConnections, sink_of


class IcebergByRest(IcebergOutput):
    """The Iceberg sink on real directories; its table is in a namespace of three levels."""

    name = "iceberg by REST"

    def __init__(self, path: Path, **extra: Any) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.extra = {"type": "rest", "uri": os.environ[URI], "warehouse": WAREHOUSE} | extra
        self.table_name = f"shop.eu.t{hashlib.sha256(str(path).encode()).hexdigest()[:12]}.orders"
        location = OutputLocation.at("iceberg", str(path), {"catalog": "lake", "table": self.table_name})
        fields = ConnectionFields("lake", "iceberg", extra=self.extra)
        self.sink = sink_of(location, SinkConnections(catalog=lambda _: catalog_settings(fields)))

    def table(self) -> Table:
        """Return the table as another program has it."""
        return load_catalog("other", **self.extra).load_table(self.table_name)
