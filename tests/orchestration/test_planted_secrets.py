"""Secrets stand in every place that takes one; then all that feeds leave behind, log, show or send is searched.

Real parts, through Airflow: a Kafka with TLS, logins and tokens, Spark, PostgreSQL, a store of each kind, a registry.
"""

import json
import struct
import tempfile
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Self

import psycopg
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from psycopg import sql
from sqlalchemy import URL
from tests.azure_account import KEY as AZURE_KEY
from tests.gcs_server import private_key
from tests.integration.test_other_stores import FOR_THIS_SERVER
from tests.integration.test_store import GIVES_UP_SOON
from tests.kafka_faults import Record, create_topic, produce
from tests.killing import ending_all, processes_of, wait_for
from tests.object_store import ObjectStore, StoreFault
from tests.orchestration.conftest import Airflow, lineage_into
from tests.orchestration.page_server import PageServer, serving
from tests.quick_project import QuickProject

from certificates import Authority
from embedded_broker import EmbeddedBroker
from embedded_postgresql import EmbeddedPostgresql
from kafka_ingest.foundation import storage
from kafka_ingest.model.place import RemotePlace
from schema_registry import SchemaRegistryServer, running_schema_registry
from secured_broker import MUTUAL_TLS, SASL, SASL_TLS, TOKENS, let_scram_users_in, secured_broker
from token_server import TokenServer

MARK = f"Pl4nted{token_hex(4)}"
"""Is in each secret whose text is free."""
AWKWARD = "\"s;\\=%@ '"
FEEDS = ("lake", "warehouse", "delta", "copy")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


def secret(place: str) -> str:
    """Return the secret of a place that takes any text."""
    return f"{MARK}-{place}"


def in_base64(text: str) -> list[bytes]:
    """Return what a text is in the middle of something in base64, wherever it begins there."""
    return [b64encode(bytes(shift) + text.encode())[4:-4].rstrip(b"=") for shift in range(3)]


def forms() -> list[bytes]:
    """Return what is searched for: also the keys of stores, whose forms are not free."""
    key = private_key().splitlines()
    return [MARK.encode(), *in_base64(MARK), AZURE_KEY.encode(), *(line.encode() for line in key[1:3])]


def search(seen: Mapping[str, bytes]) -> None:
    """Fail where one of the secrets is in what was seen, and say where."""
    assert seen
    found = [
        f"{name}: {content[max(0, at - 80) : at + 60]!r}"
        for name, content in seen.items()
        for each in forms()
        if (at := content.find(each)) >= 0
    ]
    assert not found, "\n".join(found)


# ── What is seen ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Watch:
    """Reads, while it is open, the command lines of all processes, and the environments of those of Spark.

    Of a process that has run for some seconds only once a second: it starts no other program in itself.
    """

    def __init__(self, project: QuickProject) -> None:
        self._of_test = str(project.home.parent).encode()
        self.seen: dict[str, bytes] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        looks: Counter[str] = Counter()
        while not self._ended.wait(0.05):
            for process in Path("/proc").iterdir():
                looks[process.name] += 1
                if not process.name.isdigit() or (looks[process.name] > 100 and looks[process.name] % 20):
                    continue
                with suppress(OSError):
                    line = (process / "cmdline").read_bytes()
                    self.seen[f"command line {hash(line)}"] = line
                    if b"org.apache.spark.deploy.SparkSubmit" in line and self._of_test in line:
                        self.seen[f"environment of Spark {process.name}"] = (process / "environ").read_bytes()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def sparks(self) -> int:
        """How many drivers it has seen."""
        return sum(name.startswith("environment") for name in self.seen)


def files_of(project: QuickProject) -> dict[str, bytes]:
    """Return all files: logs, Airflow's database, receipts, staged and temporary files, lineage, notifications."""
    found = [*project.home.rglob("*"), *Path(tempfile.gettempdir()).glob("kafka-ingest-*/*")]
    seen: dict[str, bytes] = {}
    for file in found:
        with suppress(OSError):  # others come and go where temporary files are
            seen[str(file)] = file.read_bytes()
    return seen


