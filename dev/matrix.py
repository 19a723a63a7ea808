"""Take the wheel into environments of other versions, and a topic through a real scheduler into a table in each.

`make matrix` does all rows; `make matrix ARGS="--rows oldest spark-4.1"` some. What a row needs and writes is in
`.local/matrix/ROW`, and stays where the row failed. A Python that is not on the PATH is fetched;
where a Java is that is not the machine's, a variable such as `JAVA_21_HOME` says.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.table import Table

import airflow_components
import own_process
from airflow_server import GRACE_S, until
from embedded_broker import PINNED_VERSION, EmbeddedBroker
from environment import ROOT
from free_ports import LOOPBACK, free_port_from
from java_command import java_command
from progress import console, step

UV = ROOT / ".venv" / "bin" / "uv"
HOME = ROOT / ".local" / "matrix"
TOPICS = ("clicks", "visits")
PARTITIONS = 3
RECORDS = 1_000
COMPONENTS = ("api-server", "scheduler", "dag-processor")
COUNT = """
import deltalake, pyarrow.parquet, sys
for path in sys.argv[1:]:
    files = [file.removeprefix("file://") for file in deltalake.DeltaTable(path).file_uris()]
    table = pyarrow.parquet.ParquetDataset(files, partitioning=None).read(["kafka_partition", "kafka_offset"])
    print(len(table), len({(row["kafka_partition"], row["kafka_offset"]) for row in table.to_pylist()}))
"""


class RowError(RuntimeError):
    """A step of a row failed, or left something else than expected."""


@dataclass(frozen=True)
class Row:
    """Versions that are taken together; without `java` it is the machine's."""

    name: str
    python: str
    airflow: str
    spark: str
    kafka: str = PINNED_VERSION
    java: str | None = None


# Each version that is said to work is in one row at least; the first is the one that the whole suite runs with.
ROWS = (
    Row("newest", "3.11", "3.3.2", "4.0.2"),
    Row("oldest", "3.11", "3.1.8", "4.0.0", "3.9.1"),
    Row("airflow-3.2", "3.12", "3.2.2", "4.0.1"),
    Row("python-3.13", "3.13", "3.3.2", "4.0.2", java="21"),
    Row("spark-4.1", "3.12", "3.3.2", "4.1.1"),
    Row("spark-4.2", "3.13", "3.3.2", "4.2.0", java="21"),
)


def run(command: Sequence[str | Path], variables: Mapping[str, str], log: Path, cwd: Path | None = None) -> str:
    """Run a command and return what it printed; raises RowError with the end of its output."""
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    with log.open("ab") as output:
        answer = subprocess.run(command, env=variables, cwd=cwd, stdin=null, stdout=pipe, stderr=output, check=False)
        output.write(answer.stdout)
    if answer.returncode != 0:
        shown = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise RowError(
            f"expected {' '.join(map(str, command))} to succeed, it ended with {answer.returncode}:\n{shown}"
        )
    return answer.stdout.decode()


