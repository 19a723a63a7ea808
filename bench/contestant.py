"""Who takes part: how a contestant is started, on which records, why it cannot take part here, and those of files."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from s3_server import BUCKET
from talking import BenchmarkError

from environment import ROOT, settings
from free_ports import LOOPBACK
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.spark_launch.java_options import java_options
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

BIN = ROOT / ".venv" / "bin"
SCRIPTS = Path(__file__).with_name("contestants")
SPARK_JARS = ROOT / ".jvm" / "spark"
FLINK = ROOT / ".flink"
FLINK_PYTHON = FLINK / "venv" / "bin" / "python"
FLINK_HEAP = "-Xmx1536m"
S3_JARS = ROOT / ".jvm" / "s3"

OURS = "kafka-ingest"
PARQUET = "parquet"
FEED = "orders"

SETTINGS_OF_THE_SHELL = (
    *("AIRFLOW", "KAFKA_INGEST_", "SPARK_", "PYSPARK_", "FLINK_", "HADOOP_", "YARN_", "AWS_"),
    *("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JVM_"),
)
"""How variables begin from which a contestant, or the broker, would take settings that another reader's shell does not
carry."""

ZSTD_1: Mapping[str, str] = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
}

WITHOUT_CHECKSUMS: Mapping[str, str] = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "WHEN_REQUIRED",
}
"""What this project asks of Amazon's SDK, for peers that write to S3 as well."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to read, how many records, and where to work; ``end_offsets`` are empty where everything is to be read.

    ``topic_id`` is the constant that the peers write: none of them asks Kafka for it. ``store`` is the S3 server where
    the output goes there, ``registry_url`` the schema registry where records have registered schemas.
    """

    bootstrap_servers: str
    topic: str
    home: Path
    end_offsets: Mapping[int, int]
    records: int
    topic_id: str = ""
    store: S3Access | None = None
    registry_url: str = ""

    @property
    def output(self) -> Path:
        """Where the Parquet files go that are on this machine's disk."""
        return self.home / "output"

    def place(self, scheme: str) -> str:
        """Return where the output goes: a path, or a URI with this scheme where it goes to an S3 server."""
        return str(self.output) if self.store is None else f"{scheme}://{BUCKET}/{self.home.name}/{self.output.name}"

    def task(self, **more: object) -> str:
        """Return the argument of a contestant's script."""
        return json.dumps(
            {
                "bootstrap_servers": self.bootstrap_servers,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "output": self.place("s3a"),
                "end_offsets": dict(self.end_offsets),
                **more,
            }
        )


@dataclass(frozen=True, slots=True)
class Start:
    """A command and its whole environment."""

    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Contestant:
    """One who takes part. ``prepare`` is not measured; ``missing`` is the reason where it cannot take part.

    ``writes`` is the format of its output; ``is_ours`` says that it is this project and not a peer; ``decodes`` is the
    format of the values that become columns, empty where they stay bytes; ``in_store``: its output goes to an S3
    server.
    """

    name: str
    about: str
    start: Callable[[Job], Start]
    prepare: Callable[[Job], None] = lambda _: None
    missing: Callable[[], str | None] = lambda: None
    writes: str = PARQUET
    is_ours: bool = False
    decodes: str = ""
    in_store: bool = False


def leave_settings_behind() -> None:
    """Remove settings from this process's environment, so that nothing it starts has them.

    Contestants, and the broker.
    """
    for name in [name for name in os.environ if name.startswith(SETTINGS_OF_THE_SHELL)]:
        del os.environ[name]


def plain_environment(job: Job) -> dict[str, str]:
    """Return what this process has left of its environment, without the Python settings with which it runs itself."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = os.pathsep.join(filter(None, [str(BIN), inherited.get("PATH")]))
    return {**inherited, "PATH": path, "SPARK_LOCAL_IP": LOOPBACK, "SPARK_LOCAL_DIRS": str(job.home / "spark")}


def our_environment(job: Job) -> dict[str, str]:
    """Return the environment of kafka-ingest: that of all contestants, and where its own parts are."""
    return {
        **plain_environment(job),
        **settings(job.home, job.bootstrap_servers),
        "KAFKA_INGEST_FEEDS": str(job.home / "feeds"),
        "KAFKA_INGEST_DATA": str(job.home),
    }


def prepare_ours(job: Job) -> None:
    """Make a feed into Parquet files, and control tables that are empty."""
    prepare_feed(job, {"format": PARQUET})


def prepare_feed(job: Job, sink: Mapping[str, str], records: Mapping[str, object] | None = None) -> None:
    """Make a feed, and control tables that are empty; ``records`` is what the feed says of keys and values."""
    feeds = job.home / "feeds"
    feeds.mkdir()
    feed = {
        "name": FEED,
        "kafka": {"topics": [job.topic], "group": f"bench-{job.home.name}"},
        "limits": {"max_records": "unlimited"},
        "sink": {**sink, "path": job.place("s3")},
        **(records or {}),
    }
    (feeds / f"{FEED}.yaml").write_text(yaml.safe_dump(feed))
    done = subprocess.run(
        [str(BIN / "kafka-ingest"), "db", "upgrade", "--create"],
        env=our_environment(job),
        cwd=job.home,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(
            f"expected kafka-ingest db upgrade to succeed, found exit code {done.returncode}:\n{done.stderr}"
        )


def start_ours(job: Job) -> Start:
    """Start one batch of the feed, as a user runs it without a scheduler."""
    return Start(one_batch(job), our_environment(job))


def one_batch(job: Job) -> list[str]:
    """Return the command that runs one batch of the feed."""
    ends = [f"--end-offset={job.topic}:{partition}={offset}" for partition, offset in job.end_offsets.items()]
    return [str(BIN / "kafka-ingest"), "run", FEED, *ends, "--json"]


def spark_submit(
    script: str,
    conf: Callable[[Job], Mapping[str, str]],
    consumer: Mapping[str, str],
    *,
    more_jars: Sequence[Path] = (),
    writes: str = PARQUET,
    value: Mapping[str, str] | None = None,
) -> Callable[[Job], Start]:
    """Return what starts a Spark application on this machine.

    Its jars are those of the Kafka connector and those in ``more_jars``, which are directories. ``value`` names
    the format and the schema of values that become columns.
    """

    def start(job: Job) -> Start:
        settings = [part for name, value in conf(job).items() for part in ("--conf", f"{name}={value}")]
        jars = ",".join(str(jar) for folder in (SPARK_JARS, *more_jars) for jar in sorted(folder.glob("*.jar")))
        task = job.task(
            format=writes,
            checkpoint=str(job.home / "checkpoint"),
            consumer={f"kafka.{name}": value for name, value in consumer.items()},
            value=value,
        )
        return Start(
            [str(BIN / "spark-submit"), "--master", "local[*]", "--jars", jars, *settings, str(SCRIPTS / script), task],
            {**plain_environment(job), **(WITHOUT_CHECKSUMS if job.store is not None else {})},
        )

    return start


def no_conf(_: Job) -> Mapping[str, str]:
    """Return Spark's defaults."""
    return {}


