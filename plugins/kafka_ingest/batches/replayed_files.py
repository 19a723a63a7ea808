"""The files that a replay reads: found by the receipts of the batches that published its dead letters."""

from collections.abc import Mapping
from uuid import UUID

from kafka_ingest.errors import BatchStateError, RecordsDeletedError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.place import Place
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.role_of_format import REPLAY_DEAD_LETTERS, role_of


def files_to_replay(plan: BatchPlan, sinks: Sinks) -> Mapping[UUID, tuple[Place, ...]]:
    """Return the files of dead letters that a batch replays, by the batches that published them; of others, none.

    Raises OutputUnavailableError where one is missing, RecordsDeletedError where an operator gave the letters up since
    the plan.
    """
    if not plan.replays:
        return {}
    output = output_of_dead_letters(plan.output)
    reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
    try:
        return {batch_id: reader.files(batch_id) for batch_id in sorted({each.batch_id for each in plan.replays})}
    except BatchStateError as error:
        raise RecordsDeletedError(
            f"batch {plan.batch_id} cannot replay what was planned: {error} Nothing was moved. Abandon it "
            f"(`kafka-ingest abandon {plan.batch_id} --reason …`), and replay what is left."
        ) from error