@dataclass(frozen=True)
class Trial:
    """One row, in a folder of its own."""

    row: Row
    home: Path

    @property
    def bin(self) -> Path:
        return self.home / "venv" / "bin"

    @property
    def log(self) -> Path:
        return self.home / "commands.log"

    def install(self, wheel: Path) -> None:
        """Make the environment: the wheel with its own ranges, and the row's versions within them."""
        own = dict(os.environ)
        run([UV, "venv", "--quiet", "--seed", "--python", self.row.python, self.home / "venv"], own, self.log)
        install = [str(UV), "pip", "install", "--quiet", "--system-certs", "--python", str(self.bin / "python")]
        packages = {"apache-airflow": self.row.airflow, "pyspark": self.row.spark, "pyspark-client": self.row.spark}
        pins = [f"{name}=={version}" for name, version in packages.items()]
        run([*install, f"{wheel}[delta]", *pins], own, self.log)

    def java_home(self) -> Path:
        """Return where the row's Java is; raises RowError where the machine does not say so."""
        if self.row.java is None:
            return Path(java_command()).resolve().parents[1]
        variable = f"JAVA_{self.row.java}_HOME"
        if variable not in os.environ:
            raise RowError(f"expected {variable} to say where a Java {self.row.java} is, found it unset: set it")
        return Path(os.environ[variable])

    def variables(self, servers: str, api_port: int) -> dict[str, str]:
        """Return all that a process of the row finds in its environment: nothing of this project's own."""
        kept = {name: os.environ[name] for name in ("LANG", "SSL_CERT_FILE") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(self.bin), str(self.java_home() / "bin"), "/usr/bin", "/bin"]),
            "JAVA_HOME": str(self.java_home()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.home / "lake" / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(api_port),
            "AIRFLOW__API__BASE_URL": f"http://{LOOPBACK}:{api_port}",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://{LOOPBACK}:{api_port}/execution/",
            "AIRFLOW_CONN_KAFKA_DEFAULT": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
            "AIRFLOW_CONN_KAFKA_INGEST": json.dumps({"conn_type": "sqlite", "host": str(self.home / "control.db")}),
            "KAFKA_INGEST_FEEDS": str(self.home / "lake" / "dags" / "feeds"),
            "KAFKA_INGEST_DATA": str(self.home / "data"),
        }

    def take(self, wheel: Path, repository: str | None) -> None:
        """Go the README's way in a repository of its own; raises RowError where it does not lead to the records."""
        self.java_home()
        with step(f"{self.row.name}: an environment with Airflow {self.row.airflow} and Spark {self.row.spark}"):
            self.install(wheel)
        with EmbeddedBroker(self.home / "kafka", jars=jars_of(self.row.kafka)) as broker:
            variables = self.variables(broker.bootstrap_servers, free_port_from(8100))
            with step(f"{self.row.name}: jars, a feed, control tables"):
                fetch = ["kafka-ingest", "jars", *(["--repository", repository] if repository else [])]
                run(fetch, variables, self.log)
                run(["kafka-ingest", "init", "lake"], variables, self.log, cwd=self.home)
                feeds = self.home / "lake" / "dags" / "feeds"
                for topic in TOPICS:
                    feed = f"{{name: {topic}, kafka: {{topics: [{topic}]}}, sink: {{format: delta, path: {topic}}}}}\n"
                    (feeds / f"{topic}.yaml").write_text(feed)
                run(["kafka-ingest", "db", "upgrade", "--create"], variables, self.log)
            produce(broker.bootstrap_servers, create=True)
            with step(
                f"{self.row.name}: the scheduler commits {RECORDS:,} records of each topic of Kafka {self.row.kafka}"
            ):
                self._by_scheduler(variables)
            produce(broker.bootstrap_servers)
            with step(f"{self.row.name}: one Spark for both commits as many more; all are counted"):
                run(["kafka-ingest", "run", *TOPICS], variables, self.log)
                self._check(variables)

    def _by_scheduler(self, variables: Mapping[str, str]) -> None:
        logs = self.home / "airflow-logs"
        logs.mkdir()
        airflow_components.prepare(Path(variables["AIRFLOW_HOME"]), variables, logs / "db.log")
        started = [
            own_process.start(name, airflow_components.COMPONENTS[name], logs / f"{name}.log", variables)
            for name in COMPONENTS
        ]
        try:
            until(
                lambda: self._committed(variables) == RECORDS * len(TOPICS),
                lambda: f"other records committed, see {logs}",
            )
        finally:
            own_process.stop(started, GRACE_S)

    def _committed(self, variables: Mapping[str, str]) -> int:
        found = json.loads(run(["kafka-ingest", "batches", "--json"], variables, self.log))
        return sum(batch["rows"] or 0 for batch in found["batches"] if batch["state"] == "COMMITTED")

    def _check(self, variables: Mapping[str, str]) -> None:
        outputs = [self.home / "data" / topic for topic in TOPICS]
        for output in outputs:
            run(["kafka-ingest", "verify", output], variables, self.log)
        printed = run(["python", "-c", COUNT, *map(str, outputs)], variables, self.log)
        if printed.split() != [str(2 * RECORDS)] * 2 * len(outputs):
            raise RowError(f"expected {2 * RECORDS} records in each output, each once, found {printed}")


def jars_of(kafka: str) -> Path:
    """Return the jars of a broker, fetched where they are not the pinned version's."""
    if kafka == PINNED_VERSION:
        return ROOT / ".jvm" / "broker"
    target = ROOT / ".jvm" / f"kafka-{kafka}"
    if not any((target / "broker").glob("kafka_*.jar")):
        fetch = ["dev/resolve_jvm.py", "--ivy-file", "dev/jvm/broker.xml", "--target", str(target)]
        options = ["--configurations", "broker", "--set", f"kafka.version={kafka}"]
        subprocess.run([sys.executable, *fetch, *options], cwd=ROOT, check=True)
    return target / "broker"


def produce(servers: str, *, create: bool = False) -> None:
    """Write records into each topic."""
    if create:
        admin = AdminClient({"bootstrap.servers": servers})  # it has to live until the answer is there
        for topic in TOPICS:
            admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": servers})
    for topic in TOPICS:
        for number in range(RECORDS):
            producer.produce(topic, json.dumps({"id": number}), key=str(number))
    if producer.flush(30.0):
        raise RowError("expected all records to be written, found some that were not")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=[row.name for row in ROWS], help="some rows; all without it")
    parser.add_argument("--repository", help="where `kafka-ingest jars` fetches from, instead of Maven Central")
    parser.add_argument("--json", action="store_true", help="print the results as a document")
    asked = parser.parse_args()
    wheel = next((ROOT / "dist").glob("*.whl"))
    results: dict[str, str | None] = {}
    for row in ROWS:
        if asked.rows and row.name not in asked.rows:
            continue
        shutil.rmtree(HOME / row.name, ignore_errors=True)
        (HOME / row.name).mkdir(parents=True)
        try:
            Trial(row, HOME / row.name).take(wheel, asked.repository)
            results[row.name] = None
            shutil.rmtree(HOME / row.name)
        except (RuntimeError, OSError, ValueError, KafkaException, subprocess.SubprocessError) as error:
            results[row.name] = str(error)
    show(results, as_json=asked.json)
    return 1 if any(results.values()) else 0


def show(results: Mapping[str, str | None], *, as_json: bool) -> None:
    rows = [row for row in ROWS if row.name in results]
    if as_json:
        print(json.dumps([{**asdict(row), "failed": results[row.name]} for row in rows]))
        return
    table = Table("row", "Python", "Airflow", "Spark", "Kafka", "Java", "result")
    for row in rows:
        ended = "ok" if results[row.name] is None else "failed"
        table.add_row(row.name, row.python, row.airflow, row.spark, row.kafka, row.java or "machine's", ended)
    console.print(table)
    for name, failed in results.items():
        if failed is not None:
            console.print(f"{name}: {failed}\nSee {HOME / name}", markup=False)


if __name__ == "__main__":
    sys.exit(main())
