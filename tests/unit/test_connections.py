"""Airflow connections: found as Airflow finds them, turned into settings, and never shown with their secrets."""

import json
import traceback
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.control.database import check_version, open_database
from kafka_ingest.errors import ControlTablesUnavailableError, InvalidConnectionError, MissingConnectionError
from kafka_ingest.settings.connections import (
    ConnectionFields,
    control_database,
    fields_from_json,
    find_connection_from_shell,
    kafka_settings,
    secrets_backend_is_configured,
    spark_master,
)
from kafka_ingest.spark_launch.spark_submission import SparkMaster

SECRET = "p@ss:w/o?rd#%"
QUOTED_SECRET = "p%40ss%3Aw%2Fo%3Frd%23%25"


@pytest.fixture(autouse=True)
def _airflow_without_a_secrets_backend(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Airflow of these tests has a home of its own, and nothing comes before the environment."""
    assert airflow_home.is_dir()
    monkeypatch.setenv("AIRFLOW_CONFIG", str(tmp_path / "airflow.cfg"))


def fields(conn_type: str, **values: Any) -> ConnectionFields:
    """Return a connection's fields, as from JSON."""
    return fields_from_json("its_id", json.dumps({"conn_type": conn_type} | values))


def assert_no_secret(*texts: object) -> None:
    for text in texts:
        assert SECRET not in str(text)
        assert QUOTED_SECRET not in str(text)
        assert "hunter2" not in str(text)


# ── Finding ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_in_json_form_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_ITS_ID",
        '{"conn_type": "postgres", "host": "db", "port": "5433", "schema": "control", "login": "me", '
        '"password": "hunter2", "extra": {"sslmode": "require"}}',
    )
    found = find_connection_from_shell("its_id")
    assert found == ConnectionFields(
        conn_id="its_id",
        conn_type="postgres",
        host="db",
        port=5433,
        schema="control",
        login="me",
        password="hunter2",
        extra={"sslmode": "require"},
    )


def test_a_connection_in_uri_form_is_found_through_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", "postgresql://me:hunter2@db:5433/control?sslmode=require")
    found = find_connection_from_shell("its_id")
    assert (found.conn_type, found.host, found.port, found.schema) == ("postgres", "db", 5433, "control")
    assert (found.login, found.password, found.extra) == ("me", "hunter2", {"sslmode": "require"})


@pytest.mark.parametrize(
    "document",
    [
        {"conn_type": "spark", "host": "local[*]"},
        {"conn_type": "postgresql", "host": "db", "port": 5432, "schema": "control", "login": "me", "password": SECRET},
        {
            "conn_type": "kafka",
            "extra": {"bootstrap.servers": "kafka:9092", "enable.ssl.certificate.verification": True},
        },
        {"conn_type": "kafka", "extra": '{"bootstrap.servers": "kafka:9092"}'},
        {"conn_type": "sqlite", "host": "/data/control.db", "extra": None},
        {"conn_type": "spark", "host": "spark://master", "port": "7077", "extra": {"deploy-mode": "client"}},
    ],
)
def test_json_is_read_exactly_as_airflow_reads_it(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.connection import Connection

    from kafka_ingest.settings.connections import fields_of

    text = json.dumps(document)
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", text)
    assert fields_from_json("its_id", text) == fields_of(Connection.get_connection_from_secrets("its_id"))


def test_a_connection_that_is_not_there_is_named_with_where_to_define_it() -> None:
    message = "expected an Airflow connection 'absent', found none.*environment variable AIRFLOW_CONN_ABSENT"
    with pytest.raises(MissingConnectionError, match=rf"{message}") as error:
        find_connection_from_shell("absent")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"conn_type": "postgres", "password": "hunter2"',
        '{"password": "hunter2"}',
        '{"conn_type": "postgres", "port": "hunter2"}',
        '{"conn_type": "kafka", "extra": "{hunter2"}',
        '{"conn_type": "kafka", "extra": ["hunter2"]}',
        '{"conn_type": "kafka", "extra": "[\\"hunter2\\"]"}',
        '{"conn_type": "kafka", "extra": 5, "password": "hunter2"}',
        '{"conn_type": ["hunter2"]}',
        "{hunter2}",
    ],
)
def test_broken_json_is_refused_by_the_variables_name_and_never_repeated(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", text)
    with pytest.raises(
        InvalidConnectionError, match="AIRFLOW_CONN_ITS_ID: expected a JSON object with conn_type"
    ) as error:
        find_connection_from_shell("its_id")
    assert_no_secret(*traceback.format_exception(error.value))


@pytest.mark.parametrize(
    "variable",
    [
        "AIRFLOW__SECRETS__BACKEND",
        "AIRFLOW__SECRETS__BACKEND_CMD",
        "AIRFLOW__SECRETS__BACKEND_SECRET",
        "AIRFLOW__WORKERS__SECRETS_BACKEND",
    ],
)
def test_a_secrets_backend_in_the_environment_comes_before_it(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "some.Backend")
    assert secrets_backend_is_configured()


@pytest.mark.parametrize(
    ("text", "is_configured"),
    [
        ("[secrets]\nbackend = some.Backend\n", True),
        ("[workers]\nsecrets_backend = some.Backend\n", True),
        ("[secrets]\nbackend =\n", False),
        ("[core]\ndags_folder = /dags\n", False),
        ("[core]\nfernet_key = %not an interpolation\n", False),
        ("no section\n", True),
    ],
)
def test_a_secrets_backend_in_airflows_configuration_comes_before_the_environment(
    text: str, tmp_path: Path, *, is_configured: bool
) -> None:
    (tmp_path / "airflow.cfg").write_text(text)
    assert secrets_backend_is_configured() is is_configured


def test_where_a_secrets_backend_comes_first_its_connection_is_the_one_that_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "connections.json"
    secrets.write_text('{"its_id": {"conn_type": "sqlite", "host": "/from/the/backend.db"}}')
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", '{"conn_type": "sqlite", "host": "/from/the/environment.db"}')
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(secrets)}))
    assert find_connection_from_shell("its_id").host == "/from/the/backend.db"


