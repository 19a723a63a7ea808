"""An output's location: a format, and an absolute place."""

from pathlib import Path

import pytest

from kafka_ingest.model.place import OutputLocation


def test_a_local_output_is_its_absolute_path() -> None:
    output = OutputLocation.local("parquet", Path("/data/orders"))
    assert (output.format, output.uri, output.path, str(output)) == (
        "parquet",
        "/data/orders",
        Path("/data/orders"),
        "/data/orders",
    )


@pytest.mark.parametrize("relative", ["orders", "../orders", ""])
def test_a_relative_place_is_refused(relative: str) -> None:
    with pytest.raises(ValueError, match="expected an absolute path or a URI with a scheme, found "):
        OutputLocation("parquet", relative)


def test_an_output_on_an_object_store_has_no_path() -> None:
    output = OutputLocation("delta", "s3://lake/orders")
    assert not output.is_local
    assert output.normalised == output
    with pytest.raises(ValueError, match="expected a local or mounted directory, found s3://lake/orders"):
        _ = output.path


@pytest.mark.parametrize("spelled", ["/data/x/../orders", "/data//orders", "/data/orders/"])
def test_one_place_in_two_spellings_is_one_place_where_it_is_normalised(spelled: str) -> None:
    output = OutputLocation("parquet", "/data/orders")
    assert OutputLocation("parquet", spelled) != output
    assert OutputLocation("parquet", spelled).normalised == output


def test_two_formats_in_one_place_are_two_outputs() -> None:
    assert OutputLocation("parquet", "/data/orders") != OutputLocation("delta", "/data/orders")


def test_the_same_place_with_other_options_is_the_same_output() -> None:
    output = OutputLocation.local("iceberg", Path("/data/orders"), {"table": "lake.orders", "catalog": "lake"})
    plain = OutputLocation.local("iceberg", Path("/data/orders"))
    assert output == plain
    assert len({output, plain}) == 1
    assert sorted([output, plain]) == [output, plain]
    assert dict(output.options) == {"catalog": "lake", "table": "lake.orders"}
    assert output.normalised.options == output.options


def test_an_output_is_read_back_with_its_options() -> None:
    output = OutputLocation.local("iceberg", Path("/data/orders"), {"table": "lake.orders", "catalog": "lake"})
    assert OutputLocation.from_document(output.as_document()).options == output.options
    assert output.as_document() == {
        "format": "iceberg",
        "path": "/data/orders",
        "options": {"catalog": "lake", "table": "lake.orders"},
    }


def test_an_output_without_options_is_stored_as_it_always_was() -> None:
    assert OutputLocation.local("parquet", Path("/data/orders")).as_document() == {
        "format": "parquet",
        "path": "/data/orders",
    }


def test_options_are_in_one_order_and_each_comes_once() -> None:
    for options in ((("b", "1"), ("a", "2")), (("a", "1"), ("a", "2"))):
        with pytest.raises(ValueError, match="expected each option once, sorted by name"):
            OutputLocation("iceberg", "/data/orders", options)
