"""Which offsets an output holds, whether each is there once, and who accounts for those that are not.

By its rows and what it says of itself alone, without control tables; and by Kafka, where that is asked.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.offsets import (
    FirstRecord,
    Isolation,
    LogBounds,
    OffsetRange,
    TopicPartition,
    intersect,
    listing,
    subtract,
    union,
)
from kafka_ingest.model.proof import Evidence, HeldLog, OffsetRuns, Proof
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.ports.cluster import KafkaCluster

MOST_LISTED = 1_000
"""So many intervals of a partition are listed; their number is exact."""
MOST_ASKED = 20
"""So many intervals of a partition are looked for in Kafka."""

Key = tuple[str, str | None, int]
"""A topic's name, its id, and a partition."""


@dataclass(frozen=True, slots=True)
class Missing:
    """So many of a range's ``offsets`` are not there, and nothing accounts for them.

    ``batch_id``: the batch that read the range; None where none says that it did. ``among``: the first intervals that
    are not there; where the range has dead letters, filtered records or offsets without a record, these, too.
    """

    offset_range: OffsetRange
    batch_id: UUID | None
    offsets: int
    among: OffsetRuns


@dataclass(frozen=True, slots=True)
class PartitionAccount:
    """One partition of one topic in the output: what is there, what is not, and by whose account.

    ``not_claimed`` are offsets below those that scheduled runs began with, and between those that backfills read.
    ``reached`` is the offset after the last one that is there or accounted for. ``surplus`` are rows that no proof
    names. ``bounds`` are Kafka's, None where it was not asked, or has the topic no more; ``apart`` says why.
    """

    held: HeldLog
    dead_letters: int = 0
    filtered: int = 0
    invisible: int = 0
    removed: int = 0
    lost: int = 0
    gaps: int = 0
    not_claimed: int = 0
    reached: int = 0
    missing: Sequence[Missing] = ()
    surplus: Sequence[str] = ()
    bounds: LogBounds | None = None
    apart: str | None = None

    @property
    def unaccounted(self) -> int:
        return sum(each.offsets for each in self.missing)

    @property
    def not_landed(self) -> int | None:
        """How many offsets of Kafka's log are above all that the output has; None where Kafka was not asked."""
        if self.bounds is None:
            return None
        end = self.bounds.readable_end(Isolation.READ_COMMITTED)
        return max(0, end - max(self.reached, self.bounds.log_start_offset))


@dataclass(frozen=True, slots=True)
class AccountOfOutput:
    """The whole output. ``unproven`` are batches with rows of which neither a commit nor a receipt says what they read.

    ``problems`` are what cannot be read or used. ``foreign_rows`` have no position: other programs' own.
    """

    partitions: Sequence[PartitionAccount]
    proofs: Mapping[UUID, Proof]
    removed: Collection[UUID]
    unproven: Sequence[UUID | None]
    problems: Sequence[str]
    foreign_rows: int = 0
    notes: Sequence[str] = ()

    @property
    def is_sound(self) -> bool:
        """Whether each offset is there once, or accounted for."""
        wrong = (each.missing or each.surplus or each.held.doubled for each in self.partitions)
        return not self.problems and not any(wrong)

    def only(self, topics: Collection[str]) -> "AccountOfOutput":
        chosen = [each for each in self.partitions if each.held.topic_partition.topic in topics]
        return replace(self, partitions=chosen)


def account_of(
    evidence: Evidence, held: Iterable[HeldLog], unreadable: Sequence[str] = (), foreign_rows: int = 0
) -> AccountOfOutput:
    """Compare the rows of an output with what it says of itself."""
    logs = {key_of(each): each for each in held}
    with_rows = {batch for log in logs.values() for batch in log.of_batches}
    not_yet = evidence.unpublished - with_rows
    proofs = {each: proof for each, proof in evidence.proofs.items() if each not in not_yet}
    accounts = Accounts(logs, replace(evidence, proofs=proofs))
    partitions = [accounts.of_partition(key) for key in sorted(accounts.keys, key=str)]
    problems = [*evidence.problems, *unreadable, *accounts.short_of_sums()]
    unproven = sorted(with_rows - proofs.keys(), key=str)
    removed = evidence.removed & proofs.keys()
    return AccountOfOutput(partitions, proofs, removed, unproven, problems, foreign_rows, evidence.notes)


