"""Makes the archive of classes that saves each Spark run from loading them one by one (docs/decisions.md).

It runs one feed on a separate Kafka, and lets that Java record at its end which classes it has loaded. An archive that
fits is kept; where none can be made, everything works as before, more slowly, and it is not tried again until
something changes or the log of the failure is removed.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from embedded_broker import BrokerError, EmbeddedBroker
from environment import ROOT, child_environment
from java_command import JavaMissingError
from kafka_ingest.errors import InstallationError
from kafka_ingest.foundation.durable_files import sync
from kafka_ingest.spark_launch.installation import JARS_VARIABLE, ArchivePlace, installation
from kafka_ingest.spark_launch.java_options import JAVA_VARIABLES
from progress import step

FEED = TOPIC = "classes"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 2_000
KAFKA_INGEST = Path(sys.executable).with_name("kafka-ingest")
TIMEOUT_S = 600
FAILURES = (OSError, subprocess.SubprocessError, BrokerError, JavaMissingError, KafkaException)


def archive_classes() -> None:
    """Make the archive of Spark's classes, unless it is there."""
    place = installation().archive_place
    if place is not None:
        make_archive(place, "Archiving Spark's classes, so that each run starts faster", run_one_batch)


def make_archive(place: ArchivePlace, title: str, run: Callable[[Path, Path, Path, Path], None]) -> None:
    """Let Java leave an archive of its classes behind, unless it is there.

    ``run`` gets a directory, and there the files for the archive and for a log; and the folder of the jars.
    """
    # In another user's folder, that user makes it.
    if not os.access(place.folder, os.W_OK):
        return
    # Where this is interrupted, a Java that is on its way out may still write there.
    with (
        one_at_a_time(place.folder),
        tempfile.TemporaryDirectory(prefix="kafka-ingest-classes-", ignore_cleanup_errors=True) as directory,
    ):
        if place.archive() or place.failed_log.exists():
            return
        made, log = Path(directory) / "classes.jsa", Path(directory) / "log"
        try:
            with step(title):
                run(Path(directory), made, log, place.folder)
                keep(made, place)
        except FAILURES as error:
            said = log.read_text(errors="replace") if log.exists() else ""
            place.failed_log.write_text(f"{said}{error}\n")
            print(
                f"None was made, so everything starts as without one: {error}\n  See {place.failed_log}; without it, "
                "make tries again."
            )


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process makes an archive in a folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def keep(made: Path, place: ArchivePlace) -> None:
    """Give an archive its place, whole or not at all, and remove what it replaces."""
    archive = place.file(made.stat().st_size)
    partial = archive.with_suffix(".partial")
    shutil.copyfile(made, partial)
    sync(partial)
    partial.rename(archive)
    sync(place.folder)
    for former in place.former_files(archive):
        former.unlink(missing_ok=True)


def run_one_batch(directory: Path, archive: Path, log: Path, jars: Path) -> None:
    """Run a feed whose Java leaves an archive behind."""
    with EmbeddedBroker(directory / "kafka") as broker:
        produce(broker.bootstrap_servers)
        environment = child_environment(directory, broker.bootstrap_servers) | {
            "KAFKA_INGEST_FEEDS": str(directory / "feeds"),
            "SPARK_LOCAL_DIRS": str(directory / "spark"),
            JARS_VARIABLE: str(jars),
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


def forget_other_installations() -> None:
    """Drop what the archived run does not get either.

    By its own variables the archive would be looked for under another name.
    """
    for name in [*os.environ]:
        if name.startswith("SPARK_") or name in JAVA_VARIABLES:
            del os.environ[name]


def make_from_the_shell(archive: Callable[[], None]) -> None:
    """Make an archive as a program of its own."""
    os.chdir(ROOT)
    forget_other_installations()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        archive()
    except InstallationError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    make_from_the_shell(archive_classes)
