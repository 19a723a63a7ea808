"""The broker that the demo, the playground and the tests stand on, and the events they put into it."""

import dataclasses
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

import own_process
from embedded_broker import JARS, QUICK_START, BrokerError, EmbeddedBroker, archive_place, java_of_kafka
from free_ports import LOOPBACK
from order_events import PARTITIONS, OrderEvent, TopicError, create_topic, order_events, produce
from own_process import OwnProcess

DEV = Path(__file__).resolve().parents[2] / "dev"
PATIENCE_S = 30.0

START_AND_SAY_THE_PID = f"""
import sys, time
from pathlib import Path
from embedded_broker import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1]), detached=sys.argv[2] == "detached")
broker.launch()
deadline = time.monotonic() + {PATIENCE_S}
while Path("/proc", str(broker.pid), "exe").resolve().name != "java":
    if time.monotonic() > deadline:
        sys.exit("expected Java")
    time.sleep(0.01)
print(broker.pid, flush=True)
sys.stdin.read()
"""


def answering_cluster(broker: EmbeddedBroker) -> str:
    with AdminClient({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        return admin.describe_cluster(request_timeout=PATIENCE_S).result().cluster_id


def features(broker: EmbeddedBroker) -> set[bytes]:
    """The features of a new cluster with their levels, as the records of its metadata have them."""
    log = broker.directory / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    return set(re.findall(rb"[a-z.]+\.version\x00.", log.read_bytes()))


def records(broker: EmbeddedBroker, topic: str, partition: int, count: int) -> list[OrderEvent]:
    """The first `count` records of a partition, as the events they should have come from."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages = consumer.consume(count, PATIENCE_S)
    consumer.close()
    events = []
    for message in messages:
        assert message.error() is None
        kind, timestamp_ms = message.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        headers = tuple(message.headers() or ())
        events.append(OrderEvent(message.partition(), message.key(), message.value(), headers, timestamp_ms))
    return events


def start_in_another_process(directory: Path, tie: str) -> tuple[subprocess.Popen, int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", START_AND_SAY_THE_PID, str(directory), tie],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(DEV)},
    )
    return parent, int(parent.stdout.readline())


def wait_for_the_end_of(process_handle: int) -> bool:
    ended, _, _ = select.select([process_handle], [], [], PATIENCE_S)
    return bool(ended)


def test_a_started_broker_answers_as_the_cluster_its_directory_was_formatted_for(broker):
    assert answering_cluster(broker) == broker.cluster_id


def test_a_broker_outlives_the_thread_that_started_it_and_has_its_data_after_a_kill_beside_others(broker, tmp_path):
    """After a stop, and for the one that started it first: test_truncated_logs."""
    others = (broker.pid, answering_cluster(broker))
    own = EmbeddedBroker(tmp_path)
    starter = threading.Thread(target=own.start)
    starter.start()
    starter.join()
    before = (own.bootstrap_servers, own.cluster_id)
    assert (own.bootstrap_servers, answering_cluster(own)) == before
    assert own.pid != broker.pid
    assert features(own) == features(broker), "expected a cluster like the one for which Kafka was asked"
    assert b"transaction.version\0\2" in features(own)
    create_topic(own.bootstrap_servers, "orders", PARTITIONS)
    events = [event for event in order_events(200, seed=1) if event.partition == 0]
    produce(own.bootstrap_servers, "orders", events)

    own.kill()
    with EmbeddedBroker(tmp_path) as in_another_program:
        assert answering_cluster(in_another_program) == own.cluster_id
        assert records(in_another_program, "orders", 0, len(events)) == events
        with pytest.raises(TopicError, match=f"expected topic orders with 1 partitions, found it with {PARTITIONS}"):
            create_topic(in_another_program.bootstrap_servers, "orders", 1)
    assert (broker.pid, answering_cluster(broker)) == others


def test_stop_and_kill_do_nothing_to_a_broker_that_does_not_run(tmp_path):
    broker = EmbeddedBroker(tmp_path)
    broker.stop()
    broker.kill()
    with pytest.raises(BrokerError, match="expected a running broker"):
        _ = broker.pid


def test_a_ctrl_c_in_the_terminal_reaches_the_parent_only(broker):
    assert os.getpgid(broker.pid) != os.getpgid(0)
    assert os.getsid(broker.pid) != os.getsid(0)


def test_a_broker_dies_with_a_parent_that_is_killed_and_a_detached_one_is_stopped_by_what_was_written_down_of_it(
    tmp_path,
):
    parent, pid = start_in_another_process(tmp_path, "tied")
    broker = os.pidfd_open(pid)
    parent.kill()
    parent.wait()
    assert wait_for_the_end_of(broker)

    parent, pid = start_in_another_process(tmp_path, "detached")
    handle = os.pidfd_open(pid)
    written_down = OwnProcess.of("broker", pid, tmp_path / "broker.log")
    parent.kill()
    parent.wait()
    assert written_down.is_running()

    own_process.stop([written_down], grace_s=PATIENCE_S)
    assert wait_for_the_end_of(handle)


def test_a_process_that_only_has_the_number_of_one_that_was_written_down_is_left_alone(tmp_path):
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    now = OwnProcess.of("broker", bystander.pid, tmp_path / "broker.log")
    for former in (
        dataclasses.replace(now, started_ticks=now.started_ticks - 1),
        dataclasses.replace(now, boot_id="another boot"),
    ):
        assert not former.is_running()
        own_process.stop([former], grace_s=0)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


def test_what_a_process_started_is_stopped_although_it_was_killed_itself(tmp_path):
    log = tmp_path / "parent.log"
    parent = own_process.start("parent", ["sh", "-c", "sleep 600 & echo $!; wait"], log)
    while not (line := log.read_text()):
        pass
    child = os.pidfd_open(int(line))
    os.kill(parent.pid, signal.SIGKILL)
    os.waitpid(parent.pid, 0)

    assert parent.has_left_something()
    own_process.stop([parent], grace_s=PATIENCE_S)
    assert wait_for_the_end_of(child)


def test_a_port_that_is_in_use_is_refused_before_anything_starts(tmp_path):
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BrokerError, match=f"expected port {port} of {LOOPBACK} to be free"):
            EmbeddedBroker(tmp_path, port=port).start()


def test_a_broker_that_cannot_start_says_why(tmp_path):
    broker = EmbeddedBroker(tmp_path, extra={"num.io.threads": "-1"})
    with pytest.raises(BrokerError, match=r"(?s)The end of .*broker\.log.*num\.io\.threads"):
        broker.start()
    with pytest.raises(BrokerError, match="expected a running broker"):
        _ = broker.pid


def test_missing_jars_name_the_command_that_fetches_them(tmp_path):
    with pytest.raises(BrokerError, match="run make setup"):
        EmbeddedBroker(tmp_path, jars=tmp_path).start()


def test_kafka_starts_from_the_archive_of_its_classes_and_as_without_one_where_that_is_damaged(tmp_path):
    jars = tmp_path / "jars"
    shutil.copytree(JARS, jars, copy_function=os.symlink, ignore=shutil.ignore_patterns("classes-*"))
    asked, log = ("kafka.tools.StorageTool", "random-uuid"), tmp_path / "classes"

    def from_an_archive(folder):
        flags = (*QUICK_START, f"-Xlog:class+load:file={log}:none")
        subprocess.run([*java_of_kafka(folder, flags), *asked], check=True, capture_output=True)
        [found] = [line for line in log.read_text().splitlines() if line.startswith("kafka.server.KafkaConfig ")]
        return "shared objects file" in found

    place = archive_place(jars)
    place.file(7).write_bytes(b"damaged")
    assert f"-XX:SharedArchiveFile={place.archive()}" in java_of_kafka(jars)
    assert (from_an_archive(JARS), from_an_archive(jars)) == (True, False)


def test_every_partition_holds_exactly_the_events_made_for_it_in_their_order(broker):
    events = list(order_events(5_000, seed=7))
    create_topic(broker.bootstrap_servers, "every-event", PARTITIONS)
    assert produce(broker.bootstrap_servers, "every-event", events) == len(events)
    for partition in range(PARTITIONS):
        expected = [event for event in events if event.partition == partition]
        assert records(broker, "every-event", partition, len(expected)) == expected


def test_the_same_seed_gives_the_same_events_and_another_seed_gives_other_orders():
    events = list(order_events(1_000, seed=7))
    assert list(order_events(1_000, seed=7)) == events
    assert list(order_events(500, seed=7)) == events[:500]
    keys = {event.key for event in events} - {None}
    assert keys.isdisjoint(event.key for event in order_events(1_000, seed=8))


def test_the_events_have_what_makes_real_topics_awkward():
    events = list(order_events(20_000, seed=7))
    sizes = Counter(event.partition for event in events)
    assert set(sizes) == set(range(PARTITIONS))
    assert max(sizes.values()) > 10 * min(sizes.values())

    assert any(event.key is None for event in events)
    assert any(event.value is None and event.key is not None for event in events)
    assert any(not event.headers for event in events)
    assert any(len({name for name, _ in event.headers}) < len(event.headers) for event in events)
    assert [event.timestamp_ms for event in events] == sorted(event.timestamp_ms for event in events)
