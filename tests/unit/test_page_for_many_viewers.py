"""What viewers of the page learn of feeds that they may not read, and how many questions they make together."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import CLUSTER, TOPIC_ID, FakeKafkaCluster, log, topic

from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.page.all_feeds import AllFeeds, all_feeds
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.one_batch import without_logs
from kafka_ingest.page.sources import BatchFiles, LastWords, Sources
from kafka_ingest.settings.feed_files import read_feed_files

READS_RECORDS = {"first_records", "unreadable_at", "large_records", "offsets_at", "epoch_ends"}


class Shop(Sources):
    """Feeds of one cluster, whose files are in a folder."""

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        super().__init__(environment={})
        answers = {"folder": folder, "names": names, "cluster": FakeKafkaCluster()}
        for name, answer in answers.items():
            object.__setattr__(self, name, answer)
        at = datetime.now(UTC) - timedelta(hours=2)
        for name in names:
            self.cluster.topics[name] = topic(log(0, 200), topic_id=TOPIC_ID)
            self.cluster.times[TopicPartition(name, 0)] = {0: at, 99: at, 100: at + timedelta(hours=1), 150: at}

    def control(self) -> Any:
        overviews = [self.overview(number, name) for number, name in enumerate(self.names)]
        nothing: Any = lambda *_: {}  # noqa: E731
        return SimpleNamespace(feed_overviews=lambda: overviews, rows_by_hour=nothing, lag_by_hour=nothing, alerts=list)

    def overview(self, number: int, name: str) -> FeedOverview:
        partition = TopicPartition(name, 0)
        stored = StoredOffset(partition, TOPIC_ID, 0, 100, "earliest", None, None, datetime.now(UTC))
        return FeedOverview(UUID(int=number), name, CLUSTER, (name,), {partition: stored}, rows_committed=90)

    def _kafka(self, _conn_id: str) -> Any:
        return self.cluster

    def _read_feed_files(self) -> dict[str, Any]:
        return {file.name or "": file for file in read_feed_files(self.folder, {})}

    def view(self, *, search: str = "", may_read: Collection[str] = ("orders",)) -> AllFeeds:
        """Return the view once Kafka has answered all that it asks for."""
        while (view := all_feeds(self, lambda names: set(names) & set(may_read), search=search, page=1)).is_pending:
            pass
        return view


def write(folder: Path, name: str, group: str) -> None:
    text = (
        f"{{name: {name}, kafka: {{topics: [{name}], group: {group}}}, sink: {{format: parquet, path: /lake/{name}}}}}"
    )
    (folder / f"{name}.yaml").write_text(text)


def test_a_feed_that_shares_something_with_one_that_the_user_may_not_read_does_not_name_it(tmp_path: Path) -> None:
    write(tmp_path, "orders", "shared")
    write(tmp_path, "salaries", "shared")
    shop = Shop(tmp_path, ["orders", "salaries"])
    [row] = shop.view().rows.items
    assert row.line.file_error is not None
    assert "salaries" not in row.line.file_error
    assert "a feed that you may not see" in row.line.file_error
    both = {row.line.name: row.line.file_error for row in shop.view(may_read=("orders", "salaries")).rows.items}
    assert "salaries.yaml" in both["orders"]


def test_searches_make_no_questions_of_their_own_and_no_record_is_read(tmp_path: Path) -> None:
    names = [f"shop-{number}" for number in range(5)]
    for name in names:
        write(tmp_path, name, f"group-of-{name}")
    shop = Shop(tmp_path, names)
    view = shop.view(may_read=names)
    assert {row.line.name: round(row.oldest / timedelta(minutes=1)) for row in view.rows.items} == dict.fromkeys(
        names, 60
    )
    assert {round(row.newest / timedelta(minutes=1)) for row in view.rows.items} == {120}
    asked = list(shop.cluster.questions)
    for search in ("shop-1", "shop-2", "op-", "nothing like it", ""):
        shop.view(search=search, may_read=names)
    assert shop.cluster.questions == asked
    assert READS_RECORDS.isdisjoint(asked)


@pytest.mark.parametrize("found", [Answer(), Answer(BatchFiles((), 0, {2: LastWords("password=hunter2")}), 1.0)])
def test_who_may_not_read_logs_does_not_see_what_spark_said(found: Answer[BatchFiles]) -> None:
    shown = without_logs(found)
    assert (shown.value.failures if shown.value else {}, shown.age_s) == ({}, found.age_s)