def key_of(log: HeldLog) -> Key:
    """Return what a partition is known by; a topic that was deleted and made again has another id."""
    return log.topic_partition.topic, log.topic_id, log.topic_partition.partition


@dataclass(slots=True)
class Accounts:
    """Rows and proofs, by partition."""

    logs: Mapping[Key, HeldLog]
    evidence: Evidence
    read: dict[Key, list[tuple[Proof, RangeCount]]] = field(default_factory=dict)
    replaced: set[tuple[UUID, TopicPartition]] = field(default_factory=set)

    def __post_init__(self) -> None:
        ids: dict[str, set[str | None]] = {}
        for topic, topic_id, _ in self.logs:
            ids.setdefault(topic, set()).add(topic_id)
        for proof in self.evidence.proofs.values():
            self.replaced.update(proof.replaces or ())
            for count in proof.ranges or ():
                topic, number = count.offset_range.topic, count.offset_range.partition
                known = ids.get(topic, set())
                # Brokers before 2.8 have none; rows and proof may differ where brokers were upgraded in between.
                topic_id = proof.topic_ids.get(topic) or (next(iter(known)) if len(known) == 1 else None)
                self.read.setdefault((topic, topic_id, number), []).append((proof, count))

    @property
    def keys(self) -> set[Key]:
        return self.logs.keys() | self.read.keys()

    def of_partition(self, key: Key) -> PartitionAccount:
        topic, topic_id, number = key
        tp, read = TopicPartition(topic, number), self.read.get(key, [])
        log = self.logs.get(key) or HeldLog(tp, topic_id, 0, OffsetRuns())
        missing: list[Missing] = []
        surplus = list(self._not_named(log, read))
        sums: Counter[str] = Counter()
        for proof, count in sorted(read, key=lambda each: (each[1].offset_range, each[0].batch_id)):
            expected = self._expected(proof, count, sums)
            own = log.of_batches.get(proof.batch_id, OffsetRuns())
            inside = own.within(*ends_of(count.offset_range)).count
            if own.count > inside:
                surplus.append(
                    f"batch {proof.batch_id}: {counted(own.count - inside, 'offset')} outside {count.offset_range}"
                )
            if inside > expected:
                there = counted(inside, "offset")
                surplus.append(f"batch {proof.batch_id}: {there} of {count.offset_range}, expected {expected:,}")
            if not self.evidence.of_newest_states and (short := self._short(log, proof, count, expected - inside)):
                start, end = ends_of(count.offset_range)
                holes = OffsetRuns([start], [end]) if self.evidence.of_counts else log.offsets.holes(start, end)
                missing.append(Missing(count.offset_range, proof.batch_id, short, holes))
        covered = [each.offset_range for proof, each in read if proof.kind is not BatchKind.REPLAY]
        gaps = [each for of, each in self.evidence.gaps if each.topic_partition == tp and of in {topic_id, None}]
        ends = [each.end_offset for each in covered] + [*log.offsets.ends[-1:]]
        starts = [each.start_offset for each in covered] + [*log.offsets.starts[:1]]
        whole = [OffsetRange(tp, min(starts), max(ends))] if starts else []
        sums_only = list(self._of_sums(log))
        unread = subtract(whole, [*covered, *(each for _, each in sums_only)])
        below = [OffsetRange(tp, min(starts), self._claimed_from(log, read, sums_only, max(ends)))] if starts else []
        # Rows have left, so they do not show what batches have read of which only the sums are known.
        unknown = self.evidence.of_newest_states and any(of.ranges is None for of in self.evidence.proofs.values())
        claimed = [] if unknown else subtract(unread, [*gaps, *below])
        open_still = [(each, log.offsets.holes(*ends_of(each))) for each in claimed]
        missing += [Missing(each, None, holes.count, holes) for each, holes in open_still if holes]

        def not_there(ranges: Iterable[OffsetRange]) -> int:
            return sum(log.offsets.holes(*ends_of(each)).count for each in ranges)

        return PartitionAccount(
            log,
            dead_letters=sums["dead_letters"],
            filtered=sums["filtered"],
            invisible=sums["invisible"],
            removed=sums["removed"],
            lost=sums["lost"],
            gaps=not_there(intersect(unread, union(gaps))),
            not_claimed=not_there(subtract(intersect(unread, below), gaps)),
            reached=max(ends, default=0),
            missing=missing,
            surplus=surplus,
        )

    def _expected(self, proof: Proof, count: RangeCount, sums: Counter[str]) -> int:
        """Return how many rows of a range readers should see, and add to the sums what accounts for the others."""
        key = proof.batch_id, count.offset_range.topic_partition
        if key in self.replaced:
            return 0
        if proof.kind is BatchKind.REPLAY:  # of letters that others count, what it leaves is not its own
            sums["dead_letters"] -= count.rows + count.filtered
        else:
            sums["dead_letters"] += count.dead_letters
            sums["invisible"] += count.invisible
        sums["filtered"] += count.filtered
        if proof.batch_id in self.evidence.removed:
            sums["removed"] += count.rows
            return 0
        lost = min(count.rows, self.evidence.lost.get(key, 0))
        sums["lost"] += lost
        return count.rows - lost

    def _short(self, log: HeldLog, proof: Proof, count: RangeCount, short: int) -> int:
        """Return how many of a range's offsets are nowhere: other batches may have read some of them again."""
        if short <= 0:
            return 0
        if proof.kind is BatchKind.REPLAY:
            return short  # the other rows of its range were there before: no letter is among them
        ends = ends_of(count.offset_range)
        replays = [each for each, of in self.evidence.proofs.items() if of.kind is BatchKind.REPLAY]
        own = {proof.batch_id, *replays}
        others = log.offsets.within(*ends).count - sum(
            log.of_batches[each].within(*ends).count for each in own if each in log.of_batches
        )
        lost = self.evidence.lost.get((proof.batch_id, count.offset_range.topic_partition), 0)
        return max(0, short - max(0, others - lost))

    def _not_named(self, log: HeldLog, read: Collection[tuple[Proof, RangeCount]]) -> Iterator[str]:
        """Yield the batches with rows in a partition that their proof does not read."""
        readers = {proof.batch_id for proof, _ in read}
        for batch, runs in log.of_batches.items():
            proof = self.evidence.proofs.get(batch) if batch is not None else None
            if proof is not None and proof.ranges is not None and batch not in readers:
                yield (
                    f"batch {batch}: {counted(runs.count, 'offset')} of a partition, or of a topic with an id, that it "
                    f"has not read: its topic ids are {proof.topic_ids}"
                )

    def _claimed_from(
        self,
        log: HeldLog,
        read: Collection[tuple[Proof, RangeCount]],
        sums_only: Collection[tuple[Proof, OffsetRange]],
        end: int,
    ) -> int:
        """Return from which offset on the output holds all: where scheduled runs began, or rows of no known batch do.

        A backfill or a copy claims what it was asked for alone. Without any other batch that is the end.
        """
        ranges = [*((proof, each.offset_range) for proof, each in read), *sums_only]
        began = [each.start_offset for proof, each in ranges if proof.kind is BatchKind.LIVE]
        unknown = [runs.starts[0] for batch, runs in log.of_batches.items() if batch not in self.evidence.proofs]
        return min([*began, *unknown], default=end)

    def _of_sums(self, log: HeldLog) -> Iterator[tuple[Proof, OffsetRange]]:
        """Yield what batches span of whose ranges only the sums are known."""
        for batch, runs in log.of_batches.items():
            proof = self.evidence.proofs.get(batch) if batch is not None else None
            if proof is not None and proof.ranges is None and runs:
                yield proof, OffsetRange(log.topic_partition, runs.starts[0], runs.ends[-1])

    def short_of_sums(self) -> Iterator[str]:
        """Yield which batches, of whose ranges only the sums are known, have other sums."""
        for batch, proof in self.evidence.proofs.items():
            if proof.ranges is not None or proof.replaces is None:
                continue
            if self.evidence.of_newest_states:
                yield (
                    f"batch {batch}: expected its {counted(proof.range_count, 'range')}, which only its receipt says, "
                    "and that is not beside the output: whether offsets are missing cannot be seen"
                )
                continue
            expected = 0 if batch in self.evidence.removed else proof.rows
            found = sum(log.of_batches[batch].count for log in self.logs.values() if batch in log.of_batches)
            if found != expected and not any(replaced == batch for replaced, _ in self.replaced):
                yield (
                    f"batch {batch}: expected {counted(expected, 'row')} of {counted(proof.range_count, 'range')}, "
                    f"found {found:,}; which ones only its receipt says, and that is not beside the output"
                )


