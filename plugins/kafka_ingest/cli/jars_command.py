"""``kafka-ingest jars``: the jars that the installed Spark needs, fetched and checked."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

from kafka_ingest.cli.arguments import Json
from kafka_ingest.cli.output import answers, out, print_json, step
from kafka_ingest.errors import InstallationError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.spark_launch.fetch_jars import MAVEN_CENTRAL, fetch_jars, from_folder, from_repository, jars_for
from kafka_ingest.spark_launch.installation import AVRO_FOLDER, CONNECTOR_FOLDER, jars_root

Stores = Annotated[
    list[str] | None, typer.Argument(metavar="[STORE]...", help="Also for outputs in stores: s3, gcs, azure.")
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
