"""Try a feed with secrets on Kubernetes: a real etcd and kube-apiserver, and a stand-in for its nodes (dev/kubelet.py).

Kafka with a login over TLS, a registry with a token, a table in an object store with a key, and Spark's own
authentication. An executor, the driver and the API server are lost while records are read. Needs root on Linux.
`try_kubernetes.py FOLDER`: FOLDER has what dev/build_kubernetes.py made.
"""

import base64
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import psutil
import pyspark
import requests
from confluent_kafka import Producer
from confluent_kafka import admin as kafka
from confluent_kafka.cimpl import NewTopic
from deltalake import DeltaTable

from build_kubernetes import PROGRAMS, found
from certificates import Authority
from dies_with_parent import dying_with_this_process
from environment import ROOT, child_environment
from free_ports import LOOPBACK, random_free_ports
from kubelet import Kubelet
from schema_registry import SchemaRegistryServer, running_schema_registry
from secured_broker import SASL_TLS, secured_broker
from try_hosts import wait_for

Document = dict[str, Any]
BIN = ROOT / ".venv" / "bin"
NAMESPACE, ACCOUNT, TOPIC, PARTITIONS, RECORDS = "etl", "ingest", "orders", 4, 60
BELOW = f"/api/v1/namespaces/{NAMESPACE}"
LOGIN, TOKEN, KEY, BETWEEN = SECRETS = [f"of-a-trial-{each}" for each in ("login", "token", "key", "between")]
RIGHTS = {
    "pods": ["create", "get", "list", "watch", "delete", "deletecollection"],
    "configmaps": ["create", "deletecollection"],
    "services": ["deletecollection"],
    "persistentvolumeclaims": ["deletecollection"],
}
"""As docs/tuning.md has them."""
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["kubelet"]},
        # What is asked for is a secret here, and rightly so.
        {"level": "Metadata", "resources": [{"resources": ["serviceaccounts/token", "secrets"]}]},
        {"level": "RequestResponse"},
    ],
}


