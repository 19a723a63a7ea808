"""Java is asked for a class once, by its full name, and never for a package."""

from typing import Any

from kafka_ingest.writing.java_classes import classes_of


class Jvm:
    """Py4J's view of a Java: the names that it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return f"the class {name}"


def test_java_is_asked_for_a_class_once_and_for_no_package() -> None:
    jvm = Jvm()

    found = [classes_of(jvm).org.apache.spark.sql.kafka010.JsonUtils for _ in range(2)]
    package = classes_of(jvm).scala.collection
    inner, short = getattr(package, "package$Seq"), classes_of(jvm).PythonUtils

    assert found == ["the class org.apache.spark.sql.kafka010.JsonUtils"] * 2
    assert (inner, short) == ("the class scala.collection.package$Seq", "the class PythonUtils")
    assert jvm.asked == ["org.apache.spark.sql.kafka010.JsonUtils", "scala.collection.package$Seq", "PythonUtils"]


def test_another_java_has_its_own_classes() -> None:
    first, second = Jvm(), Jvm()

    assert classes_of(first).Option == classes_of(second).Option
    assert first.asked == second.asked == ["Option"]
