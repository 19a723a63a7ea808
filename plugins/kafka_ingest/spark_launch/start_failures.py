"""Why Spark's driver or its Python workers do not start, or ran out of memory: what to change."""

import re
from collections.abc import Collection, Mapping

from kafka_ingest.cluster.client_settings import without_secrets
from kafka_ingest.errors import InstallationError, KafkaIngestError, SparkFailedError, SparkOutOfMemoryError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.decoding import RAW, Decoding, Format
from kafka_ingest.model.spark_settings import DEFAULT_HEAP, Heap
from kafka_ingest.spark_launch.spark_submission import SparkMaster

TAIL_LINES = 15
MOST_CAUSES = 5
CAUSE_WORDS = ("Error", "Exception", "Caused by")


def informative_lines(text: str) -> str:
    """Return the last lines of Spark's output, and the last ones before them that name an error."""
    informative = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    causes = [line for line in informative[:-TAIL_LINES] if any(word in line for word in CAUSE_WORDS)]
    return "\n".join(causes[-MOST_CAUSES:] + informative[-TAIL_LINES:])


THROWN = r"^(?:Exception in thread|Caused by:|java\.|org\.apache\.|py4j\.|: ).*"
"""How a line of Java's begins that names an exception: a record's text is never at a line's beginning."""

IN_TASKS = r"^(?:Job aborted|Caused by:|pyspark\.|java\.|org\.apache\.|py4j\.|: ).*"
"""The same of what tasks said. Of a program that is not started: no such file, another machine's, no right to."""

WORKERS = (
    "the driver's minor version of Python, with Spark's own modules, where Spark's workers run: they read JSON that "
    "Spark's own expressions are not sure of, Protobuf, and what a transform gets. Found none, or another. Install it "
    "there; where its path is another one than here, set spark.pyspark.python, and spark.pyspark.driver.python for the "
    "path here, in spark.conf of the feed file."
)

CAUSES = {
    rf'{IN_TASKS}Cannot run program "[^"\n]*(?:python|pypy)[^"\n]*".*error[=:] ?(?:2|8|13)\b.*': WORKERS,
    rf"{IN_TASKS}\[PYTHON_VERSION_MISMATCH\].*": WORKERS,
    r"^Error from python worker:\n.*No module named '?pyspark.*": WORKERS,
    rf"{THROWN}(?:getSubject is (?:not )?supported|UnsupportedClassVersionError).*": (
        "a Java that this Spark runs on (17 or 21), found another one. Set JAVA_HOME to one of these."
    ),
    rf"{THROWN}(?:invalid null input: name|KerberosAuthException: failure to login).*": (
        "a user with a name, found one whose number is not in /etc/passwd: Hadoop cannot log in. Add an entry for it, "
        "as Spark's own container images do when they start, or run as another user."
    ),
    rf"{THROWN}Remote cannot be specified with master.*": (
        "the Spark that the connection's master names, found a Spark Connect server. Take SPARK_REMOTE out of the "
        "environment, and spark.remote out of spark-defaults.conf."
    ),
    r"^Error (?:opening zip file or JAR manifest missing|occurred.*agent).*": (
        "a Java agent that the options of Java name, found no such file. Correct JAVA_TOOL_OPTIONS or spark.conf."
    ),
    r"^(?:Unrecognized (?:VM )?option|Error: Could not (?:create the Java|find or load agent)).*": (
        "options that this Java takes, found others. Correct JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS or spark.conf."
    ),
}
"""What Java and Hadoop say, with what was expected instead."""


def spark_failure(
    ended: str, said: str, secrets: Collection[str] = (), begun: frozenset[int] = frozenset()
) -> KafkaIngestError:
    """Return the error for a Spark that has failed: ``ended`` tells how, ``said`` is its output.

    InstallationError where another try cannot succeed, else SparkFailedError.
    """
    if fault := machines_fault(said):
        return fault
    error = SparkFailedError(f"{ended}\n{without_secrets(informative_lines(said), secrets)}")
    error.begun = begun
    return error


def machines_fault(said: str) -> InstallationError | None:
    """Return the error of what another try cannot mend; None where Spark says nothing of the kind."""
    for pattern, expected in CAUSES.items():
        if found := re.search(pattern, said, re.MULTILINE):
            return InstallationError(
                f"expected {expected} Another try would fail the same way. Spark could not start: {found[0]}"
            )
    return None


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
