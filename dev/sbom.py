"""Write what a wheel brings with it, as CycloneDX: `make dist`. The same wheel and environment give the same bytes.

Components are the packages that the wheel asks for, and what these ask for, in the versions of this environment, and
Spark's jars, by the list in the package. Form: https://cyclonedx.org/docs/1.6/json/.
"""

import hashlib
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from kafka_ingest.spark_launch.fetch_jars import known_jars

PACKAGE = "kafka-ingest"
SPARK = "pyspark"
Component = dict[str, Any]


def canonical(name: str) -> str:
    """Return a package's name as PyPI compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def asked_for(found: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what a package asks for here, with the extras."""
    for line in found.requires or ():
        needed = Requirement(line)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield canonical(needed.name), frozenset(needed.extras)


def with_all_below(name: str) -> dict[str, tuple[Distribution, set[str]]]:
    """Return a package and all that it needs, each with the names of those that it asks for itself."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(name, frozenset[str]())]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            one = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"expected what the wheel needs in this environment, found no {name}: run `make setup`")
        below = list(asked_for(one, extras))
        found.setdefault(name, (one, set()))[1].update(each for each, _ in below)
        waiting += below
    return found


def python_component(name: str, found: Distribution) -> Component:
    """Return a package."""
    licence = found.metadata.json.get("license_expression")
    purl = f"pkg:pypi/{name}@{found.version}"
    of_licence = {"licenses": [{"expression": licence}]} if licence else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": found.version, **of_licence, "purl": purl}


def jar_components(spark: str) -> Iterator[Component]:
    """Yield the jars for a version of Spark, each once."""
    known = known_jars()
    for path in sorted({path for paths in known["versions"][spark].values() for path in paths}):
        *group, name, version, _ = path.split("/")
        purl = f"pkg:maven/{'.'.join(group)}/{name}@{version}"
        sums = [{"alg": "SHA-256", "content": known["sha256"][path]}]
        yield {
            "type": "library",
            "bom-ref": purl,
            "group": ".".join(group),
            "name": name,
            "version": version,
            "hashes": sums,
            "purl": purl,
        }


def bill(wheel: Path) -> Component:
    """Return the whole document."""
    found = with_all_below(PACKAGE)
    own, _ = found[PACKAGE]
    packages = {name: python_component(name, each) for name, (each, _) in sorted(found.items())}
    jars = list(jar_components(found[SPARK][0].version))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    application = {**packages.pop(PACKAGE), "type": "application"}
    refs = {name: each["bom-ref"] for name, each in packages.items()} | {PACKAGE: application["bom-ref"]}
    needed = [
        {"ref": refs[name], "dependsOn": sorted(refs[each] for each in below)}
        for name, (_, below) in sorted(found.items())
    ]
    needed[[each["ref"] for each in needed].index(refs[PACKAGE])]["dependsOn"] += [jar["bom-ref"] for jar in jars]
    at = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), UTC)
    document: Component = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": at.isoformat().replace("+00:00", "Z"),
            "component": {**application, "hashes": [{"alg": "SHA-256", "content": digest}]},
        },
        "components": [*packages.values(), *jars],
        "dependencies": needed,
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{own.version} {json.dumps(document)}")
    return {**document, "serialNumber": f"urn:uuid:{serial}"}


if __name__ == "__main__":
    built = Path(sys.argv[1])
    Path(f"{built.with_suffix('')}.cdx.json").write_text(json.dumps(bill(built), indent=1) + "\n")
