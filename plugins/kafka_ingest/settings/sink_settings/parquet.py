"""``sink: {format: parquet, path: …}``."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import field_validator

from kafka_ingest.model.partition_term import PartitionTerm, terms_of
from kafka_ingest.model.table_options import OF_RECORDS, TableOptions
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class ParquetSink(LocalDirectorySink):
    """A directory of Parquet files.

    ``partition_by``: names of folders within a batch's, the outermost first, and what each is by: ``dt: day(COLUMN)``.
    """

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
