"""What Spark needs to write to a store, by the store's scheme: jars, settings, and the driver's environment."""

from collections.abc import Mapping
from dataclasses import dataclass

CLOUD = "spark-hadoop-cloud_"
"""Spark's module that lets a store's own committers complete a job."""

COMMITTER: Mapping[str, str] = {
    "spark.sql.sources.commitProtocolClass": "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",
    "spark.sql.parquet.output.committer.class": "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter",
}


@dataclass(frozen=True, slots=True)
class SparkStore:
    """A store as Spark has it. ``role``: how names in the environment begin that say what the machine's own role is.

    ``jars``: how the names of the jars begin that have to be there; ``folder`` where jars are has them, or the one
    that the environment's ``jars_variable`` names.
    """

    name: str
    jars: tuple[str, ...]
    folder: str
    jars_variable: str
    conf: Mapping[str, str]
    environment: Mapping[str, str]
    role: tuple[str, ...]
    manifest: bool = False
    """Hadoop's manifest committer completes the jobs. Spark 4.2 gives it no id of the job, without which it fails."""


SPARK_STORES: Mapping[str, SparkStore] = {
    "s3": SparkStore(
        name="S3",
        jars=("hadoop-aws-", CLOUD),
        folder="s3",
        jars_variable="KAFKA_INGEST_S3_JARS",
        # Uploads are completed by the job's commit: a task that failed, or whose job did, leaves no file. Without the
        # committer every file would be copied to its name, which readers could see half done, and which a task that
        # runs late could do once more.
        conf={
            **COMMITTER,
            "spark.hadoop.fs.s3a.committer.name": "magic",
            # Stores other than Amazon's do not all know the checksums that newer SDKs send by default.
            "spark.executorEnv.AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
            "spark.executorEnv.AWS_RESPONSE_CHECKSUM_VALIDATION": "WHEN_REQUIRED",
        },
        environment={
            "AWS_REQUEST_CHECKSUM_CALCULATION": "WHEN_REQUIRED",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "WHEN_REQUIRED",
        },
        role=("AWS_",),
    ),
    "gs": SparkStore(
        name="Google Cloud Storage",
        jars=("gcs-connector-", CLOUD),
        folder="gcs",
        jars_variable="KAFKA_INGEST_GCS_JARS",
        # Hadoop's committer for stores that rename files one by one: the job's commit gives them their names, and what
        # a task that failed or runs late has written stays where only the attempt's removal finds it.
        conf={
            **COMMITTER,
            "spark.hadoop.mapreduce.outputcommitter.factory.scheme.gs": (
                "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory"
            ),
            "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
        },
        environment={},
        role=("GOOGLE_", "GCE_METADATA_", "CLOUDSDK_CONFIG"),
        manifest=True,
    ),
    "abfss": SparkStore(
        name="Azure Data Lake Storage",
        jars=("hadoop-azure-", CLOUD),
        folder="azure",
        jars_variable="KAFKA_INGEST_AZURE_JARS",
        # As for Google's: files get their names when the job commits. The factory is that of Azure's own, which also
        # finds out whether a rename whose answer was lost has happened.
        conf={
            **COMMITTER,
            "spark.hadoop.mapreduce.outputcommitter.factory.scheme.abfss": (
                "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory"
            ),
        },
        environment={},
        # Not all that begins with AZURE_: some of it is secret.
        role=("AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST"),
        manifest=True,
    ),
}
