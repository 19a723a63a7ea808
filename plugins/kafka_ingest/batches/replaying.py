"""Decide which dead letters are replayed: those of committed batches that are in no other batch, and will not be.

Left out, with the reason, is what another replay has claimed, what an operator gave up, what files that were lost
held, since a backfill reads that again, what a reset lets the feed read again, and batches that expired from the
output or are in a former one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from kafka_ingest.batches.backfill_request import NOTHING_DONE, BackfillRequest, StoredDeadLetters
from kafka_ingest.batches.known_feed import batch_of_feed
from kafka_ingest.errors import BatchStateError, InvalidBackfillError, NotADataFileError, RangesTakenError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.coverage import CoverageRows, DeadLetters
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing, subtract
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import Replay, ReplayedLetters, overlap
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.parts import REPLAY_DEAD_LETTERS, role_of


@dataclass(frozen=True, slots=True)
class LettersFound:
    """What a replay may claim, oldest batch first, with the ids that topics had then; and what not, and why."""

    letters: Sequence[ReplayedLetters]
    topic_ids: Mapping[UUID, Mapping[str, str | None]]
    left_out: Sequence[str] = ()


def letters_to_replay(
    request: BackfillRequest, rows: CoverageRows, output: OutputLocation, control: ControlReader, sinks: Sinks
) -> LettersFound:
    """Return the dead letters that a request means, counted in the files that hold them.

    Raises UnknownBatchError where it names a batch that is not the feed's, RangesTakenError where all that it means is
    claimed by open replays, OutputUnavailableError where files are missing or cannot be read.
    """
    wanted = request.selection
    if not isinstance(wanted, StoredDeadLetters):
        raise InvalidBackfillError(f"expected a replay to name dead letters, found {wanted}. {NOTHING_DONE}")
    if wanted.batch_id is not None:
        check_batch(wanted.batch_id, rows, control)
    found: list[ReplayedLetters] = []
    topic_ids: dict[UUID, Mapping[str, str | None]] = {}
    left_out: list[str] = []
    claimed_by: set[UUID] = set()
    left = grouped((each.batch_id, each) for each in rows.dead_letters if each.left)
    for batch_id, of_batch in sorted(left.items()):
        if wanted.batch_id not in {None, batch_id}:
            continue
        batch = control.batch(batch_id)
        if wanted.since is not None and (batch.committed_at is None or batch.committed_at < wanted.since):
            continue
        if (why := why_left_out(batch, output, sinks)) is not None:
            left_out.append(f"batch {batch_id}: {why}")
            continue
        replays = [each for each in rows.replays if each.letters.batch_id == batch_id]
        claimed_by |= claims(replays, wanted.causes)
        ranges = [piece for each in of_batch for piece in pieces_of(each, batch, rows, replays)]
        try:
            letters = list(counted(ranges, batch, replays, wanted.causes, sinks))
        except (BatchStateError, NotADataFileError) as error:
            left_out.append(f"batch {batch_id}: {error}")
            continue
        if letters:
            found += letters
            topic_ids[batch_id] = batch.plan.topic_ids
    if claimed_by and not found:
        raise RangesTakenError(
            f"expected dead letters that no open replay has claimed, found that {listing(sorted(claimed_by))} "
            f"{'have' if len(claimed_by) > 1 else 'has'}. {NOTHING_DONE} Continue: `kafka-ingest backfill "
            f"{rows.feed.name} open`, or the form's open chunks; or end it: `abandon`."
        )
    return LettersFound(found, topic_ids, left_out)


def check_batch(batch_id: UUID, rows: CoverageRows, control: ControlReader) -> None:
    """Raise UnknownBatchError where a batch is not of the feed, InvalidBackfillError where it has no dead letters."""
    batch = batch_of_feed(batch_id, rows.feed.name, control)
    if all(each.batch_id != batch_id for each in rows.dead_letters):
        raise InvalidBackfillError(
            f"expected a committed batch with dead letters, found {batch_id}, which is {batch.state} and has none. "
            f"{NOTHING_DONE} `kafka-ingest dead-letters {rows.feed.name} --json` counts them."
        )


def why_left_out(batch: Batch, output: OutputLocation, sinks: Sinks) -> str | None:
    """Return why a batch's dead letters are not replayed as a whole, None where they are."""
    if batch.plan.output != output:
        return f"it is in {batch.plan.output}, the feed's output before"
    if (removal := sinks(output).archive.removal(batch.batch_id)) is not None:
        return f"its rows are no longer in the output ({removal})"
    if (given_up := sinks(output_of_dead_letters(output)).archive.removal(batch.batch_id)) is not None:
        return f"its dead letters were given up ({given_up})"
    return None


