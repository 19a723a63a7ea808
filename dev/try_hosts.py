"""Try a feed on a standalone cluster whose machines share no disk: network and mount namespaces stand for hosts.

Kafka, an object store, the master, two workers and the driver are each on a host of their own. Batches go into a Delta
table, while an executor, the driver and the master are killed in the middle. Needs root on Linux, and `make setup-s3`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp

import psutil
import requests
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from embedded_broker import QUICK_START, EmbeddedBroker
from environment import ROOT, child_environment

HOSTS = {
    name: f"10.77.0.{number}" for number, name in enumerate(("kafka", "store", "master", "one", "two", "driver"), 2)
}
SPARK_PORT, STORE_PORT, KAFKA_PORT = 7077, 5000, 9092
PASSWORD = "of-a-trial-1"  # noqa: S105 - nobody else reaches these hosts
SERVERS = f"{HOSTS['kafka']}:{KAFKA_PORT}"
WORKERS = ("one", "two")
BIN = ROOT / ".venv" / "bin"
PATIENCE_S = 180
EXECUTOR, DRIVER, MASTER = "CoarseGrainedExecutorBackend", "deploy.SparkSubmit", "deploy.master.Master"
PROTECTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": PASSWORD,
    "spark.network.crypto.enabled": "true",
}


def run(*command: str | Path) -> None:
    subprocess.run([str(each) for each in command], check=True)


@contextmanager
def hosts() -> Iterator[None]:
    """Make a network namespace for each host, joined by a bridge in one more; all are removed again."""
    names = {host: f"kafka-ingest-{host}" for host in (*HOSTS, "bridge")}
    try:
        for name in names.values():
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", names["bridge"], "link", "add", "br0", "type", "bridge")
        run("ip", "-n", names["bridge"], "link", "set", "br0", "up")
        for host, address in HOSTS.items():
            own, port = ["-n", names[host]], f"p-{host}"
            run("ip", *own, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", names["bridge"])
            run("ip", "-n", names["bridge"], "link", "set", port, "master", "br0", "up")
            run("ip", *own, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", *own, "link", "set", "eth0", "up")
        yield
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def processes_on(host: str, words: str = "") -> list[psutil.Process]:
    listed = subprocess.run(["ip", "netns", "pids", f"kafka-ingest-{host}"], capture_output=True, text=True, check=True)
    found = []
    for pid in map(int, listed.stdout.split()):
        try:
            if words in " ".join((process := psutil.Process(pid)).cmdline()):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} within {PATIENCE_S} s")
        time.sleep(0.1)


class Trial:
    """The hosts' processes, each with a disk of its own in the place of `home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        kafka = {"bootstrap.servers": SERVERS, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        # A fetch waits half a second for more than it may bring: a batch takes some seconds.
        slowly = {"fetch.min.bytes": "1000000", "max.partition.fetch.bytes": "1"}
        store = {"endpoint_url": f"http://{HOSTS['store']}:{STORE_PORT}", "region_name": "eu-west-1"}
        connections = {
            "KAFKA_DEFAULT": {
                "conn_type": "kafka",
                "extra": kafka | slowly | {"sasl.username": "ingest", "sasl.password": PASSWORD},
            },
            "AWS_LAKE": {"conn_type": "aws", "login": "key", "password": PASSWORD, "extra": store},
            "SPARK_DEFAULT": {"conn_type": "spark", "host": f"spark://{HOSTS['master']}", "port": SPARK_PORT},
        }
        (home.parent / "spark-defaults.conf").write_text(
            "".join(f"{name} {value}\n" for name, value in PROTECTED.items())
        )
        self.environment = child_environment(home, SERVERS) | {
            "KAFKA_INGEST_FEEDS": str(home / "feeds"),
            # The same file on each host: the secret between Spark's processes is never a feed's.
            "SPARK_CONF_DIR": str(home.parent),
            **{f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in connections.items()},
        }

    def start(self, host: str, *command: str | Path) -> "subprocess.Popen[bytes]":
        """Start a process on a host. What is at `home` there is the host's own, and nobody else's."""
        disk = self.home.with_name(f"{self.home.name}-{host}")
        disk.mkdir(exist_ok=True)
        with (self.home.parent / f"{host}.log").open("ab") as log:
            own_disk = [
                "unshare",
                "--mount",
                "sh",
                "-c",
                f'mount --bind {disk} {self.home} && cd {self.home} && exec "$@"',
            ]
            return subprocess.Popen(
                ["ip", "netns", "exec", f"kafka-ingest-{host}", *own_disk, "sh", *map(str, command)],
                env=self.environment | {"SPARK_LOCAL_IP": HOSTS[host]},
                stdout=log,
                stderr=log,
            )

    def start_cluster(self) -> None:
        self.start("kafka", sys.executable, __file__, "kafka", self.home)
        self.start("store", BIN / "moto_server", "-H", HOSTS["store"], "-p", str(STORE_PORT))
        self.start_master()
        for host in WORKERS:
            worker = ["org.apache.spark.deploy.worker.Worker", f"spark://{HOSTS['master']}:{SPARK_PORT}"]
            self.start(host, BIN / "spark-class", *worker, "-h", HOSTS[host], "-c", "1", "-m", "1g", "-d", self.home)

    def start_master(self) -> None:
        where = ["--host", HOSTS["master"], "--port", str(SPARK_PORT), "--webui-port", "8080"]
        self.start("master", BIN / "spark-class", "org.apache.spark.deploy.master.Master", *where)

    def said(self, *command: str | Path) -> tuple[int, str]:
        """Run a command on the driver's host to its end; return its exit code and what it said."""
        log = self.home.parent / "driver.log"
        begun = log.stat().st_size if log.exists() else 0
        code = self.start("driver", *command).wait()
        return code, log.read_bytes()[begun:].decode()

    def batch(self, kill: Callable[[], object] | None = None, expected: int = 0) -> None:
        """Run the feed, and do something while executors read."""
        began = time.monotonic()
        running = self.start("driver", BIN / "kafka-ingest", "run", "orders")
        if kill is not None:
            wait_for(lambda: len(self.executors()) == len(WORKERS) or running.poll() is not None, "two executors")
            time.sleep(4)
            if running.poll() is not None:
                raise RuntimeError("expected to kill something while the batch is read, found it at its end")
            kill()
        code = running.wait()
        print(f"  exit code {code}, {time.monotonic() - began:.0f} s", flush=True)
        if code != expected:
            raise RuntimeError(f"expected exit code {expected}; see {self.home.parent}")

    def executors(self) -> list[psutil.Process]:
        return [each for host in WORKERS for each in processes_on(host, EXECUTOR)]

    def succeed(self, *command: str | Path) -> str:
        """Run a command on the driver's host, and return what it said; raises where it fails."""
        code, text = self.said(*command)
        if code:
            raise RuntimeError(f"{' '.join(map(str, command))}: expected exit code 0, found {code}:\n{text}")
        return text


