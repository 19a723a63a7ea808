"""Places: absolute paths as they always were, and URIs with a scheme."""

from pathlib import Path

import pytest
from tests.contract.builders import orders, plan_of

from kafka_ingest.model.batch import AttemptDocument, DataNeeds, sha256
from kafka_ingest.model.decoding import RAW
from kafka_ingest.model.place import RemotePlace, local, place_of


def test_a_stored_path_is_a_path() -> None:
    assert place_of("/data/orders.kafka-ingest/staging") == Path("/data/orders.kafka-ingest/staging")


def test_a_stored_uri_is_a_place_elsewhere_with_the_same_text() -> None:
    assert str(place_of("s3://lake/orders")) == "s3://lake/orders"
    assert place_of("s3://lake/orders") == RemotePlace("s3://lake") / "orders"


@pytest.mark.parametrize(
    "text",
    ["", "orders", "../orders", "s3:", "s3://", "s3:///orders", "s3://lake/", "s3://lake//x", "file:///data/orders"],
)
def test_what_is_neither_an_absolute_path_nor_a_uri_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected an absolute path or a URI such as s3://BUCKET/NAME, found "):
        place_of(text)


@pytest.mark.parametrize("root", ["/lake", "s3://lake"])
def test_names_are_joined_and_taken_off_on_a_disk_and_elsewhere(root: str) -> None:
    place = place_of(root) / "staging" / "batch" / "1"
    assert (str(place), place.name, place.parent.name) == (f"{root}/staging/batch/1", "1", "batch")
    assert place.parent.parent == place_of(root) / "staging"
    assert place_of(root) / "a/b" == place_of(root) / "a" / "b"


@pytest.mark.parametrize("root", ["/", "s3://lake"])
def test_a_root_lies_in_itself_and_has_no_name(root: str) -> None:
    assert (place_of(root).parent, place_of(root).name) == (place_of(root), "")


def test_only_a_place_on_a_disk_is_a_path() -> None:
    assert local(Path("/data/orders")) == Path("/data/orders")
    with pytest.raises(ValueError, match="expected a local or mounted directory, found s3://lake/orders"):
        local(RemotePlace("s3://lake/orders"))


@pytest.mark.parametrize("place", ["/table/batches/1/1", "s3://lake/table/batches/1/1"])
def test_where_data_has_to_be_written_goes_through_the_attempts_document_as_its_text(place: str) -> None:
    needs = DataNeeds(place_of(place), batch_column=True)
    content = AttemptDocument(plan_of((orders(0), 0, 10)), 1, RAW, needs).as_bytes()
    assert f'"place":"{place}"'.encode() in content
    assert AttemptDocument.from_bytes(content, sha256(content)).data == needs


@pytest.mark.parametrize(
    ("authority", "conn_id", "bucket"),
    [
        ("s3://lake", None, "lake"),
        ("s3://aws_lake@lake", "aws_lake", "lake"),
        ("abfss://lake@shop.dfs.core.windows.net", None, "lake@shop.dfs.core.windows.net"),
        ("abfss://azure_lake@lake@shop.dfs.core.windows.net", "azure_lake", "lake@shop.dfs.core.windows.net"),
    ],
)
def test_a_connection_may_stand_before_a_bucket_and_before_azures_container_with_its_account(
    authority: str, conn_id: str | None, bucket: str
) -> None:
    place = RemotePlace(f"{authority}/raw/orders")
    assert (place.conn_id, place.bucket, place.key) == (conn_id, bucket, "raw/orders")
    assert str(place.without_connection) == f"{authority.partition(':')[0]}://{bucket}/raw/orders"
