"""A real Kafka broker as a child process: KRaft, one node, on the loopback interface only."""

import base64
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from dies_with_parent import dying_with_this_process
from free_ports import LOOPBACK, is_free, random_free_ports
from java_command import java_command
from kafka_ingest.spark_launch.installation import ArchivePlace
from kafka_ingest.spark_launch.java_options import ARCHIVE, using

PINNED_VERSION = "4.3.1"
KAFKA_VERSION = os.environ.get("KAFKA_VERSION", PINNED_VERSION)
"""Another one than the pinned is there after `make setup-kafka KAFKA_VERSION=3.9.1`."""
_JVM = Path(__file__).resolve().parent.parent / ".jvm"
JARS = _JVM / ("broker" if KAFKA_VERSION == PINNED_VERSION else f"kafka-{KAFKA_VERSION}/broker")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_LINES_SHOWN = 25
_POLL_S = 0.02
_ANSWER_TIMEOUT_S = 2.0

# Starting counts for more than peak throughput: one compiler tier, the collector with the fewest threads.
QUICK_START = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# For a broker that is measured with gigabytes: all compiler tiers, and a heap that is there from the beginning.
MUCH_DATA = ("-Xms1g", "-Xmx1g", "-XX:+UseParallelGC", "-XX:-UsePerfData")
_LOG_FLAGS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")

_SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    # One node can hold one replica; the internal topics' defaults are three.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 partitions each by default: the first commit and the first transaction would wait for them.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that restarts after a kill is refused until its former session has expired: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # 128 MiB by default, a quarter of this heap.
    "log.cleaner.dedupe.buffer.size": "2097152",
    # Retention goes by the records' own timestamps, and made-up events carry old ones.
    "log.retention.ms": "-1",
}

_FEATURES: dict[Path, bytes] = {}
"""What Kafka wrote of a new cluster's feature levels, by the folder of its jars."""

# What differs where a node joins the cluster of another one.
_JOINING: Mapping[str, str] = {"process.roles": "broker", "node.id": "2"}


def archive_place(jars: Path = JARS) -> ArchivePlace:
    """Return where the archive of Kafka's classes lies, or would lie; dev/archive_broker.py makes it."""
    return ArchivePlace.of(Path(java_command()).resolve(), jars.glob("*.jar"), jars)


def java_of_kafka(jars: Path = JARS, flags: Sequence[str] = QUICK_START) -> list[str]:
    """Return the command that runs a class of Kafka's: from the archive of its classes, where there is one."""
    archive = archive_place(jars).archive()
    if archive is not None and not any(ARCHIVE.match(flag) for flag in flags):
        flags = (*flags, *using(archive))
    # In one order: an archive fits no other.
    class_path = os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))
    return [java_command(), *flags, *_LOG_FLAGS, "-cp", class_path]


class BrokerError(RuntimeError):
    """The broker cannot be started, or is not running where it has to be."""


