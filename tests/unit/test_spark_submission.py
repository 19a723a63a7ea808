"""What is handed to spark-submit: the same as Airflow's own hook would hand over, and never a secret in sight."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from tests.fakes import BATCH_ID, SOME_DAY, a_plan

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.errors import InstallationError, OutputNotUsableError, UnsafeSparkMasterError
from kafka_ingest.foundation.stores.azure import AzureAccess
from kafka_ingest.foundation.stores.gcs import GcsAccess
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.batch import Attempt, AttemptState
from kafka_ingest.model.decoding import RAW, Decoding, FieldDecoding, Format
from kafka_ingest.model.spark_settings import are_ours
from kafka_ingest.settings.connections import find_connection_from_shell, spark_master
from kafka_ingest.settings.feed import Spark
from kafka_ingest.spark_launch.installation import Installation
from kafka_ingest.spark_launch.java_options import DRIVER_JAVA_OPTIONS, STEADY, ChosenJavaOptions
from kafka_ingest.spark_launch.run_spark_submit import emptied
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES
from kafka_ingest.spark_launch.spark_submission import (
    DEFAULT_CONF,
    FIXED_CONF,
    SparkMaster,
    SparkRun,
    SparkSubmission,
    StoreOfAttempt,
    check_master,
    conf_for_store,
    spark_submission,
    together,
)

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

DIRECTORY = Path("/data/orders.kafka-ingest/staging") / str(BATCH_ID) / "2"
ATTEMPT = Attempt(BATCH_ID, 2, AttemptState.OPEN, DIRECTORY, "ab" * 32, SOME_DAY, "run 1")
INSTALLED = Installation(
    application=Path("/opt/jobs/write_batch.py"),
    jars=(Path("/jars/connector.jar"), Path("/jars/kafka-clients.jar")),
    python=Path("/venv/bin/python"),
    search_path="/venv/bin:/usr/bin",
    spark_home=Path("/venv/pyspark"),
)
OPEN_KAFKA = KafkaClientSettings("kafka_default", {"bootstrap.servers": "kafka:9092"})
SECRET_KAFKA = KafkaClientSettings(
    "kafka_default",
    {
        "bootstrap.servers": "kafka:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
    },
)
TEXT, AVRO = (Decoding(key=FieldDecoding(each)) for each in (Format.STRING, Format.AVRO))
WORKPLACE = Path("/tmp/kafka-ingest-1")
LOCAL = SparkMaster("spark_default", "local[*]")
STANDALONE = SparkMaster("spark_default", "spark://host:7077")
YARN = SparkMaster("spark_default", "yarn")
KUBERNETES = SparkMaster("spark_default", "k8s://https://10.0.0.1:6443")


def submission(
    master: SparkMaster = LOCAL,
    kafka: KafkaClientSettings = OPEN_KAFKA,
    conf: dict[str, str] | None = None,
    *,
    shared: bool = False,
    java: ChosenJavaOptions | None = None,
    spark_home: Path | None = INSTALLED.spark_home,
    store: StoreOfAttempt | None = None,
    decoding: Decoding = RAW,
) -> SparkSubmission:
    """Return what is handed over for attempt 2 of a batch."""
    return spark_submission(
        a_plan(),
        ATTEMPT,
        spark=SparkRun(master, conf or {}, decoding),
        kafka=kafka,
        sink_is_shared=shared,
        installed=replace(
            INSTALLED,
            java_options=java or ChosenJavaOptions(),
            spark_home=spark_home,
            store_jars={
                "s3": (Path("/jars/s3/hadoop-aws-3.4.1.jar"),),
                "gs": (Path("/jars/gcs/gcs-connector.jar"),),
                "abfss": (Path("/jars/azure/hadoop-azure.jar"),),
            },
            avro_jars=(Path("/jars/avro/spark-avro_2.13-4.0.2.jar"),),
        ),
        workplace=WORKPLACE,
        store=store,
    )


def airflows_hook(found: SparkSubmission) -> "SparkSubmitHook":
    """Return Airflow's own hook with the same parts, as the write task hands them to it."""
    from kafka_ingest.airflow_tasks.feed_tasks import WriteOperator

    task = WriteOperator(task_id="write", feed=None, batch_id="")
    task.take(found, Mock(**{"feed.spark.conn_id": "spark_default"}))
    return task._get_hook()


