"""What all outputs have in common, and what a directory of Parquet files has besides."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import field_validator

from kafka_ingest.foundation.stores.kinds import KINDS
from kafka_ingest.model.partition_term import PartitionTerm, terms_of
from kafka_ingest.model.table_options import OF_RECORDS, TableOptions
from kafka_ingest.settings.setting_types import Duration, Settings

DATA_VARIABLE = "KAFKA_INGEST_DATA"
STORE = re.compile(rf"({'|'.join(KINDS)})://", re.IGNORECASE)
BUCKETS = "|".join(rf"{scheme}://(?:[\w.-]+@)?{kind.bucket_names}" for scheme, kind in KINDS.items())
OBJECT_STORE = re.compile(rf"(?:{BUCKETS})" r"(?:/(?!\.{1,2}(?:/|$))[\w.=-]+)+", re.ASCII)
"""Nothing that Hadoop, Python's file-system library or a pattern would read in another way."""


def in_object_store(path: str) -> bool:
    return STORE.match(path) is not None


class LocalDirectorySink(Settings):
    """Where the output goes; :mod:`..feed_schema` says what each key means, of all models."""

    not_on_object_stores: ClassVar[str] = "object stores are not supported"
    """Why a URI is refused."""
    on_object_stores: ClassVar[bool] = False
    """Whether the path may be in an object store."""
    takes_columns: ClassVar[bool] = True
    """Whether records may become other columns than the raw key and value."""

    format: str
    path: str
    shared: bool = False
    staging_retention: Duration = timedelta(days=7)

    def of_copy(self, path: str) -> Mapping[str, object]:
        return {"format": self.format, "path": path}

    @property
    def address(self) -> Mapping[str, str]:
        """What else than its path belongs to one feed alone, by the names of settings."""
        return {}

    @property
    def why_no_late_rows(self) -> str | None:
        """Why late rows cannot have a dataset of their own beside the output; None where they can."""
        return None

    def addresses(self, *, letters: bool, late: bool) -> list[Mapping[str, str]]:
        """Return the address, if there is one, and those of what is beside it: its dead letters, its late rows."""
        del letters, late  # files, unless the output says otherwise
        return [self.address] if self.address else []

    @property
    def written_topic(self) -> tuple[str, str] | None:
        """The connection and the name of the topic that records are written to, if that is what the output is."""
        return None

    @property
    def options(self) -> Mapping[str, str]:
        """How the output is reached, apart from its path; stored in each plan."""
        return {}

    @property
    def where(self) -> str | None:
        """An expression that records have to satisfy for this output, beside the feed's own."""
        return None

    @property
    def keeps_refused(self) -> bool:
        """Whether records whose rows the output refuses become dead letters."""
        return False

    def options_of(self, *, decoded: bool) -> Mapping[str, str]:
        del decoded  # files have the columns that they have
        return self.options

    @field_validator("path")
    @classmethod
    def _is_a_local_path(cls, path: str) -> str:
        if cls.on_object_stores and (store := STORE.match(path)):
            if OBJECT_STORE.fullmatch(path) is None:
                bucket = KINDS[scheme := store[1].lower()].bucket
                raise ValueError(
                    f"expected {scheme}://{bucket}/NAME or {scheme}://CONNECTION@{bucket}/NAME with letters, digits "
                    f"and any of ._=- in its names, found {path!r}"
                )
            return path
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


class ParquetSink(LocalDirectorySink):
    """A directory of Parquet files."""

    not_on_object_stores: ClassVar[str] = (
        "on an object store a directory of Parquet files would show readers half a batch"
    )

    format: Literal["parquet"]
    partition_by: Mapping[str, str] = {}

    @field_validator("partition_by")
    @classmethod
    def _are_terms(cls, by_name: Mapping[str, str]) -> Mapping[str, str]:
        terms = terms_by_name(by_name)
        names = [(term.name, term.name.lower()) for term in terms]  # DuckDB knows no case
        if wrong := [name for name, lower in names if lower.startswith("kafka_") or lower in OF_RECORDS]:
            raise ValueError(f"expected names of folders that no column has, as Kafka's have kafka_, found {wrong[0]}")
        return by_name

    @property
    def options(self) -> Mapping[str, str]:
        """How files are divided, stored in each plan."""
        return {**super().options, **TableOptions(partition_by=terms_by_name(self.partition_by)).as_options()}

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy, which is divided in the same way."""
        return {**super().of_copy(path), "partition_by": self.partition_by}


def terms_by_name(by_name: Mapping[str, str]) -> tuple[PartitionTerm, ...]:
    """Return the terms of folders; raises ValueError where one is none, or a name comes twice."""
    return terms_of(f"{name}: {value}" for name, value in by_name.items())