class EmbeddedBroker:
    """A broker that keeps its settings, its data and its log under `directory`.

    Starting again on the same directory continues with the same data and cluster id, also after `kill()`. Without
    `port` the first start picks a free one, and this object keeps it. `extra` are broker settings that override the
    ones here.

    With `joins` it is one more node of that broker's cluster, which must have been started once: a broker only, with
    the node id 2 unless `extra` names another. The first node is the one controller, so it has to run as long.

    `listeners` are more of them, each with its security protocol; `extra` says what else they need. The first one stays
    without any security.

    The broker is in a separate session, so a Ctrl-C in the terminal reaches its starter only, and it ends when its
    starter does, even by SIGKILL. With `detached=True` it runs until `pid` is stopped.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        extra: Mapping[str, str] | None = None,
        detached: bool = False,
        jars: Path = JARS,
        joins: "EmbeddedBroker | None" = None,
        jvm_flags: Sequence[str] = QUICK_START,
        listeners: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self._fixed_port = port
        self._ports: tuple[int, ...] | None = None
        self._listeners = dict(listeners or {})
        self._extra = dict(extra or {})
        self._detached = detached
        self._jars = jars
        self._joins = joins
        self._jvm_flags = tuple(jvm_flags)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, known from the first start on."""
        if self._ports is None:
            raise BrokerError("expected a broker that was started once, this one has no port yet: call start()")
        return f"{LOOPBACK}:{self._ports[0]}"

    def servers_of(self, listener: str) -> str:
        """`host:port` of one of the further `listeners`, known from the first start on."""
        if self._ports is None:
            raise BrokerError("expected a broker that was started once, this one has no port yet: call start()")
        return f"{LOOPBACK}:{self._ports[2 + list(self._listeners).index(listener)]}"

    @property
    def node_id(self) -> int:
        """The broker's number in its cluster, as replica assignments and leaders name it."""
        return int(self._extra.get("node.id", _SETTINGS["node.id"] if self._joins is None else _JOINING["node.id"]))

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        if self._process is None:
            raise BrokerError("expected a running broker, this one is stopped: call start()")
        return self._process.pid

    @property
    def cluster_id(self) -> str:
        """The id this directory was formatted with, by the first start."""
        for line in self._meta_properties.read_text().splitlines():
            name, _, value = line.partition("=")
            if name == "cluster.id":
                return value
        raise BrokerError(f"expected a cluster.id in {self._meta_properties}, found none: remove the directory")

    @property
    def log(self) -> Path:
        """What the broker and the formatting said, all starts of this directory one after the other."""
        return self.directory / "broker.log"

    def start(self) -> None:
        """Start the broker; on return it answers. Raises BrokerError with the end of its log; nothing runs then."""
        self.launch()
        self.wait_until_it_answers()

    def launch(self) -> None:
        """Start the process without waiting for it: from here on there is a `pid` to write down."""
        if self._process is not None:
            raise BrokerError(f"expected a stopped broker, this one runs as process {self._process.pid}: stop it first")
        self._check_jars()
        settings = self._write_settings()
        if not self._meta_properties.exists():
            self._format(settings)
        command = [*java_of_kafka(self._jars, self._jvm_flags), "kafka.Kafka", str(settings)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command if self._detached else dying_with_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_it_answers(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return as soon as the broker serves clients. On anything else it is killed, and BrokerError says why."""
        try:
            self._wait(time.monotonic() + timeout_s, timeout_s)
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Ask the broker to shut down; after `timeout_s`, make it. Does nothing where it is stopped already.

        Returns whether it shut down by itself.
        """
        if self._process is None:
            return True
        self._process.terminate()
        by_itself = True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            by_itself = False
            self._process.kill()
            self._process.wait()
        self._process = None
        return by_itself

    def kill(self) -> None:
        """End the broker at once, as a crash would. Does nothing where it is stopped already."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _meta_properties(self) -> Path:
        # Formatting writes this one last, so where it exists the directory is formatted completely.
        return self.directory / "data" / "meta.properties"

    def _check_jars(self) -> None:
        if not any(self._jars.glob("kafka_*.jar")):
            raise BrokerError(
                f"expected Kafka's jars in {self._jars}, found none: run make setup, or for "
                "another version than the pinned one make setup-kafka KAFKA_VERSION=…"
            )

    def _write_settings(self) -> Path:
        client, controller, *further = self._choose_ports()
        named = {"PLAINTEXT": client, **dict(zip(self._listeners, further, strict=True))}
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in named.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        settings = {
            **_SETTINGS,
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "log.dirs": str(self.directory / "data"),
            **(self._settings_to_join(listeners) if self._joins else {}),
            **self._extra,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _settings_to_join(self, listeners: str) -> dict[str, str]:
        first = self._joins._ports if self._joins else None  # noqa: SLF001  (its own class's)
        if first is None:
            raise BrokerError(
                "expected to join a broker that was started once, that one has no port yet: start it first"
            )
        return {
            **_JOINING,
            "listeners": listeners,
            "controller.quorum.voters": f"1@{LOOPBACK}:{first[1]}",
        }

    def _choose_ports(self) -> tuple[int, ...]:
        if self._ports is None:
            client, *others = random_free_ports(2 + len(self._listeners))
            self._ports = (self._fixed_port or client, *others)
        for port in self._ports:
            if not is_free(port):
                raise BrokerError(
                    f"expected port {port} of {LOOPBACK} to be free, found another process listening on it: "
                    "stop that process, or choose another port"
                )
        return self._ports

    def _format(self, settings: Path) -> None:
        """Give the directory its cluster id.

        The feature levels of a new cluster are in a binary file; without it the broker runs with the oldest transaction
        protocol. Only Kafka writes it, in another JVM, for 0.7 s. It is the same for each cluster of these jars, so a
        process asks Kafka for it once.
        """
        # A random id that starts with '-' would be read as an option.
        new_id = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:].rstrip("=")
        cluster_id = new_id if self._joins is None else self._joins.cluster_id
        features = self._meta_properties.with_name("bootstrap.checkpoint")
        if (known := _FEATURES.get(self._jars)) is None:
            self._let_kafka_format(settings, cluster_id)
            if self._joins is None:
                _FEATURES[self._jars] = features.read_bytes()
            return
        features.parent.mkdir(exist_ok=True)
        features.write_bytes(known)
        named = {"version": "1", "cluster.id": cluster_id, "node.id": str(self.node_id)}
        # The directory's own id is made by the first start where there is none.
        self._meta_properties.write_text("".join(f"{name}={value}\n" for name, value in named.items()))

    def _let_kafka_format(self, settings: Path, cluster_id: str) -> None:
        command = [*java_of_kafka(self._jars), "kafka.tools.StorageTool"]
        with self.log.open("ab") as log:
            answer = subprocess.run(
                [*command, "format", "--cluster-id", cluster_id, "--config", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if answer.returncode != 0:
            raise BrokerError(f"expected {settings} to be usable, formatting failed.\n{self._log_tail()}")

    def _wait(self, deadline: float, timeout_s: float) -> None:
        while not self._accepts_connections():
            self._check_time_and_process(deadline, timeout_s)
            time.sleep(_POLL_S)
        # The client comes after the first connection, or it would back off and print what it could not reach.
        with AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}) as client:
            while not self._answers(client):
                self._check_time_and_process(deadline, timeout_s)
                time.sleep(_POLL_S)

    def _accepts_connections(self) -> bool:
        host, port = self.bootstrap_servers.split(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def _answers(self, client: AdminClient) -> bool:
        try:
            # describe_cluster would abort the process where the answer names no broker (librdkafka 2.16).
            cluster = client.list_topics("no topic: who is there?", timeout=_ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        # A broker is in its own list once it may lead partitions; before, creating a topic fails.
        return cluster.cluster_id == self.cluster_id and self.node_id in cluster.brokers

    def _check_time_and_process(self, deadline: float, timeout_s: float) -> None:
        exit_code = self._process.poll() if self._process else None
        if exit_code is not None:
            raise BrokerError(f"expected the broker to start, it ended with exit code {exit_code}.\n{self._log_tail()}")
        if time.monotonic() > deadline:
            raise BrokerError(f"expected an answer of the broker within {timeout_s:.0f} s.\n{self._log_tail()}")

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"The end of {self.log}:", *lines])
