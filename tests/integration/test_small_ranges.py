"""Many partitions with some records each: they share files, and every question is answered as before."""

from pathlib import Path

import pyarrow.parquet
from tests.kafka_faults import create_topic, plain_records, produce
from tests.quick_project import QuickProject

PARTITIONS = 40
LARGE = 40
"""The partition that has so many records that its file is its own."""


def test_small_ranges_share_files_a_large_one_has_its_own_and_all_are_counted_located_and_explained(
    quick: QuickProject, servers: str, name: str
) -> None:
    create_topic(servers, name, PARTITIONS + 1)
    for partition in range(PARTITIONS):
        produce(servers, name, partition, plain_records(partition % 3 + 1))
    produce(servers, name, LARGE, plain_records(10_000))
    quick.write_feed(name, spark={"conf": {"spark.default.parallelism": "2"}})

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()

    small = [(partition, offset) for partition in range(PARTITIONS) for offset in range(partition % 3 + 1)]
    assert quick.positions() == small + [(LARGE, offset) for offset in range(10_000)]
    assert batch["rows"] == len(small) + 10_000
    files = sorted((quick.output / "orders" / f"kafka_batch={batch['batch_id']}").iterdir())
    held = [set(pyarrow.parquet.read_table(file)["kafka_partition"].to_pylist()) for file in files]
    assert sorted(held, key=len) == [{LARGE}, set(range(PARTITIONS))]

    located = quick.answer("locate", "orders", name, "5", "2")
    assert located["state"] == "committed"
    [file] = located["batches"][0]["files"]
    assert (file["smallest_offset"], file["largest_offset"], file["rows"], file["holds_record"]) == (0, 2, 3, True)

    explained = quick.answer("explain", file["path"])
    assert explained["receipt"] == {"differences": []}
    assert (explained["topic"], explained["rows"]) == (None, pyarrow.parquet.read_metadata(Path(file["path"])).num_rows)
    [of_five] = [each for each in explained["partitions"] if each["partition"] == 5]
    assert (of_five["rows"], of_five["intervals"]) == (3, [{"start_offset": 0, "end_offset": 3}])
    assert quick.answer("coverage", "orders", "--verify")["verified"]["differences"] == []