# ── The same as Airflow's own hook ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.parametrize(
    "connection",
    [
        {"host": "local[*]"},
        {"host": "local[2]", "extra": {"deploy-mode": "client"}},
        {"host": "spark://host:7077"},
        {"host": "spark://host", "port": 7077},
        {"host": "host", "port": 7077},
        {"host": "spark://host:7077", "extra": {"spark-binary": "spark3-submit"}},
        {"host": "spark://host:7077", "extra": {"deploy-mode": "client"}},
        {"host": "spark://host:7077", "extra": {"queue": "etl"}},
        {"host": "spark://yarn-gateway:7077"},
        {"host": "yarn", "extra": {"queue": "etl"}},
        {"host": "k8s://https://10.0.0.1", "port": 6443, "extra": {"namespace": "etl"}},
    ],
)
@pytest.mark.parametrize("kafka", [OPEN_KAFKA, SECRET_KAFKA])
def test_the_argument_list_is_the_one_that_airflows_own_hook_builds(
    connection: dict[str, Any], kafka: KafkaClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The hook only makes sure that the Kubernetes provider, which is not installed here, is there.
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", Mock(), raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", **connection}))
    monkeypatch.setenv("AIRFLOW_CONN_ANOTHER", "hunter2")
    master = spark_master(find_connection_from_shell("spark_default"))
    found = submission(master, kafka, {"spark.driver.memory": "2g"}, shared=True)
    hook = airflows_hook(found)
    command = hook._build_spark_submit_command(found.application)
    assert found.command() == command
    assert hook._env == {**emptied(os.environ), **found.environment}
    assert "hunter2" not in " ".join([*command, *hook._env.values()])


@pytest.mark.usefixtures("airflow_home")
@pytest.mark.parametrize("lacking", ["_is_yarn", "_is_kubernetes"])
def test_a_hook_that_is_not_kept_from_showing_the_environment_starts_no_spark(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kafka_ingest.airflow_tasks.feed_tasks import SparkSubmitOperator

    of_another_version = Mock(spec=list({"_is_yarn", "_is_kubernetes"} - {lacking}))
    monkeypatch.setattr(SparkSubmitOperator, "_get_hook", lambda _: of_another_version)
    with pytest.raises(InstallationError, match=f"expected {lacking} in the hook"):
        airflows_hook(submission(LOCAL, SECRET_KAFKA))


@pytest.mark.parametrize(
    ("master", "spark_home"), [(replace(LOCAL, spark_binary="spark3-submit"), INSTALLED.spark_home), (LOCAL, None)]
)
def test_a_spark_whose_settings_were_not_read_keeps_its_own_options_for_java(
    master: SparkMaster, spark_home: Path | None
) -> None:
    """Its spark-defaults.conf may name a collector, and of two Java takes none: it does not start."""
    assert DRIVER_JAVA_OPTIONS in submission(LOCAL).conf

    found = submission(master, spark_home=spark_home)

    assert DRIVER_JAVA_OPTIONS not in found.conf
    assert not {"SPARK_HOME", "SPARK_LAUNCHER_OPTS"} & found.environment.keys()


def test_a_local_master_gets_the_connector_on_the_drivers_class_path_alone() -> None:
    found = submission(LOCAL)
    assert found.driver_class_path == f"/jars/connector.jar{os.pathsep}/jars/kafka-clients.jar"
    assert found.jars is None
    assert "--jars" not in found.command()


def test_a_remote_masters_executors_get_the_connector_shipped_too() -> None:
    found = submission(STANDALONE, shared=True)
    assert found.driver_class_path == f"/jars/connector.jar{os.pathsep}/jars/kafka-clients.jar"
    assert found.jars == "/jars/connector.jar,/jars/kafka-clients.jar"


def test_the_job_gets_its_attempt_and_the_hash_of_its_document() -> None:
    assert submission().command()[-9:] == [
        "/opt/jobs/write_batch.py",
        "--attempt",
        str(DIRECTORY),
        "--document-sha256",
        "ab" * 32,
        "--package",
        "/tmp/kafka-ingest-1/kafka_ingest.zip",
        "--settings",
        "/tmp/kafka-ingest-1/settings.json",
    ]


def test_the_outputs_path_is_an_argument_alone_since_spark_reads_others_as_lists_of_uris() -> None:
    command = submission().command()
    assert [text for text in command if str(DIRECTORY) in text] == [command[command.index("--attempt") + 1]]


def test_driver_and_executors_run_the_environments_own_python() -> None:
    environment = submission().environment
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == "/venv/bin/python"
    assert environment["PATH"] == "/venv/bin:/usr/bin"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        # What the receipt's evidence and the readers of the output rest on.
        ("spark.sql.sources.useV1SourceList", "avro,csv,json,orc,parquet,text"),
        ("spark.sql.parquet.compression.codec", "zstd"),
        ("spark.executorEnv.TZ", "UTC"),
        ("spark.executorEnv.LC_ALL", "C.UTF-8"),
        (
            "spark.sql.sources.commitProtocolClass",
            "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol",
        ),
        ("spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs", "false"),
        ("spark.hadoop.fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem"),
        ("spark.speculation", "false"),
    ],
)
def test_the_project_sets_what_its_receipts_and_readers_rely_on(key: str, value: str) -> None:
    assert submission().conf[key] == value


