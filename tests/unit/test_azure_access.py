"""One Airflow connection to Azure Data Lake Storage, as each of the three clients has it."""

import json
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.storage import access_from_json
from kafka_ingest.foundation.stores.azure import AzureAccess, AzureStore
from kafka_ingest.foundation.stores.azure_files import credential_of
from kafka_ingest.settings.connections import fields_from_json
from kafka_ingest.settings.store_connection import azure_access

HOST = "shop.dfs.core.windows.net"
BUCKET = f"lake@{HOST}"
KEY = "a2V5LW9mLXRoZS1hY2NvdW50"
TOKEN = "sv=2024-11-04&ss=b&sig=c2lnbmF0dXJl%3D"
SECRET = "secret-of-the-application"
APPLICATION = {"login": "client-1", "password": SECRET, "extra": {"tenant_id": "tenant-1"}}
OF_MACHINE = ("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE")


@pytest.fixture(autouse=True)
def without_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_MACHINE:
        monkeypatch.delenv(name, raising=False)


def found(*, conn_type: str = "wasb", **fields: Any) -> AzureAccess:
    return azure_access(fields_from_json("wasb_default", json.dumps({"conn_type": conn_type, **fields})), BUCKET)


def of_hadoop(access: AzureAccess) -> dict[str, str]:
    """Return Hadoop's settings; each is of this account alone."""
    settings = access.for_hadoop(BUCKET)
    assert all(name.startswith("fs.azure.") and name.endswith(f".{HOST}") for name in settings)
    return {name.removeprefix("fs.azure.").removesuffix(f".{HOST}"): value for name, value in settings.items()}


@pytest.mark.parametrize(
    "fields",
    [
        {"login": "shop", "password": KEY},
        {"password": KEY, "host": "https://shop.blob.core.windows.net/"},
        {"conn_type": "adls", "host": "shop", "password": KEY},
        {"login": "shop", "extra": {"shared_access_key": KEY}},
        {"extra": {"extra__wasb__shared_access_key": KEY, "account_name": "shop", "tenant_id": ""}},
    ],
)
def test_the_accounts_key_reaches_every_client(fields: dict[str, Any]) -> None:
    access = found(**fields)
    credential = credential_of(access)
    assert isinstance(credential, AzureNamedKeyCredential)
    assert (credential.named_key.name, credential.named_key.key) == ("shop", KEY)
    options = access.for_delta()
    assert access.blob_url == options["azure_storage_endpoint"] == "https://shop.blob.core.windows.net"
    assert (options["azure_storage_account_key"], options["allow_http"]) == (KEY, "false")
    assert of_hadoop(access) == {"account.auth.type": "SharedKey", "account.key": KEY}


@pytest.mark.parametrize("written", [TOKEN, f"?{TOKEN}"])
def test_a_shared_access_signature_reaches_every_client(written: str) -> None:
    access = found(login="shop", extra={"sas_token": written})
    credential = credential_of(access)
    assert isinstance(credential, AzureSasCredential)
    assert credential.signature == TOKEN
    assert access.for_delta()["azure_storage_sas_key"] == TOKEN
    assert of_hadoop(access) == {"account.auth.type": "SAS", "sas.fixed.token": TOKEN}


def test_an_applications_secret_reaches_every_client() -> None:
    access = found(**APPLICATION)
    assert isinstance(credential_of(access), ClientSecretCredential)
    options = {name.removeprefix("azure_storage_"): value for name, value in access.for_delta().items()}
    assert (options["tenant_id"], options["client_id"], options["client_secret"]) == ("tenant-1", "client-1", SECRET)
    assert of_hadoop(access) == {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
        "account.oauth2.client.endpoint": "https://login.microsoftonline.com/tenant-1/oauth2/token",
        "account.oauth2.client.id": "client-1",
        "account.oauth2.client.secret": SECRET,
    }


