"""S3, or a store that speaks its protocol: how its three clients reach it, and how s3fs is used there.

Python reads and writes documents with s3fs, the commit uses delta-rs, and Spark writes with Hadoop's S3A. Without a key
each of them looks for credentials itself: in the environment, then the machine's or the container's role.
"""

import contextlib
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kafka_ingest.foundation.stores.access import CONNECT_TIMEOUT_S, StoreAccess, given
from kafka_ingest.foundation.stores.any_store import AnyStore, found_below, remote_errors

if TYPE_CHECKING:
    from upath import UPath

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
        return self.access_key is not None

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.secret_key, self.session_token)))

    def for_fsspec(self) -> dict[str, Any]:
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
        # The log's entries are written by create-if-absent: the first of two writers wins.
        options = {"conditional_put": "etag", **self.limits_for_delta()}
        if self.endpoint_url is not None:
            options["AWS_ENDPOINT_URL"] = self.endpoint_url
            options["AWS_ALLOW_HTTP"] = str(self.endpoint_url.startswith("http://")).lower()
            options["AWS_VIRTUAL_HOSTED_STYLE_REQUEST"] = "false"
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return options | given({"AWS_REGION": self.region, **keys, "AWS_SESSION_TOKEN": self.session_token})

    def for_hadoop(self, bucket: str) -> dict[str, str]:
        """Return the settings of Hadoop's S3A for one bucket: those of other buckets stay as the site has them."""
        settings: dict[str, str] = {}
        if self.endpoint_url is not None:
            settings["endpoint"] = self.endpoint_url
            settings["path.style.access"] = "true"
            settings["connection.ssl.enabled"] = str(not self.endpoint_url.startswith("http://")).lower()
        if self.access_key is not None:
            kind = "SimpleAWSCredentialsProvider" if self.session_token is None else "TemporaryAWSCredentialsProvider"
            settings["aws.credentials.provider"] = f"{S3A_CREDENTIALS}.{kind}"
        keys = {"access.key": self.access_key, "secret.key": self.secret_key, "session.token": self.session_token}
        settings |= given({"endpoint.region": self.region, **keys})
        return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}

    def with_offered(self, offered: Mapping[str, str]) -> Self:
        key, secret = offered.get("s3.access-key-id"), offered.get("s3.secret-access-key")
        if self.has_credentials or not key or not secret:
            return self
        token = offered.get("s3.session-token") or None
        return replace(self, access_key=key, secret_key=secret, session_token=token)


MOST_AT_ONCE = 1_000
"""Objects that are removed by one request."""
EXISTS = "PreconditionFailed"
"""The name for what must not be overwritten; no other condition is ever asked for."""


class S3Store(AnyStore):
    """How S3 differs from other file systems: it has no folders, and uploads in parts stay until they are ended."""

    # The whole object by one request.
    reading: ClassVar[Mapping[str, Any]] = {"max_concurrency": 1}

    def prepare(self, path: "UPath") -> None:
        """Let the client below s3fs alone try again: together it would be for minutes."""
        path.fs.retries = 1

    def reason_of(self, error: BaseException) -> str:
        answer: Any = getattr(error.__cause__, "response", None)
        return str(answer["Error"].get("Code", "")) if isinstance(answer, dict) and "Error" in answer else ""

    def is_taken(self, error: Exception) -> bool:
        """Whether something exists: s3fs knows only Amazon's answer, which names the condition as well."""
        return self.reason_of(error) == EXISTS

    def has_no_bucket(self, error: FileNotFoundError, _: "UPath", /) -> bool:
        return self.reason_of(error) == "NoSuchBucket"

    def make_folder(self, path: "UPath") -> None:
        """Do nothing."""

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        bucket, _, key = folder.path.partition("/")
        # S3 lists what comes after a name, so the name itself is asked for without its last character.
        asked = {"Bucket": bucket, "Prefix": f"{key}/", "Delimiter": "/", "StartAfter": f"{key}/{first[:-1]}"}
        found: list[str] = []
        with remote_errors(self, folder):
            while True:
                page = folder.fs.call_s3("list_objects_v2", **asked)
                found += [each["Key"].rpartition("/")[2] for each in page.get("Contents", [])]
                if not page.get("IsTruncated"):
                    return [name for name in found if name and name >= first]
                asked["ContinuationToken"] = page["NextContinuationToken"]

    def renew(self, path: "UPath") -> None:
        bucket, _, key = path.path.partition("/")
        with remote_errors(self, path):
            path.fs.call_s3(
                "copy_object",
                Bucket=bucket,
                Key=key,
                CopySource={"Bucket": bucket, "Key": key},
                MetadataDirective="REPLACE",
                Metadata={"renewed": "by-kafka-ingest"},
            )

    def remove_files(self, folder: "UPath", paths: Sequence[str]) -> None:
        """Remove objects, many at once; raises OSError where one stays.

        S3 answers with success also where it keeps some of them, and s3fs does not look at what the answer says.
        """
        for first in range(0, len(paths), MOST_AT_ONCE):
            some = [path.partition("/") for path in paths[first : first + MOST_AT_ONCE]]
            asked = {"Objects": [{"Key": key} for _, _, key in some], "Quiet": True}
            answer = folder.fs.call_s3("delete_objects", Bucket=some[0][0], Delete=asked)
            if kept := answer.get("Errors"):
                one = kept[0]
                said = f"{one.get('Code')} {one.get('Message')}: expected {len(some)} objects to be removed"
                raise OSError(errno.EIO, f"{said}, found that {len(kept)} stay, such as {one.get('Key')}")

    def remove_tree(self, path: "UPath") -> None:
        """Remove all objects below a folder, and what killed writers began to upload there.

        That is in no listing, and is paid for.
        """
        self.abort_uploads(path)
        self.remove_objects(path)

    def remove_objects(self, path: "UPath") -> None:
        """Remove all objects below a folder; those that stand for folders last, by their own names."""
        found = found_below(self, path)
        folders = {name for name, each in found.items() if not name or name.endswith("/") or each["type"] != "file"}
        with contextlib.suppress(FileNotFoundError), remote_errors(self, path):  # another clean-up may be faster
            self.remove_files(path, [f"{path.path}/{name}" for name in sorted(found.keys() - folders)])
        with remote_errors(self, path):
            bucket, _, key = path.path.partition("/")
            for name in folders:
                # The library's own removal takes the slash from the name, and so removes something else.
                path.fs.call_s3("delete_object", Bucket=bucket, Key=f"{key}/{name}".rstrip("/") + "/")

    def abort_uploads(self, path: "UPath") -> None:
        """End the uploads in parts below a folder that will never be completed."""
        bucket, _, key = path.path.partition("/")
        with remote_errors(self, path):
            while True:
                found = path.fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/")
                uploads = found.get("Uploads", [])
                for each in uploads:
                    asked = {"Bucket": bucket, "Key": each["Key"], "UploadId": each["UploadId"]}
                    with contextlib.suppress(FileNotFoundError):  # another clean-up was faster
                        path.fs.call_s3("abort_multipart_upload", **asked)
                if not uploads or not found.get("IsTruncated"):
                    return

    def remove_if_empty(self, path: "UPath") -> None:
        """Do nothing."""


STORE, ACCESS = S3Store(), S3Access