def test_without_a_configuration_the_environment_is_what_airflow_would_answer() -> None:
    assert not secrets_backend_is_configured()


# ── Kafka ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_kafka_connections_extra_is_librdkafka_configuration() -> None:
    extra = {"bootstrap.servers": "kafka:9092", "socket.timeout.ms": 5000, "enable.auto.commit": False, "debug": None}
    found = kafka_settings(fields("kafka", extra=extra))
    assert (found.conn_id, found.bootstrap_servers) == ("its_id", "kafka:9092")
    assert found.librdkafka == {
        "bootstrap.servers": "kafka:9092",
        "socket.timeout.ms": "5000",
        "enable.auto.commit": "false",
    }


def test_a_kafka_connection_without_brokers_is_refused() -> None:
    with pytest.raises(InvalidConnectionError, match=r"connection 'its_id': expected 'bootstrap.servers' in its extra"):
        kafka_settings(fields("kafka", host="kafka", port=9092))


def test_a_connection_of_another_type_is_not_kafkas() -> None:
    with pytest.raises(
        InvalidConnectionError, match="connection 'its_id': expected one of type kafka, found type 'http'"
    ):
        kafka_settings(fields("http", extra={"bootstrap.servers": "kafka:9092"}))


# ── The control tables ────────────────────────────────────────────────────────────────────────────────────────────────


def test_sqlite_is_named_by_the_absolute_path_of_its_file() -> None:
    found = control_database(fields("sqlite", host="/data/control.db"))
    assert found.sqlite_file == Path("/data/control.db")
    assert str(found) == "sqlite:////data/control.db"


def test_sqlite_in_uri_form_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", "sqlite:////data/control.db")
    assert control_database(find_connection_from_shell("its_id")).sqlite_file == Path("/data/control.db")


@pytest.mark.parametrize("host", [None, "", "control.db", "./control.db", ":memory:"])
def test_sqlite_without_an_absolute_path_is_refused(host: str | None) -> None:
    with pytest.raises(
        InvalidConnectionError, match="expected the absolute path of the SQLite file as its host, found"
    ):
        control_database(fields("sqlite", host=host))


@pytest.mark.parametrize("conn_type", ["postgres", "postgresql"])
def test_a_postgresql_url_is_built_with_whatever_characters_the_password_has(conn_type: str) -> None:
    found = control_database(fields(conn_type, host="db", port=5433, schema="control", login="o'me@x", password=SECRET))
    assert found.url.render_as_string(hide_password=False) == (
        f"postgresql+psycopg://o%27me%40x:{QUOTED_SECRET}@db:5433/control"
    )
    assert (found.url.password, found.url.username) == (SECRET, "o'me@x")
    assert found.sqlite_file is None


