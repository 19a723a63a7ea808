"""What all outputs in a local or mounted directory have in common."""

import re
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from pydantic import field_validator

from kafka_ingest.settings.setting_types import Duration, Settings

DATA_VARIABLE = "KAFKA_INGEST_DATA"


class LocalDirectorySink(Settings):
    """Where the output goes. ``shared``: the path is mounted at the same place on every Spark machine.

    ``staging_retention``: how long staged files stay after their batch was committed or given up.
    """

    not_on_object_stores: ClassVar[str] = "object stores are not supported"
    """Why a URI is refused."""

    format: str
    path: str
    shared: bool = False
    staging_retention: Duration = timedelta(days=7)

    @field_validator("path")
    @classmethod
    def _is_a_local_path(cls, path: str) -> str:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
            raise ValueError(f"expected a local or mounted path, found {path!r}: {cls.not_on_object_stores}")
        if not path.isprintable():
            raise ValueError(f"expected a path of printable characters, found {path!r}")
        if not path.strip() or ".." in Path(path).parts:
            raise ValueError(f"expected a path without '..', found {path!r}")
        if not Path(path).name:
            raise ValueError(f"expected a directory of the feed's own, found {path!r}")
        if path.startswith("~"):
            raise ValueError(
                f"expected an absolute path, or one under {DATA_VARIABLE}, found {path!r}: '~' is not expanded"
            )
        return path
