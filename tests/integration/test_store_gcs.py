"""A feed whose output is a table in Google Cloud Storage: the whole way, with a real Spark and Google's connector."""

import json
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.object_store import ObjectStore
from tests.quick_project import QuickProject

from kafka_ingest.foundation import storage
from kafka_ingest.model.place import RemotePlace
from order_events import order_events, produce

FOR_THIS_SERVER = {"spark.hadoop.fs.gs.operation.move.enable": "false"}
"""It does not know how to move an object: the connector copies it, and removes the first one."""


def test_every_record_is_in_the_table_once(
    quick: QuickProject, servers: str, topic: str, gcs: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gcs.make_bucket("lake")
    place = RemotePlace(f"gs://gcp_lake@lake{tmp_path}/orders")
    quick.environment["AIRFLOW_CONN_GCP_LAKE"] = gcs.connection()
    monkeypatch.setenv("AIRFLOW_CONN_GCP_LAKE", gcs.connection())
    quick.write_feed(topic, sink={"format": "delta", "path": str(place)}, spark={"conf": FOR_THIS_SERVER})
    events = list(order_events(1_000, seed=11))
    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, events)
    with quick.submitting(spark_is_its_own=True):
        [batch] = quick.run()
    assert batch["rows"] == 1_000
    table = DeltaTable(str(place.without_connection), storage_options=gcs.access().for_delta())
    rows = pl.DataFrame(table.to_pyarrow_table()).sort("kafka_topic", "kafka_partition", "kafka_offset").to_dicts()
    assert [comparable(row) for row in rows] == rows_expected(events, topic, id_of_topic)

    folder = storage.opened(place.parent, gcs.access())
    names = storage.files_below(folder)
    assert [name for name in names if name.endswith("/receipt.json")]
    assert not [name for name in names if "_temporary" in name or "_SUCCESS" in name]

    assert quick.kafka_ingest("doctor").exit_code == 0
    quick.answer("clean", "--batch", batch["batch_id"], "--reason", "the store is dear")
    assert not [name for name in storage.found_below(folder) if "/staging/" in name]
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    assert f"{place}/batches/" in json.dumps(quick.answer("locate", "orders", topic, "0", "0"))