@pytest.mark.parametrize("scheme", ["", *sorted(SPARK_STORES)])
def test_pythons_workers_may_write_files_under_the_settings_that_the_project_submits(scheme: str) -> None:
    """With a setting that they do not know all is written by Spark, which no output shows."""
    submitted = conf_for_store(scheme) if scheme else submission().conf
    assert are_ours(submitted.items())
    assert not are_ours([*submitted.items(), ("spark.sql.parquet.writeLegacyFormat", "true")])


def test_the_feeds_own_settings_come_on_top() -> None:
    found = submission(conf={"spark.driver.memory": "2g", "spark.ui.enabled": "true"})
    assert (found.conf["spark.driver.memory"], found.conf["spark.ui.enabled"]) == ("2g", "true")


def test_the_sites_options_for_the_drivers_java_stay_in_front_of_ours() -> None:
    options = submission(java=ChosenJavaOptions(driver_defaults="-Dsite=1")).conf[DRIVER_JAVA_OPTIONS].split()
    assert options[0] == "-Dsite=1"
    assert "-XX:+UseSerialGC" in options


@pytest.mark.parametrize(
    "java",
    [
        ChosenJavaOptions(every="-XX:+UseG1GC"),
        ChosenJavaOptions(driver="-XX:+UseG1GC"),
        ChosenJavaOptions(driver_defaults="-XX:+UseG1GC"),
    ],
)
def test_where_a_collector_is_chosen_for_the_driver_none_is_added(java: ChosenJavaOptions) -> None:
    assert "UseSerialGC" not in submission(java=java).conf[DRIVER_JAVA_OPTIONS]


def test_a_collector_of_the_feeds_own_counts_for_the_driver_and_not_one_for_its_executors() -> None:
    own = submission(conf={"spark.driver.extraJavaOptions": "-XX:+UseG1GC"})
    assert "UseSerialGC" not in own.conf[DRIVER_JAVA_OPTIONS]
    theirs = submission(conf={"spark.executor.extraJavaOptions": "-XX:+UseG1GC"})
    assert "-XX:+UseSerialGC" in theirs.conf[DRIVER_JAVA_OPTIONS]


def test_a_driver_of_many_attempts_has_a_heap_that_does_not_grow_unless_the_site_has_chosen_another_collector() -> None:
    found = submission(conf={"spark.driver.extraJavaOptions": "-Xms1g"})
    several = together([found, found]).conf
    assert several[DRIVER_JAVA_OPTIONS] == f"{found.conf[DRIVER_JAVA_OPTIONS]} {' '.join(STEADY)}"
    assert several["spark.driver.extraJavaOptions"] == "-Xms1g"  # Java takes the last one that it is given
    assert together([found]) is found
    other = submission(java=ChosenJavaOptions(driver="-XX:+UseG1GC"))
    assert together([other, other]).conf[DRIVER_JAVA_OPTIONS] == other.conf[DRIVER_JAVA_OPTIONS]


