"""Fills a directory with the jars that an Ivy file asks for: `.jvm/spark/*.jar` and the like by default.

Resolved by the Ivy inside pyspark, so no Maven is needed. A distribution is unpacked. A resolve that is interrupted
leaves no jar directory behind that looks complete: jars are retrieved into `partial/` and moved to their names when all
of them are there.
"""

import argparse
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dies_with_parent import dying_with_this_process
from java_command import java_command
from progress import step

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "dev/jvm/ivysettings.xml"
LOG_LINES_SHOWN = 25


class ResolveError(RuntimeError):
    """Ivy did not deliver the jars."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The configurations of one Ivy file; the jars of each go into a directory of its name below ``target``."""

    ivy_file: Path
    target: Path
    configurations: Sequence[str]
    variables: Sequence[str] = ()
    """Of the Ivy file, each as NAME=VALUE."""

    @property
    def partial(self) -> Path:
        """Where jars are until all of them are there."""
        return self.target / "partial"

    @property
    def log(self) -> Path:
        """What Ivy said the last time."""
        return self.target / "ivy.log"


JVM = Wanted(ROOT / "dev/jvm/ivy.xml", ROOT / ".jvm", ("spark", "avro", "broker"))


def resolve(wanted: Wanted = JVM) -> None:
    """Resolve and retrieve; on return all directories are complete. Raises ResolveError with the end of Ivy's log."""
    wanted.target.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(wanted.partial, ignore_errors=True)
    with step(f"Resolving {_shown(wanted.ivy_file)} from Maven Central") as shown:
        command = dying_with_this_process(_ivy_command(wanted))  # two of them would spoil each other's cache
        tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
        found = downloaded = 0
        with (
            wanted.log.open("w") as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
        ):
            for line in ivy.stdout or ():
                log.write(line)
                tail.append(line)
                found += "\tfound " in line
                downloaded += "[SUCCESSFUL ]" in line
                shown.note(f"{found} modules found, {downloaded} jars downloaded")
        if ivy.returncode == 0:
            _unpack_distributions(wanted.partial)
        if ivy.returncode != 0 or not all(any((wanted.partial / name).glob("*.jar")) for name in wanted.configurations):
            raise ResolveError(
                f"expected the jars of {_shown(wanted.ivy_file)}, but Ivy ended with exit code {ivy.returncode}. "
                f"The end of {_shown(wanted.log)}:\n\n{''.join(tail)}\n"
                "Where a download failed, run the same make again: finished downloads are kept."
            )
        for name in wanted.configurations:
            shutil.rmtree(wanted.target / name, ignore_errors=True)
            (wanted.partial / name).rename(wanted.target / name)
        wanted.partial.rmdir()


def _unpack_distributions(partial: Path) -> None:
    for distribution in partial.glob("*/*.tar.gz"):
        shutil.unpack_archive(distribution, distribution.parent)
        distribution.unlink()


def _ivy_command(wanted: Wanted) -> list[str]:
    pyspark = find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise ResolveError("expected pyspark in this environment, found none: run make setup")
    jars = Path(pyspark.submodule_search_locations[0]) / "jars"
    return [
        *(java_command(), *(f"-D{each}" for each in wanted.variables), "-cp", f"{jars}/*", "org.apache.ivy.Main"),
        *("-settings", str(SETTINGS), "-ivy", str(wanted.ivy_file)),
        # A cache of our own: the user's may be unwritable, half filled, or in use by another Ivy at this moment.
        *("-cache", str(wanted.target / "cache"), "-confs", *wanted.configurations),
        *(
            "-retrieve",
            f"{wanted.partial}/[conf]/[artifact]-[revision](-[classifier]).[ext]",
            "-types",
            "jar",
            "bundle",
            "distribution",
        ),
    ]


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _wanted() -> Wanted:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ivy-file", type=Path, default=JVM.ivy_file, metavar="XML", help="what is asked for")
    parser.add_argument("--target", type=Path, default=JVM.target, metavar="DIRECTORY", help="where the jars go")
    parser.add_argument("--configurations", nargs="+", default=JVM.configurations, metavar="NAME", help="which of it")
    parser.add_argument("--set", nargs="*", default=(), metavar="NAME=VALUE", help="variables of the Ivy file")
    options = parser.parse_args()
    return Wanted(options.ivy_file.resolve(), options.target.resolve(), options.configurations, options.set)


if __name__ == "__main__":
    try:
        resolve(_wanted())
    except (ResolveError, RuntimeError) as error:
        sys.exit(f"\n{error}")