def started(
    home: Path, name: str, *command: str | Path, env: dict[str, str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a process that says what it says in a file."""
    with (home / f"{name}.log").open("ab") as log:
        given = dying_with_this_process([str(each) for each in command])
        return subprocess.Popen(given, cwd=home, env=env, stdout=log, stderr=log)


def commands() -> dict[psutil.Process, str]:
    """Return all command lines; processes may end meanwhile."""
    return {each: " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])}


class Cluster:
    """An API server with RBAC and an audit log, on top of an etcd."""

    def __init__(self, home: Path, authority: Authority, programs: dict[str, str]) -> None:
        self.home, self.authority, self.programs = home, authority, programs
        self.audit = home / "audit.log"
        etcd_port, port = random_free_ports(2)
        self.url = f"https://{LOOPBACK}:{port}"
        etcd = f"http://{LOOPBACK}:{etcd_port}"
        chain, key = authority.certify("kube-apiserver", LOOPBACK)
        accounts, key_of_accounts = authority.certify("accounts")
        (home / "policy.json").write_text(json.dumps(AUDIT))
        (home / "tokens.csv").write_text('for-admin,admin,1,"system:masters"\nfor-kubelet,kubelet,2,"system:masters"\n')
        peers = f"--listen-peer-urls=http://{LOOPBACK}:0"
        clients = [f"--{each}-client-urls={etcd}" for each in ("listen", "advertise")]
        started(home, "etcd", programs["etcd"], "--data-dir=etcd", peers, *clients)
        options = {
            "etcd-servers": etcd,
            "bind-address": LOOPBACK,
            "advertise-address": LOOPBACK,
            "endpoint-reconciler-type": "none",
            "secure-port": port,
            "tls-cert-file": chain,
            "tls-private-key-file": key,
            "token-auth-file": "tokens.csv",
            "service-account-issuer": self.url,
            "service-account-key-file": accounts,
            "service-account-signing-key-file": key_of_accounts,
            "service-cluster-ip-range": "10.77.0.0/24",
            "authorization-mode": "RBAC",
            "audit-policy-file": "policy.json",
            "audit-log-path": self.audit,
        }
        self.command = [programs["kube-apiserver"], *(f"--{name}={value}" for name, value in options.items())]
        self.start()

    def start(self) -> None:
        self.api_server = started(self.home, "kube-apiserver", *self.command)
        wait_for(self.is_ready, f"an answer of the API server ({self.home}/kube-apiserver.log)")

    def is_ready(self) -> bool:
        with suppress(requests.RequestException):
            self.ask("GET", "/readyz?verbose")
            return True
        return False

    def restart(self) -> None:
        """Kill the API server, let its clients notice, and start it again."""
        self.api_server.kill()
        self.api_server.wait()
        time.sleep(3)
        self.start()

    def ask(self, method: str, path: str, document: Document | None = None, user: str = "admin") -> Document:
        """Return what the API server answers; raises requests.HTTPError with its reason."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = requests.request(
            method,
            self.url + path,
            data=None if document is None else json.dumps(document),
            headers={"Authorization": f"Bearer for-{user}", "Content-Type": kind},
            verify=str(self.authority.ca),
            timeout=10,
        )
        if not answer.ok:
            raise requests.HTTPError(f"{method} {path}: {answer.text}", response=answer)
        return answer.json() if answer.headers["Content-Type"] == "application/json" else {"text": answer.text}

    def of_kubelet(self, method: str, path: str, document: Document | None = None) -> Document:
        return self.ask(method, f"{BELOW}/{path}", document, "kubelet")

    def create(self, kind: str, name: str, where: str = BELOW, **fields: object) -> None:
        self.ask("POST", f"{where}/{kind.lower()}s", {"kind": kind, "metadata": {"name": name}, **fields})

    def let_in(self) -> Document:
        """Make a namespace in which the account has the rights of a driver; return a kubeconfig with its token."""
        self.create("Namespace", NAMESPACE, "/api/v1")
        for account in ("default", ACCOUNT):
            self.create("ServiceAccount", account)
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        rules = [{"apiGroups": [""], "resources": [what], "verbs": verbs} for what, verbs in RIGHTS.items()]
        self.create("Role", "driver", rbac, rules=rules)
        subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "driver"}
        self.create("RoleBinding", ACCOUNT, rbac, roleRef=role, subjects=[subject])
        self.create("Secret", "between", data={"secret": base64.b64encode(BETWEEN.encode()).decode()})
        path = f"{BELOW}/serviceaccounts/{ACCOUNT}/token"
        token = self.ask("POST", path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        cluster = {"server": self.url, "certificate-authority": str(self.authority.ca)}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "trial",
            "contexts": [{"name": "trial", "context": {"cluster": "trial", "user": ACCOUNT}}],
            "clusters": [{"name": "trial", "cluster": cluster}],
            "users": [{"name": ACCOUNT, "user": {"token": token}}],
        }

    def objects(self) -> Document:
        """Return all that a driver may have made, and what was said about it."""
        return {each: self.ask("GET", f"{BELOW}/{each}")["items"] for each in (*RIGHTS, "events")}

    def asked_by_driver(self) -> set[tuple[str, str, int]]:
        events = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return {
            (
                event.get("objectRef", {}).get("resource", event["requestURI"]),
                event["verb"],
                event["responseStatus"]["code"],
            )
            for event in events
            if event["user"]["username"].endswith(f":{ACCOUNT}")
        }


