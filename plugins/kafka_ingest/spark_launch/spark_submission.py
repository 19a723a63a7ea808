"""The spark-submit call: one pure function, for the Airflow operator and the command line alike."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.errors import OutputNotUsableError, UnsafeSparkMasterError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.decoding import RAW, Decoding
from kafka_ingest.model.place import AVRO_LIMITS
from kafka_ingest.model.spark_settings import PARQUET_SETTINGS
from kafka_ingest.spark_launch.installation import Installation
from kafka_ingest.spark_launch.java_options import (
    DRIVER_JAVA_OPTIONS,
    EXECUTOR_JAVA_OPTIONS,
    java_options,
    joined,
    launcher_options,
    steady,
    with_fixed_meaning,
)
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES
from kafka_ingest.spark_launch.workplace import PACKAGE, SETTINGS

FIXED_CONF: Mapping[str, str] = {
    # The driver is the submitter's child, in this Spark: not elsewhere, nor the client of a Spark Connect server.
    "spark.submit.deployMode": "client",
    "spark.api.mode": "classic",
    # The batch Kafka source takes the slow V1 path unless "kafka" is taken out of this list.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Readers must find nothing but data: no _SUCCESS, no .crc.
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # SQL's own settings are the job's to fix (model/spark_settings.py); these are of the executors' processes.
    **{f"spark.executorEnv.{name}": value for name, value in with_fixed_meaning().items()},
    # A site's own way to complete a job, for a store say, is not that of an output on a disk.
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    # A receipt counts what was read once: a task that is run twice at a time would be counted twice.
    "spark.speculation": "false",
    # Each range is read once: a consumer that is kept for another one only holds on to what it had fetched beyond the
    # end.
    "spark.kafka.consumer.cache.timeout": "200ms",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "200ms",
    # Tasks that read many small ranges have more than 64 at work, of which Spark would warn at each one.
    "spark.kafka.consumer.cache.capacity": "1000",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    # Nobody adds jars or files to a session. With a class loader for each, executors ask the driver for every name that
    # generated code looks up, and hold on to the loaders.
    "spark.sql.artifact.isolation.enabled": "false",
    # The connection's settings are options of the read; plans and logs must not show them.
    "spark.sql.redaction.options.regex": "(?i)url|sasl|ssl|password|secret|token",
    "spark.redaction.regex": "(?i)secret|password|token|(?:access|account)[.]?key|sasl|keystore|KAFKA_INGEST",
}
"""Settings that receipts, readers and secrets rely on, and settings without a reason to change them."""

DEFAULT_CONF: Mapping[str, str] = {
    **PARQUET_SETTINGS,
    # Of Protobuf. Spark's own number is 10,000: with a limit of bytes, Spark measures the batch at each record, which
    # takes longer the more are in it (StructVector.setValueCount): of a million records' 18 processor seconds, 12 were
    # for that.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.ui.enabled": "false",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps of its ended jobs for that page, a thousand of each, would grow with a fleet's attempts; and it
    # describes each plan there, at length by default.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.sql.ui.explainMode": "simple",
}
"""Overridable defaults: a feed's ``spark.conf`` may change them."""

PROJECT_CONF: Mapping[str, str] = {**FIXED_CONF, **DEFAULT_CONF}

