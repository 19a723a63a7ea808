"""A feed whose output is a table in Azure's or Google's store: the whole way, with a real Spark and its connector."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from deltalake import DeltaTable
from tests.integration.test_whole_way import comparable, rows_expected
from tests.kafka_faults import topic_id
from tests.quick_project import QuickProject

from kafka_ingest.foundation import storage
from kafka_ingest.model.place import RemotePlace
from order_events import order_events, produce

if TYPE_CHECKING:
    from tests.object_store import ObjectStore

FOR_THIS_SERVER = {"spark.hadoop.fs.gs.operation.move.enable": "false"}
"""Google's does not know how to move an object: the connector copies it, and removes the first one."""


SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "abfss": ({"partition_by": ["kafka_partition"]}, {}, "/kafka_partition=0/part-"),
    "gs": ({}, {"conf": FOR_THIS_SERVER}, "/part-"),
}
"""What the feed says of sink and Spark beside the place, and how its files are named."""


@pytest.fixture(params=["azure", "gcs"])
def store(request: pytest.FixtureRequest) -> "ObjectStore":
    found: ObjectStore = request.getfixturevalue(request.param)
    return found


def test_every_record_is_in_the_table_once(
    quick: QuickProject,
    servers: str,
    topic: str,
    store: "ObjectStore",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, spark, file = SETTINGS[store.scheme]
    store.make_bucket("lake")
    place = RemotePlace(f"{store.scheme}://a_lake@{store.bucket}{tmp_path}/orders")
    quick.environment["AIRFLOW_CONN_A_LAKE"] = store.connection()
    monkeypatch.setenv("AIRFLOW_CONN_A_LAKE", store.connection())
    quick.write_feed(topic, sink={"format": "delta", "path": str(place)} | sink, spark=spark)
    events = list(order_events(1_000, seed=11))
    id_of_topic = topic_id(servers, topic)
    produce(servers, topic, events)
    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()
    assert batch["rows"] == 1_000
    table = DeltaTable(str(place.without_connection), storage_options=store.access().for_delta())
    rows = pl.DataFrame(table.to_pyarrow_table()).sort("kafka_topic", "kafka_partition", "kafka_offset").to_dicts()
    assert [comparable(row) for row in rows] == rows_expected(events, topic, id_of_topic)

    names = storage.files_below(storage.opened(place.parent, store.access()))
    assert [each for each in names if each.endswith("/receipt.json")]
    with_folders = store.names_below(place.parent.key)
    assert [each for each in with_folders if file in each]
    litter = ("_temporary", "_SUCCESS", "kafka_by_")
    assert not [each for each in with_folders if any(word in each for word in litter)]

    assert quick.kafka_ingest("doctor").exit_code == 0
    quick.answer("clean", "--batch", batch["batch_id"], "--reason", "the store is dear")
    assert not [each for each in store.names_below(place.parent.key) if "/staging/" in each]
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
    assert f"{place}/batches/" in json.dumps(quick.answer("locate", "orders", topic, "0", "0"))