def claims(replays: Iterable[Replay], causes: frozenset[str]) -> set[UUID]:
    """Return the open replays that have claimed letters of these causes, or of any where none is named."""
    return {each.by for each in replays if each.is_open and (not causes or each.letters.causes & causes)}


def pieces_of(letters: DeadLetters, batch: Batch, rows: CoverageRows, replays: Sequence[Replay]) -> list[OffsetRange]:
    """Return the range of dead letters without what others have read again or will, cut where replays end.

    Of each piece a cause was replayed everywhere or nowhere.
    """
    lost = [each.offset_range for each in rows.lost if each.batch_id == letters.batch_id]
    now = rows.id_now(letters.offset_range.topic, letters.topic_id)
    again = [
        each.offset_range
        for each in rows.rewinds
        if each.at > batch.plan.planned_at and rows.id_now(each.offset_range.topic, each.topic_id) == now
    ]
    left = subtract([letters.offset_range], [*lost, *again])
    ends = {
        end
        for each in replays
        if each.letters.topic_partition == letters.offset_range.topic_partition
        for end in (each.letters.offset_range.start_offset, each.letters.offset_range.end_offset)
    }
    return [piece for each in left for piece in cut(each, ends)]


def cut(offset_range: OffsetRange, at: Iterable[int]) -> list[OffsetRange]:
    """Return a range in pieces that end at some offsets."""
    inside = {each for each in at if offset_range.start_offset < each < offset_range.end_offset}
    ends = sorted({offset_range.start_offset, *inside, offset_range.end_offset})
    return [OffsetRange(offset_range.topic_partition, start, end) for start, end in pairwise(ends)]


def counted(
    ranges: Sequence[OffsetRange], batch: Batch, replays: Sequence[Replay], causes: frozenset[str], sinks: Sinks
) -> Iterable[ReplayedLetters]:
    """Yield the letters in ranges that no replay has claimed, as the files hold them; ``causes``: of these only."""
    if not ranges:
        return
    output = output_of_dead_letters(batch.plan.output)
    reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
    taken = grouped((each.letters.topic_partition, each.letters) for each in replays)
    for piece, records in sorted(reader.count(batch.batch_id, ranges).items()):
        gone = {
            cause
            for letters in taken.get(piece.topic_partition, ())
            if overlap(letters.offset_range, piece)
            for cause in letters.causes
        }
        left = [(cause, number) for cause, number in sorted(records.items()) if cause not in gone]
        if causes:
            left = [(cause, number) for cause, number in left if cause in causes]
        if left:
            yield ReplayedLetters(piece, batch.batch_id, tuple(left))


Chunk = tuple[ReplayedLetters, ...]


def chunks_of_letters(found: LettersFound, max_records: int, most: int) -> tuple[list[Chunk], list[OffsetRange]]:
    """Return the first ``most`` chunks of letters, oldest batch first, and the ranges that are left then.

    A chunk has ``max_records`` letters at most, but one piece at least. Its pieces of one partition do not overlap, as
    they may after a reset or an earlier replay, and its topics have one id each: so a position is in it once.
    """
    ids = found.topic_ids
    chunks: list[list[ReplayedLetters]] = []
    number = 0
    held: dict[TopicPartition, list[OffsetRange]] = {}
    topics: dict[str, str | None] = {}
    for each in found.letters:
        at, topic_id = each.topic_partition, ids[each.batch_id][each.topic_partition.topic]
        fits = (
            bool(chunks)
            and number + each.number <= max_records
            and topics.get(at.topic, topic_id) == topic_id
            and not any(overlap(other, each.offset_range) for other in held.get(at, ()))
        )
        if not fits:
            chunks.append([])
            number, held, topics = 0, {}, {}
        chunks[-1].append(each)
        number += each.number
        held.setdefault(at, []).append(each.offset_range)
        topics[at.topic] = topic_id
    later = [each.offset_range for chunk in chunks[most:] for each in chunk]
    return [tuple(sorted(chunk)) for chunk in chunks[:most]], later
