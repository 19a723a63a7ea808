"""Says what this machine lacks, before anything is installed on it.

Runs with whatever `python3` there is, so it keeps to syntax that old interpreters can read and to the standard library.
"""

import re
import subprocess
import sys

from java_command import JavaMissingError, java_command

PYTHON_AT_LEAST = (3, 11)
# Spark 4.0 and Kafka 4.3 are compiled for 17; from 24 on, the JDK lacks what Hadoop's client calls (JEP 486).
JAVA_AT_LEAST = 17
JAVA_BELOW = 24


class MissingError(Exception):
    """Something that has to be on this machine is not, or is too old or too new."""


def check_python() -> None:
    """Raise MissingError unless this interpreter will do."""
    if sys.version_info < PYTHON_AT_LEAST:
        found = ".".join(str(number) for number in sys.version_info[:3])
        raise MissingError(
            f"Python: expected 3.11 or later, found {found} ({sys.executable}).\n"
            "  Install a later one and name it: PYTHON=python3.12 make setup"
        )


def check_java() -> None:
    """Raise MissingError unless there is a Java that will do."""
    advice = "  Install a Java 17 (Debian, Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to one."
    try:
        command = java_command()
    except JavaMissingError as error:
        raise MissingError(f"Java: {error}.\n{advice}") from None
    answer = subprocess.run([command, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = answer.stdout.decode(errors="replace").strip()
    version = re.search(r'version "(\d+)', text)
    if version is None:
        raise MissingError(f"Java: expected a version from {command} -version, found: {text}\n{advice}")
    if not JAVA_AT_LEAST <= int(version.group(1)) < JAVA_BELOW:
        raise MissingError(f"Java: expected 17 (21 will do), found {version.group(1)} ({command}).\n{advice}")


def main() -> int:
    """Exit code 0 where everything is there; otherwise every problem on stderr, and 1."""
    problems = []
    for check in (check_python, check_java):
        try:
            check()
        except MissingError as missing:
            problems.append(missing)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