def ends_of(offset_range: OffsetRange) -> tuple[int, int]:
    return offset_range.start_offset, offset_range.end_offset


def with_kafka(account: AccountOfOutput, kafka: KafkaCluster, topics: Collection[str] = ()) -> AccountOfOutput:
    """Compare an output with the logs as they are now; of some topics, or of all that it has.

    What no proof accounts for is looked for there: offsets without a record were never one, or are no more.
    """
    names = set(topics) or {each.held.topic_partition.topic for each in account.partitions}
    described = kafka.describe_topics(names)
    bounds = kafka.log_bounds([each for topic in described.values() for each in topic.topic_partitions()])
    there = {each.held.topic_partition: each for each in account.partitions}
    absent = sorted(bounds.keys() - there.keys())
    empty = [HeldLog(each, described[each.topic].topic_id, 0, OffsetRuns()) for each in absent]
    found: list[PartitionAccount] = []
    for each in (*account.partitions, *map(PartitionAccount, empty)):
        tp, topic = each.held.topic_partition, described.get(each.held.topic_partition.topic)
        now = bounds.get(tp)
        if topic is None or now is None:
            found.append(replace(each, apart=f"Kafka has no such {'topic' if topic is None else 'partition'}"))
        elif None not in (ids := (topic.topic_id, each.held.topic_id)) and len(set(ids)) > 1:
            found.append(replace(each, apart=f"in Kafka the topic has id {topic.topic_id}: it was made again"))
        elif isinstance(now, LogBounds):
            found.append(replace(each, bounds=now))
        else:
            found.append(replace(each, apart=now.reason))
    clusters, cluster = {each.cluster_id for each in account.proofs.values()}, kafka.cluster_id()
    problems = list(account.problems)
    if clusters and cluster not in clusters:
        problems.append(f"expected Kafka cluster {listing(sorted(clusters))}, which the output names, found {cluster}")
    return replace(account, partitions=looked_for(found, kafka), problems=problems)


