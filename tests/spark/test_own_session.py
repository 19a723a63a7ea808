"""Several attempts in one driver: each has a session of its own, however a feed's function asks for it."""

from collections.abc import Callable
from threading import Barrier

from pyspark import InheritableThread
from pyspark.sql import SparkSession

from kafka_ingest.model.spark_settings import OUR_SETTINGS
from kafka_ingest.writing.side_by_side import own_session

ASKED: dict[str, Callable[[], SparkSession]] = {
    "active": SparkSession.active,
    "builder": lambda: SparkSession.builder.config("spark.sql.shuffle.partitions", "3").getOrCreate(),
    "current": lambda: SparkSession.active().getActiveSession() or SparkSession.active(),
}


def test_a_function_that_asks_pyspark_for_its_session_sees_the_views_and_settings_of_its_own_attempt(
    spark: SparkSession,
) -> None:
    found: dict[str, list[str]] = {"a": [], "b": []}
    both = Barrier(2, timeout=60)

    def attempt(name: str) -> None:
        own = own_session(spark, OUR_SETTINGS, 2)
        own.createDataFrame([(name,)], "name string").createOrReplaceTempView("names")
        both.wait()
        for ask in ASKED.values():
            asked = ask()
            found[name] += [asked.table("names").first()["name"], asked.conf.get("spark.sql.session.timeZone")]

    threads = [InheritableThread(target=attempt, args=[name]) for name in found]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert found == {name: [name, "UTC"] * len(ASKED) for name in found}
    assert SparkSession.builder.getOrCreate() is spark