LOCAL_CONF: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LOCAL_ENVIRONMENT: Mapping[str, str] = {"SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
"""Spark asks for the address of the machine's own name, which may have none."""


@dataclass(frozen=True, slots=True)
class SparkMaster:
    """Where Spark runs, as Airflow's Spark connection says it."""

    conn_id: str
    master: str
    deploy_mode: str | None = None
    spark_binary: str = "spark-submit"
    queue: str | None = None
    namespace: str | None = None

    @property
    def is_local(self) -> bool:
        return self.master == "local" or self.master.startswith("local[")


OF_AN_ATTEMPT = 4
"""How many of the first arguments are about the attempt."""

WORK_OF_DECODING = 2
"""As many records stored as they are make about as much work for Java as one that is decoded."""


@dataclass(frozen=True, slots=True)
class SparkRun:
    """How a feed's Spark runs: where, with which settings on top of the project's, and what it makes of records."""

    master: SparkMaster
    conf: Mapping[str, str] = field(default_factory=dict)
    decoding: Decoding = RAW
    role: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What this machine's environment says about its own role, where Kafka asks for that."""

    def work_of(self, plan: BatchPlan) -> int:
        """Return how much a batch is to the driver's Java, in records that are stored as they are."""
        if not self.master.is_local:
            return 0  # the executors read, and the driver never has much to do
        return plan.max_rows * (1 if self.decoding.takes_all else WORK_OF_DECODING)


@dataclass(frozen=True, slots=True)
class SparkSubmission:
    """The parts of a spark-submit call, as the provider's operator takes them.

    ``workplace``: a directory on this machine that is this call's alone; the caller removes it.
    """

    master: str
    deploy_mode: str | None
    spark_binary: str
    queue: str | None
    name: str
    application: str
    arguments: tuple[str, ...]
    conf: Mapping[str, str]
    jars: str | None
    driver_class_path: str
    environment: Mapping[str, str]
    workplace: Path
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What no log may show of what Spark says."""

    def command(self) -> list[str]:
        """Return the argument list, in the order in which the provider's hook makes it; a test compares the two."""
        command = [self.spark_binary, "--master", self.master]
        for key, value in self.conf.items():
            command += ["--conf", f"{key}={value}"]
        command += ["--driver-class-path", self.driver_class_path]
        if self.jars:
            command += ["--jars", self.jars]
        command += ["--name", self.name]
        if self.queue:
            command += ["--queue", self.queue]
        if self.deploy_mode:
            command += ["--deploy-mode", self.deploy_mode]
        return [*command, self.application, *self.arguments]


def conf_for_store(scheme: str) -> dict[str, str]:
    # Hadoop's own file system for S3 keeps what it uploads on the disk, and casts the file system for that.
    on_disk = "spark.hadoop.fs.file.impl"
    return {name: value for name, value in PROJECT_CONF.items() if name != on_disk} | dict(SPARK_STORES[scheme].conf)


@dataclass(frozen=True, slots=True)
class StoreOfAttempt:
    """What an attempt in a store needs: how to reach it.

    ``role`` is what this machine's environment says about its own role, for a connection without credentials.
    """

    access: StoreAccess
    role: Mapping[str, str] = field(default_factory=dict, repr=False)

    def environment(self) -> dict[str, str]:
        return {
            **SPARK_STORES[self.access.scheme].environment,
            **({} if self.access.has_credentials else self.role),
        }


def spark_submission(
    plan: BatchPlan,
    attempt: Attempt,
    *,
    spark: SparkRun,
    kafka: KafkaClientSettings,
    sink_is_shared: bool,
    installed: Installation,
    workplace: Path,
    store: StoreOfAttempt | None = None,
) -> SparkSubmission:
    """Return the spark-submit call of one attempt; ``store`` is given where the output is in one.

    What the call is made of is, or will be, in ``workplace``.

    Raises UnsafeSparkMasterError where the driver is elsewhere, OutputNotUsableError where the output is not shared.
    """
    check_master(
        spark.master, sink_is_shared=sink_is_shared or store is not None, access=store.access if store else None
    )
    return submission_of(
        f"{plan.feed_name} {plan.batch_id} {attempt.attempt}",
        ("--attempt", str(attempt.directory), "--document-sha256", attempt.document_sha256),
        spark=spark,
        work=spark.work_of(plan),
        installed=installed,
        workplace=workplace,
        store=store,
        secrets=(*kafka.secrets(), *(store.access.secrets if store else ())),
    )


OF_MANY_ATTEMPTS = {
    # A large batch leaves processors to the others.
    "spark.scheduler.mode": "FAIR",
    # What attempts have left is taken away before it has filled the heap.
    "spark.cleaner.periodicGC.interval": "15s",
}


def together(calls: Sequence[SparkSubmission]) -> SparkSubmission:
    """Return the call of one application for the attempts of several, which differ in nothing else."""
    first = calls[0]
    if len(calls) == 1:
        return first
    attempts = [argument for call in calls for argument in call.arguments[:OF_AN_ATTEMPT]]
    java = first.conf.get(DRIVER_JAVA_OPTIONS)
    return replace(
        first,
        name=f"kafka_ingest {counted(len(calls), 'attempt')}",
        arguments=(*attempts, *first.arguments[OF_AN_ATTEMPT:]),
        conf={**OF_MANY_ATTEMPTS, **first.conf, **({DRIVER_JAVA_OPTIONS: steady(java)} if java else {})},
        # By default each thread may get a heap of malloc's own, which keeps what the libraries of codecs gave back.
        environment={**first.environment, "MALLOC_ARENA_MAX": "2"},
        secrets=tuple({secret: None for call in calls for secret in call.secrets}),
    )


def submission_of(
    name: str,
    arguments: tuple[str, ...],
    *,
    spark: SparkRun,
    work: int,
    installed: Installation,
    workplace: Path,
    store: StoreOfAttempt | None = None,
    secrets: tuple[str, ...] = (),
) -> SparkSubmission:
    """Return the spark-submit call for a job of this name, with so much to do (:meth:`SparkRun.work_of`)."""
    master = spark.master
    jars = ",".join(str(jar) for jar in installed.jars)
    shipped = [
        *(() if master.is_local else installed.jars),
        *(installed.store_jars.get(store.access.scheme, ()) if store else ()),
        *(installed.avro_jars if spark.decoding.has_avro else ()),
    ]
    # Another name may be of another Spark, whose settings for Java were not read.
    spark_home = installed.spark_home if master.spark_binary == "spark-submit" else None
    java = driver_java_options(work, installed, spark.conf) if spark_home else ""
    return SparkSubmission(
        master=master.master,
        deploy_mode=master.deploy_mode,
        spark_binary=master.spark_binary,
        queue=master.queue,
        name=f"kafka_ingest {name}",
        application=str(installed.application),
        arguments=(*arguments, "--package", str(workplace / PACKAGE), "--settings", str(workplace / SETTINGS)),
        conf={
            **(conf_for_store(store.access.scheme) if store else PROJECT_CONF),
            **({DRIVER_JAVA_OPTIONS: java} if java else {}),
            **(LOCAL_CONF if master.is_local else {}),
            **({"spark.kubernetes.namespace": master.namespace} if master.namespace else {}),
            **spark.conf,
            **executors_conf(spark, installed),
        },
        # By --jars alone another class loader than the driver's own loads them; executors elsewhere need them shipped.
        jars=",".join(map(str, shipped)) or None,
        driver_class_path=jars.replace(",", os.pathsep),
        environment={
            **spark.role,
            **(store.environment() if store else {}),
            "PYSPARK_PYTHON": str(installed.python),
            "PYSPARK_DRIVER_PYTHON": str(installed.python),
            "PATH": installed.search_path,
            **with_fixed_meaning(installed.java_options.last),
            **(LOCAL_ENVIRONMENT if master.is_local else {}),
            # With SPARK_HOME set, spark-submit need not start a Python to find it.
            **(
                {
                    "SPARK_HOME": str(spark_home),
                    "SPARK_LAUNCHER_OPTS": launcher_options(installed.java_options, spark_home),
                }
                if spark_home
                else {}
            ),
        },
        secrets=secrets,
        workplace=workplace,
    )


def executors_conf(spark: SparkRun, installed: Installation) -> dict[str, str]:
    """Return what executors elsewhere need for Avro: the job itself sees to its own Java.

    The site's own defaults stay: what spark-submit gets here replaces the value in spark-defaults.conf.
    """
    if spark.master.is_local or not spark.decoding.has_avro:
        return {}
    chosen = spark.conf.get(EXECUTOR_JAVA_OPTIONS, installed.java_options.executor_defaults)
    limits = [f"-D{name}={value}" for name, value in AVRO_LIMITS.items()]
    return {EXECUTOR_JAVA_OPTIONS: joined([chosen, *limits])}


def driver_java_options(work: int, installed: Installation, conf: Mapping[str, str]) -> str:
    """Return the options for the driver's Java: the site's own, and those that make so much work faster."""
    elsewhere = installed.java_options
    own = (conf.get(key) for key in (DRIVER_JAVA_OPTIONS, "spark.driver.extraJavaOptions"))
    chosen = joined([elsewhere.every, elsewhere.driver, elsewhere.driver_defaults, *own])
    ours = java_options(work, installed.class_archive, chosen)
    # The site may use the same name: what spark-submit gets here replaces the value in spark-defaults.conf.
    return joined([elsewhere.driver_defaults, ours])


def check_master(master: SparkMaster, *, sink_is_shared: bool, access: StoreAccess | None = None) -> None:
    """Raise where this master cannot be used safely with these settings; None where there are none to look at."""
    if master.deploy_mode not in {None, "", "client"}:
        raise UnsafeSparkMasterError(
            f"connection {master.conn_id!r}: expected deploy-mode client, found {master.deploy_mode!r}. The driver "
            "has to run where the file with the Kafka settings is, and the output is mounted."
        )
    if not master.is_local and access is not None and (reason := access.only_on_this_machine):
        raise UnsafeSparkMasterError(
            f"connection {master.conn_id!r} leads to {master.master}, whose executors are on other machines, and "
            f"{access.conn_id!r} leads to the output's store: {reason} with that file on each of them, or give them "
            "an account of their own and leave that connection without a key."
        )
    if not master.is_local and not sink_is_shared:
        raise OutputNotUsableError(
            f"connection {master.conn_id!r} leads to {master.master}, but the feed's output is not marked as shared: "
            "files would stay on the workers' own disks. Mount it at the same place on every Spark machine and set "
            "sink.shared: true."
        )
