"""One Airflow connection to Google Cloud Storage, as each of the three clients has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.storage import access_from_json, opened
from kafka_ingest.foundation.stores.gcs import GcsAccess, GcsStore
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.settings.connections import fields_from_json
from kafka_ingest.settings.store_connection import gcs_access

LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
KEY = {
    "type": "service_account",
    "client_email": "ingest@shop.iam.gserviceaccount.com",
    "private_key": f"-----BEGIN PRIVATE KEY-----\n{LINE}\n-----END PRIVATE KEY-----\n",
    "private_key_id": "key-1",
    "token_uri": "https://oauth2.googleapis.com/token",
}


def found(*, conn_type: str = "google_cloud_platform", **extra: Any) -> GcsAccess:
    described = json.dumps({"conn_type": conn_type, "extra": extra})
    return gcs_access(fields_from_json("google_cloud_default", described))


def test_without_a_key_every_client_looks_for_the_machines_account() -> None:
    access = found(num_retries=5, is_anonymous=False)
    assert access.for_fsspec()["token"] == "google_default"
    assert not any("service_account" in name for name in access.for_delta())
    assert access.for_hadoop("lake") == {"fs.gs.auth.type": "APPLICATION_DEFAULT"}
    assert (access.secrets, access.has_credentials, access.only_on_this_machine) == ((), False, None)


@pytest.mark.parametrize("name", ["keyfile_dict", "extra__google_cloud_platform__keyfile_dict"])
@pytest.mark.parametrize("written", [KEY, json.dumps(KEY)], ids=["object", "text"])
def test_a_key_in_the_connection_reaches_every_client_and_hadoop_by_a_file_of_this_users(
    name: str, written: object, tmp_path: Path
) -> None:
    access = found(**{name: written, "project": "shop"})
    assert access.for_fsspec()["token"] == KEY
    assert json.loads(access.for_delta()["google_service_account_key"]) == KEY
    with pytest.raises(ValueError, match="expected a file with the key"):
        access.for_hadoop("lake")
    settings = access.with_key_in(tmp_path).for_hadoop("lake")
    file = Path(settings["fs.gs.auth.service.account.json.keyfile"])
    assert json.loads(file.read_text()) == KEY
    assert (file.parent, file.stat().st_mode & 0o777) == (tmp_path, 0o600)
    assert not any(LINE in value for value in settings.values())
    assert settings["fs.gs.project.id"] == "shop"


def test_a_key_in_a_file_is_read_here_and_named_to_hadoop(tmp_path: Path) -> None:
    file = tmp_path / "account.json"
    file.write_text(json.dumps(KEY))
    access = found(key_path=str(file))
    assert access.for_fsspec()["token"] == KEY
    assert access.with_key_in(tmp_path / "elsewhere") == access
    assert access.for_hadoop("lake")["fs.gs.auth.service.account.json.keyfile"] == str(file)
    assert access.only_on_this_machine is None


def test_another_endpoint_is_used_by_every_client() -> None:
    access = found(**{"gcs.endpoint": "http://gcs:4443/"})
    assert access.for_fsspec()["endpoint_url"] == "http://gcs:4443"
    for_delta = access.for_delta()
    assert (for_delta["google_base_url"], for_delta["allow_http"]) == ("http://gcs:4443", "true")
    assert access.for_hadoop("lake")["fs.gs.storage.root.url"] == "http://gcs:4443/"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "aws"}, "expected one of type google_cloud_platform, found type 'aws'"),
        ({"impersonation_chain": "other@shop"}, "found impersonation_chain. The three clients do not all know it"),
        ({"is_anonymous": True}, "found is_anonymous"),
        ({"keyfile_dict": KEY, "key_path": "/key.json"}, "expected key_path or keyfile_dict, found both"),
        ({"keyfile_dict": {**KEY, "type": "authorized_user"}}, "found type 'authorized_user'"),
        ({"keyfile_dict": {**KEY, "token_uri": None}}, "expected the JSON key of a service account with client_email"),
        ({"keyfile_dict": LINE}, "found another text, which is not repeated since it may be a secret"),
        ({"key_path": "account.json"}, "expected an absolute key_path, found 'account.json'"),
        ({"key_path": "/no/such/file"}, "expected the key of a service account in key_path, found none"),
        ({"gcs.endpoint": f"https://{LINE}@gcs"}, "expected a gcs.endpoint such as https://storage.googleapis.com"),
    ],
)
def test_what_not_all_clients_could_do_is_refused_by_name_without_a_secret(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConnectionError) as refused:
        found(**fields)
    assert said in str(refused.value)
    assert LINE not in str(refused.value)


def test_no_secret_is_in_what_is_printed_and_each_line_of_the_key_is_known_as_one() -> None:
    access = found(keyfile_dict=KEY)
    assert LINE not in repr(access)
    assert access.secrets == (LINE,)


def test_it_travels_to_spark_as_it_is() -> None:
    access = found(keyfile_dict=KEY, project="shop", **{"gcs.endpoint": "https://gcs:4443"})
    assert access_from_json(access.as_json()) == access


def test_a_store_that_refuses_to_say_whether_the_bucket_is_there_fails_with_a_number() -> None:
    """An error without a number would count as a damaged file."""

    class Refused:
        path = "events/records"
        fs: "Refused"

        def call(self, *_: object, **__: object) -> None:
            raise OSError("Forbidden: b/events/o")

    place: Any = Refused()
    place.fs = place
    with pytest.raises(OSError, match="403 Forbidden") as failed:
        GcsStore().has_no_bucket(FileNotFoundError("records"), place)
    assert failed.value.errno is not None


@pytest.mark.parametrize(
    ("access", "said"),
    [
        (GcsAccess("c", key=json.dumps({"type": "service_account", "private_key": "cut off"})), "cannot be read"),
        (GcsAccess("c"), "missing.json was not found"),
    ],
)
def test_credentials_that_cannot_be_used_are_a_failure_with_a_number(
    access: GcsAccess, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(PermissionError, match=said) as failed:
        opened(RemotePlace("gs://events/records"), access)
    assert failed.value.errno is not None
    assert "cut off" not in str(failed.value)