class Trial:
    """A user's project beside the cluster, and its runs."""

    def __init__(self, home: Path, cluster: Cluster, servers: str, store: str, registry: str) -> None:
        self.home, self.cluster = home, cluster
        self.kafka_port = int(servers.split(":")[1])
        self.kubelet = Kubelet(cluster.of_kubelet, Path(pyspark.__file__).parent, home / "pods")
        access = cluster.let_in()
        self.secrets = [*SECRETS, access["users"][0]["user"]["token"]]
        between = {
            "spark.authenticate": "true",
            "spark.authenticate.secret.driver.file": home / "between",
            # Without it Spark puts its secret into each pod's environment.
            "spark.authenticate.secret.file": "/opt/between/secret",
            # Spark reads that file only where the master is Kubernetes, and does not tell executors so in time.
            "spark.executorEnv.JDK_JAVA_OPTIONS": "-Dspark.master=k8s://of-the-driver",
            "spark.kubernetes.executor.secrets.between": "/opt/between",
        }
        kafka = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ACCOUNT,
            "sasl.password": LOGIN,
            "ssl.ca.location": str(cluster.authority.ca),
            # A fetch waits half a second for more than it may bring: a batch takes some seconds.
            "fetch.min.bytes": "1000000",
            "max.partition.fetch.bytes": "1",
        }
        self.store = {"endpoint_url": store, "region_name": "eu-west-1"}
        connections: dict[str, Document] = {
            "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": kafka},
            "AWS_LAKE": {"conn_type": "aws", "login": "key", "password": KEY, "extra": self.store},
            "SCHEMAS": {"conn_type": "http", "extra": {"url": registry, "bearer.auth.token": TOKEN}},
            "SPARK_DEFAULT": {"conn_type": "spark", "host": f"k8s://{cluster.url}", "extra": {"namespace": NAMESPACE}},
        }
        conf = {
            "spark.driver.host": LOOPBACK,
            "spark.executor.instances": "2",
            "spark.executor.memory": "600m",
            "spark.kubernetes.container.image": "none",
        }
        feed = {
            "name": "orders",
            "kafka": {"topics": [TOPIC], "group": "orders"},
            "value": {"format": "json", "registry": "schemas"},
            "sink": {"format": "delta", "path": "s3://aws_lake@lake/orders"},
            "airflow": {"retries": 0},
            "spark": {"conf": conf},
        }
        for name, text in {
            "kubeconfig": json.dumps(access),
            "between": BETWEEN,
            "conf/spark-defaults.conf": "".join(f"{name} {value}\n" for name, value in between.items()),
            "feeds/orders.yaml": json.dumps(feed),
        }.items():
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).touch(0o600)
            (home / name).write_text(text)
        self.environment = child_environment(home, servers) | {
            "KAFKA_INGEST_FEEDS": str(home / "feeds"),
            "KUBECONFIG": str(home / "kubeconfig"),
            "SPARK_CONF_DIR": str(home / "conf"),
            **{f"AIRFLOW_CONN_{name}": json.dumps(fields) for name, fields in connections.items()},
        }
        self.kubelet.start()

    def start(self, *command: str | Path) -> "subprocess.Popen[bytes]":
        return started(self.home, "driver", *command, env=self.environment)

    def said(self, *command: str | Path) -> str:
        """Run a command, and return what it said; raises where it fails."""
        log = self.home / "driver.log"
        begun = log.stat().st_size if log.exists() else 0
        if code := self.start(*command).wait():
            raise RuntimeError(f"{command}: expected exit code 0, found {code}; see {log}")
        return log.read_bytes()[begun:].decode()

    def reading(self) -> list[psutil.Process]:
        """Return the executors that are connected with Kafka."""
        reading = []
        for process in list(self.kubelet.running.values()):
            with suppress(psutil.Error):
                executor = psutil.Process(process.pid)
                if any(each.raddr and each.raddr.port == self.kafka_port for each in executor.net_connections("tcp")):
                    reading.append(executor)
        return reading

    def batch(self, command: tuple[str | Path, ...], happens: Callable[[psutil.Process], object], code: int) -> None:
        """Run the feed, let something happen to the driver or its cluster while executors read, compare the code."""
        began = time.monotonic()
        running = self.start(*command)
        wait_for(lambda: len(self.reading()) > 1 or running.poll() is not None, "two executors that read")
        own = {each.pid for each in psutil.Process().children(recursive=True)}
        drivers = [each for each, said in commands().items() if each.pid in own and "deploy.SparkSubmit" in said]
        if not drivers:
            raise RuntimeError(f"expected a driver and executors that read, found the run's end; see {self.home}")
        happens(drivers[0])
        found = running.wait()
        left = [pod["metadata"]["name"] for pod in self.cluster.objects()["pods"]]
        print(f"  exit code {found}, {time.monotonic() - began:.0f} s; pods left: {left}", flush=True)
        if found != code:
            raise RuntimeError(f"expected exit code {code}; see {self.home}")

    def check_secrets(self, driver: psutil.Process) -> None:
        """Raise where a secret is in what others may see."""
        seen = {f"command line of {each.pid}": said for each, said in commands().items()}
        for each in [driver, *self.reading()]:
            for part in (each, *each.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):  # as zombies are, too
                    seen[f"environment of {part.pid}"] = json.dumps(part.environ())
        objects = self.cluster.objects()
        if not (objects["pods"] and objects["configmaps"]):
            raise RuntimeError(f"expected pods and config maps, found {objects}")
        files = [self.cluster.audit, self.home / "driver.log", *(self.home / "pods").glob("*/log")]
        seen |= {str(file): file.read_text() for file in files} | {"objects": json.dumps(objects)}
        forms = [form for secret in self.secrets for form in (secret, base64.b64encode(secret.encode()).decode()[:-4])]
        if shown := [name for name, text in seen.items() if any(form in text for form in forms)]:
            raise RuntimeError(f"expected no secret in what others may see, found one in {shown}")
        print(f"  no secret in {len(seen)} places", flush=True)

    def check_end(self, records: int) -> None:
        """Raise where the table, the stored offsets or the group are not where the topic is."""
        print(self.said(BIN / "kafka-ingest", "coverage", "orders", "--verify"), flush=True)
        said = self.said(BIN / "kafka-ingest", "status", "orders", "--json")
        partitions = json.JSONDecoder().raw_decode(said, said.index("{"))[0]["partitions"]
        places = {(each["stored_offset"], each["group_offset"], each["high_watermark"]) for each in partitions}
        of_store = {"aws_access_key_id": "key", "aws_secret_access_key": KEY, "aws_allow_http": "true"}
        rows = DeltaTable("s3://lake/orders", storage_options={**of_store, **self.store}).count()
        end = records // PARTITIONS
        if rows != records or places != {(end, end, end)}:
            raise RuntimeError(f"expected {records} rows and offsets {end}, found {rows} and {places}; see {self.home}")
        print(f"{rows} rows; stored offsets and the group's are the ends of the topic's partitions", flush=True)


