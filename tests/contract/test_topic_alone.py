"""What `verify` sees in an output topic by itself: each batch's records where its mark says that they are."""

from pathlib import Path

import pytest
from tests.contract.sink_outputs import KafkaOutput, made, plan_to, publish, written
from tests.kafka_faults import Record, delete_records, produce, recreate_topic
from tests.kafka_outputs import PARTITIONS, topic_of

from embedded_broker import EmbeddedBroker
from kafka_ingest.observing.account_of_output import AccountOfOutput, account_of

pytestmark = pytest.mark.long


@pytest.fixture
def output(request: pytest.FixtureRequest, tmp_path: Path) -> KafkaOutput:
    found = made(KafkaOutput, tmp_path / "orders", request)
    assert isinstance(found, KafkaOutput)
    return found


def seen_alone(output: KafkaOutput) -> AccountOfOutput:
    contents = KafkaOutput(output.path).sink.contents
    assert contents is not None
    evidence = contents.evidence()
    return account_of(evidence, *contents.held(evidence))


def test_each_offset_is_there_once_until_other_records_come_or_the_first_ones_are_deleted(
    output: KafkaOutput, broker: EmbeddedBroker
) -> None:
    directory, published = written(output, plan_to(output, 1))
    output.sink.publisher.publish(directory, published)
    account = seen_alone(output)
    assert account.is_sound
    assert [(each.held.rows, each.lost) for each in account.partitions] == [(10, 0), (10, 0)]

    delete_records(broker.bootstrap_servers, topic_of(output.path), 0, 4)
    account = seen_alone(output)
    assert account.is_sound
    assert [(each.held.rows, each.lost) for each in account.partitions] == [(6, 4), (10, 0)]
    assert account.notes == [f"retention has deleted 4 records of topic {topic_of(output.path)}: counted as lost"]

    produce(broker.bootstrap_servers, topic_of(output.path), 1, [Record()])
    account = seen_alone(output)
    assert not account.is_sound
    assert [problem.removeprefix(topic_of(output.path)) for problem in account.problems] == [
        ", where no mark says that a batch is: expected 0 records, found 1. Find what else writes to it"
    ]


def test_what_was_published_to_a_topic_that_was_made_again_since_is_missing(
    output: KafkaOutput, broker: EmbeddedBroker
) -> None:
    first = publish(output, plan_to(output, 1)).plan.batch_id
    recreate_topic(broker.bootstrap_servers, topic_of(output.path), PARTITIONS)
    account = seen_alone(output)
    assert {each.batch_id for log in account.partitions for each in log.missing} == {first}
    publish(output, plan_to(output, 2))
    assert seen_alone(output).problems == [
        f"topic {topic_of(output.path)} was deleted and created again: 20 records of 1 batch went with it"
    ]