@pytest.mark.parametrize(
    ("environment", "provider"),
    [
        ({}, "MsiTokenProvider"),
        (
            {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/var/run/token"},
            "WorkloadIdentityTokenProvider",
        ),
    ],
)
def test_without_credentials_every_client_looks_for_the_machines_identity_and_hadoop_as_the_others_do(
    environment: dict[str, str], provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    access = found(login="shop")
    assert isinstance(credential_of(access), DefaultAzureCredential)
    assert not any(word in name for name in access.for_delta() for word in ("key", "secret", "client"))
    assert of_hadoop(access)["account.oauth.provider.type"].endswith(f".{provider}")
    assert (access.secrets, access.has_credentials, access.only_on_this_machine) == ((), False, None)


def test_an_application_asks_azures_authority_also_in_a_driver_whose_environment_was_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "")
    credential = credential_of(found(**APPLICATION))
    assert credential._client._authority == "https://login.microsoftonline.com"


def test_an_application_that_the_environment_names_reaches_spark_too_as_a_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver gets no such variables: without its secret it would look for the machine's identity."""
    named = {"AZURE_TENANT_ID": "tenant-1", "AZURE_CLIENT_ID": "client-1", "AZURE_CLIENT_SECRET": SECRET}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    access = found(extra={"managed_identity_client_id": "identity-1"})
    assert access.secrets == (SECRET,)
    assert found(password=KEY).secrets == (KEY,)
    for name in named:
        monkeypatch.delenv(name)
    assert of_hadoop(access_from_json(access.as_json())) == of_hadoop(found(**APPLICATION))


def test_one_of_several_identities_of_the_machine_may_be_named() -> None:
    access = found(extra={"managed_identity_client_id": "identity-1"})
    assert access.for_delta()["azure_storage_client_id"] == "identity-1"
    assert of_hadoop(access)["account.oauth2.client.id"] == "identity-1"


def test_another_server_is_reached_by_its_address_with_the_accounts_name_as_path() -> None:
    access = found(login="shop", password=KEY, host="http://127.0.0.1:10000/shop/")
    assert access.blob_url == access.for_delta()["azure_storage_endpoint"] == "http://127.0.0.1:10000/shop"
    assert access.for_delta()["allow_http"] == "true"
    settings = access.for_hadoop(BUCKET)
    assert settings["fs.azure.abfs.endpoint"] == "127.0.0.1:10000"
    assert settings["fs.abfss.impl"].endswith(".AzureBlobFileSystem"), "the other class speaks TLS alone"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "google_cloud_platform"}, "expected one of type wasb or adls, found type"),
        ({"login": "other", "password": KEY}, "expected one to the account shop, which sink.path names, found 'other'"),
        (
            {"login": "shop", "extra": {"connection_string": KEY}},
            "expected in its extra at most account_key,",
        ),
        ({"login": "shop", "password": f"{KEY}-"}, "expected one key of the account, in base64 as Azure shows it"),
        ({"login": "shop", "password": KEY, "extra": {"account_key": KEY}}, "as Azure shows it, found more than one"),
        ({"login": "shop", "password": KEY, "extra": {"sas_token": TOKEN}}, "a client secret, found more than one"),
        ({"login": "shop", "extra": {"sas_token": f"https://shop/?{TOKEN}"}}, r"expected a sas_token such as sv="),
        (
            {**APPLICATION, "login": None},
            "expected a client secret with its tenant_id and client id, found only",
        ),
        ({**APPLICATION, "password": None}, "expected a client secret with the tenant_id, found none"),
        (
            {"login": "shop", "host": f"https://u:{SECRET}@shop/"},
            "expected as its host https://shop.blob.",
        ),
        ({"login": "shop", "host": "http://127.0.0.1:10000/shop"}, "for a server without TLS, found neither"),
        ({"login": "shop", "host": "http://127.0.0.1:10000/other"}, "or another server's http://HOST:PORT/shop"),
    ],
)
def test_what_not_all_clients_could_do_is_refused_by_name_without_a_secret(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConnectionError) as refused:
        found(**fields)
    assert said in str(refused.value)
    assert not [secret for secret in (KEY, TOKEN, SECRET) if secret in str(refused.value)]


def test_no_secret_is_in_what_is_printed_and_each_is_known_as_one() -> None:
    accesses = [found(password=KEY), found(extra={"sas_token": TOKEN}), found(**APPLICATION)]
    assert not [secret for secret in (KEY, TOKEN, SECRET) if secret in repr(accesses)]
    assert [each.secrets for each in accesses] == [
        (KEY,),
        (TOKEN, "c2lnbmF0dXJl=", "c2lnbmF0dXJl%3D"),
        (SECRET,),
    ]


@pytest.mark.parametrize("written", ["a+b/c=", "a%2Bb%2Fc%3D", "a%2bb%2fc%3d"])
def test_a_signature_is_a_secret_in_each_form_that_a_client_may_write(written: str) -> None:
    found_secrets = found(extra={"sas_token": f"sv=2024-11-04&sig={written}&ss=b"}).secrets
    assert {"a+b/c=", "a%2Bb%2Fc%3D", written} <= set(found_secrets)


@pytest.mark.parametrize("fields", [{"password": KEY}, APPLICATION])
def test_it_travels_to_spark_as_it_is(fields: dict[str, Any]) -> None:
    access = found(**fields)
    assert access_from_json(access.as_json()) == access


def test_a_store_that_refuses_to_say_whether_the_container_is_there_fails_with_a_number() -> None:
    """An error without a number would count as a damaged file."""

    class Refused:
        path = "lake/records"
        fs: "Refused"

        def look_for_container(self, _: str) -> None:
            raise HttpResponseError("This request is not authorized")

    place: Any = Refused()
    place.fs = place
    with pytest.raises(OSError, match="This request is not authorized") as failed:
        AzureStore().has_no_bucket(FileNotFoundError("records"), place)
    assert failed.value.errno is not None