def produce(servers: str, registry: SchemaRegistryServer) -> None:
    """Produce many small batches of records, as Confluent's serializer writes them."""
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    header = struct.pack(">BI", 0, registry.register(f"{TOPIC}-value", schema, "JSON"))
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in range(RECORDS):
            producer.produce(TOPIC, header + json.dumps({"id": number}).encode(), partition=number % PARTITIONS)
            producer.flush()


def make_topic(servers: str) -> None:
    """Make the topic, which the feed's user may read."""
    how = (kafka.ResourcePatternType.LITERAL, f"User:{ACCOUNT}", "*", kafka.AclOperation.READ)
    read = [
        kafka.AclBinding(kind, "orders", *how, kafka.AclPermissionType.ALLOW)
        for kind in (kafka.ResourceType.TOPIC, kafka.ResourceType.GROUP)
    ]
    with kafka.AdminClient({"bootstrap.servers": servers}) as admin:
        for made in (*admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values(), *admin.create_acls(read).values()):
            made.result(10)


def try_all(trial: Trial, produced: Callable[[], None]) -> None:
    by_shell: tuple[str | Path, ...] = (BIN / "kafka-ingest", "run", "orders")
    by_dag = (sys.executable, ROOT / "dev" / "run_dag.py", "orders", trial.home / "result.json")
    trial.said(BIN / "kafka-ingest", "db", "upgrade", "--create")
    trial.said(BIN / "airflow", "db", "migrate")
    steps: list[tuple[str, tuple[str | Path, ...], Callable[[psutil.Process], object], int]] = [
        ("an executor is killed", by_shell, lambda _: trial.reading()[0].kill(), 0),
        ("the driver is killed", by_shell, lambda driver: driver.kill(), 1),
        ("the next run", by_shell, trial.check_secrets, 0),
        ("the API server is killed, and started again", by_shell, lambda _: trial.cluster.restart(), 0),
        ("nothing is lost, by a DAG", by_dag, trial.check_secrets, 0),
    ]
    for what, command, happens, code in steps:
        print(what, flush=True)
        if what != "the next run":
            produced()
        trial.batch(command, happens, code)
    trial.check_end(RECORDS * (len(steps) - 1))
    for resource, verb, status in sorted(trial.cluster.asked_by_driver()):
        print(f"  the driver asked: {verb} {resource}: {status}", flush=True)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    programs = found(folder)
    if os.geteuid() or len(programs) < len(PROGRAMS):
        sys.exit(f"expected to be root, and {' and '.join(PROGRAMS)}, found user {os.geteuid()} and {programs}.")
    # Airflow's hook asks for its provider of Kubernetes.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder / "python"), *sys.path])
    home = Path(mkdtemp(prefix="kafka-ingest-kubernetes-"))
    authority = Authority(home / "authority")
    (home / "keys.json").write_text('{"keys": []}')
    with ExitStack() as stack:
        cluster = Cluster(home, authority, programs)
        broker = stack.enter_context(secured_broker(home / "broker", authority, {ACCOUNT: LOGIN}, home / "keys.json"))
        registry = stack.enter_context(running_schema_registry())
        registry.header = f"Bearer {TOKEN}"
        [port] = random_free_ports(1)
        started(home, "store", BIN / "moto_server", "-H", LOOPBACK, "-p", str(port))
        store = f"http://{LOOPBACK}:{port}"

        def has_bucket() -> bool:
            with suppress(requests.ConnectionError):
                # moto takes what is signed by nobody.
                return requests.put(f"{store}/lake", timeout=10).ok
            return False

        wait_for(has_bucket, "an answer of the store")
        make_topic(broker.bootstrap_servers)
        trial = Trial(home, cluster, broker.servers_of(SASL_TLS), store, registry.url)
        try_all(trial, lambda: produce(broker.bootstrap_servers, registry))
        trial.kubelet.stopped.set()
        trial.kubelet.join()
    shutil.rmtree(home)


if __name__ == "__main__":
    main()