def rows_of(database: URL) -> dict[str, bytes]:
    """Return all columns of all tables in PostgreSQL: control tables, an Iceberg catalog's, and the output's."""
    found: dict[str, bytes] = {}
    with psycopg.connect(database.set(drivername="postgresql").render_as_string()) as connection:
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        for table in tables:
            rows = connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(*table))).fetchall()
            found[".".join(table)] = "\n".join(row for (row,) in rows).encode()
    assert {"public.batch", "public.event", "shop.orders"} <= found.keys()
    return found


def objects_in(stores: Mapping[str, ObjectStore], places: Mapping[str, str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for feed, store in stores.items():
        folder = storage.opened(RemotePlace(places[feed]).parent, store.access())
        names = storage.files_below(folder)
        assert any(name.endswith("/receipt.json") for name in names)
        found |= {f"{feed}: {name}": storage.read_whole(folder / name) for name in names}
    return found


def shown_by(server: PageServer) -> dict[str, bytes]:
    """Return what the page, Airflow's interface with rendered fields and XComs, and the metrics answer."""
    found: dict[str, bytes] = {}
    for feed in FEEDS:
        batches = server.project.kafka_ingest("batches", feed, "--json").document["batches"]
        for route in ("", "/coverage", *(f"/batches/{batch['batch_id']}" for batch in batches)):
            found[f"page {feed}{route}"] = server.page_with_kafka(f"/feeds/{feed}{route}").encode()
    found["page"] = server.page_with_kafka("/").encode()
    as_admin = {"Authorization": f"Bearer {server.token('admin')}"}

    def ask(path: str) -> Any:
        answer = server.ask("GET", f"/api/v2/{path}", headers=as_admin)
        assert answer.status == 200, (path, answer.text)
        found[path] = answer.text.encode()
        return json.loads(answer.text)

    tasks = ask("dags/~/dagRuns/~/taskInstances?limit=1000")["task_instances"]
    assert {each["task_id"] for each in tasks if each["rendered_fields"]} >= {"write", "commit"}
    for path in (
        "dags?limit=1000",
        "dags/~/dagRuns?limit=1000",
        "eventLogs?limit=1000",
        "importErrors",
        "assets/events",
    ):
        ask(path)
    for each in tasks:
        ask(f"dags/{each['dag_id']}/dagRuns/{each['dag_run_id']}/taskInstances/{each['task_id']}/xcomEntries")
    bearer = {"Authorization": f"Bearer {secret('metrics')}"}
    metrics = server.ask("GET", "/kafka-ingest/metrics", headers=bearer)
    assert (metrics.status, 'feed="lake"' in metrics.text) == (200, True)
    return found | {"metrics": metrics.text.encode()}


def said_by_commands(project: QuickProject) -> dict[str, bytes]:
    commands = [["doctor"], ["feeds"], ["history"]]
    for feed in FEEDS:
        commands += [[name, feed] for name in ("status", "batches", "gaps", "history")]
        commands += [["coverage", feed, "--verify"], ["plan", feed, "--dry-run"]]
    return {" ".join(each): said(project, *each) for each in commands}


def said(project: QuickProject, *command: str, **environment: str) -> bytes:
    """Return what a command says in both forms, whether it succeeds or not."""
    answers = [project.kafka_ingest(*command, *form, **environment) for form in ((), ("--json",))]
    return "".join(each.stdout + each.stderr for each in answers).encode()


# ── The places ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def token_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    known = {"dave": secret("client secret") + AWKWARD}
    with TokenServer(tmp_path_factory.mktemp("tokens"), authority, known) as running:
        yield running


@pytest.fixture(scope="module")
def broker(
    authority: Authority, token_server: TokenServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, authority, {"alice": secret("plain")}, token_server.keys) as running:
        let_scram_users_in(running, {"bob": secret("scram") + AWKWARD})
        everybody = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            for kind, name in (
                (ResourceType.TOPIC, "*"),
                (ResourceType.GROUP, "*"),
                (ResourceType.TRANSACTIONAL_ID, "*"),
                (ResourceType.BROKER, "kafka-cluster"),
            )
        ]
        with AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0}) as admin:
            for future in admin.create_acls(everybody).values():
                future.result()
        yield running