def zstd_1(_: Job) -> Mapping[str, str]:
    """Return the setting of Parquet's compression that this project has."""
    return ZSTD_1


def start_flink(job: Job) -> Start:
    """Start Flink's mini cluster, in one JVM, with its defaults: larger polls and fetches only doubled its memory."""
    return flink(job, FLINK_HEAP)


def start_flink_tuned(job: Job) -> Start:
    """Start Flink's mini cluster with what makes this project fast.

    Flags for Java by the number of records, no dictionaries.
    """
    java = f"{FLINK_HEAP} {java_options(job.records, None, '')}"
    return flink(job, java, parquet={"parquet.enable.dictionary": "false"})


def flink(
    job: Job,
    java: str,
    *,
    parquet: Mapping[str, str] | None = None,
    more_jars: Sequence[Path] = (),
    writes: str = PARQUET,
    value: Mapping[str, object] | None = None,
) -> Start:
    """Return Flink's command with options for its Java and for Parquet.

    ``value`` has the columns and the options of the format of values that are decoded.
    """
    task = job.task(
        format=writes,
        jars=[str(folder) for folder in (FLINK / "jars", *more_jars)],
        parallelism=os.cpu_count() or 1,
        consumer={},
        parquet=dict(parquet or {}),
        value=value,
    )
    environment = plain_environment(job) | {"JVM_ARGS": java, "FLINK_LOG_DIR": str(job.home)}
    return Start([str(FLINK_PYTHON), str(SCRIPTS / "flink_batch.py"), task], environment)


def missing_flink() -> str | None:
    """Say why Flink cannot take part."""
    if not (FLINK / ".stamp").exists():
        folder = FLINK.relative_to(ROOT)
        return f"expected Flink in {folder}, found none: it could not be installed (make bench tries again)"
    return None


def missing_spark() -> str | None:
    """Say why Spark cannot take part."""
    return (
        None
        if shutil.which(str(BIN / "spark-submit"))
        else "expected spark-submit in .venv/bin, found none: make setup"
    )


def start_plain_python(job: Job) -> Start:
    """Start the script without Spark."""
    return Start([sys.executable, str(SCRIPTS / "plain_python.py"), job.task()], plain_environment(job))


FILES: Mapping[str, Contestant] = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            OURS,
            "`kafka-ingest run`: plan, write, verification, commit",
            start_ours,
            prepare_ours,
            missing_spark,
            is_ours=True,
        ),
        Contestant(
            "available-now",
            "Spark Structured Streaming, trigger availableNow, defaults",
            spark_submit("available_now.py", no_conf, {}),
            missing=missing_spark,
        ),
        Contestant(
            "available-now-zstd",
            "the same with zstd level 1 and the consumer's settings of kafka-ingest",
            spark_submit("available_now.py", zstd_1, READ_DEFAULTS),
            missing=missing_spark,
        ),
        Contestant(
            "spark-batch",
            "a Spark batch read, defaults",
            spark_submit("spark_batch.py", no_conf, {}),
            missing=missing_spark,
        ),
        Contestant(
            "flink",
            "Flink SQL in batch mode, zstd level 1, as many tasks as processors, 1.5 GB of heap",
            start_flink,
            missing=missing_flink,
        ),
        Contestant(
            "flink-tuned",
            "the same with this project's flags for Java (collector and compiler by the number of records), and no "
            "dictionaries",
            start_flink_tuned,
            missing=missing_flink,
        ),
        Contestant("python", "confluent-kafka and pyarrow, zstd level 1, one process", start_plain_python),
    )
}
"""Those that write Parquet files, by their names."""
