"""The dead letters of a table in PostgreSQL: rows of a table beside it, exactly as they came."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.contract import whole_feed
from tests.contract.conftest import SqlStore
from tests.contract.lives import stop_before
from tests.contract.test_dead_letters_of_tables import (
    DEAD,
    in_database,
    in_postgresql,
    letters_in,
    rows_in,
)
from tests.contract.test_offsets_in_transaction import letters, reaching, stored
from tests.contract.test_replay import differences, replay
from tests.contract.whole_feed import TEXT, Record, WholeFeed, at_rest, dead_letters_of

from kafka_ingest.batches.commit_batch import publish_letters
from kafka_ingest.errors import KafkaIngestError, OutputConflictError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.place import DATA
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.dead_letter_files import TYPES
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.dead_letters import give_up_dead_letters


@pytest.fixture
def feed(postgresql: SqlStore, lake: Path) -> WholeFeed:
    return in_postgresql(postgresql, lake)


def test_rows_that_are_published_without_their_letters_get_them_before_the_offsets_move(
    feed: WholeFeed, postgresql: SqlStore
) -> None:
    stop_before(feed, "letters.publish")
    postgresql.execute("DELETE FROM shop.orders_dead_letters")
    [batch_id] = feed.states()
    directory, published = staged(feed)[0], feed.sink.archive.published_receipt(batch_id)
    directory.rename(directory.with_name("elsewhere"))
    with pytest.raises(OutputConflictError, match=r"or in table shop\.orders_dead_letters; found: .*when the commit"):
        publish_letters(published.plan, directory, published.receipt, feed.letters)
    directory.with_name("elsewhere").rename(directory)
    feed.letters.publisher.publish(*staged(feed))
    feed.letters.publisher.publish(*staged(feed))
    assert sorted(letters(postgresql).elements()) == DEAD
    assert feed.letters.publisher.known_batches() == [str(batch_id)]


def staged(feed: WholeFeed) -> tuple[Any, PublishedReceipt]:
    [batch_id] = feed.states()
    [attempt] = feed.control.attempts(batch_id)
    published = feed.sink.archive.published_receipt(batch_id)
    letters = PublishedReceipt(published.plan, published.receipt.of_dead_letters(), ())
    return staged_dead_letters(attempt.directory), letters


def test_letters_are_not_among_the_rows_that_a_table_may_refuse(feed: WholeFeed) -> None:
    stop_before(feed, "sink.publish_within")
    [attempt] = feed.control.attempts(*feed.states())
    content = feed.sink.staging.read_receipt(attempt.directory)
    assert content is not None
    assert feed.sink.refused is not None
    assert feed.sink.refused(attempt.directory, Receipt.from_bytes(content)) == ()


def test_an_abandoned_batch_has_no_dead_letters(feed: WholeFeed, postgresql: SqlStore) -> None:
    stop_before(feed, "sink.publish_within")
    [batch_id] = feed.states()
    abandon(batch_id, feed.control, feed.sinks, reason="too soon", actor="ops")
    assert letters(postgresql) == Counter()
    at_rest(feed)
    assert sorted(letters(postgresql).elements()) == DEAD
    copies = in_database(feed, "SELECT FROM pg_tables WHERE schemaname = 'shop' AND tablename LIKE 'kafka%%'")
    assert copies == []


def test_given_up_letters_are_gone_from_the_table_and_are_not_replayed(feed: WholeFeed, postgresql: SqlStore) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    give_up_dead_letters(batch_id, feed.control, feed.sinks, reason="test data", actor="ops")
    assert (letters(postgresql), differences(feed)) == (Counter(), [])
    assert feed.letters.remover.unfinished() == []
    feed.decoding = TEXT
    assert replay(feed) == []


def test_letters_that_a_policy_may_hide_are_not_noted_as_given_up(feed: WholeFeed, postgresql: SqlStore) -> None:
    at_rest(feed)
    [batch_id] = feed.states()
    for statement in (
        "DROP ROLE IF EXISTS walker",
        "CREATE ROLE walker LOGIN",
        "GRANT ALL ON SCHEMA shop TO walker",
        "GRANT ALL ON ALL TABLES IN SCHEMA shop TO walker",
        "ALTER TABLE shop.orders_dead_letters ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY part ON shop.orders_dead_letters USING (kafka_partition = 0)",
    ):
        postgresql.execute(statement)
    walker = reaching(feed, postgresql.settings.url.set(username="walker"))
    with pytest.raises(OutputNotUsableError, match=r"found row level security of orders_dead_letters \(part\)"):
        give_up_dead_letters(batch_id, feed.control, walker.sinks, reason="test data", actor="ops")
    assert feed.letters.archive.removal(batch_id) is None
    table: Any = walker.letters.publisher
    with pytest.raises(OutputNotUsableError, match=r"found row level security of orders_dead_letters \(part\)"):
        table._letters.delete(batch_id)
    assert sorted(letters(postgresql).elements()) == DEAD
    postgresql.execute("DROP OWNED BY walker")


def test_a_letter_that_is_missing_from_the_table_is_named_by_coverage_and_stops_a_replay(
    feed: WholeFeed, postgresql: SqlStore
) -> None:
    at_rest(feed)
    postgresql.execute("DELETE FROM shop.orders_dead_letters WHERE kafka_partition = 1 AND kafka_offset = 3")
    assert any("expected 3 dead letters" in each for each in map(str, differences(feed)))
    feed.decoding = TEXT
    with pytest.raises(OutputUnavailableError, match="expected 7 dead letters in table"):
        replay(feed)


@pytest.mark.parametrize(
    ("keeps", "found"),
    [
        (
            "TRIGGER keep_out BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION shop.swallow()",
            "to add 7 .* 0 were added",
        ),
        (
            "RULE keep_out AS ON INSERT TO {} DO ALSO DELETE FROM {}",
            "7 rows of batch .* triggers and rules of .*, found 0",
        ),
    ],
)
def test_letters_that_a_trigger_or_a_rule_keeps_out_keep_rows_and_offsets_back(
    feed: WholeFeed, postgresql: SqlStore, keeps: str, found: str
) -> None:
    stop_before(feed, "sink.publish_within")
    postgresql.execute("CREATE FUNCTION shop.swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    postgresql.execute("CREATE " + keeps.replace("{}", "shop.orders_dead_letters"))
    [batch_id] = feed.states()
    with pytest.raises(KafkaIngestError, match=found):
        feed.commit(batch_id, "run 1")
    assert (rows_in(feed), stored(postgresql)) == ([], [])
    assert feed.states() == {batch_id: BatchState.COMMITTING}
    postgresql.execute(f"DROP {keeps.partition(' ')[0]} keep_out ON shop.orders_dead_letters")
    at_rest(feed)
    assert (letters_in(feed), differences(feed)) == (DEAD, [])


def test_another_table_of_that_name_is_refused(feed: WholeFeed, postgresql: SqlStore) -> None:
    postgresql.execute(
        "CREATE TABLE shop.orders_dead_letters (kafka_topic text, kafka_partition int, kafka_offset bigint, "
        "kafka_timestamp timestamptz, kafka_headers jsonb, kafka_topic_id text, kafka_timestamp_ms bigint, key bytea, "
        "value bytea, kafka_batch uuid)"
    )
    stranger = "found one without error_class: another one than that of dead letters"
    with pytest.raises(OutputNotUsableError, match=stranger):
        feed.letters.publisher.examine()
    letters: Any = feed.letters.publisher
    with pytest.raises(OutputNotUsableError, match=stranger):  # where it was made after the plan
        letters._letters.table.fit({})


def with_all_columns(records: list[Record], _batch_id: UUID | None) -> bytes:
    """Return dead letters with bytes, headers and texts that PostgreSQL holds otherwise than a file."""
    found = pyarrow.parquet.read_table(pa.BufferReader(dead_letters_of(records, None))).to_pylist()
    for each in found:
        each |= {
            "key": b"\0\xff",
            "value": None if each["kafka_offset"] == 1 else each["value"],
            "kafka_headers": [{"key": "a\0b", "value": b"\0"}, {"key": "", "value": None}],
            "kafka_timestamp": datetime(9999 if each["kafka_offset"] == 1 else 1969, 12, 31, 23, 59, 59, 999_000, UTC),
            "error": "found \0",
            "schema_id": 7,
            "attempt": 1,
        }
    table = pa.table({name: pa.array([each.get(name) for each in found], kind) for name, kind in TYPES.items()})
    buffer = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue().to_pybytes()


def test_bytes_headers_and_times_come_back_as_they_were_and_no_nul_character_stops_a_letter(
    feed: WholeFeed, postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgresql.execute(f"ALTER DATABASE {postgresql.settings.url.database} SET timezone = 'Asia/Tokyo'")
    monkeypatch.setattr(whole_feed, "dead_letters_of", with_all_columns)
    at_rest(feed)
    [batch_id] = feed.states()
    directory, published = staged(feed)
    names = [file.name for file in published.receipt.files]
    came = [row for name in names for row in pyarrow.parquet.read_table(directory / DATA / name).to_pylist()]
    feed.letters.dead_letters.bring(batch_id, directory)
    [path] = feed.letters.dead_letters.files(batch_id, directory)
    brought = pyarrow.parquet.read_table(path, partitioning=None)
    assert brought.schema == pa.schema(TYPES.items())
    for each in came:
        each |= {
            "error": "found \ufffd",
            "kafka_headers": [{"key": "a\ufffdb", "value": b"\0"}, each["kafka_headers"][1]],
        }
    assert brought.to_pylist() == came
    assert in_database(feed, "SELECT DISTINCT key, kafka_headers FROM shop.orders_dead_letters") == [
        (b"\0\xff", [{"key": "a\ufffdb", "value": "AA=="}, {"key": "", "value": None}])
    ]