@pytest.fixture(scope="module")
def database() -> Iterator[URL]:
    """One for control tables, a catalog and an output."""
    with EmbeddedPostgresql(settings=("fsync = off",)) as server:
        yield server.create_database("planted")


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistryServer]:
    with running_schema_registry() as running:
        running.header = f"Bearer {secret('registry')}"
        yield running


@pytest.fixture
def stores(object_store: ObjectStore, gcs: ObjectStore, azure: ObjectStore) -> dict[str, ObjectStore]:
    """Where each feed's files are."""
    found = {"lake": object_store, "delta": gcs, "warehouse": azure}
    for store in found.values():
        store.make_bucket("lake")
    return found


@pytest.fixture
def places(tmp_path: Path, azure: ObjectStore) -> dict[str, str]:
    return {
        "lake": f"s3://aws_lake@lake{tmp_path}/lake",
        "delta": f"gs://gcp_lake@lake{tmp_path}/delta",
        "warehouse": f"abfss://azure_lake@{azure.bucket}{tmp_path}/warehouse",
    }


def kafka_connections(broker: EmbeddedBroker, authority: Authority, tokens: TokenServer) -> dict[str, dict[str, str]]:
    chain, key = authority.certify("bob", password=secret("key"))
    authority.certify("erin")
    tls = {"ssl.ca.location": str(authority.ca)}
    of_key = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key), "ssl.key.password": secret("key")}
    scram = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": secret("scram") + AWKWARD}
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": secret("plain")}
    by_token = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "dave",
        "sasl.oauthbearer.client.secret": secret("client secret") + AWKWARD,
        "sasl.oauthbearer.token.endpoint.url": tokens.url,
        "https.ca.location": str(authority.ca),
    }
    of_store = {
        "ssl.keystore.location": str(authority.pkcs12("erin", secret("keystore"))),
        "ssl.keystore.password": secret("keystore"),
    }
    return {
        "kafka_default": {"security.protocol": "SASL_SSL", **tls, **of_key, **scram, **at(broker, SASL_TLS)},
        "kafka_tokens": {"security.protocol": "SASL_SSL", **tls, **by_token, **at(broker, TOKENS)},
        "kafka_mutual": {"security.protocol": "SSL", **tls, **of_store, **at(broker, MUTUAL_TLS)},
        "kafka_plain": {"security.protocol": "SASL_PLAINTEXT", **plain, **at(broker, SASL)},
    }


def at(broker: EmbeddedBroker, listener: str) -> dict[str, str]:
    return {"bootstrap.servers": broker.servers_of(listener)}


def kafka(extra: Mapping[str, str], **changes: str) -> str:
    return json.dumps({"conn_type": "kafka", "extra": {**extra, **changes}})


