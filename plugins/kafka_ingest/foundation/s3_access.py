"""How to reach S3, or a store that speaks its protocol: one description, and the settings of the three clients.

Python reads and writes documents with s3fs, the commit uses delta-rs, and Spark writes with Hadoop's S3A. Without a key
each of them looks for credentials itself: in the environment, then the machine's or the container's role.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from kafka_ingest.foundation.stores.access import CONNECT_TIMEOUT_S, StoreAccess

S3A_CREDENTIALS = "org.apache.hadoop.fs.s3a"


@dataclass(frozen=True, slots=True)
class S3Access(StoreAccess):
    """One connection to a store. ``session_token`` belongs to temporary keys; who puts them there renews them.

    Raises ValueError where a key has no secret, or a token no key.
    """

    scheme: ClassVar[str] = "s3"

    endpoint_url: str | None = None
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("expected an access key with its secret, found only one of the two")
        if self.session_token is not None and self.access_key is None:
            raise ValueError("expected an access key with the session token, found none")

    @property
    def has_credentials(self) -> bool:
        """Whether there is a key."""
        return self.access_key is not None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show."""
        return tuple(filter(None, (self.secret_key, self.session_token)))

    def for_fsspec(self) -> dict[str, Any]:
        """Return the arguments of ``s3fs.S3FileSystem``."""
        settings: dict[str, Any] = {
            # What other processes wrote since the last look would stay unseen.
            "use_listings_cache": False,
            "config_kwargs": {
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": self.read_timeout_s,
                "retries": {"mode": "standard", "total_max_attempts": self.tries},
                # Stores other than Amazon's do not all know the checksums that are sent by default.
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            },
        }
        if self.endpoint_url is not None:
            settings["endpoint_url"] = self.endpoint_url
            settings["config_kwargs"]["s3"] = {"addressing_style": "path"}
        if self.region is not None:
            settings["client_kwargs"] = {"region_name": self.region}
        if self.access_key is not None:
            settings |= {"key": self.access_key, "secret": self.secret_key}
        if self.session_token is not None:
            settings["token"] = self.session_token
        return settings

    def for_delta(self) -> dict[str, str]:
        """Return the ``storage_options`` of a Delta table."""
        # The log's entries are written by create-if-absent: the first of two writers wins.
        options = {"conditional_put": "etag", **self.limits_for_delta()}
        if self.endpoint_url is not None:
            options["AWS_ENDPOINT_URL"] = self.endpoint_url
            options["AWS_ALLOW_HTTP"] = str(self.endpoint_url.startswith("http://")).lower()
            options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false"
        if self.region is not None:
            options["AWS_REGION"] = self.region
        if self.access_key is not None and self.secret_key is not None:
            options |= {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        if self.session_token is not None:
            options["AWS_SESSION_TOKEN"] = self.session_token
        return options

    def for_hadoop(self, bucket: str) -> dict[str, str]:
        """Return the settings of Hadoop's S3A for one bucket: those of other buckets stay as the site has them."""
        settings: dict[str, str] = {}
        if self.endpoint_url is not None:
            settings["endpoint"] = self.endpoint_url
            settings["path.style.access"] = "true"
            settings["connection.ssl.enabled"] = str(not self.endpoint_url.startswith("http://")).lower()
        if self.region is not None:
            settings["endpoint.region"] = self.region
        if self.access_key is not None and self.secret_key is not None:
            settings |= {"access.key": self.access_key, "secret.key": self.secret_key}
            kind = "SimpleAWSCredentialsProvider" if self.session_token is None else "TemporaryAWSCredentialsProvider"
            settings["aws.credentials.provider"] = f"{S3A_CREDENTIALS}.{kind}"
        if self.session_token is not None:
            settings["session.token"] = self.session_token
        return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}

    def with_offered(self, offered: Mapping[str, str]) -> Self:
        """Return this with the keys that an Iceberg catalog offers, where it has none of its own."""
        key, secret = offered.get("s3.access-key-id"), offered.get("s3.secret-access-key")
        if self.has_credentials or not key or not secret:
            return self
        token = offered.get("s3.session-token") or None
        return replace(self, access_key=key, secret_key=secret, session_token=token)
