"""``jars`` and ``init``: the jars that the installed Spark needs, and what a user's own repository holds."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer

from kafka_ingest.cli.arguments import Json
from kafka_ingest.cli.output import answers, out, print_json, step
from kafka_ingest.errors import InstallationError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.durable_files import create_durably, make_directory_durably
from kafka_ingest.settings.feed_schema import schema_text
from kafka_ingest.spark_launch.fetch_jars import MAVEN_CENTRAL, fetch_jars, from_folder, from_repository, jars_for
from kafka_ingest.spark_launch.installation import AVRO_FOLDER, CONNECTOR_FOLDER, jars_root

Stores = Annotated[
    list[str] | None, typer.Argument(metavar="STORE", help="Also for outputs in stores: s3, gcs, azure.")
]


def jars(
    stores: Stores = None,
    *,
    repository: Annotated[str, typer.Option(metavar="URL", help="Another repository.")] = MAVEN_CENTRAL,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take them from this folder, without internet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Fetch the jars that the installed Spark needs, and check their SHA-256. What is there is left alone."""
    with answers(as_json=as_json):
        if from_ is not None and repository != MAVEN_CENTRAL:
            raise WrongUseError("expected --repository or --from, found both")
        try:
            spark = version("pyspark")
        except PackageNotFoundError as error:
            raise InstallationError("expected pyspark in this environment, found none. Install it.") from error
        names = tuple(dict.fromkeys([CONNECTOR_FOLDER, AVRO_FOLDER, *(stores or [])]))
        wanted, root = jars_for(spark, names), jars_root()
        source = from_repository(repository) if from_ is None else from_folder(from_)
        with step("jars"):
            fetched = fetch_jars(wanted, root, source)
        if as_json:
            print_json({"spark": spark, "folder": str(root), "fetched": fetched})
            return
        of_all = sum(map(len, wanted.values()))
        new = sum(map(len, fetched.values()))
        out.print(f"{counted(of_all, 'jar')} for Spark {spark} in {root}, {new} of them fetched", soft_wrap=True)


DAG_FILE: Final = '''"""Airflow's DAGs: one for each feed file in feeds/, and those that maintain and operate feeds."""
from kafka_ingest.airflow_tasks.dags import all_dags
globals().update(all_dags(__file__))
'''

FEED_FILE: Final = """\
# yaml-language-server: $schema=feed.schema.json
# One file is one feed, and one DAG. `kafka-ingest feeds` checks it, `kafka-ingest preview clicks` shows records.
name: clicks                    # the feed's identity; call the file after it
schedule: "@hourly"             # a cron expression or preset; null for runs by hand
kafka:
  conn_id: kafka_default        # an Airflow connection of type kafka; its extra is librdkafka configuration
  topics: [clicks]              # or topic_pattern: "clicks-.*"
  # group: clicks-ingest        # a consumer group that is kept in step; without it Kafka is only read
start: earliest                 # or latest: where the first batch begins
on_data_loss: fail              # or record_gap, or hold
# value: {format: json, schema: "id bigint, name string"}    # without it the bytes as they are
sink:
  format: parquet               # or delta, iceberg, postgresql, kafka
  path: clicks                  # absolute, or under KAFKA_INGEST_DATA
"""

OURS: Final = "dags"
SHOWN: Final = 5


@cache
def files() -> dict[str, str]:
    feeds = {"dags/feeds/clicks.yaml": FEED_FILE, "dags/feeds/feed.schema.json": schema_text()}
    return {"dags/kafka_ingest_dags.py": DAG_FILE, **feeds}


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="An empty folder, or one to make.")] = Path(),
    *,
    as_json: Json = False,
) -> None:
    """Make a DAG file and a commented feed file with its schema in an empty folder. What is there is left alone."""
    with answers(as_json=as_json):
        made = make_project(folder)
        if as_json:
            print_json({"folder": str(folder.resolve()), "made": made})
        for each in [] if as_json else made:
            out.print(f"made {folder / each}", markup=False, soft_wrap=True)
        if not made and not as_json:
            out.print("all files are there already, as init makes them: nothing to do")


def make_project(folder: Path) -> list[str]:
    """Make the files, and return which were missing; raises WrongUseError where the folder holds anything else."""
    ours = files()
    try:
        # Only what is at the top is looked through: this may be a home directory.
        top = {each.name for each in folder.iterdir()} - {".git"} if folder.exists() else set[str]()
        below = [each for each in (folder / OURS).rglob("*") if not each.is_dir()] if top == {OURS} else []
        found = sorted(top if top != {OURS} else {str(each.relative_to(folder)) for each in below})
        theirs = [each for each in found if each not in ours or (folder / each).read_bytes() != ours[each].encode()]
        if theirs:
            raise WrongUseError(
                f"expected an empty folder at {folder.resolve()}, found {', '.join(theirs[:SHOWN])}"
                f"{', …' if len(theirs) > SHOWN else ''}. Nothing was changed. Name another folder: "
                "`kafka-ingest init FOLDER`."
            )
        made = [each for each in ours if each not in found]
        for each in made:
            make_directory_durably((folder / each).parent)
            create_durably(folder / each, ours[each].encode())
    except OSError as error:
        raise WrongUseError(
            f"expected a folder at {folder.resolve()} that this user can write, found: {error}. Name another one."
        ) from error
    return made
