"""One Airflow connection to Google Cloud Storage, as each of the three clients has it.

Python reads and writes documents with gcsfs, the commit uses delta-rs, and Spark writes with Google's connector for
Hadoop. Without a key each of them uses the application default credentials: a file that the environment names, then the
machine's own account.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from kafka_ingest.foundation.stores.access import StoreAccess

SHORTEST_SECRET = 16
"""Lines of a key that are shorter may be anything."""


@dataclass(frozen=True, slots=True)
class GcsAccess(StoreAccess):
    """One connection to a store. ``key`` is the JSON key of a service account, ``key_path`` the file that it is in.

    gcsfs has a number of tries of its own, which is 6.
    """

    scheme: ClassVar[str] = "gs"

    endpoint_url: str | None = None
    project: str | None = None
    key: str | None = field(default=None, repr=False)
    key_path: str | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether there is a key."""
        return self.key is not None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show: each line of the private key."""
        if self.key is None:
            return ()
        lines = str(json.loads(self.key).get("private_key", "")).splitlines()
        return tuple(line for line in lines if len(line) >= SHORTEST_SECRET and not line.startswith("-----"))

    @property
    def only_on_this_machine(self) -> str | None:
        """Why Spark's executors on other machines cannot have these credentials; None where they can."""
        if self.key is None or self.key_path is not None:
            return None
        return "the key is in keyfile_dict, and Google's connector for Hadoop reads it from a file: use key_path"

    def for_fsspec(self) -> dict[str, Any]:
        """Return the arguments of ``gcsfs.GCSFileSystem``."""
        settings: dict[str, Any] = {
            # What other processes wrote since the last look would stay unseen.
            "use_listings_cache": False,
            "token": json.loads(self.key) if self.key is not None else "google_default",
            "requests_timeout": self.read_timeout_s,
        }
        if self.endpoint_url is not None:
            settings["endpoint_url"] = self.endpoint_url
        if self.project is not None:
            settings["project"] = self.project
        return settings

    def for_delta(self) -> dict[str, str]:
        """Return the ``storage_options`` of a Delta table; the log's entries are always written by create-if-absent."""
        options = self.limits_for_delta()
        if self.endpoint_url is not None:
            options["google_base_url"] = self.endpoint_url
            options["allow_http"] = str(self.endpoint_url.startswith("http://")).lower()
        if self.key is not None:
            options["google_service_account_key"] = self.key
        return options

    def for_hadoop(self, _: str) -> dict[str, str]:
        """Return the settings of Google's connector, which knows none for one bucket alone.

        Raises ValueError where there is a key and no file with it.
        """
        settings = {"auth.type": "APPLICATION_DEFAULT"}
        if self.key is not None:
            if self.key_path is None:
                raise ValueError("expected a file with the key, found only the key")
            settings["auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
            settings["auth.service.account.json.keyfile"] = self.key_path
            if token_uri := json.loads(self.key).get("token_uri"):
                settings["token.server.url"] = token_uri
        if self.endpoint_url is not None:
            settings["storage.root.url"] = f"{self.endpoint_url}/"
        if self.project is not None:
            settings["project.id"] = self.project
        return {f"fs.gs.{name}": value for name, value in settings.items()}

    def with_key_in(self, folder: Path) -> Self:
        """Return this with the key in a file in a folder that is this user's alone."""
        if self.only_on_this_machine is None or self.key is None:
            return self
        file = folder / "key.json"
        file.touch(mode=0o600)
        file.write_text(self.key)
        return replace(self, key_path=str(file))