def test_postgresqls_extra_is_what_its_client_library_takes() -> None:
    extra = {
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "options": "-c search_path=control",
        "connect_timeout": 5,
        "keepalives": True,
        "keepalives_idle": 30,
        "application_name": "ingest",
        "target_session_attrs": "read-write",
        "service": "control",
        "cursor": "dictcursor",
        "iam": False,
        "gssencmode": None,
    }
    found = control_database(fields("postgres", host="db", schema="control", login="me", extra=extra))
    assert dict(found.url.query) == {
        "sslmode": "verify-full",
        "sslrootcert": "/ca.pem",
        "options": "-c search_path=control",
        "connect_timeout": "5",
        "keepalives": "1",
        "keepalives_idle": "30",
        "application_name": "ingest",
        "target_session_attrs": "read-write",
        "service": "control",
    }


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"aplication_name": SECRET}, "found 'aplication_name'; did you mean 'application_name'"),
        ({"zzz": SECRET}, "found 'zzz'. It knows application_name, "),
        ({"password": SECRET}, "expected password as a field of the connection, found 'password' in its extra"),
        ({"dbname": SECRET}, "expected schema as a field of the connection, found 'dbname' in its extra"),
        ({"iam": True}, "expected a login with a password or a certificate, found 'iam'"),
    ],
)
def test_what_postgresqls_client_library_does_not_take_is_named_without_its_value(
    extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConnectionError, match=f"connection 'its_id': .*{message}") as error:
        control_database(fields("postgres", host="db", schema="control", login="me", extra=extra))
    assert_no_secret(*traceback.format_exception_only(error.value))


@pytest.mark.parametrize("make", [control_database, spark_master])
def test_a_url_with_its_password_where_a_host_belongs_is_refused_and_not_repeated(make: Any) -> None:
    conn_type = "spark" if make is spark_master else "postgres"
    with pytest.raises(InvalidConnectionError, match="found a text with '@' or blanks") as error:
        make(fields(conn_type, host=f"{conn_type}://me:hunter2@host", schema="control", login="me"))
    assert_no_secret(*traceback.format_exception_only(error.value))


@pytest.mark.parametrize("key", ["spark-binary", "deploy-mode"])
def test_what_the_extra_of_a_spark_connection_may_not_hold_is_not_repeated(key: str) -> None:
    with pytest.raises(InvalidConnectionError, match=f"expected .*{key}") as error:
        spark_master(fields("spark", host="local[*]", extra={key: "hunter2"}))
    assert_no_secret(error.value)


@pytest.mark.parametrize("uri", ["a://b://c://me:hunter2@db", "postgres://me:hunter2@db:hunter2/control"])
def test_a_uri_that_airflow_cannot_read_is_refused_and_not_repeated(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", uri)
    with pytest.raises(InvalidConnectionError, match="connection 'its_id': expected a URI or JSON") as error:
        find_connection_from_shell("its_id")
    assert_no_secret(*traceback.format_exception(error.value))


def test_what_postgresqls_client_library_quotes_of_an_option_is_not_shown() -> None:
    extra = {"sslmode": "hunter2"}
    found = control_database(fields("postgres", host="127.0.0.1", port=1, schema="control", login="me", extra=extra))
    with pytest.raises(ControlTablesUnavailableError, match="sslmode") as error:
        check_version(open_database(found))
    assert_no_secret(error.value)


def test_the_password_of_the_control_database_is_never_shown() -> None:
    its_fields = fields("postgres", host="db", schema="control", login="me", password=SECRET)
    found = control_database(its_fields)
    assert_no_secret(repr(its_fields), its_fields, repr(found), found, repr([found]))
    assert str(found) == "postgresql+psycopg://me:***@db/control"


def test_the_password_of_a_tls_key_is_never_shown() -> None:
    extra = {"sslkey": "/client.key", "sslpassword": "hunter2"}
    found = control_database(fields("postgres", host="db", schema="control", login="me", extra=extra))
    assert_no_secret(found, repr(found))


def test_a_control_database_that_cannot_be_reached_is_named_without_its_secrets() -> None:
    extra = {"sslpassword": "hunter2"}
    found = control_database(
        fields("postgres", host="127.0.0.1", port=1, schema="control", login="me", password=SECRET, extra=extra)
    )
    with pytest.raises(ControlTablesUnavailableError, match="postgresql") as error:
        check_version(open_database(found))
    assert_no_secret(error.value)


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"schema": "control", "login": "me"}, "host"),
        ({"host": "db", "login": "me"}, "schema"),
        ({"host": "db", "schema": "control"}, "login"),
        ({}, "host, schema, login"),
    ],
)
def test_a_postgresql_connection_that_lacks_fields_is_refused_with_their_names(
    values: dict[str, str], missing: str
) -> None:
    with pytest.raises(InvalidConnectionError, match=rf"missing: {missing}$") as error:
        control_database(fields("postgres", password=SECRET, **values))
    assert_no_secret(error.value)


