"""What Airflow shows of a feed, a batch and a connection."""

import json
from pathlib import Path
from pkgutil import resolve_name

import airflow
import jsonschema
import pytest

from kafka_ingest.airflow_tasks import connection_types
from kafka_ingest.airflow_tasks.dags.feed_dags import documentation, documentation_of_error
from kafka_ingest.airflow_tasks.in_airflow import lines_of_ranges
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.settings.feed_file import feed_of, read_feed_file

FEED = """\
name: orders  # ```` and <script>
kafka: {topics: [orders]}
sink: {format: parquet, path: orders}
"""


def orders(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(TopicPartition("orders", partition), start, end)


def test_a_feeds_file_stands_in_its_documentation_as_it_is_and_nothing_in_it_ends_the_code_block(
    tmp_path: Path,
) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(FEED)
    file = read_feed_file(path)

    text = documentation(feed_of(file), file)

    assert f"`orders.yaml`:\n\n`````yaml\n{FEED}`````\n" in text
    assert "Reads `orders` into `orders` (parquet)" in text


def test_an_unusable_files_error_quotes_it_and_nothing_in_it_ends_the_code_block(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(r'"a\n```\n# All is well": 1')

    lines = documentation_of_error(read_feed_file(path)).splitlines()

    assert lines[:3] == ["This feed file cannot be used:", "", "````"]
    assert lines[-3:] == ["```", "# All is well: unknown key", "````"]


def test_a_file_that_is_gone_since_it_was_read_leaves_a_documentation_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(FEED)
    file = read_feed_file(path)
    path.unlink()

    assert "# cannot be read now: [Errno 2]" in documentation(feed_of(file), file)


def test_ranges_are_a_table_with_their_sum() -> None:
    assert list(lines_of_ranges([orders(0, 0, 1_200), orders(11, 5, 6)])) == [
        "topic   partition  from offset  to before  offsets",
        "orders          0            0      1,200    1,200",
        "orders         11            5          6        1",
        "                2                            1,201",
    ]


def test_of_very_many_ranges_a_log_shows_the_first_ones_and_how_many_more_there_are() -> None:
    lines = list(lines_of_ranges([orders(number, 0, 10) for number in range(10_000)]))

    assert (len(lines), lines[-2], lines[-1].split()) == (103, "and 9,900 more", ["10,000", "100,000"])


def test_types_of_connections_are_what_airflow_takes_and_leave_those_of_installed_providers_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    found = connection_types.get_provider_info()

    jsonschema.validate(found, schema)
    names = [each["connection-type"] for each in found["connection-types"]]
    assert names == ["kafka", "sqlite", "postgres", "aws", "google_cloud_platform", "wasb", "http", "iceberg"]
    for each in found["connection-types"]:
        hook = resolve_name(each["hook-class-name"])
        assert (hook.conn_type, hook.hook_name) == (each["connection-type"], each["hook-name"])
    monkeypatch.setitem(connection_types.PROVIDERS, "postgres", "airflow.providers.smtp")
    assert "postgres" not in str(connection_types.get_provider_info())