def kill(found: list[psutil.Process]) -> None:
    for each in found:
        each.send_signal(signal.SIGKILL)


def try_all(trial: Trial) -> None:
    def check_secrets() -> None:
        seen = " ".join(" ".join(each.cmdline()) for host in HOSTS for each in processes_on(host))
        if PASSWORD in seen:
            raise RuntimeError("expected the password on no command line, found it on one")

    trial.start_cluster()
    wait_for(lambda: trial.said(sys.executable, __file__, "make")[0] == 0, "Kafka and the store to answer")
    trial.succeed(BIN / "kafka-ingest", "db", "upgrade", "--create")
    conf = {"spark.driver.host": HOSTS["driver"], "spark.executor.memory": "600m", "spark.cores.max": "2"}
    feed = {"name": "orders", "kafka": {"topics": ["orders"]}, "spark": {"conf": conf}}
    feeds = trial.home.with_name(f"{trial.home.name}-driver") / "feeds"
    feeds.mkdir()
    (feeds / "orders.yaml").write_text(
        json.dumps(feed | {"sink": {"format": "delta", "path": "s3://aws_lake@lake/orders"}})
    )
    steps: list[tuple[str, Callable[[], object] | None, int]] = [
        ("nothing is killed", check_secrets, 0),
        ("an executor is killed", lambda: kill(trial.executors()[:1]), 0),
        ("the driver is killed", lambda: kill(processes_on("driver", DRIVER)), 1),
        ("the next run", None, 0),
        ("the master is killed", lambda: kill(processes_on("master", MASTER)), 0),
        ("without a master", None, 1),
    ]
    for what, happens, expected in steps:
        print(what, flush=True)
        if what != "the next run":
            trial.succeed(sys.executable, __file__, "produce")
        trial.batch(happens, expected)
    trial.start_master()
    print("the master is back", flush=True)
    trial.batch()
    print(trial.succeed(BIN / "kafka-ingest", "coverage", "orders", "--verify"), flush=True)


def serve_kafka(home: Path) -> None:
    """Run a broker that other hosts reach."""
    sasl = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ingest="{PASSWORD}";'
    names = "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"
    broker = EmbeddedBroker(
        home / "kafka",
        port=19092,
        jvm_flags=QUICK_START,
        extra={
            "listeners": f"{names},LOGIN://{SERVERS}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:19092,LOGIN://{SERVERS}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "controller.quorum.voters": "1@127.0.0.1:19093",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": sasl,
        },
    )
    with broker:
        signal.pause()


def fill(*, make: bool) -> None:
    """Produce many small batches of records; with ``make``, only make topic and bucket."""
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ingest"}
    settings: dict[str, str | int | float | bool] = {"bootstrap.servers": SERVERS, "sasl.password": PASSWORD, **login}
    if make:
        # moto takes what is signed by nobody.
        requests.put(f"http://{HOSTS['store']}:{STORE_PORT}/lake", timeout=10).raise_for_status()
        with AdminClient(settings) as admin:
            [made] = admin.create_topics([NewTopic("orders", 4)]).values()
            made.result(10)
        return
    with Producer(settings) as producer:
        for number in range(60):
            producer.produce("orders", f"order {number}".encode(), partition=number % 4)
            producer.flush()


def main() -> None:
    if sys.argv[1:2] == ["kafka"]:
        serve_kafka(Path(sys.argv[2]))
    elif sys.argv[1:]:
        fill(make=sys.argv[1] == "make")
    else:
        folder = Path(mkdtemp(prefix="kafka-ingest-hosts-"))
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        with ExitStack() as at_the_end:
            at_the_end.enter_context(hosts())
            at_the_end.callback(lambda: kill([each for host in HOSTS for each in processes_on(host)]))
            (folder / "home").mkdir()
            try_all(Trial(folder / "home"))
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
