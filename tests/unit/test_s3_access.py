"""One Airflow connection to S3, as each of the three clients has it."""

import json
from typing import Any

import pytest

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.settings.connections import fields_from_json
from kafka_ingest.settings.store_connection import s3_access

SECRETS = ("the-secret-key", "the-token")


def found(**fields: Any) -> S3Access:
    return s3_access(fields_from_json("aws_default", json.dumps({"conn_type": "aws"} | fields)))


def with_keys(**extra: Any) -> S3Access:
    return found(login="the-key", password="the-secret-key", extra=extra)


def test_without_a_key_every_client_looks_for_the_machines_role() -> None:
    access = found()
    assert not {"key", "secret", "token", "anon"} & access.for_fsspec().keys()
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} & access.for_delta().keys()
    assert access.for_hadoop("lake") == {}
    assert access.secrets == ()


def test_a_key_and_its_region_reach_every_client() -> None:
    access = with_keys(region_name="eu-west-1")
    for_s3fs = access.for_fsspec()
    assert (for_s3fs["key"], for_s3fs["secret"]) == ("the-key", "the-secret-key")
    assert for_s3fs["client_kwargs"] == {"region_name": "eu-west-1"}
    assert (
        access.for_delta().items()
        >= {
            "AWS_ACCESS_KEY_ID": "the-key",
            "AWS_SECRET_ACCESS_KEY": "the-secret-key",
            "AWS_REGION": "eu-west-1",
        }.items()
    )
    assert access.for_hadoop("lake") == {
        "fs.s3a.bucket.lake.access.key": "the-key",
        "fs.s3a.bucket.lake.secret.key": "the-secret-key",
        "fs.s3a.bucket.lake.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "fs.s3a.bucket.lake.endpoint.region": "eu-west-1",
    }


def test_temporary_keys_take_their_token_along() -> None:
    access = with_keys(aws_session_token="the-token")
    assert access.for_fsspec()["token"] == "the-token"
    assert access.for_delta()["AWS_SESSION_TOKEN"] == "the-token"
    for_hadoop = access.for_hadoop("lake")
    assert for_hadoop["fs.s3a.bucket.lake.session.token"] == "the-token"
    assert for_hadoop["fs.s3a.bucket.lake.aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")


@pytest.mark.parametrize(
    "extra",
    [
        {"endpoint_url": "http://minio:9000/"},
        {"service_config": {"s3": {"endpoint_url": "http://minio:9000"}}},
        {"endpoint_url": "http://other:1", "service_config": {"s3": {"endpoint_url": "http://minio:9000"}}},
    ],
)
def test_another_stores_endpoint_is_used_by_every_client_with_the_bucket_in_the_path(
    extra: dict[str, Any],
) -> None:
    access = with_keys(**extra)
    for_s3fs, for_delta, for_hadoop = access.for_fsspec(), access.for_delta(), access.for_hadoop("lake")
    assert for_s3fs["endpoint_url"] == "http://minio:9000"
    assert for_s3fs["config_kwargs"]["s3"] == {"addressing_style": "path"}
    assert (for_delta["AWS_ENDPOINT_URL"], for_delta["AWS_ALLOW_HTTP"]) == ("http://minio:9000", "true")
    assert for_hadoop["fs.s3a.bucket.lake.endpoint"] == "http://minio:9000"
    assert for_hadoop["fs.s3a.bucket.lake.path.style.access"] == "true"
    assert for_hadoop["fs.s3a.bucket.lake.connection.ssl.enabled"] == "false"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "kafka"}, "expected one of type aws, found type 'kafka'"),
        ({"login": "the-key"}, "expected an access key with its secret, found only one of the two"),
        ({"extra": {"aws_session_token": "the-token"}}, "expected an access key with the session token, found none"),
        ({"extra": {"role_arn": "arn:aws:iam::1:role/x"}}, "found role_arn. A role is not assumed here"),
        ({"extra": {"profile_name": "x"}}, "found profile_name"),
        ({"extra": {"service_config": {"s3": {"verify": False}}}}, "found verify"),
        ({"extra": {"endpoint_url": "https://the-key:the-secret-key@minio"}}, "expected an endpoint_url such as"),
    ],
)
def test_what_not_all_clients_could_do_is_refused_by_name_without_a_secret(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConnectionError) as refused:
        found(**fields)
    assert said in str(refused.value)
    assert not any(secret in str(refused.value) for secret in SECRETS)


def test_no_secret_is_in_what_is_printed_and_all_are_known_as_such() -> None:
    access = with_keys(aws_session_token="the-token")
    assert not any(secret in repr(access) for secret in (*SECRETS, "the-key"))
    assert access.secrets == SECRETS


def test_it_travels_to_spark_as_it_is() -> None:
    access = with_keys(aws_session_token="the-token", region_name="eu-west-1", endpoint_url="https://minio:9000")
    assert S3Access.from_json(access.as_json()) == access
