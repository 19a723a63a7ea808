"""Which jars Spark needs besides its own, for each version of it.

``jars.json`` has them: by Spark's version and by what needs them, their paths as in Maven Central; and of each path
the SHA-256. Those of stores are known for the versions that were tried with them.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from kafka_ingest.errors import InstallationError
from kafka_ingest.spark_launch.installation import CONNECTOR_FOLDER, jars_root

KNOWN: Final = Path(__file__).with_name("jars.json")


def jars_for(spark_version: str, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return what each of these needs with a version of Spark: paths in Maven Central, with their SHA-256.

    Raises InstallationError where that is not known.
    """
    known = known_jars()
    versions, sums = known["versions"], known["sha256"]
    if spark_version not in versions:
        raise InstallationError(
            f"expected a Spark whose jars are known ({', '.join(versions)}), found {spark_version}. Install one of "
            f"these, or put the connector of {spark_version} into {jars_root() / CONNECTOR_FOLDER} yourself."
        )
    of_version = versions[spark_version]
    if unknown := [name for name in names if name not in of_version]:
        raise InstallationError(
            f"expected some of {', '.join(of_version)}, whose jars for Spark {spark_version} are known, found "
            f"{', '.join(unknown)}."
        )
    return {name: {path: sums[path] for path in of_version[name]} for name in names}


@cache
def known_jars() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return found
