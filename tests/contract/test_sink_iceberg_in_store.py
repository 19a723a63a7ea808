"""What an Iceberg table in an object store brings besides: its files are named by places, not by connections."""

from pathlib import Path

import pytest
from tests.contract.builders import batch_id_of, orders
from tests.contract.sink_outputs import ROWS, IcebergInStore, plan_to, publish, rows_of, written
from tests.iceberg_lake import catalog_beside, connections_beside, iceberg_at, name_at
from tests.object_store import ObjectStore

from kafka_ingest.errors import BatchStateError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.published_output import PublishedCount
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.iceberg import commits as iceberg_commits
from kafka_ingest.sinks.iceberg import marks
from kafka_ingest.sinks.iceberg.columns import RAW
from kafka_ingest.sinks.iceberg.table_io import TableFileIO, properties_of

pytestmark = pytest.mark.long


@pytest.fixture
def output(object_store: ObjectStore, tmp_path: Path) -> IcebergInStore:
    assert object_store is not None
    found = IcebergInStore(tmp_path / "orders")
    found.sink.publisher.prepare()
    return found


def test_manifests_name_files_without_the_connection_and_no_object_holds_its_secret(output: IcebergInStore) -> None:
    publish(output, plan_to(output, 1))
    files = [task.file.file_path for task in output.table().scan().plan_files()]
    assert len(files) == 2
    assert all(each.startswith(f"s3://lake{output.path}/data/batches/{batch_id_of(1)}/1/") for each in files)
    below = output.opened(output.place.parent)
    contents = [storage.read_whole(below / name) for name in storage.files_below(below)]
    assert len(contents) > len(files)
    for secret in (b"test-secret-key", b"test-key", b"aws_default@", output.store.endpoint.encode()):
        assert not [each for each in contents if secret in each and b"plan_fingerprint" not in each], secret


def test_a_table_whose_location_is_named_as_spark_does_is_the_same_place(output: IcebergInStore) -> None:
    catalog = catalog_beside(output.path, output.store.access())
    catalog.create_namespace("shop")
    catalog.create_table(name_at(output.path), RAW, location=f"s3a://lake{output.path}")
    published = publish(output, plan_to(output, 1))
    assert output.table().scan().to_arrow().num_rows == 2 * ROWS
    inspector, remover = output.sink.inspector, output.sink.remover
    assert inspector is not None
    assert remover is not None
    look = inspector.look_at(batch_id_of(1), closely=True)
    assert (list(look.problems), look.counts[0]) == ([], PublishedCount(orders(0), ROWS, ROWS, 0, ROWS - 1))
    assert inspector.holds(batch_id_of(1), published.receipt.files[0], orders(0), 3)
    directory = output.sink.staging.attempt_directory(batch_id_of(1), 1)
    output.sink.staging.remove(directory)
    assert output.table().scan().to_arrow().num_rows == 2 * ROWS


def test_a_file_of_metadata_is_created_once_and_the_store_refuses_to_write_over_it(output: IcebergInStore) -> None:
    access = output.store.access()
    io = TableFileIO(properties_of(output.place, access))
    file = io.new_output(f"s3a://lake{output.path}/metadata/x.avro")
    with file.create() as first:
        first.write(b"first")
    with pytest.raises(FileExistsError), file.create() as second:
        second.write(b"second")
    assert (len(file), file.exists()) == (5, True)
    assert storage.read_whole(output.opened(output.place / "metadata" / "x.avro")) == b"first"


def test_a_table_elsewhere_is_refused(output: IcebergInStore) -> None:
    publish(output, plan_to(output, 1))
    elsewhere = iceberg_at(output.place.parent / "others" / "orders")
    sink = sink_of(elsewhere, connections_beside(output.path, output.store.access()))
    with pytest.raises(OutputNotUsableError, match=r"files are all below s3://.*, found that its metadata names s3://"):
        sink.publisher.prepare()


def test_a_catalog_that_does_not_know_the_table_any_more_stops_everything(output: IcebergInStore) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    catalog_beside(output.path).drop_table(name_at(output.path))
    for refuse in (output.sink.publisher.prepare, lambda: output.sink.publisher.publish(directory, published)):
        with pytest.raises(OutputUnavailableError, match=r"knows no table shop\.orders, but .*Is it the right catalog"):
            refuse()


def test_a_committer_that_wakes_up_after_its_batchs_mark_left_the_table_publishes_nothing(
    output: IcebergInStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_commits, "MOST", 4)
    monkeypatch.setattr(iceberg_commits, "STAY", 2)
    late, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(late, published)
    others = [publish(output, plan_to(output, number)) for number in range(2, 6)]
    assert f"{marks.PREFIX}{batch_id_of(1)}" not in output.table().properties
    IcebergInStore(output.path).sink.publisher.publish(late, published)
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(late, batch_id_of(1))
    assert output.seen() == sum(map(rows_of, others), rows_of(published))
