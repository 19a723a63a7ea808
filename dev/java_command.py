"""Which `java` to run: the one Spark's own scripts would choose."""

import os
import shutil
from pathlib import Path


class JavaMissingError(RuntimeError):
    """There is no Java to run."""


def java_command() -> str:
    """`$JAVA_HOME/bin/java` where JAVA_HOME is set, otherwise the `java` on the PATH, as an absolute path."""
    home = os.environ.get("JAVA_HOME")
    candidate = str(Path(home) / "bin" / "java") if home else "java"
    found = shutil.which(candidate)
    if found is None:
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise JavaMissingError(f"expected Java 17, found no java in {where}: install it or set JAVA_HOME")
    return str(Path(found).absolute())
