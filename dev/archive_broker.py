"""Makes the archive of Kafka's classes that lets each broker of the demo, the playground and the tests start faster.

A broker serves a few records, and its Java records at its end which classes it has loaded. As with Spark's classes,
everything works without it, more slowly.
"""

from pathlib import Path

from archive_classes import make_archive, make_from_the_shell, produce
from embedded_broker import QUICK_START, BrokerError, EmbeddedBroker, archive_place

STOP_TIMEOUT_S = 300.0
"""Writing the archive takes a second or two where nothing else runs."""


def archive_broker() -> None:
    """Make the archive, unless it is there."""
    make_archive(archive_place(), "Archiving Kafka's classes, so that each broker starts faster", run_broker)


def run_broker(directory: Path, archive: Path, log: Path, jars: Path) -> None:
    """Run a broker whose Java leaves an archive behind."""
    flags = (*QUICK_START, f"-XX:ArchiveClassesAtExit={archive}")
    broker = EmbeddedBroker(directory / "kafka", jars=jars, jvm_flags=flags)
    try:
        with broker:
            produce(broker.bootstrap_servers)
            if not broker.stop(STOP_TIMEOUT_S):
                raise BrokerError(f"expected the broker to end within {STOP_TIMEOUT_S:.0f} s, so it was killed")
    finally:
        if broker.log.is_file():
            log.write_bytes(broker.log.read_bytes())


if __name__ == "__main__":
    make_from_the_shell(archive_broker)
