"""What to change where Spark ran out of memory: which setting, from what to what."""

import re
from collections.abc import Mapping

from kafka_ingest.errors import SparkOutOfMemoryError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.decoding import RAW, Decoding, Format
from kafka_ingest.model.heap import DEFAULT_HEAP, Heap
from kafka_ingest.spark_launch.spark_submission import SparkMaster

EXIT_CODE = 52
"""Spark's own for an OutOfMemoryError (``SparkExitCode.OOM``): there may be no other message about it."""

SIGNS = re.compile(
    rf"java\.lang\.OutOfMemoryError|(?:[Ee]rror code is:|[Ee]xit code|exited with code) {EXIT_CODE}\b|OOMKilled"
)
"""How Java, Airflow's hook, our own command line and a cluster's executors report it."""

KILLED = re.compile(r"\bwas killed\b|(?:[Ee]rror code is:|[Ee]xit code|exited with code) (?:-9|137)\b")
"""The same of a driver that the system, or an operator, has ended (SIGKILL)."""


def ran_out_of_memory(said: str) -> bool:
    """Whether the output of a failed run means that its heap was too small."""
    return SIGNS.search(said) is not None


def may_have_run_out_of_memory(said: str) -> bool:
    """Whether the output of a failed run says that its process was killed, as the system does without free memory."""
    return KILLED.search(said) is not None


def may_be_of_another(failure: str) -> bool:
    """Whether an attempt that shares memory, or executors, with others may have failed by what one of them did."""
    return ran_out_of_memory(failure) or "ExecutorLostFailure" in failure


def heap_of(master: SparkMaster, conf: Mapping[str, str], decoding: Decoding) -> Heap:
    """Return the memory of the tasks of a feed's Spark; ``conf`` is the feed's own."""
    setting = "spark.driver.memory" if master.is_local else "spark.executor.memory"
    decodes = any(part.format is not Format.RAW for part in decoding.parts.values())
    return Heap(setting, conf.get(setting, DEFAULT_HEAP), decodes)


def out_of_memory(plan: BatchPlan, master: SparkMaster, conf: Mapping[str, str]) -> SparkOutOfMemoryError:
    """Return the error that names the settings; ``conf`` is the feed's own."""
    heap = heap_of(master, conf, RAW).setting
    found = (
        f"{conf[heap]} in the feed's spark.conf" if heap in conf else f"not set in the feed, {DEFAULT_HEAP} by default"
    )
    fewer = (
        f"fewer tasks at once (connection {master.conn_id!r} says {master.master}: local[2], say)"
        if master.is_local
        else "fewer tasks at once (spark.executor.cores)"
    )
    return SparkOutOfMemoryError(
        f"batch {plan.batch_id}: Spark ran out of memory while it read up to {counted(plan.max_rows, 'record')} of "
        f"{counted(len(plan.ranges), 'partition')}. {heap} is {found}. Each task at work needs about 50 MB and "
        f"ten times its "
        f"largest record: raise {heap} in the feed's spark.conf (16 tasks with records of 10 MB: 3g), or give it "
        f"{fewer}, or let each hold less (max.partition.fetch.bytes in the extra of the Kafka connection, 1048576, "
        "say). The same try again would fail the same way. No offset was moved, nothing of it is visible; once it is "
        "changed, run the feed again: it reads the same ranges."
    )
