"""What OpenLineage gets of a commit: names by its rules, facets by its classes, in an event of bounded size."""

import ast
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde
from tests.fakes import OUTPUT, a_file, a_plan, a_receipt, span

from kafka_ingest.airflow_tasks import in_airflow, openlineage_facets
from kafka_ingest.airflow_tasks.feed_tasks import CommitOperator
from kafka_ingest.airflow_tasks.in_airflow import lineage_of
from kafka_ingest.airflow_tasks.openlineage_facets import (
    BATCH,
    MAX_FIELDS,
    RANGES,
    DatasetName,
    Lineage,
    found_lineage,
    name_in_catalog,
    output_name,
    send_each,
    topic_name,
)
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.mirror_group import Mirrored
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.model.record_schema import Field, Scalar, Struct, read_schema
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.store_connection import catalog_settings

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2-and-more"
LARGEST_EVENT = 320 * 1024
COLUMNS = read_schema(
    "kafka_topic string, value struct<id bigint, tags array<struct<`a.b` string>>, m map<string,int>>"
)


def named(rule: naming.DatasetNaming) -> DatasetName:
    """Return a name as OpenLineage's own library makes it."""
    return DatasetName(rule.get_namespace(), rule.get_name())


# ── Names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("servers", "host", "port"),
    [
        ("kafka-1:9094,kafka-2:9095", "kafka-1", "9094"),
        (" SASL_SSL://kafka-1:9094 ", "kafka-1", "9094"),
        ("kafka-1", "kafka-1", "9092"),
        ("[::1]:9094", "[::1]", "9094"),
        ("[::1]", "[::1]", "9092"),
    ],
)
def test_a_topic_is_named_by_the_first_bootstrap_server(servers: str, host: str, port: str) -> None:
    assert topic_name(servers, "orders") == named(naming.Kafka(host, port, "orders"))


@pytest.mark.parametrize(
    ("uri", "rule"),
    [
        ("/lake/orders", naming.LocalFileSystem("/lake/orders")),
        ("s3://lake/bronze/orders", naming.S3("lake", "bronze/orders")),
        ("s3://aws_lake@lake/bronze/orders", naming.S3("lake", "bronze/orders")),
        ("gs://lake/bronze/orders", naming.GCS("lake", "bronze/orders")),
        ("abfss://lake@shop.dfs.core.windows.net/orders", naming.ABFSS("lake", "shop", "orders")),
        ("abfss://azure@lake@shop.dfs.core.windows.net/orders", naming.ABFSS("lake", "shop", "orders")),
        ("s3://lake", naming.S3("lake", "/")),
    ],
)
def test_an_output_is_named_by_its_place_whatever_its_format_and_connection(
    uri: str, rule: naming.DatasetNaming
) -> None:
    assert output_name(OutputLocation.at("delta", uri)) == named(rule)


def a_catalog(conn_type: str, **fields: Any) -> ConnectionFields:
    return ConnectionFields("lake", conn_type, **fields)


@pytest.mark.parametrize(
    ("connection", "expected"),
    [
        (
            a_catalog("iceberg", host="https://catalog:8181/ice/", login="ingest", password=SECRET),
            ("https://catalog:8181/ice", "lake.orders"),
        ),
        (
            a_catalog("iceberg", extra={"type": "rest", "uri": f"http://ingest:{SECRET}@[::1]:8181"}),
            ("http://[::1]:8181", "lake.orders"),
        ),
        (
            a_catalog("postgres", host="db", port=5433, schema="catalogs", login="ingest", password=SECRET),
            tuple(named(naming.Postgres("db", "5433", "catalogs", "lake", "orders"))),
        ),
        (
            a_catalog("postgres", host="db", schema="catalogs", login="ingest", password=SECRET),
            ("postgres://db:5432", "catalogs.lake.orders"),
        ),
        (a_catalog("sqlite", host="/lake/catalog.db"), ("sqlite:/lake/catalog.db", "lake.orders")),
        (
            a_catalog("iceberg", extra={"type": "glue", "glue.region": "eu-central-1", "glue.id": "123456789012"}),
            tuple(named(naming.AWSGlue("eu-central-1", "123456789012", "lake", "orders"))),
        ),
        # Only AWS itself could say of which account it is.
        (a_catalog("iceberg", extra={"type": "glue", "glue.region": "eu-central-1"}), None),
    ],
)
def test_an_iceberg_table_has_a_second_name_by_its_catalog_without_a_secret(
    connection: ConnectionFields, expected: tuple[str, str] | None
) -> None:
    assert name_in_catalog(catalog_settings(connection), "lake.orders") == expected


# ── What a commit gives ───────────────────────────────────────────────────────────────────────────────────────────────


def committed(plan: BatchPlan, counts: list[RangeCount] | None = None) -> Committed:
    batch = Batch("orders", plan, BatchState.COMMITTED, "run 1", plan.planned_at)
    counts = counts if counts is not None else a_receipt(plan).range_counts(plan)
    return Committed(batch, tuple(counts), by_us=True, mirrored=Mirrored(None, None))