def test_a_connection_of_another_type_does_not_hold_the_control_tables() -> None:
    with pytest.raises(InvalidConnectionError, match="expected one of type sqlite or postgres, found type 'mysql'"):
        control_database(fields("mysql", host="db", password=SECRET))


# ── Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "connection",
    [
        '{"conn_type": "spark", "host": "local[*]"}',
        '{"conn_type": "spark", "host": "local[2]"}',
        '{"conn_type": "spark", "host": "local"}',
        '{"conn_type": "spark", "host": "spark://host", "port": 7077}',
        '{"conn_type": "spark", "host": "spark://host:7077"}',
        '{"conn_type": "spark", "host": "spark://one:7077,two:7077"}',
        '{"conn_type": "spark", "host": "host", "port": 7077}',
        '{"conn_type": "spark", "host": "yarn"}',
        '{"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}',
        '{"conn_type": "spark", "host": "k8s://https://10.0.0.1", "port": 6443}',
        '{"conn_type": "k8s", "host": "https://10.0.0.1", "port": 6443}',
        '{"conn_type": "spark", "host": "spark://host:7077", "extra": {"deploy-mode": "client"}}',
        '{"conn_type": "spark", "host": "spark://host:7077", "extra": {"spark-binary": "spark3-submit"}}',
        "spark://host:7077",
        "spark://spark%3A%2F%2Fhost:7077",
        "spark://local%5B*%5D",
        "spark://k8s%3A%2F%2Fhttps%3A%2F%2F10.0.0.1:6443?deploy-mode=cluster",
    ],
)
def test_the_master_is_the_one_that_airflows_own_hook_submits_to(
    connection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks import spark_submit

    # The hook only makes sure that the Kubernetes provider, which is not installed here, is there.
    monkeypatch.setattr(spark_submit, "kube_client", object(), raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", connection)
    expected = spark_submit.SparkSubmitHook(conn_id="its_id")._connection
    found = spark_master(find_connection_from_shell("its_id"))
    assert (found.master, found.deploy_mode, found.spark_binary) == (
        expected["master"],
        expected["deploy_mode"],
        expected["spark_binary"],
    )


def test_a_spark_connection_without_a_master_is_refused() -> None:
    with pytest.raises(InvalidConnectionError, match="connection 'its_id': expected a Spark master as its host"):
        spark_master(fields("spark"))


@pytest.mark.parametrize("host", ["sc://spark:15002", "http://livy:8998", "https://adb-1.azuredatabricks.net"])
def test_a_service_that_takes_no_driver_of_ours_is_refused_by_name(host: str) -> None:
    with pytest.raises(InvalidConnectionError, match=r"Spark Connect .*, Livy, EMR, Dataproc and Databricks cannot be"):
        spark_master(fields("spark", host=host))


def test_a_missing_spark_connection_is_an_error_and_never_a_submit_to_yarn() -> None:
    with pytest.raises(MissingConnectionError, match="'absent'"):
        spark_master(find_connection_from_shell("absent"))


@pytest.mark.parametrize("extra", [{"spark-binary": "/opt/spark/bin/spark-submit"}, {"spark-home": "/opt/spark"}])
def test_what_airflows_own_hook_would_refuse_is_refused_before_anything_is_planned(
    extra: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    connection = json.dumps({"conn_type": "spark", "host": "local[*]", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_ITS_ID", connection)
    with pytest.raises(ValueError, match="spark-"):
        SparkSubmitHook(conn_id="its_id")
    (key,) = extra
    with pytest.raises(InvalidConnectionError, match=rf"'its_id'.*{key}"):
        spark_master(find_connection_from_shell("its_id"))


def test_only_local_masters_run_on_this_machine() -> None:
    here = ["local", "local[*]", "local[2]", "local[2,3]"]
    elsewhere = ["spark://local:7077", "yarn", "k8s://https://local", "localhost", "local-cluster[2,1,1024]"]
    assert [master for master in here + elsewhere if SparkMaster("its_id", master).is_local] == here
