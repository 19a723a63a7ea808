"""Makes the archive of classes that saves each Spark run from loading them one by one (docs/decisions.md).

It runs one feed on a Kafka of its own, and lets that Java write down at its end what it has loaded. An archive that is there and
fits is kept; where none can be made, everything works as before, more slowly, and it is not tried again until something changes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_broker import BrokerError, EmbeddedBroker
from environment import ROOT, child_environment
from kafka_ingest.errors import InstallationError
from kafka_ingest.submitting.installation import JARS_VARIABLE, archive_place, installation
from progress import step

FEED = TOPIC = "classes"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2_000
KAFKA_INGEST = Path(sys.executable).with_name("kafka-ingest")
TIMEOUT_S = 600


def archive_classes() -> None:
    """Make the archive, unless it is there."""
    found = installation()
    archive = archive_place(found.jars, found.search_path, found.spark_home, os.environ)
    if archive is None:
        return
    log = archive.with_suffix(".log")
    if archive.exists() or log.exists():
        return
    with step("Archiving Spark's classes, so that each run starts faster") as shown:
        for former in archive.parent.glob("classes-*"):
            former.unlink()
        with tempfile.TemporaryDirectory(prefix="kafka-ingest-classes-") as directory:
            made = Path(directory) / archive.name
            try:
                run_one_batch(Path(directory), made, log)
                # Beside its place first: on another file system a move is a copy, and half an archive must not be found.
                partial = shutil.move(made, archive.with_suffix(".partial"))
                Path(partial).rename(archive)
                log.unlink()
            except (OSError, subprocess.SubprocessError, BrokerError) as error:
                log.touch()
                shown.note(f"none was made ({error}; see {log}): runs start as without one")


def run_one_batch(directory: Path, archive: Path, log: Path) -> None:
    """Run a feed whose Java leaves an archive behind."""
    with EmbeddedBroker(directory / "kafka") as broker:
        produce(broker.bootstrap_servers)
        environment = child_environment(directory, broker.bootstrap_servers) | {
            "KAFKA_INGEST_FEEDS": str(directory / "feeds"),
            "SPARK_LOCAL_DIRS": str(directory / "spark"),
            JARS_VARIABLE: str(log.parent),
        }
        (directory / "feeds").mkdir()
        feed = {
            "name": FEED,
            "kafka": {"topics": [TOPIC]},
            "sink": {"format": "parquet", "path": FEED},
            "spark": {"conf": {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive}"}},
        }
        (directory / "feeds" / f"{FEED}.yaml").write_text(yaml.safe_dump(feed))
        with log.open("wb") as output:
            for arguments in (["db", "upgrade", "--create"], ["run", FEED]):
                subprocess.run(
                    [KAFKA_INGEST, *arguments],
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=TIMEOUT_S,
                    check=True,
                )


def produce(bootstrap_servers: str) -> None:
    """Fill a topic with records as they come: each codec, with and without keys, headers and values."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])[TOPIC].result()
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": codec})
        for number in range(RECORDS):
            key, value = b"key-%d" % number, (b'{"number": %d}' % number) * 10
            producer.produce(
                TOPIC,
                value if number % 10 else None,
                key if number % 3 else None,
                headers={"origin": b"set-up"} if number % 2 else None,
            )
        producer.flush()


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        archive_classes()
    except InstallationError as error:
        sys.exit(str(error))