def parts_with(receipt: Receipt, columns: Struct | None = COLUMNS, plan: BatchPlan | None = None) -> Any:
    """Return a feed's parts, as far as lineage asks them."""
    archive = SimpleNamespace(receipt=lambda _: receipt)
    catalog = a_catalog("iceberg", host="https://catalog:8181", login="ingest", password=SECRET)
    return SimpleNamespace(
        kafka_client=SimpleNamespace(bootstrap_servers="kafka-1:9094,kafka-2:9094"),
        sinks=lambda _: SimpleNamespace(archive=archive),
        columns=columns,
        find_connection=lambda _: catalog,
        control=SimpleNamespace(batch=lambda _: SimpleNamespace(plan=plan)),
    )


@pytest.fixture(autouse=True)
def _columns_of_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columns are those of the parts: no file is read."""
    monkeypatch.setattr(openlineage_facets, "columns_of", lambda _receipt, _output, parts: parts.columns)


def event_of(facets: Lineage) -> dict[str, Any]:
    """Return the facets as a receiver of events reads them."""
    event = RunEvent(
        eventTime="2026-01-31T00:00:00Z",
        eventType=RunState.COMPLETE,
        run=Run("01890000-0000-7000-8000-000000000001", facets.run_facets),
        job=Job("airflow", "orders.commit", facets.job_facets),
        inputs=facets.inputs,
        outputs=facets.outputs,
    )
    return json.loads(Serde.to_json(event))


def without_form(facet: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_topics_are_inputs_with_their_ranges_and_the_output_has_columns_rows_and_bytes() -> None:
    plan = a_plan()
    receipt = a_receipt(plan, *(a_file(each, 40) for each in plan.ranges))
    counts = receipt.range_counts(plan)
    event = event_of(found_lineage(committed(plan, counts), parts_with(receipt)))

    [read], [written] = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == ("kafka://kafka-1:9094", "orders")
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 80
    assert without_form(read["inputFacets"][RANGES]) == {
        "partitions": 2,
        "offsets": 150,
        "ranges": [
            {"topic": "orders", "partition": 0, "startOffset": 100, "endOffset": 200, "rows": 40},
            {"topic": "orders", "partition": 1, "startOffset": 0, "endOffset": 50, "rows": 40},
        ],
        "rangesLeftOut": 0,
    }
    assert (written["namespace"], written["name"]) == ("file", str(OUTPUT))
    statistics = without_form(written["outputFacets"]["outputStatistics"])
    assert statistics == {"rowCount": 80, "size": receipt.size_bytes, "fileCount": 2}
    assert set(written["facets"]) == {"schema"}
    assert without_form(event["run"]["facets"][BATCH]) == {
        "batchId": str(plan.batch_id),
        "feed": "orders",
        "kind": "live",
        "rows": 80,
        "deadLetters": 0,
        "filtered": 0,
        "topicsLeftOut": 0,
        "rangesLeftOut": 0,
        "fieldsLeftOut": 0,
    }


def test_columns_have_their_inner_fields_by_openlineages_names_and_the_batch_of_the_path() -> None:
    plan = a_plan()
    event = event_of(found_lineage(committed(plan), parts_with(a_receipt(plan))))
    [written] = event["outputs"]

    def shown(fields: list[dict[str, Any]]) -> list[Any]:
        return [(each["name"], each["type"], *shown(each.get("fields", []))) for each in fields]

    assert shown(written["facets"]["schema"]["fields"]) == [
        ("kafka_topic", "string"),
        (
            "value",
            "struct",
            ("id", "bigint"),
            ("tags", "array", ("_element", "struct", ("a.b", "string"))),
            ("m", "map", ("_key", "string"), ("_value", "int")),
        ),
        ("kafka_batch", "string"),
    ]


def test_dead_letters_are_an_output_of_their_own() -> None:
    plan = a_plan()
    receipt = replace(a_receipt(plan), dead_letters=(a_file(span(0, 100, 200), 3),))
    [_, letters] = event_of(found_lineage(committed(plan), parts_with(receipt)))["outputs"]
    assert letters["name"] == f"{OUTPUT}_dead_letters"
    assert letters["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_a_replay_reads_the_dead_letters_and_no_topic() -> None:
    letters = ReplayedLetters(span(0, 100, 200), a_plan().batch_id, (("NOT_JSON", 3),))
    plan = a_plan(span(0, 100, 200), kind=BatchKind.REPLAY, replays=(letters,))
    event = event_of(found_lineage(committed(plan), parts_with(a_receipt(plan), plan=a_plan())))
    [read] = event["inputs"]
    assert (read["namespace"], read["name"]) == ("file", f"{OUTPUT}_dead_letters")
    assert read["inputFacets"][RANGES]["offsets"] == 100


def test_a_table_says_its_format_and_its_name_in_the_catalog_and_nothing_secret_is_in_the_event() -> None:
    options = {"catalog": "lake", "table": "lake.orders"}
    plan = a_plan(output=OutputLocation.at("iceberg", "s3://aws_lake@lake/orders", options))
    event = event_of(found_lineage(committed(plan), parts_with(a_receipt(plan))))
    [written] = event["outputs"]
    assert (written["namespace"], written["name"]) == ("s3://lake", "orders")
    assert without_form(written["facets"]["storage"]) == {"storageLayer": "iceberg", "fileFormat": "parquet"}
    [symlink] = written["facets"]["symlinks"]["identifiers"]
    assert symlink == {"namespace": "https://catalog:8181", "name": "lake.orders", "type": "TABLE"}
    assert SECRET not in json.dumps(event)


def test_an_event_of_thousands_of_partitions_and_fields_is_bounded_and_says_what_it_leaves_out() -> None:
    counts = [
        RangeCount(OffsetRange(TopicPartition(f"{topic:05d}-{'t' * 240}", number), 5, 15), 7, 5, 14)
        for topic in range(500)
        for number in range(20)
    ]
    columns = Struct(tuple(Field(f"{number:05d}_{'c' * 240}", Scalar("string")) for number in range(2_000)))
    plan = a_plan()
    event = event_of(found_lineage(committed(plan, counts), parts_with(a_receipt(plan), columns)))

    assert len(json.dumps(event)) < LARGEST_EVENT
    facet = event["run"]["facets"][BATCH]
    assert (facet["topicsLeftOut"], facet["rangesLeftOut"]) == (400, 9_900)
    assert facet["fieldsLeftOut"] == 2_001 - MAX_FIELDS
    assert len(event["inputs"]) == 100
    assert sum(len(each["inputFacets"][RANGES]["ranges"]) for each in event["inputs"]) == 100
    assert [each["inputFacets"][RANGES]["rangesLeftOut"] for each in event["inputs"]] == [0] * 5 + [20] * 95


def test_batches_of_several_feeds_have_an_event_each_as_their_own_dags_would_send_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = a_plan()
    one = found_lineage(committed(plan), parts_with(a_receipt(plan, a_file(plan.ranges[0], 40))))
    other_id = "01890000-0000-7000-8000-000000000002"
    other = attrs.evolve(one, run_facets={BATCH: attrs.evolve(one.run_facets[BATCH], feed="refunds", batchId=other_id)})
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(OpenLineageAdapter, "emit", lambda _, event: sent.append(json.loads(Serde.to_json(event))))
    dag_run = SimpleNamespace(logical_date=None, run_after=datetime(2026, 1, 31, tzinfo=UTC))
    task = SimpleNamespace(dag_id="shop", task_id="commit", try_number=1, map_index=-1, dag_run=dag_run)
    task.get_template_context = lambda: {"dag_run": dag_run}

    of_task = send_each([one, other], task)

    assert (of_task.inputs, of_task.outputs, of_task.run_facets) == ([], [], {})
    kinds = [(each["job"]["name"], each["eventType"]) for each in sent]
    assert kinds == [(f"{name}.commit", kind) for name in ("orders", "refunds") for kind in ("START", "COMPLETE")]
    assert [each["run"]["runId"] for each in sent[1::2]] == [str(plan.batch_id), other_id]
    for each in sent[1::2]:
        alone = event_of(one)
        assert (each["inputs"], each["outputs"]) == (alone["inputs"], alone["outputs"])
        assert each["run"]["facets"]["parent"]["job"]["name"] == "shop.commit"
    assert [each["run"]["facets"][BATCH]["feed"] for each in sent[1::2]] == ["orders", "refunds"]


def test_a_task_that_committed_nothing_gives_no_lineage() -> None:
    facets = CommitOperator(task_id="commit", feed=None, batch_id="").get_openlineage_facets_on_complete(None)
    assert (facets.inputs, facets.outputs, facets.run_facets) == ([], [], {})


# ── When it is given ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _configured(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.openlineage import conf

    monkeypatch.setattr(conf, "is_disabled", lambda: False)


@pytest.mark.usefixtures("_configured")
def test_lineage_is_of_what_this_task_committed_alone() -> None:
    done, parts = committed(a_plan()), parts_with(a_receipt(a_plan()))
    assert lineage_of(done, parts) is not None
    assert lineage_of(replace(done, by_us=False), parts) is None


def test_nothing_is_looked_up_where_the_provider_is_missing_or_knows_no_receiver() -> None:
    never_asked: Any = None
    assert lineage_of(committed(a_plan()), never_asked) is None
    with patch.object(in_airflow, "OPENLINEAGE", "airflow.providers.not_installed"):
        assert lineage_of(committed(a_plan()), never_asked) is None


@pytest.mark.usefixtures("_configured")
def test_a_batch_does_not_fail_for_its_lineage(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(_: object) -> None:
        raise OSError("the receipt cannot be read")

    parts = parts_with(a_receipt(a_plan()))
    parts.sinks = refuse
    with caplog.at_level(logging.WARNING):
        assert lineage_of(committed(a_plan()), parts) is None
    assert "its lineage is not sent" in caplog.text
    assert "the receipt cannot be read" in caplog.text


def test_one_module_imports_openlineage_and_is_imported_by_no_other_as_it_loads() -> None:
    importing = set()
    for path in sorted((ROOT / "plugins" / "kafka_ingest").rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
            importing |= {path.name} if any("openlineage" in name for name in names) else set()
    assert importing == {"openlineage_facets.py"}
