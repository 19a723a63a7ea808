"""S3, or a store that speaks its protocol, with s3fs."""

import contextlib
import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_ingest.foundation.stores.any_store import AnyStore, found_below
from kafka_ingest.foundation.stores.errors import remote_errors

if TYPE_CHECKING:
    from upath import UPath

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
        """Return S3's own name of a failure; empty where it is none of S3's."""
        answer: Any = getattr(error.__cause__, "response", None)
        return str(answer["Error"].get("Code", "")) if isinstance(answer, dict) and "Error" in answer else ""

    def is_taken(self, error: Exception) -> bool:
        """Whether something exists: s3fs knows only Amazon's answer, which names the condition as well."""
        return self.reason_of(error) == EXISTS

    def has_no_bucket(self, error: FileNotFoundError, _: "UPath", /) -> bool:
        """Whether it is the bucket that is missing."""
        return self.reason_of(error) == "NoSuchBucket"

    def make_folder(self, path: "UPath") -> None:
        """Do nothing."""

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        """Return the names of a folder's files from a name on; these alone are listed."""
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
        """Let an object count as written now."""
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
