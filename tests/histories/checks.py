"""What holds after every step of a history, and at its end, whatever happened in it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from uuid import UUID

from tests.fakes import GROUP
from tests.histories.spark_stand_in import values_of
from tests.histories.topics import Record
from tests.histories.world import FEED, World

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.model.batch import Batch, BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.coverage import CoverageRows, DeadLetters, coverage_of
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.gap import Event, GapCause
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.planning.settings import OnDataLoss

Row = tuple[str, int, int, str]
"""Topic, partition, offset and value."""

LogKey = tuple[str, int, int]
"""Topic, its generation, partition: what offsets are counted in."""


@dataclass
class Covered:
    """What became of one log's offsets.

    When each was committed, or passed over by a gap that is open still, and moved over.

    ``rewound`` is when the stored offset went back behind it, ``passed_again`` when an operator let it go forward over
    it.
    """

    committed: dict[int, list[datetime]] = field(default_factory=dict)
    passed: dict[int, list[datetime]] = field(default_factory=dict)
    rewound: dict[int, list[datetime]] = field(default_factory=dict)
    passed_again: dict[int, list[datetime]] = field(default_factory=dict)

    def times(self, offset: int) -> list[datetime]:
        """Return when an offset was committed or passed over since it was last rewound."""
        found = self.committed.get(offset, []) + self.passed.get(offset, [])
        since = max(self.rewound.get(offset, []), default=None)
        return [at for at in found if since is None or at > since]

    def is_passed_again(self, offset: int) -> bool:
        """Whether it was read, then rewound, and an operator moved the stored offset past it again, without a gap."""
        rewound, passed = self.rewound.get(offset), self.passed_again.get(offset)
        return offset in self.committed and bool(rewound and passed) and max(passed or []) > max(rewound or [])

    def most_times(self, offset: int) -> int:
        """Return how often a record may be seen: once, and once more for every time that it was rewound."""
        return 1 + len(self.rewound.get(offset, []))

    def is_passed(self, offset: int) -> bool:
        """Whether a gap over an offset is on record that still counts."""
        return bool(self.times(offset)) and any(at in self.times(offset) for at in self.passed.get(offset, []))


class Checks:
    """The invariants. It remembers what was seen before, since nothing that was published may change."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: dict[UUID, list[Row]] = {}
        self.letters: dict[UUID, list[Row]] = {}
        self.copied: dict[UUID, list[Row]] = {}
        self.copied_letters: dict[UUID, list[Row]] = {}
        self.times_seen: Counter[str] = Counter()
        self.feed: FeedSnapshot | None = None
        self.taken_up: dict[tuple[UUID, str], UUID] = {}
        self._committed: dict[UUID, tuple[Batch, list[RangeCount]]] = {}
        self._gaps: set[UUID] = set()
        self._stored: dict[TopicPartition, StoredOffset] = {}
        self._moved_back: set[TopicPartition] = set()

    def tables_replaced(self) -> None:
        """Forget what the control tables said: others are in their place."""
        self._committed.clear()
        self.copied.clear()
        self.copied_letters.clear()

    # ── After every step ──────────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Hold the world against all invariants."""
        feed = self.feed = self.world.feed()
        states = self.world.tables.batch_states(feed.feed_id) if feed is not None else {}
        self.check_output(states)
        self.check_copies()
        if feed is not None:
            self.check_batches(states)
            rows = self.world.tables.coverage(FEED)
            assert rows is not None
            check_accounted_in(rows)
            self.check_letters(rows, states)
            self.check_new_gaps(feed)
            covered = self.covered(feed)
            for topic_partition, row in feed.stored.items():
                self.check_offsets(topic_partition, row, covered)
                self.check_records(topic_partition, row, covered)
            self.check_group(feed)

    def check_output(self, states: Mapping[UUID, BatchState]) -> None:
        """Readers see whole batches, committing or committed, forever, and each record once, as it was produced."""
        for batch_id in self.read(self.world.settings.output.path, self.rows):
            assert self.world.tables.batch(batch_id).plan.kind is not BatchKind.COPY
            self.see(batch_id, self.rows[batch_id])
        for batch_id in self.read(output_of_dead_letters(self.world.settings.output).path, self.letters):
            self.see(batch_id, self.letters[batch_id])
            assert not set(self.letters[batch_id]).intersection(self.rows.get(batch_id, ()))
        for batch_id in self.rows:
            assert states[batch_id] in {BatchState.COMMITTING, BatchState.COMMITTED}, "only what is committed is seen"

    def see(self, batch_id: UUID, rows: list[Row]) -> None:
        """Count rows or dead letters; those of a replay are another batch's dead letters, each taken up once."""
        if self.world.tables.batch(batch_id).plan.kind is not BatchKind.REPLAY:
            self.times_seen.update(value for *_, value in rows)
            return
        taken_up = {(each.batch_id, value) for each in self.replayed_by(batch_id) for value in self.values_in(each)}
        assert {value for *_, value in rows} <= {value for _, value in taken_up}
        assert not taken_up & self.taken_up.keys() or self.taken_up.items() >= {(each, batch_id) for each in taken_up}
        self.taken_up |= dict.fromkeys(taken_up, batch_id)

    def replayed_by(self, batch_id: UUID) -> Sequence[ReplayedLetters]:
        """Return which dead letters a replay has taken up."""
        return self.world.tables.batch(batch_id).plan.replays

    def values_in(self, letters: ReplayedLetters | DeadLetters) -> list[str]:
        """Return the values of some dead letters."""
        return [
            value
            for topic, partition, offset, value in self.letters[letters.batch_id]
            if (topic, partition) == (letters.offset_range.topic, letters.offset_range.partition)
            and letters.offset_range.start_offset <= offset < letters.offset_range.end_offset
        ]

    def check_letters(self, rows: CoverageRows, states: Mapping[UUID, BatchState]) -> None:
        """Coverage counts the dead letters of each range that are there, and those that committed replays took up."""
        for each in rows.dead_letters:
            values = self.values_in(each)
            taken_by = [self.taken_up[key] for value in values if (key := (each.batch_id, value)) in self.taken_up]
            replayed = sum(states[batch_id] is BatchState.COMMITTED for batch_id in taken_by)
            assert (each.count, each.replayed) == (len(values), replayed)

    def check_copies(self) -> None:
        """Another output holds copies and nothing else, and each record once, however often the feed read it."""
        for batch_id in self.read(self.world.copy_output.path, self.copied):
            assert self.world.tables.batch(batch_id).plan.kind is BatchKind.COPY
        self.read(output_of_dead_letters(self.world.copy_output).path, self.copied_letters)
        seen = Counter(value for rows in self.all_copied() for *_, value in rows)
        assert all(times == 1 for times in seen.values()), f"{seen.most_common(1)} is copied twice"

    def all_copied(self) -> Iterator[list[Row]]:
        """Yield what the other output holds of each batch, rows or dead letters."""
        yield from self.copied.values()
        yield from self.copied_letters.values()

    def read(self, output: Path, known: dict[UUID, list[Row]]) -> list[UUID]:
        """Read what was published since, and return those batches; what was there before stays forever."""
        prefix = "kafka_batch="
        names = sorted(path.name for path in output.iterdir()) if output.exists() else []
        assert all(name.startswith(prefix) for name in names), names
        visible = {UUID(name.removeprefix(prefix)) for name in names}
        assert known.keys() <= visible, "what was published stays"
        new = sorted(visible - known.keys())
        for batch_id in new:
            known[batch_id] = values_of(output / f"{prefix}{batch_id}")
            self.check_rows(batch_id, known[batch_id])
        return new

    def check_rows(self, batch_id: UUID, rows: list[Row]) -> None:
        plan = self.world.whole_plan(batch_id)
        for topic, partition, offset, value in rows:
            generation = self.world.topics.generation_of[str(plan.topic_ids[topic])]
            assert self.world.topics.produced[value] == Record(topic, generation, partition, offset)
        assert len({value for *_, value in rows}) == len(rows), "a batch holds a record twice"

    def check_batches(self, states: Mapping[UUID, BatchState]) -> None:
        """One live batch is open at most.

        The counts of those that are committed are those of the rows that readers see.
        """
        open_now = [self.world.tables.batch(batch_id) for batch_id, state in states.items() if state.is_open]
        assert sum(batch.plan.kind is BatchKind.LIVE for batch in open_now) <= 1
        now_committed = {batch_id for batch_id, state in states.items() if state is BatchState.COMMITTED}
        assert self._committed.keys() <= now_committed
        for batch_id in now_committed - self._committed.keys():
            batch, counts = self.world.tables.batch(batch_id), self.world.counts(batch_id)
            batch = replace(batch, plan=self.world.whole_plan(batch_id))
            assert [count.offset_range for count in counts] == list(batch.ranges_read)
            assert batch.ranges_read, "a batch reads something"
            # Copies into an output that was left behind with lost tables are not looked at any more.
            letters = {**self.letters, **self.copied_letters}.get(batch_id, [])
            rows = {**self.rows, **self.copied}.get(batch_id)
            # Of a batch whose records are all dead letters there is no directory of rows.
            if rows is not None or letters:
                for count in counts:
                    check_count(count, rows or [], letters)
            if batch.plan.kind is BatchKind.REPLAY:
                taken_up = sum(each.number for each in batch.plan.replays)
                assert len(rows or []) + len(letters) == taken_up, "a replay holds each letter that it took up"
            self._committed[batch_id] = batch, counts

    def check_new_gaps(self, feed: FeedSnapshot) -> None:
        """Only what retention took is passed over, and only where the feed or the backfill says so."""
        for gap in self.world.tables.gaps(feed.feed_id):
            if gap.gap_id in self._gaps:
                continue
            self._gaps.add(gap.gap_id)
            if gap.cause is GapCause.RETENTION:
                is_of_backfill = gap.decided_by.startswith("backfill")
                assert is_of_backfill or self.world.settings.on_data_loss is OnDataLoss.RECORD_GAP
                log = self.world.topics.log(gap.offset_range.topic_partition)
                assert log is not None
                assert gap.offset_range.end_offset <= log.start

    # ── Invariant 11 ──────────────────────────────────────────────────────────────────────────────────────────────────

    def covered(self, feed: FeedSnapshot) -> dict[LogKey, Covered]:
        """Return what became of the offsets of each log that the feed ever read."""
        found: dict[LogKey, Covered] = {}
        for batch, _ in self._committed.values():
            # What lies in another output says nothing of the feed's own.
            for planned in batch.ranges_read if batch.plan.kind.commits_offsets else ():
                covered = found.setdefault(self.key(planned, batch.plan.topic_ids[planned.topic]), Covered())
                assert batch.committed_at is not None
                add(covered.committed, planned, batch.committed_at)
        for gap in self.world.tables.gaps(feed.feed_id):
            if gap.applied_at is not None and gap.is_open:
                covered = found.setdefault(self.key(gap.offset_range, gap.topic_id), Covered())
                add(covered.passed, gap.offset_range, gap.applied_at)
        for way, topic_id, at in resets(self.world.tables.ledger_of_feed(feed.feed_id)):
            covered = found.setdefault(self.key(way.interval, topic_id), Covered())
            add(covered.rewound if way.is_back else covered.passed_again, way.interval, at)
        return found

    def key(self, offset_range: OffsetRange, topic_id: str | None) -> LogKey:
        """Return which log a range is counted in."""
        return offset_range.topic, self.world.topics.generation_of[str(topic_id)], offset_range.partition

    def check_offsets(
        self, topic_partition: TopicPartition, row: StoredOffset, covered_logs: dict[LogKey, Covered]
    ) -> None:
        """Every offset up to the stored one is committed or passed over, once unless an audited reset went back."""
        if row.first_offset is None or row.next_offset is None:
            return
        generation = self.world.topics.generation_of[str(row.topic_id)]
        covered = covered_logs.get((topic_partition.topic, generation, topic_partition.partition), Covered())
        behind = range(row.first_offset, row.next_offset)
        for offset in behind:
            times = len(covered.times(offset))
            assert times == 1 or (not times and covered.is_passed_again(offset)), (
                f"{topic_partition}@{offset} is covered {covered.times(offset)}"
            )
        for offset in covered.committed.keys() | covered.passed.keys():
            # Below its first offset a feed reads nothing, but a backfill may.
            is_before = offset < row.first_offset and len(covered.times(offset)) == 1
            assert offset in behind or is_before or offset in covered.rewound, (
                f"{topic_partition}@{offset} lies outside {behind}"
            )

    def check_records(
        self, topic_partition: TopicPartition, row: StoredOffset, covered_logs: dict[LogKey, Covered]
    ) -> None:
        """Every record up to the stored offset is seen, or passed over by a gap on record.

        Again only where it was rewound.
        """
        topic, log = self.world.topics[topic_partition.topic], self.world.topics.log(topic_partition)
        generation = self.world.topics.generation_of[str(row.topic_id)]
        if row.first_offset is None or row.next_offset is None or log is None or generation != topic.generation:
            return
        covered = covered_logs.get((topic.name, generation, topic_partition.partition), Covered())
        # What came after a log was cut off is read once an operator has decided on it.
        end = min(row.next_offset, self.world.cuts.get(topic_partition, row.next_offset))
        for offset, value in log.content.items():
            found = self.times_seen[value] + covered.is_passed(offset)
            assert found <= covered.most_times(offset), f"{value} is seen too often"
            assert found or not row.first_offset <= offset < end, f"{value} is not where it should be"

    def check_group(self, feed: FeedSnapshot) -> None:
        """The group never stands beyond the stored offsets, unless those were reset and the mirror failed since."""
        self._moved_back |= {
            tp
            for tp, before in self._stored.items()
            if (now := feed.stored.get(tp)) is None or is_behind(now.next_offset, before.next_offset)
        }
        self._stored = dict(feed.stored)
        for topic_partition, offset in self.world.topics.cluster.groups.get(GROUP, {}).items():
            now = feed.stored.get(topic_partition)
            is_beyond = now is None or is_behind(now.next_offset, offset)
            assert not is_beyond or topic_partition in self._moved_back, f"the group leads on {topic_partition}"
            if not is_beyond:
                self._moved_back.discard(topic_partition)

    # ── At the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_end(self) -> None:
        """All is read: each record ever produced is seen, or was deleted, before the feed's start or in a gap."""
        feed = self.world.feed()
        assert feed is not None
        assert feed.open_batch is None
        assert list(feed.gaps_ahead) == []
        covered = self.covered(feed)
        for topic_partition in self.world.topics.partitions():
            row, log = feed.stored[topic_partition], self.world.topics.log(topic_partition)
            topic = self.world.topics[topic_partition.topic]
            assert log is not None
            assert (row.topic_id, row.next_offset) == (topic.topic_id, log.end)
            assert self.world.topics.cluster.groups[GROUP].get(topic_partition) == log.end
            assert row.first_offset is not None
            key = (topic_partition.topic, topic.generation, topic_partition.partition)
            for offset, value in log.content.items():
                of_log = covered.get(key, Covered())
                is_deleted = offset < log.start and (offset < row.first_offset or of_log.is_passed(offset))
                assert self.times_seen[value] or is_deleted, f"{value} is lost"
                assert self.times_seen[value] <= of_log.most_times(offset), f"{value} is seen too often"
                is_copied = value in {copied for rows in self.all_copied() for *_, copied in rows}
                assert is_copied or offset < log.start, f"{value} was not copied"


