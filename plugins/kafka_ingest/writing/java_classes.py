"""Java's classes by their full names, each asked for once.

Py4J asks Java at each step of a name such as ``jvm.scala.Option`` whether it is a class, and Java looks into each of
Spark's 300 jars for what is only a package.
"""

from functools import lru_cache
from typing import Any

Java = Any
"""An object of Java's, which has whatever methods Java gives it."""


class JavaClasses:
    """Finds classes as Py4J's view of Java does; a name of small letters and digits is a package."""

    def __init__(self, jvm: Java, package: str = "") -> None:
        self._jvm = jvm
        self._package = package

    def __getattr__(self, name: str) -> Java:
        full_name = f"{self._package}{name}"
        found = JavaClasses(self._jvm, f"{full_name}.") if name.islower() else getattr(self._jvm, full_name)
        setattr(self, name, found)
        return found


@lru_cache(maxsize=1)
def classes_of(jvm: Java) -> JavaClasses:
    """Return the classes of a Java; a process has one."""
    return JavaClasses(jvm)
