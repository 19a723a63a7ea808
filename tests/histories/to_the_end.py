"""The end of a history: in a healthy world, with an operator who answers, each feed comes to rest, nothing lost."""

from tests.histories.checks import Checks
from tests.histories.explanations import check_explained
from tests.histories.spark_stand_in import TEXT
from tests.histories.world import TOPICS, World

from kafka_ingest.batches.backfill_request import (
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OnMissing,
    StoredDeadLetters,
)
from kafka_ingest.batches.plan_batch import PlanResult
from kafka_ingest.errors import (
    BatchRevokedError,
    KafkaIngestError,
    OffsetsLostError,
    OutputConflictError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
)
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.verbs.topic_changes import Choice

RUNS = 200

ALL_LETTERS = BackfillRequest(StoredDeadLetters(), {}, Mode.REPLAY)


def run_to_the_end(world: World, checks: Checks) -> None:
    """Run the feed until nothing is new, and see that every record is where it should be."""
    world.topics.heal()
    if world.settings.on_data_loss is OnDataLoss.HOLD:
        # What is held waits for an operator: this one wants to be asked.
        world.accept_losses(OnDataLoss.FAIL)
    with world.interrupter.during_step(None):
        for _ in range(RUNS):
            try:
                outcome = world.run()
            except KafkaIngestError as error:
                check_explained(error, world)
                answer(error, world)
            else:
                if outcome.result is PlanResult.NOTHING_NEW:
                    break
            checks.check()
        else:
            raise AssertionError(f"it is not at rest after {RUNS} runs")
        world.mirror()
        finish_chunks(world, checks)
        finish_holes(world, checks)
        finish_letters(world, checks)
    checks.check()
    checks.check_end()


def finish_chunks(world: World, checks: Checks) -> None:
    """Finish what is open of backfills and copies, or abandon it where it cannot be."""
    for chunk in world.open_backfills():
        try:
            world.work_on(chunk.batch_id)
        except KafkaIngestError as error:
            check_explained(error, world)
            world.abandon_batch(chunk.batch_id)
        checks.check()


def finish_holes(world: World, checks: Checks) -> None:
    """Fill every gap as far as Kafka can, and copy all there is: there is nothing left to do then."""
    everything = BackfillRequest(
        BetweenTimestamps(None, None), {}, Mode.COPY, on_missing=OnMissing.RECORD_GAP, output=world.copy_output
    )
    for chunk in world.plan_backfill(everything, actor="copy at the end").chunks:
        world.work_on(chunk.batch_id)
    world.fill_gaps()
    checks.check()
    assert not world.fill_gaps().chunks
    assert not world.plan_backfill(everything, actor="another copy").chunks


def finish_letters(world: World, checks: Checks) -> None:
    """Replay all dead letters by a mended feed file: those that can be decoded now are rows, and the others stay."""
    world.decoding = TEXT
    for chunk in world.plan_backfill(ALL_LETTERS, actor="replay at the end").chunks:
        world.work_on(chunk.batch_id)
        checks.check()
    for chunk in world.plan_backfill(ALL_LETTERS, actor="another replay").chunks:
        world.work_on(chunk.batch_id)
        checks.check()
        assert chunk.batch_id not in checks.rows, "what can be decoded was replayed before"


def answer(error: KafkaIngestError, world: World) -> None:
    """Do what the message says."""
    if isinstance(error, OffsetsLostError):
        world.accept_losses(OnDataLoss.RECORD_GAP)
    elif isinstance(error, TopicRecreatedError | TopicGoneError | StoredOffsetBeyondLogError):
        decide(world)
    elif isinstance(error, BatchRevokedError | OutputConflictError):
        world.abandon()


def decide(world: World) -> None:
    """Decide on the topics that changed."""
    feed = world.feed()
    for name in TOPICS:
        known = {row.topic_id for tp, row in feed.stored.items() if tp.topic == name} if feed is not None else set()
        is_other = bool(known) and known != {world.topics[name].topic_id}
        if is_other or any(tp.topic == name for tp in world.cuts):
            choice = world.choice_for(name)
            if choice is not Choice.REWIND or feed is None or feed.open_batch is None:
                world.decide_topic(name, choice)
                # What an open batch read of this topic was accepted: the next run commits it, before anything else is
                # decided.
                if (now := world.feed()) is not None and now.open_batch is not None:
                    return
