"""A feed whose output is a table in Azure Data Lake Storage: the whole way, with a real Spark and Hadoop's ABFS."""

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.object_store import AzureLake
from tests.quick_project import QuickProject

from kafka_ingest.foundation import storage
from kafka_ingest.model.place import RemotePlace
from order_events import order_events, produce


def test_every_record_is_in_the_table_once(
    quick: QuickProject, servers: str, topic: str, azure: AzureLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure.make_bucket("lake")
    place = RemotePlace(f"abfss://azure_lake@{azure.bucket}{tmp_path}/orders")
    quick.environment["AIRFLOW_CONN_AZURE_LAKE"] = azure.connection()
    monkeypatch.setenv("AIRFLOW_CONN_AZURE_LAKE", azure.connection())
    quick.write_feed(topic, sink={"format": "delta", "path": str(place), "partition_by": ["kafka_partition"]})
    events = list(order_events(1_000, seed=11))
    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, events)
    with quick.submitting(spark_is_its_own=True):
        [batch] = quick.run()
    assert batch["rows"] == 1_000
    table = DeltaTable(str(place.without_connection), storage_options=azure.access().for_delta())
    rows = pl.DataFrame(table.to_pyarrow_table()).sort("kafka_topic", "kafka_partition", "kafka_offset").to_dicts()
    assert [comparable(row) for row in rows] == rows_expected(events, topic, id_of_topic)

    folder = storage.opened(place.parent, azure.access())
    names = storage.files_below(folder)
    assert [name for name in names if name.endswith("/receipt.json")]
    all_names = azure.names_below(place.parent.key)
    assert [name for name in all_names if "/kafka_partition=0/part-" in name]
    assert not [name for name in all_names if any(word in name for word in ("_temporary", "_SUCCESS", "kafka_by_"))]

    assert quick.kafka_ingest("doctor").exit_code == 0
    quick.answer("clean", "--batch", batch["batch_id"], "--reason", "the store is dear")
    assert not [name for name in azure.names_below(place.parent.key) if "/staging/" in name]
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    assert f"{place}/batches/" in json.dumps(quick.answer("locate", "orders", topic, "0", "0"))
