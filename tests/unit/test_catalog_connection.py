"""Airflow connections as Iceberg catalogs: a database by its fields, others by PyIceberg's own properties."""

import json
from typing import Any

import pytest

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.settings.connections import ConnectionFields, fields_from_json
from kafka_ingest.settings.store_connection import catalog_settings

SECRET = "hunter22"


def fields(**values: Any) -> ConnectionFields:
    return fields_from_json("lake", json.dumps(values))


def test_a_sqlite_file_is_a_catalog() -> None:
    found = catalog_settings(fields(conn_type="sqlite", host="/data/catalog.db"))
    assert (found.name, dict(found.properties)) == ("lake", {"type": "sql", "uri": "sqlite:////data/catalog.db"})


def test_a_postgresql_database_is_a_catalog_whose_name_other_engines_may_choose() -> None:
    extra = {"sslmode": "require", "catalog_name": "production"}
    database = {"host": "db", "schema": "lake", "login": "app", "password": SECRET, "extra": extra}
    found = catalog_settings(fields(conn_type="postgres", **database))
    assert found.name == "production"
    assert found.properties["uri"] == f"postgresql+psycopg://app:{SECRET}@db/lake?sslmode=require"
    assert SECRET not in repr(found)


def test_any_other_catalog_is_what_pyiceberg_makes_of_the_connections_extra() -> None:
    extra = {"type": "rest", "uri": "https://catalog/ws", "warehouse": "lake", "s3.force-virtual-addressing": True}
    found = catalog_settings(fields(conn_type="iceberg", login="id", password=SECRET, extra=extra))
    assert dict(found.properties) == {
        "type": "rest",
        "uri": "https://catalog/ws",
        "warehouse": "lake",
        "s3.force-virtual-addressing": "true",
        "credential": f"id:{SECRET}",
    }
    assert SECRET not in repr(found)


def test_certificates_and_logins_of_a_rest_catalog_stay_what_they_are_in_the_extra() -> None:
    tls, login = {"cabundle": "/etc/ssl/ca.pem"}, {"type": "basic", "basic": {"username": "me", "password": SECRET}}
    extra = {"uri": "https://catalog", "ssl": tls, "auth": login}
    found = catalog_settings(fields(conn_type="iceberg", extra=extra))
    assert (found.properties["ssl"], found.properties["auth"], found.kind) == (tls, login, "rest")
    assert SECRET not in repr(found)
    assert SECRET not in found.without_secrets(f"cannot log in with {SECRET}")


def test_the_host_of_airflows_own_connection_type_is_the_catalogs_uri() -> None:
    found = catalog_settings(fields(conn_type="iceberg", host="http://catalog", port=8181))
    assert dict(found.properties) == {"uri": "http://catalog:8181"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"conn_type": "iceberg", "extra": {"warehouse": "lake"}}, "expected the properties of an Iceberg catalog"),
        (
            {"conn_type": "iceberg", "extra": {"type": "hive", "uri": "thrift://metastore:9083"}},
            "expected an Iceberg catalog of type rest, sql, glue, found hive: its commits",
        ),
        ({"conn_type": "iceberg", "host": "thrift://metastore", "port": 9083}, "found hive: its commits"),
        ({"conn_type": "iceberg", "extra": {"type": "DynamoDB"}}, "found dynamodb: PyIceberg 0.12.0 cannot commit"),
        ({"conn_type": "iceberg", "extra": {"type": "bigquery"}}, "found bigquery: PyIceberg 0.12.0 cannot commit"),
        ({"conn_type": "iceberg", "extra": {"type": "in-memory"}}, "found in-memory: it ends with the task"),
        ({"conn_type": "iceberg", "extra": {"py-catalog-impl": "my.Catalog"}}, "found py-catalog-impl: nothing is"),
        ({"conn_type": "iceberg", "extra": {"type": "nessie"}}, "type rest, sql, glue, found nessie. Use one"),
        ({"conn_type": "iceberg", "extra": {"uri": "ftp://x"}}, "found a uri without type, and of no known scheme"),
        ({"conn_type": "iceberg", "extra": {"type": "rest"}}, "expected the uri of an Iceberg catalog of type rest"),
        (
            {"conn_type": "iceberg", "extra": {"uri": "https://x", "ssl": "/ca.pem"}},
            "expected 'ssl' in its extra to be",
        ),
        ({"conn_type": "kafka"}, "expected one of type iceberg, sqlite or postgres, found type 'kafka'"),
        ({"conn_type": "sqlite", "host": "catalog.db"}, "expected the absolute path of the SQLite file"),
        ({"conn_type": "iceberg", "host": f"http://me:{SECRET}@catalog"}, "found a text with '@' or"),
    ],
)
def test_a_connection_that_leads_to_no_catalog_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConnectionError) as refused:
        catalog_settings(fields(**values))
    assert said in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("token", "tok-12345"),
        ("credential", "id-4711:secret-4711"),
        ("s3.secret-access-key", "abcdefgh"),
        ("header.Authorization", "Basic aWQ6cHc="),
        ("uri", "postgresql+psycopg://app:hunter22@db/lake"),
    ],
)
def test_a_secret_of_a_connection_is_taken_out_of_messages(key: str, value: str) -> None:
    found = catalog_settings(fields(conn_type="iceberg", extra={"uri": "https://catalog", key: value}))
    said = found.without_secrets(f"could not reach it with {value}")
    assert value not in said
    assert "***" in said
