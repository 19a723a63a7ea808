"""Functions that a feed may name as its ``transform``: good ones, and some that do what they may not."""

import sys

from pyspark.sql import DataFrame

NO_FUNCTION = 1


def even_offsets(rows: DataFrame) -> DataFrame:
    return rows.where("kafka_offset % 2 = 0")


def every_second(rows: DataFrame) -> DataFrame:
    """Drop rows, add a column, and move what is left to other tasks."""
    return rows.where("kafka_offset % 2 = 0").withColumn("twice", rows["id"] * 2).repartition(3)


def newest_of_each_id(rows: DataFrame) -> DataFrame:
    return rows.orderBy("kafka_partition", "kafka_offset").dropDuplicates(["id"])


def none(rows: DataFrame) -> DataFrame:
    return rows.limit(0)


def twice(rows: DataFrame) -> DataFrame:
    return rows.union(rows)


def moved(rows: DataFrame) -> DataFrame:
    return rows.withColumn("kafka_offset", rows["kafka_offset"] + 1000)


def at_another_time(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("* except (kafka_topic_id)", "upper(kafka_topic_id) as kafka_topic_id")


def without_a_position(rows: DataFrame) -> DataFrame:
    return rows.drop("kafka_partition")


def as_text(rows: DataFrame) -> DataFrame:
    return rows.withColumn("kafka_offset", rows["kafka_offset"].cast("string"))


def called_like_ours(rows: DataFrame) -> DataFrame:
    return rows.withColumnRenamed("id", "Kafka_id")


def with_a_date(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "date '2026-01-02' as kafka_date")


def with_a_name_twice(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("*", "id as ID")


def no_rows_at_all(rows: DataFrame) -> int:
    return rows.count()


def in_another_time_zone(rows: DataFrame) -> DataFrame:
    rows.sparkSession.conf.set("spark.sql.session.timeZone", "Pacific/Apia")
    rows.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    return rows.selectExpr("*", "date_format(kafka_timestamp, 'xxx') as zone")


def that_exits(rows: DataFrame) -> DataFrame:
    sys.exit(f"{rows.count()} rows are enough")