@pytest.fixture
def project(
    tmp_path: Path,
    broker: EmbeddedBroker,
    authority: Authority,
    token_server: TokenServer,
    registry: SchemaRegistryServer,
    stores: Mapping[str, ObjectStore],
    places: Mapping[str, str],
    database: URL,
) -> QuickProject:
    """Four feeds, each with a Kafka login and an output of another kind."""
    made = QuickProject(tmp_path / "project", broker.bootstrap_servers)
    fields = {"conn_type": "postgres", "host": database.query["host"], "schema": database.database}
    fields["login"] = database.username
    s3 = json.loads(stores["lake"].connection()) | {"password": secret("s3")}
    connections = {
        "kafka_ingest": fields | {"password": secret("control tables")},
        "catalog": fields | {"password": secret("catalog")},
        "warehouse": fields | {"password": secret("warehouse") + AWKWARD},
        "schemas": {"conn_type": "http", "extra": {"url": registry.url, "bearer.auth.token": secret("registry")}},
        "kafka_ingest_metrics": {"conn_type": "generic", "password": secret("metrics")},
        "ops": {"conn_type": "http", "host": "hooks.example.org", "login": "ops", "password": secret("webhook")},
        "aws_lake": s3,
    }
    variables = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in connections.items()}
    for name, extra in kafka_connections(broker, authority, token_server).items():
        variables[f"AIRFLOW_CONN_{name.upper()}"] = kafka(extra)
    variables["AIRFLOW_CONN_GCP_LAKE"] = stores["delta"].connection()
    variables["AIRFLOW_CONN_AZURE_LAKE"] = stores["warehouse"].connection()
    made.environment |= variables | {"SITE_PASSWORD": secret("environment")}
    upgraded = made.kafka_ingest("db", "upgrade", "--create")
    assert upgraded.exit_code == 0, upgraded.stderr
    with psycopg.connect(database.set(drivername="postgresql").render_as_string()) as connection:
        connection.execute("CREATE SCHEMA shop")
    sinks: dict[str, dict[str, Any]] = {
        "lake": {"format": "iceberg", "path": places["lake"], "catalog": "catalog", "table": "shop.orders"},
        "warehouse": {
            "format": "postgresql",
            "path": places["warehouse"],
            "conn_id": "warehouse",
            "table": "shop.orders",
        },
        "delta": {"format": "delta", "path": places["delta"]},
        "copy": {"format": "kafka", "path": "copy", "conn_id": "kafka_plain", "topic": f"out-{MARK.lower()}"},
    }
    conn_ids = {"lake": "kafka_default", "warehouse": "kafka_tokens", "delta": "kafka_mutual", "copy": "kafka_plain"}
    told = {"path": str(made.home / "heard.jsonl"), "text": "{{ alert.title }}", "html": "{{ alert.html }}"}
    notify = [
        {"notifier": "file_notifier.FileNotifier", "arguments": told | {"conn_id": "ops"}},
        {"notifier": "file_notifier.RaisingNotifier", "arguments": {"conn_id": "ops"}},
    ]
    servers = broker.bootstrap_servers
    create_topic(servers, sinks["copy"]["topic"], 1)
    schema_id = registry.register(f"{MARK.lower()}-value", ORDER)
    for feed in FEEDS:
        create_topic(servers, topic_of(feed), 1)
        more = {"alerts": {"lag": 1, "notify": notify}, "spark": {"conf": GIVES_UP_SOON | FOR_THIS_SERVER}}
        if feed == "lake":
            more["value"] = {"format": "avro", "registry": "schemas", "subject": f"{MARK.lower()}-value"}
        of_kafka = {"topics": [topic_of(feed)], "group": f"{feed}-ingest", "conn_id": conn_ids[feed]}
        made.write_feed(topic_of(feed), name=feed, kafka=of_kafka, sink=sinks[feed], airflow={"retries": 0}, **more)
        produce_some(servers, feed, schema_id)
    return made


def topic_of(feed: str) -> str:
    return f"{feed}-{MARK[-8:]}"


def produce_some(servers: str, feed: str, schema_id: int = 1) -> None:
    """Produce ten records, as Confluent's serializer writes them; an Avro long of less than 64 is one byte."""
    produce(
        servers,
        topic_of(feed),
        0,
        [Record(struct.pack(">bIB", 0, schema_id, 2 * number), b"key") for number in range(10)],
    )


def settings_that_wait() -> list[Path]:
    """Return the files that Spark has not taken yet: a task that is killed before leaves its own."""
    found = Path(tempfile.gettempdir()).glob("kafka-ingest-*/settings.json")
    with suppress(OSError):
        return [file for file in found if MARK.encode() in file.read_bytes()]
    return []


# ── Success and failure ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _ending_all(project: QuickProject) -> Iterator[None]:
    with ending_all(project):
        yield


def states(airflow: Airflow, feed: str, **environment: str) -> dict[str, str]:
    """Run a feed's DAG with a real Spark, and return how each of its tasks ended."""
    lineage = lineage_into(airflow.project.home / "lineage.jsonl")
    run = airflow.run(feed, spark_is_real=True, **lineage, **environment)
    (airflow.project.home / f"{feed}-{token_hex(4)}.log").write_text(airflow.log)
    return {task: state for task, (state, _) in run["tasks"].items()}