def is_behind(offset: int | None, other: int | None) -> bool:
    """Whether an offset is smaller than another; one that is not decided is behind all that are."""
    return other is not None and (offset is None or offset < other)


def add(times: dict[int, list[datetime]], offset_range: OffsetRange, at: datetime) -> None:
    """Note that a range was committed or passed over."""
    for offset in range(offset_range.start_offset, offset_range.end_offset):
        times.setdefault(offset, []).append(at)


@dataclass(frozen=True)
class Way:
    """What a stored offset was moved over by an audited reset."""

    interval: OffsetRange
    is_back: bool


def resets(ledger: Iterable[Event]) -> list[tuple[Way, str, datetime]]:
    """Return what the audited resets moved stored offsets over in logs that stayed what they were."""
    found: list[tuple[Way, str, datetime]] = []
    for event in ledger:
        if event.kind != "reset":
            continue
        before = {(row["topic"], row["partition"]): row for row in event.detail["removed"]}
        for row in event.detail["partitions"]:
            old = before.get((row["topic"], row["partition"]))
            is_same = old is not None and old["topic_id"] == row["topic_id"]
            if is_same and row["next_offset"] is not None and row["next_offset"] != old["next_offset"]:
                start, end = sorted([row["next_offset"], old["next_offset"]])
                interval = OffsetRange(TopicPartition(row["topic"], row["partition"]), start, end)
                found.append((Way(interval, is_back=start == row["next_offset"]), row["topic_id"], event.at))
    return found


def check_accounted(tables: SqlControlTables) -> None:
    """What `coverage` says of the control rows alone holds.

    All that was passed is committed once, or in an open gap.
    """
    rows = tables.coverage(FEED)
    assert rows is not None
    check_accounted_in(rows)


def check_accounted_in(rows: CoverageRows) -> None:
    """Hold the control rows that `coverage` reads against that."""
    problems = [problem for partition in coverage_of(rows).values() for problem in partition.problems]
    assert not problems, problems


def check_count(count: RangeCount, rows: Iterable[Row], letters: Iterable[Row]) -> None:
    """Invariant 11: a range's span is its rows, its dead letters and what is invisible; there are no filters yet."""
    planned = count.offset_range
    place = (planned.topic, planned.partition)
    assert count.dead_letters == sum(1 for topic, partition, *_ in letters if (topic, partition) == place)
    seen = [offset for topic, partition, offset, _ in rows if (topic, partition) == (planned.topic, planned.partition)]
    assert count.rows == len(seen)
    assert planned.span == count.rows + count.dead_letters + count.invisible
    assert (count.smallest_offset, count.largest_offset) == (min(seen, default=None), max(seen, default=None))
    assert all(planned.start_offset <= offset < planned.end_offset for offset in seen)
