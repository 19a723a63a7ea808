"""Rows that are taken out of a file which several partitions share."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from tests.contract.builders import attempt_of, orders, plan_of
from tests.contract.staged_files import Staged, write_rows

from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import DATA
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.restaged_parquet import restage
from kafka_ingest.writing.stage_files import counted_partitions


def test_partitions_of_one_number_in_two_topics_are_taken_apart(tmp_path: Path) -> None:
    both = [orders(0), TopicPartition("refunds", 0)]
    plan = plan_of(*((each, 0, 10) for each in both), output=tmp_path / "orders")
    source, target = tmp_path / "source", tmp_path / "target"
    (source / DATA).mkdir(parents=True)
    for each in both:
        write_rows(tmp_path / f"{each}.parquet", each, range(10))
    shared = source / DATA / "part-0.parquet"
    tables = [pyarrow.parquet.read_table(tmp_path / f"{each}.parquet") for each in both]
    pyarrow.parquet.write_table(pa.concat_tables(tables), shared)
    file = WrittenFile(shared.name, shared.stat().st_size, tuple(counted_partitions(shared)))
    staged = Staged(tmp_path / "any").receipt
    receipt = Receipt(
        plan.batch_id, 1, plan.fingerprint, attempt_of(plan, 1).document_sha256, 20, (file,), staged.written_at, "spark"
    )

    found = restage(source / DATA, receipt, target / DATA, [OffsetRange(each, 2, 5) for each in both], batch_id=None)

    assert [(each.rows, each.spans[0][0]) for each in found] == [(3, OffsetRange(each, 2, 5)) for each in both]
    assert [pyarrow.parquet.read_metadata(target / DATA / each.name).num_rows for each in found] == [3, 3]
    assert len({each.name for each in found}) == 2
