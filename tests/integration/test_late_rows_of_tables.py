"""A feed whose late rows go to a table beside its table in PostgreSQL: what readers of both see, also after a kill."""

from collections.abc import Iterator

import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.integration.test_late_rows import Feed
from tests.killing import Processes, ending_all, kill_a_run_that_spark_wrote_for
from tests.quick_project import QuickProject
from tests.table_kinds import Postgresql, lands

KIND = Postgresql()
LATE = [(0, 5), (0, 6)]


class TableFeed(Feed):
    """Such a feed."""

    def seen(self, path: str) -> list[tuple[int, int]]:
        return [(row["kafka_partition"], row["kafka_offset"]) for row in KIND.rows(self.project, path)]

    def both(self) -> tuple[list[int], list[int]]:
        """Return the offsets that readers of the table see, and of that of late rows."""
        return [offset for _, offset in self.seen("orders")], [offset for _, offset in self.seen("orders_late")]

    def is_sound(self) -> bool:
        found = self.project.answer("coverage", "orders", "--verify")
        return bool(found["accounted"]) and found["verified"]["differences"] == []


@pytest.fixture
def feed(quick: QuickProject, servers: str, name: str) -> TableFeed:
    KIND.connect(quick)
    found = TableFeed(quick, servers, name)
    found.write(**KIND.sink)
    return found


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


def test_late_rows_are_in_the_table_beside_alone_and_all_verbs_find_them(feed: TableFeed) -> None:
    feed.add(late=2, others=1)
    with feed.project.submitting(spark_is_real=True):
        batch = feed.run()

    assert batch["rows"] == 3
    assert feed.both() == ([0, 1, 2, 3, 4, 7], [5, 6])
    assert feed.late_rows == 2
    assert feed.is_sound()
    for offset in (6, 7):
        feed.file_of(offset)
    assert feed.project.kafka_ingest("doctor", "orders").exit_code == 0

    lose_control_tables(feed.project)
    feed.project.answer("adopt", "orders", *DO_IT)
    assert feed.is_sound()

    replaced = feed.project.answer("backfill", "orders", f"batch={batch['batch_id']}", "--when", "overlap=replace")
    assert [(each["kind"], each["rows"]) for each in replaced["chunks"]] == [("replace", 3)]
    assert feed.both() == ([*range(8)], []), "a backfill's rows are late for no one"
    assert feed.is_sound()


def test_a_batch_may_be_all_late_and_expires_in_both_tables(feed: TableFeed) -> None:
    feed.add(late=2)
    feed.run()
    assert feed.both() == ([0, 1, 2, 3, 4], [5, 6])
    assert feed.is_sound()
    feed.add(late=0, others=1)
    feed.run()

    feed.project.answer("expire", "orders", "--before", "2100-01-01", "--execute", "--reason", "old")
    assert feed.both() == ([7], [])
    assert feed.is_sound()


@pytest.mark.parametrize("others", [1, 0], ids=["some late", "all late"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_is_killed_where_both_tables_are_changed_is_completed_by_the_next_one(
    feed: TableFeed, processes: Processes, when: str, others: int
) -> None:
    feed.add(late=2, others=others)
    kill_a_run_that_spark_wrote_for(feed.project, processes, f"{when}:{lands(KIND.landing)}")

    feed.run()

    assert feed.both() == ([0, 1, 2, 3, 4, 7][: 5 + others], [5, 6])
    assert feed.project.run() == []
    assert feed.late_rows == 2
    assert feed.is_sound()


def test_a_table_of_another_kind_by_that_name_is_refused_before_spark_runs_and_stays_as_it_is(feed: TableFeed) -> None:
    own = feed.project.feeds / "orders.yaml"
    said = own.read_text()
    own.unlink()
    sink = KIND.sink | {"path": "orders_late", "table": "shop.orders_late"}
    other = feed.project.write_feed(feed.topic, name="other", sink=sink)
    feed.project.run("other")
    assert len(before := feed.seen("orders_late")) == 5
    other.unlink()
    own.write_text(said)
    feed.add(late=2, others=1)

    refused = feed.project.kafka_ingest("run", "orders", "--json")

    assert refused.document["error"]["code"] == "OUTPUT_NOT_USABLE"
    assert "late rows" in refused.document["error"]["message"]
    assert feed.seen("orders_late") == before
    assert feed.seen("orders") == [(0, offset) for offset in range(5)]
