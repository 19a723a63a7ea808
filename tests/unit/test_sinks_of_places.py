"""Which format can be where: the rest is refused by name, before anything is opened."""

import sys

import pytest

from kafka_ingest.errors import InstallationError, OutputNotUsableError
from kafka_ingest.foundation import storage
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.sinks.choose import FORMATS, examine, import_for_commit, sink_of


@pytest.mark.parametrize(
    ("format_name", "uri"),
    [("parquet", "s3://lake/orders"), ("delta", "hdfs://lake/orders"), ("iceberg", "wasbs://lake/orders")],
)
def test_an_output_where_its_format_cannot_be_is_refused_with_those_that_can(format_name: str, uri: str) -> None:
    for used in (sink_of, examine):
        with pytest.raises(
            OutputNotUsableError,
            match=r"or format delta or iceberg or postgresql or kafka in s3://…, gs://… and abfss://…",
        ) as refused:
            used(OutputLocation(format_name, uri))
        assert uri in str(refused.value)


@pytest.mark.parametrize("format_name", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("scheme", "what"),
    [
        ("s3", r"s3fs==\S+ \(requirements-s3"),
        ("gs", r"gcsfs==\S+ \(requirements-gcs"),
        ("abfss", r"adlfs==\S+ \(requirements-azure"),
    ],
)
def test_without_the_library_for_a_store_an_output_there_is_refused_with_what_to_install(
    format_name: str, scheme: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "find_spec", lambda _: None)
    for used in (sink_of, examine):
        with pytest.raises(InstallationError, match=rf"pip install {what}\.txt\)"):
            used(OutputLocation(format_name, f"{scheme}://lake/orders"))


@pytest.mark.parametrize("format_name", FORMATS)
def test_what_a_commit_of_each_format_needs_can_be_imported_ahead(format_name: str) -> None:
    import_for_commit(OutputLocation(format_name, "/data/orders"))
    assert "pyarrow.parquet" in sys.modules
