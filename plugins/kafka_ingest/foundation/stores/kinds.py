"""The kinds of stores that outputs can be in, by their schemes. Only names: no library is imported."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

HOST_OF_ACCOUNTS = "dfs.core.windows.net"
"""Of Azure."""


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A kind of store. ``module`` is of this folder, with its STORE and its ACCESS, and imported where one is opened.

    ``conn_id``: the connection where a URI names none, as in Airflow.
    ``library`` in its ``version`` reads and writes there, and is in the file ``requirements``. ``in_hadoop``: what
    Hadoop calls the scheme; ``in_catalogs``: what Iceberg's catalogs may call it. ``bucket``: what stands for a bucket
    in URIs, as messages have it, and ``bucket_names``, the pattern of those.
    """

    name: str
    module: str
    conn_id: str
    library: str
    version: str
    requirements: str
    create_if_absent: str
    in_hadoop: str
    in_catalogs: frozenset[str]
    bucket: str = "BUCKET"
    bucket_names: str = "[a-z0-9][a-z0-9.-]+"


KINDS: Mapping[str, StoreKind] = {
    "s3": StoreKind(
        name="S3",
        module="s3",
        conn_id="aws_default",
        library="s3fs",
        version="2026.9.0",
        requirements="requirements-s3.txt",
        create_if_absent="If-None-Match: *",
        in_hadoop="s3a",
        in_catalogs=frozenset({"s3", "s3a", "s3n"}),
    ),
    "gs": StoreKind(
        name="Google Cloud Storage",
        module="gcs",
        conn_id="google_cloud_default",
        library="gcsfs",
        version="2026.10.1",
        requirements="requirements-gcs.txt",
        create_if_absent="ifGenerationMatch=0",
        in_hadoop="gs",
        in_catalogs=frozenset({"gs"}),
    ),
    "abfss": StoreKind(
        name="Azure Data Lake Storage",
        module="azure",
        conn_id="wasb_default",
        library="adlfs",
        version="2026.8.0",
        requirements="requirements-azure.txt",
        create_if_absent="If-None-Match: *",
        in_hadoop="abfss",
        in_catalogs=frozenset({"abfss", "abfs"}),
        bucket=f"CONTAINER@ACCOUNT.{HOST_OF_ACCOUNTS}",
        bucket_names=rf"[a-z0-9][a-z0-9-]+@[a-z0-9]+\.{re.escape(HOST_OF_ACCOUNTS)}",
    ),
}
*FIRST, LAST = (f"{scheme}://…" for scheme in KINDS)
SCHEMES_IN_WORDS = f"{', '.join(FIRST)} and {LAST}"


def bucket_in(scheme: str, authority: str) -> str:
    """Return the part of a URI's authority that stands for a bucket; a connection may stand before it."""
    names = 1 + (KINDS[scheme].bucket.count("@") if scheme in KINDS else 0)
    return "@".join(authority.split("@")[-names:])