def test_only_a_local_driver_listens_on_the_loopback_interface_alone() -> None:
    assert submission(LOCAL).conf["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in submission(STANDALONE, shared=True).conf


# ── No secret in sight ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("master", [LOCAL, STANDALONE])
def test_a_secret_is_in_nothing_that_is_submitted(master: SparkMaster) -> None:
    found = submission(master, SECRET_KAFKA, shared=True)
    assert "hunter2" in found.secrets
    assert "hunter2" not in " ".join(found.command())
    assert "hunter2" not in repr(found)
    assert "hunter2" not in json.dumps([dict(found.conf), dict(found.environment)])


# ── An output in a store ──────────────────────────────────────────────────────────────────────────────────────────────

WITH_KEY = StoreOfAttempt(S3Access("aws_lake", access_key="key", secret_key="hunter3", session_token="hunter4"))
WITH_ROLE = StoreOfAttempt(S3Access("aws_lake"), {"AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"})


@pytest.mark.parametrize("master", [LOCAL, STANDALONE, YARN, KUBERNETES])
def test_a_stores_secrets_are_in_nothing_that_is_submitted(master: SparkMaster) -> None:
    found = submission(master, store=WITH_KEY)
    for secret in ("hunter3", "hunter4"):
        assert secret not in " ".join(found.command()) + json.dumps(dict(found.environment))
        assert secret not in repr(found)
        assert secret in found.secrets


def test_without_a_key_the_driver_gets_what_the_environment_says_of_the_machines_role() -> None:
    name = "AWS_WEB_IDENTITY_TOKEN_FILE"
    assert submission(store=WITH_ROLE).environment[name] == "/var/run/token"
    assert name not in submission(store=replace(WITH_ROLE, access=WITH_KEY.access)).environment


def test_a_job_that_writes_to_a_store_gets_its_jars_and_its_committer() -> None:
    found = submission(store=WITH_KEY)
    assert found.jars == "/jars/s3/hadoop-aws-3.4.1.jar"
    assert found.driver_class_path == submission().driver_class_path, "the archive of classes fits no other"
    assert found.conf["spark.hadoop.fs.s3a.committer.name"] == "magic"
    assert submission(STANDALONE, store=WITH_KEY).jars == (
        "/jars/connector.jar,/jars/kafka-clients.jar,/jars/s3/hadoop-aws-3.4.1.jar"
    )


GOOGLE_KEY = json.dumps({"private_key": "-----BEGIN\nhunter5-hunter5-hunter5\n-----END"})


def test_a_job_that_writes_to_googles_store_gets_its_jars_and_its_committer() -> None:
    access = GcsAccess("gcp", key=GOOGLE_KEY, key_path="/keys/account.json")
    found = submission(STANDALONE, store=StoreOfAttempt(access))
    assert found.jars == "/jars/connector.jar,/jars/kafka-clients.jar,/jars/gcs/gcs-connector.jar"
    committer = found.conf["spark.hadoop.mapreduce.outputcommitter.factory.scheme.gs"]
    assert committer.endswith(".manifest.ManifestCommitterFactory")
    assert not any("s3a" in name or name.startswith("AWS_") for name in (*found.conf, *found.environment))
    assert "hunter5" not in " ".join(found.command()) + repr(found) + json.dumps(dict(found.environment))
    assert found.secrets == ("hunter5-hunter5-hunter5",)


@pytest.mark.parametrize(
    "access",
    [
        AzureAccess("azure", "shop", account_key="hunter6"),
        AzureAccess("azure", "shop", sas_token="sv=1&sig=hunter6"),
        AzureAccess("azure", "shop", tenant_id="t", client_id="c", client_secret="hunter6"),
    ],
    ids=["key", "token", "secret"],
)
def test_a_job_that_writes_to_azures_store_gets_its_jars_and_its_committer(
    access: AzureAccess,
) -> None:
    found = submission(STANDALONE, store=StoreOfAttempt(access))
    assert found.jars == "/jars/connector.jar,/jars/kafka-clients.jar,/jars/azure/hadoop-azure.jar"
    committer = found.conf["spark.hadoop.mapreduce.outputcommitter.factory.scheme.abfss"]
    assert committer.endswith(".AzureManifestCommitterFactory")
    assert "hunter6" not in " ".join(found.command()) + repr(found) + json.dumps(dict(found.environment))
    assert "hunter6" in found.secrets


@pytest.mark.parametrize("name", ["AZURE_CLIENT_SECRET", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_PASSWORD"])
def test_of_azures_variables_none_is_handed_on_that_is_secret(name: str) -> None:
    assert not name.startswith(SPARK_STORES["abfss"].role)


def test_a_key_that_hadoop_needs_in_a_file_is_refused_where_other_machines_have_no_such_file() -> None:
    store = StoreOfAttempt(GcsAccess("gcp", key=GOOGLE_KEY))
    assert submission(LOCAL, store=store).master == "local[*]"
    with pytest.raises(UnsafeSparkMasterError, match=r"'gcp' leads to the output's store: .* use key_path with that"):
        submission(STANDALONE, store=store)


def test_without_a_store_nothing_of_it_is_handed_over() -> None:
    found = submission()
    assert found.jars is None
    assert not any("s3a" in name or ".cloud." in value for name, value in found.conf.items())


def test_jars_that_a_store_needs_may_be_sparks_own(tmp_path: Path) -> None:
    installed = replace(INSTALLED, spark_home=tmp_path)
    with pytest.raises(InstallationError, match=r"expected hadoop-aws-\*\.jar and spark-hadoop-cloud_\*\.jar"):
        installed.check_store_jars("s3")
    (tmp_path / "jars").mkdir()
    for name in ("hadoop-aws-3.4.1.jar", "spark-hadoop-cloud_2.13-4.0.2.jar"):
        (tmp_path / "jars" / name).touch()
    installed.check_store_jars("s3")


@pytest.mark.parametrize("scheme", ["gs", "abfss"])
def test_a_spark_that_cannot_write_to_a_store_is_refused_with_one_that_can(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql_2.13-4.2.0.jar").touch()
    with pytest.raises(InstallationError, match=r"Spark before 4\.2.*4\.2\.0.*Install pyspark==4\.1\.1 and"):
        replace(INSTALLED, spark_home=tmp_path).check_store_jars(scheme)


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_an_output_that_is_not_shared_is_refused_with_a_remote_master(master: SparkMaster) -> None:
    with pytest.raises(OutputNotUsableError, match=rf"leads to {master.master}.*set sink.shared: true"):
        submission(master)


def test_an_output_that_is_not_shared_will_do_for_a_local_master() -> None:
    assert submission(LOCAL, shared=False).master == "local[*]"


@pytest.mark.parametrize("master", ["local[*]", "spark://host:7077", "yarn"])
def test_cluster_deploy_mode_is_refused(master: str) -> None:
    with pytest.raises(UnsafeSparkMasterError, match="'spark_default': expected deploy-mode client, found 'cluster'"):
        check_master(SparkMaster("spark_default", master, "cluster"), sink_is_shared=True)


@pytest.mark.parametrize("deploy_mode", [None, "", "client"])
def test_client_deploy_mode_is_the_default(deploy_mode: str | None) -> None:
    check_master(SparkMaster("spark_default", "spark://host:7077", deploy_mode), sink_is_shared=True)


@pytest.mark.parametrize(
    "key",
    [
        "spark.master",
        "spark.submit.deployMode",
        "spark.submit.pyFiles",
        "spark.driver.extraClassPath",
        "spark.jars",
        *sorted(FIXED_CONF),
    ],
)
def test_a_feed_file_cannot_change_where_spark_runs_nor_what_receipts_and_readers_rely_on(key: str) -> None:
    with pytest.raises(ValueError, match=rf"'{key}' is decided by the Spark connection and by this project"):
        Spark(conf={key: "x"})


@pytest.mark.parametrize("key", sorted(DEFAULT_CONF))
def test_a_feed_file_can_change_what_is_a_matter_of_taste(key: str) -> None:
    assert Spark(conf={key: "x"}).conf == {key: "x"}


def test_decoding_is_more_work_for_the_drivers_java_and_a_cluster_leaves_it_none() -> None:
    plan, here, elsewhere = a_plan(), SparkMaster("spark_default", "local[2]"), SparkMaster("spark", "spark://x:7077")
    assert SparkRun(here).work_of(plan) == plan.max_rows
    assert SparkRun(here, decoding=TEXT).work_of(plan) == 2 * plan.max_rows
    assert SparkRun(elsewhere, decoding=TEXT).work_of(plan) == 0


def test_only_feeds_of_avro_get_sparks_module_for_it_and_executors_elsewhere_its_limits() -> None:
    limit = "-Dorg.apache.avro.limits.bytes.maxLength=67108864"
    options = "spark.executor.defaultJavaOptions"
    site = ChosenJavaOptions(executor_defaults="-Xss2m")
    here, there = submission(decoding=AVRO), submission(STANDALONE, java=site, shared=True, decoding=AVRO)

    assert here.jars == "/jars/avro/spark-avro_2.13-4.0.2.jar"
    assert (there.jars or "").endswith(here.jars)
    assert options not in here.conf
    assert there.conf[options].startswith("-Xss2m -Dorg.apache.avro")
    assert limit in there.conf[options]
    assert submission().jars is None
    assert options not in submission(STANDALONE, shared=True, decoding=TEXT).conf


def test_avro_without_sparks_module_for_it_is_found_before_anything_is_planned() -> None:
    with pytest.raises(InstallationError, match=r"expected spark-avro_\*\.jar for records in Avro"):
        replace(INSTALLED, spark_home=None).check_avro_jars()
