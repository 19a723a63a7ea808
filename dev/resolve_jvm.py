"""Fills `.jvm/` with the jars that dev/jvm/ivy.xml asks for: `.jvm/spark/*.jar` and `.jvm/broker/*.jar`.

Resolved by the Ivy inside pyspark, so no Maven is needed. A resolve that is interrupted leaves no jar directory behind
that looks complete: jars are retrieved into `.jvm/partial/` and moved to their names when all of them are there.
"""

import shutil
import subprocess
import sys
from collections import deque
from importlib.util import find_spec
from pathlib import Path

from dies_with_parent import dying_with_this_process
from java_command import java_command
from progress import step

ROOT = Path(__file__).resolve().parent.parent
JVM = ROOT / ".jvm"
LOG = JVM / "ivy.log"
CONFIGURATIONS = ("spark", "broker")
LOG_LINES_SHOWN = 25


class ResolveError(RuntimeError):
    """Ivy did not deliver the jars."""


def resolve() -> None:
    """Resolve and retrieve; on return both directories are complete. Raises ResolveError with the end of Ivy's log."""
    JVM.mkdir(exist_ok=True)
    partial = JVM / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    with step("Resolving the JVM dependencies from Maven Central") as shown:
        command = dying_with_this_process(_ivy_command(partial))  # two of them would spoil each other's cache
        tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
        found = downloaded = 0
        with (
            LOG.open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        ):
            for line in ivy.stdout or ():
                log.write(line)
                tail.append(line)
                found += "\tfound " in line
                downloaded += "[SUCCESSFUL ]" in line
                shown.note(f"{found} modules found, {downloaded} jars downloaded")
        if ivy.returncode != 0 or not all(any((partial / name).glob("*.jar")) for name in CONFIGURATIONS):
            raise ResolveError(
                f"expected the jars of dev/jvm/ivy.xml, but Ivy ended with exit code {ivy.returncode}. "
                f"The end of {LOG.relative_to(ROOT)}:\n\n{''.join(tail)}\n"
                "Where a download failed, run make setup again: what is there already is not downloaded twice."
            )
        for name in CONFIGURATIONS:
            shutil.rmtree(JVM / name, ignore_errors=True)
            (partial / name).rename(JVM / name)
        partial.rmdir()


def _ivy_command(target: Path) -> list[str]:
    pyspark = find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise ResolveError("expected pyspark in this environment, found none: run make setup")
    jars = Path(pyspark.submodule_search_locations[0]) / "jars"
    return [
        *(java_command(), "-cp", f"{jars}/*", "org.apache.ivy.Main"),
        *("-settings", str(ROOT / "dev/jvm/ivysettings.xml"), "-ivy", str(ROOT / "dev/jvm/ivy.xml")),
        # A cache of our own: the user's may be unwritable, half filled, or in use by another Ivy at this moment.
        *("-cache", str(JVM / "cache"), "-confs", *CONFIGURATIONS),
        *("-retrieve", f"{target}/[conf]/[artifact]-[revision].[ext]", "-types", "jar", "bundle"),
    ]


if __name__ == "__main__":
    try:
        resolve()
    except (ResolveError, RuntimeError) as error:
        sys.exit(f"\n{error}")
