"""``_defaults.yaml``: what feeds share, how a feed's own keys win, and whose error a wrong one is."""

from datetime import timedelta
from pathlib import Path

import pytest

from kafka_ingest.settings.defaults import DEFAULTS, merged, written_values
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import error_id, feed_of, read_feed_file
from kafka_ingest.settings.feed_files import checked_against_others, feed_file_named, read_feed_files
from kafka_ingest.settings.files_for_dags import files_for_dags
from kafka_ingest.settings.sink_settings.local_directory import ParquetSink

OF_FEED = "{{name: {name}, kafka: {{topics: [{name}]}}, sink: {{format: parquet, path: /data/{name}}}{more}}}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of feed files."""
    feeds = tmp_path / "feeds"
    feeds.mkdir()
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(feeds))
    return feeds


def write(folder: Path, name: str, more: str = "") -> Path:
    """Write a feed file."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(OF_FEED.format(name=name, more=more and f", {more}"))
    return path


def share(folder: Path, text: str) -> Path:
    """Write the defaults of a folder."""
    folder.mkdir(exist_ok=True)
    path = folder / DEFAULTS
    path.write_text(text)
    return path


def feed_in(path: Path) -> Feed:
    """Return the feed in a file."""
    file = read_feed_file(path)
    assert file.feed is not None, file.error
    return file.feed


def error_in(path: Path) -> str:
    """Return why a file cannot be used."""
    return str(read_feed_file(path).error)


def test_a_feeds_own_key_wins_and_mappings_are_merged_key_by_key(folder: Path) -> None:
    share(folder, "schedule: '@daily'\nkafka: {conn_id: eu, isolation: read_uncommitted}\nairflow: {tags: [a, b]}\n")
    feed = feed_in(write(folder, "orders", "schedule: '@weekly', airflow: {owner: shop, tags: [c]}"))
    assert (feed.schedule, feed.kafka.conn_id, feed.kafka.isolation) == ("@weekly", "eu", "read_uncommitted")
    assert (feed.airflow.owner, feed.airflow.tags) == ("shop", ("c",))


def test_a_folder_in_the_feeds_folder_that_has_defaults_holds_feeds_too_and_its_defaults_win(folder: Path) -> None:
    share(folder, "kafka: {conn_id: eu}\ncontrol_retention: 30d\nlimits: {max_records: 5}\n")
    share(folder / "shop", "kafka: {conn_id: us}\nlimits: {max_records_per_partition: 2}\n")
    write(folder / "shop", "orders")
    write(folder, "other")
    write(folder / "schemas", "no_feed")

    assert [file.name for file in read_feed_files(folder)] == ["other", "orders"]
    orders = feed_of(feed_file_named("orders", folder))
    assert (orders.kafka.conn_id, orders.control_retention) == ("us", timedelta(days=30))
    assert (orders.limits.max_records, orders.limits.max_records_per_partition) == (5, 2)
    assert [file.path for file in files_for_dags("orders")] == [folder / "shop" / "orders.yaml"]


def test_a_folder_may_be_a_fleet(folder: Path) -> None:
    share(folder / "shop", "fleet: shop")
    for name in ("orders", "refunds"):
        write(folder / "shop", name)
    write(folder / "shop", "alone", "fleet: null")
    write(folder, "other")
    assert [file.name for file in files_for_dags("shop")] == ["orders", "refunds"]


def test_null_takes_away_what_the_defaults_say(folder: Path) -> None:
    share(
        folder, "alerts: {lag: 5}\nlimits: {min_records: 5, max_wait: 1h, max_records: 9}\nspark: {conf: {spark.a: 1}}"
    )
    feed = feed_in(write(folder, "orders", "alerts: null, limits: {min_records: null, max_wait: null}, spark: null"))
    assert (feed.alerts, feed.limits.min_records, feed.limits.max_records) == (None, None, 9)
    assert feed.spark.conf == {}


def test_null_stays_where_it_says_something_by_hand_only_and_no_limit(folder: Path) -> None:
    share(folder, "schedule: '@daily'\nlimits: {max_records: 9}")
    feed = feed_in(write(folder, "orders", "schedule: null, limits: {max_records: null}"))
    assert feed.schedule is None
    assert not feed.limits.limit_follows_speed
    assert feed.limits.max_records is None


def test_another_format_takes_nothing_of_the_defaults_one() -> None:
    below = {"sink": {"format": "iceberg", "catalog": "lake", "staging_retention": "3d"}, "value": {"format": "avro"}}
    own = {"sink": {"format": "parquet", "path": "a"}, "value": {"registry": "schemas"}}
    assert merged(below, own) == {
        "sink": {"format": "parquet", "path": "a"},
        "value": {"format": "avro", "registry": "schemas"},
    }
    assert merged({"sink": {"staging_retention": "3d"}}, own)["sink"] == {
        "staging_retention": "3d",
        "format": "parquet",
        "path": "a",
    }


def test_a_start_and_partitions_of_an_output_are_one_value() -> None:
    below = {"start": {"timestamp": "2026-01-01T00:00:00Z"}, "sink": {"partition_by": {"dt": "day(kafka_timestamp)"}}}
    own = {"start": {"group": "old"}, "sink": {"partition_by": {"h": "hour(kafka_timestamp)"}}}
    assert merged(below, own) == own


def test_defaults_do_not_change_by_the_files_that_are_read_over_them(folder: Path) -> None:
    share(folder, "airflow: {owner: shop}")
    write(folder, "a", "airflow: {owner: me}")
    assert feed_in(write(folder, "a", "airflow: {owner: me}")).airflow.owner == "me"
    assert feed_in(write(folder, "b")).airflow.owner == "shop"


def test_an_edit_of_the_defaults_is_an_edit_of_each_feed(folder: Path) -> None:
    share(folder, "airflow: {owner: shop}")
    path = write(folder, "orders")
    assert feed_in(path).airflow.owner == "shop"
    share(folder, "airflow: {owner: team}")
    assert feed_in(path).airflow.owner == "team"
    (folder / DEFAULTS).unlink()
    assert feed_in(path).airflow.owner == "kafka_ingest"


def test_an_error_in_the_defaults_names_their_file_and_is_that_of_the_feeds_that_take_the_key(folder: Path) -> None:
    defaults = share(folder, "schedule: hourly\nairflow: {onwer: x}\n")
    one, other = write(folder, "one"), write(folder, "other", "schedule: '@daily', airflow: null")
    assert f"airflow.onwer in {defaults}: unknown key; did you mean owner?" in error_in(one)
    assert f"schedule in {defaults}: expected a cron expression" in error_in(one)
    assert feed_in(other).airflow.owner == "kafka_ingest"
    own = write(folder, "own", "schedule: never, airflow: null")
    assert error_in(own).startswith(f"{own}: schedule: expected a cron expression")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka: [", "cannot be read as YAML"),
        ("[kafka]", "expected a mapping of what feeds share, found list"),
        ("name: orders", "expected what feeds share, found name, which is each feed's own"),
        ("kafka: {group: g}", "found kafka.group, which"),
        ("kafka: {topics: [a]}", "found kafka.topics, which"),
        ("sink: {path: x}", "found sink.path, which"),
        ("sink: {table: x.y}", "found sink.table, which"),
    ],
)
def test_defaults_that_cannot_be_used_are_the_error_of_the_feeds_in_their_folder_alone(
    folder: Path, text: str, expected: str
) -> None:
    share(folder, "")
    defaults = share(folder / "shop", text)
    path = write(folder / "shop", "orders", "schedule: '@daily'")
    write(folder, "other")

    assert str(defaults) in error_in(path)
    assert expected in error_in(path)
    assert read_feed_file(path).schedule == "@daily"
    assert feed_of(feed_file_named("other", folder)).name == "other"


def test_defaults_that_lead_nowhere_are_an_error_and_not_no_defaults(folder: Path) -> None:
    (folder / DEFAULTS).symlink_to(folder / "absent")
    assert "_defaults.yaml cannot be read as YAML" in error_in(write(folder, "orders"))


def test_empty_defaults_change_nothing(folder: Path) -> None:
    plain = feed_in(write(folder, "orders"))
    share(folder, "")
    assert feed_in(folder / "orders.yaml") == plain


def test_defaults_with_the_other_ending_are_an_error(folder: Path) -> None:
    (folder / "_defaults.yml").write_text("schedule: '@daily'")
    [file] = read_feed_files(folder)
    assert "expected defaults to be in a file _defaults.yaml. Rename it" in str(file.error)


def test_feeds_of_different_folders_may_share_nothing_either(folder: Path) -> None:
    share(folder / "a", "")
    share(folder / "b", "")
    of_a, of_b = write(folder / "a", "orders"), write(folder / "b", "orders")
    assert f"name 'orders' is also that of {of_b}" in str(checked_against_others(read_feed_file(of_a)).error)
    assert [file.error is None for file in read_feed_files(folder)] == [False, False]
    of_b.unlink()
    assert feed_file_named("orders", folder).error is None


def test_broken_files_of_one_name_in_several_folders_have_dags_of_their_own(folder: Path) -> None:
    broken = [folder / "x.yaml", folder / "a" / "x.yaml", folder / "b" / "x.yaml"]
    for path in broken:
        share(path.parent, "")
        path.write_text("name: [")
    assert len({error_id(path) for path in broken}) == 3
    assert [[file.path for file in files_for_dags(error_id(path))] for path in broken] == [[path] for path in broken]


def test_what_a_feed_comes_to_is_said_with_the_line_of_each_value(folder: Path) -> None:
    shared = share(folder, "kafka:\n  conn_id: eu\nairflow: {tags: [a]}\nalerts: {lag: 5}\n")
    of_shop = share(folder / "shop", "# of the shop\nschedule: '@daily'\n")
    path = folder / "shop" / "orders.yaml"
    path.write_text("name: orders\nalerts: null\nkafka: {topics: [orders]}\nsink: {format: parquet, path: /x}\n")

    assert [(each.key, each.value, each.path, each.line) for each in written_values(path)] == [
        ("kafka.conn_id", "eu", shared, 2),
        ("kafka.topics", ["orders"], path, 3),
        ("airflow.tags", ["a"], shared, 3),
        ("schedule", "@daily", of_shop, 2),
        ("name", "orders", path, 1),
        ("sink.format", "parquet", path, 4),
        ("sink.path", "/x", path, 4),
    ]


def test_the_output_of_a_feed_is_its_own_and_how_it_is_kept_may_be_shared(folder: Path) -> None:
    share(folder, "sink: {format: parquet, staging_retention: 3d}")
    path = folder / "orders.yaml"
    path.write_text("{name: orders, kafka: {topics: [a]}, sink: {path: /data/a}}")
    sink = feed_in(path).sink
    assert isinstance(sink, ParquetSink)
    assert (sink.path, sink.staging_retention) == ("/data/a", timedelta(days=3))
