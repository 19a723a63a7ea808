"""A feed whose late rows go beside its table, or its topic: what readers of both see, also after a kill."""

from collections.abc import Iterator

import pytest
from tests.integration.test_adopt import DO_IT, lose_control_tables
from tests.integration.test_late_rows import Feed, rows_of
from tests.kafka_outputs import committed_records, make_topic
from tests.killing import Processes, ending_all, kill_a_run_that_spark_wrote_for
from tests.quick_project import QuickProject
from tests.table_kinds import Delta, Iceberg, Postgresql, TableKind, lands

POSTGRESQL = Postgresql()
FILES: list[TableKind] = [Delta(), Iceberg()]
LATE_FILES = "kafka_ingest.sinks.tables.late_files:LateFiles"
KILLED = [(POSTGRESQL, f"{when}:{lands(POSTGRESQL.landing)}") for when in ("before", "after")]
KILLED += [(kind, f"{when}:{LATE_FILES}.publish") for kind in FILES for when in ("before", "after")]


class TableFeed(Feed):
    """Such a feed of a table of some kind."""

    def __init__(self, kind: TableKind, project: QuickProject, servers: str, topic: str) -> None:
        super().__init__(project, servers, topic)
        self.kind = kind

    def seen(self, path: str) -> list[tuple[int, int]]:
        if self.kind is not POSTGRESQL and path != "orders":
            return rows_of(self.late)
        return [(row["kafka_partition"], row["kafka_offset"]) for row in self.kind.rows(self.project, path)]

    def both(self) -> tuple[list[int], list[int]]:
        """Return the offsets that readers of the table see, and of late rows."""
        return [offset for _, offset in self.seen("orders")], [offset for _, offset in self.seen("orders_late")]

    def is_sound(self) -> bool:
        found = self.project.answer("coverage", "orders", "--verify")
        return bool(found["accounted"]) and found["verified"]["differences"] == []


@pytest.fixture(params=[*FILES, POSTGRESQL], ids=lambda kind: kind.name)
def feed(request: pytest.FixtureRequest, quick: QuickProject, servers: str, name: str) -> TableFeed:
    return made(request.param, quick, servers, name)


def made(kind: TableKind, quick: QuickProject, servers: str, name: str) -> TableFeed:
    kind.connect(quick)
    found = TableFeed(kind, quick, servers, name)
    found.write(**kind.sink)
    return found


@pytest.fixture
def processes(quick: QuickProject) -> Iterator[Processes]:
    with ending_all(quick) as made:
        yield made


def test_late_rows_are_beside_the_table_alone_and_all_verbs_find_them(feed: TableFeed) -> None:
    feed.add(late=2, others=1)
    with feed.project.submitting(spark_is_real=True):
        batch = feed.run()

    assert batch["rows"] == 3
    assert feed.both() == ([0, 1, 2, 3, 4, 7], [5, 6])
    assert feed.late_rows == 2
    assert feed.is_sound()
    for offset, place in ((6, feed.late), (7, feed.output)):
        file = feed.file_of(offset)
        if feed.kind is not POSTGRESQL:  # there readers see no files
            assert place in file.parents
            explained = feed.project.answer("explain", str(file))
            assert (explained["batch_id"], explained["receipt"]["differences"]) == (batch["batch_id"], [])
    assert feed.project.kafka_ingest("doctor", "orders").exit_code == 0

    lose_control_tables(feed.project)
    feed.project.answer("adopt", "orders", *DO_IT)
    assert feed.is_sound()

    replace = ("backfill", "orders", f"batch={batch['batch_id']}", "--when", "overlap=replace")
    if feed.kind is not POSTGRESQL:
        assert "found some with late rows" in feed.project.refusal(*replace)[2]
        return
    replaced = feed.project.answer(*replace)
    assert [(each["kind"], each["rows"]) for each in replaced["chunks"]] == [("replace", 3)]
    assert feed.both() == ([*range(8)], []), "a backfill's rows are late for no one"
    assert feed.is_sound()


def test_a_batch_may_be_all_late_and_expires_in_both(feed: TableFeed) -> None:
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
@pytest.mark.parametrize(("kind", "at"), KILLED, ids=lambda each: getattr(each, "name", None) or each.partition(":")[0])
def test_a_run_that_is_killed_where_both_are_changed_is_completed_by_the_next_one(
    quick: QuickProject, servers: str, name: str, processes: Processes, kind: TableKind, at: str, others: int
) -> None:
    feed = made(kind, quick, servers, name)
    feed.add(late=2, others=others)
    kill_a_run_that_spark_wrote_for(feed.project, processes, at)

    feed.run()

    assert feed.both() == ([0, 1, 2, 3, 4, 7][: 5 + others], [5, 6])
    assert feed.project.run() == []
    assert feed.late_rows == 2
    assert feed.is_sound()


def test_a_table_of_another_kind_by_that_name_is_refused_before_spark_runs_and_stays_as_it_is(
    quick: QuickProject, servers: str, name: str
) -> None:
    feed = made(POSTGRESQL, quick, servers, name)
    own = feed.project.feeds / "orders.yaml"
    said = own.read_text()
    own.unlink()
    sink = POSTGRESQL.sink | {"path": "orders_late", "table": "shop.orders_late"}
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


def test_late_rows_of_a_topic_are_counted_and_land_in_it_or_beside_it_as_the_feed_says(
    quick: QuickProject, servers: str, name: str
) -> None:
    feed, output = Feed(quick, servers, name), f"{name}-clean"
    make_topic(servers, output, partitions=2)
    sink = {"format": "kafka", "path": "orders", "conn_id": "kafka_default", "topic": output}
    feed.write(**sink)
    feed.add(late=2, others=1)
    feed.run()

    assert feed.late_rows == 2
    assert rows_of(feed.late) == [(0, 5), (0, 6)]
    assert len(committed_records(output)) == 6
    alone = feed.project.kafka_ingest(
        "verify", str(feed.output), "--cluster", "kafka_default", "--output-topic", output
    )
    assert alone.exit_code == 0

    complete = {"by": "hour", "delay": "1s", "idle_after": "1s"}
    feed.project.write_feed(feed.topic, complete=complete, sink=sink)
    feed.add(late=2)
    feed.run()
    assert feed.late_rows == 4
    assert len(committed_records(output)) == 8
