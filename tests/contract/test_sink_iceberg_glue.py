"""An Iceberg table whose catalog is Glue, as moto has it behind a proxy that compares versions as Glue does."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.table import Table
from tests.contract.sink_outputs import IcebergOutput, plan_to, publish, rows_of, written
from tests.object_store import REGION, ObjectStore, StoreFault
from tests.store_proxy import KEY, SECRET

from kafka_ingest.errors import BatchRevokedError, BatchStateError, InstallationError, OutputUnavailableError
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.choose import SinkConnections, sink_of

pytestmark = pytest.mark.long

UPDATE = "POST / AWSGlue.UpdateTable"


class IcebergByGlue(IcebergOutput):
    """The Iceberg sink on real directories; its table is in Glue, in a database of its own."""

    name = "iceberg by Glue"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = ObjectStore.running()
        self.extra = {
            "type": "glue",
            "glue.endpoint": self.store.endpoint,
            "glue.region": REGION,
            "glue.access-key-id": KEY,
            "glue.secret-access-key": SECRET,
        }
        self.table_name = f"t{hashlib.sha256(str(path).encode()).hexdigest()[:12]}.orders"
        location = OutputLocation.at("iceberg", str(path), {"catalog": "lake", "table": self.table_name})
        fields = ConnectionFields("lake", "iceberg", extra=self.extra)
        self.sink = sink_of(location, SinkConnections(catalog=lambda _: catalog_settings(fields)))

    def table(self) -> Table:
        """Return the table as another program has it."""
        return load_catalog("other", **self.extra).load_table(self.table_name)


@pytest.fixture
def output(object_store: ObjectStore, tmp_path: Path) -> IcebergByGlue:
    assert object_store is not None
    made = IcebergByGlue(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def test_the_first_commit_makes_database_and_table_and_each_batch_is_published_or_revoked_once(
    output: IcebergByGlue,
) -> None:
    first, second = (written(output, plan_to(output, number)) for number in (1, 2))
    for _ in range(2):
        IcebergByGlue(output.path).sink.publisher.publish(*first)
    output.sink.publisher.revoke(second[0], second[1].plan.batch_id)
    assert output.seen() == rows_of(first[1])
    assert output.table().location() == f"file://{output.path}"
    with pytest.raises(BatchRevokedError):
        IcebergByGlue(output.path).sink.publisher.publish(*second)
    with pytest.raises(BatchStateError):
        output.sink.publisher.revoke(first[0], first[1].plan.batch_id)
    assert output.sink.publisher.known_batches() == [str(first[1].plan.batch_id)]


def test_a_commit_that_another_one_overtakes_is_refused_by_glue_and_tried_again(
    output: IcebergByGlue, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = publish(output, plan_to(output, 1))
    rival, ours = (written(output, plan_to(output, number)) for number in (2, 3))
    real = GlueCatalog._update_glue_table
    refused: list[Exception] = []

    def overtaken(catalog: GlueCatalog, **asked: Any) -> None:
        monkeypatch.setattr(GlueCatalog, "_update_glue_table", real)
        IcebergByGlue(output.path).sink.publisher.publish(*rival)
        try:
            real(catalog, **asked)
        except Exception as error:
            refused.append(error)
            raise

    monkeypatch.setattr(GlueCatalog, "_update_glue_table", overtaken)
    output.sink.publisher.publish(*ours)
    assert ["concurrent update" in str(error) for error in refused] == [True]
    assert output.seen() == rows_of(before) + rows_of(rival[1]) + rows_of(ours[1])


def test_a_commit_whose_answer_is_lost_counts_once(output: IcebergByGlue) -> None:
    before = publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    with output.store.failing(StoreFault(UPDATE, "lose the answer", times=1)):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(before) + rows_of(published)


def test_a_refusal_of_glues_is_named_without_the_secret_and_the_next_run_continues(output: IcebergByGlue) -> None:
    directory, published = written(output, plan_to(output, 1))
    with (
        output.store.failing(StoreFault("POST / AWSGlue", status=403, code="AccessDeniedException")),
        pytest.raises(OutputUnavailableError, match=r"through connection 'lake'.*No offset was moved") as refused,
    ):
        output.sink.publisher.publish(directory, published)
    assert SECRET not in str(refused.value)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_without_boto3_a_feed_is_refused_with_what_to_install(
    output: IcebergByGlue, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "boto3" else real(name))
    with pytest.raises(InstallationError, match=r"'lake'.* boto3, .*pip install \"pyiceberg\[glue\]==0\.12\.0\""):
        IcebergByGlue(output.path).sink.publisher.prepare()