def looked_for(partitions: Sequence[PartitionAccount], kafka: KafkaCluster) -> list[PartitionAccount]:
    """Return partitions without what is missing by no batch's account, where Kafka's log has no record either."""
    asked: dict[TopicPartition, list[tuple[int, int]]] = {}
    for each in partitions:
        if each.bounds is not None:
            of_none = [missing.among for missing in each.missing if missing.batch_id is None]
            holes = [hole for among in of_none for hole in among.first(MOST_ASKED)]
            in_log = [hole for hole in holes if hole[0] >= each.bounds.log_start_offset]
            asked[each.held.topic_partition] = in_log[:MOST_ASKED]
    empty: dict[TopicPartition, set[tuple[int, int]]] = {}
    for number in range(max(map(len, asked.values()), default=0)):
        holes_now = {tp: holes[number] for tp, holes in asked.items() if number < len(holes)}
        answers = kafka.first_records({tp: start for tp, (start, _) in holes_now.items()}, Isolation.READ_COMMITTED)
        for tp, (start, end) in holes_now.items():
            answer = answers[tp]
            if answer is None or (isinstance(answer, FirstRecord) and (answer.offset or 0) >= end):
                empty.setdefault(tp, set()).add((start, end))
    return [
        each if each.bounds is None else without(each, empty.get(each.held.topic_partition, set()))
        for each in partitions
    ]


def without(account: PartitionAccount, empty: Collection[tuple[int, int]]) -> PartitionAccount:
    """Return a partition of whose missing offsets some have no record in Kafka."""
    missing: list[Missing] = []
    for each in account.missing:
        if each.batch_id is None:
            left = [hole for hole in each.among.first(len(each.among)) if hole not in empty]
            among = OffsetRuns([start for start, _ in left], [end for _, end in left])
            missing += [replace(each, offsets=among.count, among=among)] if left else []
        else:
            missing.append(each)
    invisible = account.invisible + sum(end - start for start, end in empty)
    return replace(account, missing=missing, invisible=invisible)