@pytest.mark.usefixtures("_ending_all")
def test_no_secret_is_in_anything_that_feeds_show_log_store_or_send_whether_they_succeed_or_fail(
    airflow: Airflow,
    project: QuickProject,
    broker: EmbeddedBroker,
    registry: SchemaRegistryServer,
    stores: Mapping[str, ObjectStore],
    places: Mapping[str, str],
    database: URL,
    migrated: Path,
) -> None:
    servers = broker.bootstrap_servers
    connections = {
        name: json.loads(value)["extra"]
        for name, value in project.environment.items()
        if name.startswith("AIRFLOW_CONN_KAFKA_") and '"kafka"' in value
    }
    scram, tokens, plain = (connections[f"AIRFLOW_CONN_KAFKA_{name}"] for name in ("DEFAULT", "TOKENS", "PLAIN"))
    wrong = {
        "lake": {"AIRFLOW_CONN_KAFKA_DEFAULT": kafka(scram, **{"sasl.password": secret("wrong")})},
        "warehouse": {
            "AIRFLOW_CONN_KAFKA_TOKENS": kafka(tokens, **{"sasl.oauthbearer.client.secret": secret("wrong")})
        },
        "copy": {"AIRFLOW_CONN_KAFKA_PLAIN": kafka(plain, **{"sasl.password": secret("wrong")})},
    }
    away = {
        "AIRFLOW_CONN_KAFKA_DEFAULT": kafka(scram, **{"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "100"})
    }
    seen: dict[str, bytes] = {}
    with Watch(project) as watch:
        with stores["lake"].failing(StoreFault("PUT .*/metadata/", status=403, code="AccessDenied")):
            assert states(airflow, "lake")["commit"] == "failed"
        for feed in ("lake", "warehouse", "delta"):
            assert states(airflow, feed)["commit"] == "success", airflow.log[-5000:]
        sparks = watch.sparks
        airflow.killed("copy", lambda: watch.sparks > sparks and not settings_that_wait())

        for feed, variables in wrong.items():
            produce_some(servers, feed)
            assert states(airflow, feed, **variables)["plan"] == "failed"
            assert "KAFKA_LOGIN_REFUSED" in airflow.log
            seen[f"{feed}: wrong password"] = said(project, "run", feed, **variables)
            seen[f"{feed}: doctor"] = said(project, "doctor", feed, **variables)
        assert states(airflow, "lake", **away)["plan"] == "failed"
        assert "KAFKA_UNAVAILABLE" in airflow.log
        seen["away"] = said(project, "run", "lake", **away)

        checked = airflow.run("check_feeds", **away)
        assert checked["tasks"] == {"check": ["failed", 1]}
        assert "RaisingNotifier failed" in airflow.log
        assert (project.home / "heard.jsonl").exists()

        header, registry.header = registry.header, "Bearer another"
        assert states(airflow, "lake")["write"] == "failed"
        assert "SCHEMA_REGISTRY_REFUSED" in airflow.log
        registry.header = header
        gone = json.loads(project.environment["AIRFLOW_CONN_WAREHOUSE"]) | {"host": str(project.home)}
        assert states(airflow, "warehouse", AIRFLOW_CONN_WAREHOUSE=json.dumps(gone))["plan"] == "failed"
        seen["sink away"] = said(project, "run", "warehouse", AIRFLOW_CONN_WAREHOUSE=json.dumps(gone))
        away_too = json.loads(project.environment["AIRFLOW_CONN_KAFKA_INGEST"]) | {"host": str(project.home)}
        assert states(airflow, "copy", AIRFLOW_CONN_KAFKA_INGEST=json.dumps(away_too))["plan"] == "failed"
        with stores["lake"].failing(StoreFault("(PUT|POST) .*/batches/", status=503, code="SlowDown")):
            assert states(airflow, "lake")["write"] == "failed"
        assert "SPARK_FAILED" in airflow.log

        wait_for(
            lambda: not any("java" in each.info["name"] for each in processes_of(project.home.parent)), "Spark to end"
        )
        assert states(airflow, "copy")["commit"] == "success", airflow.log[-5000:]
        assert watch.sparks > len(FEEDS)
    seen |= watch.seen | said_by_commands(project)
    with serving(project, migrated) as server:
        seen |= shown_by(server)
    seen |= files_of(project) | rows_of(database) | objects_in(stores, places)
    search(seen)
