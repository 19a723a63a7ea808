"""The benchmark's S3 server: what a run leaves there is checked as files, and no later run finds it."""

from pathlib import Path

from s3_server import BUCKET, S3Server

from kafka_ingest.foundation.storage import opened_elsewhere
from kafka_ingest.model.place import RemotePlace

OUTPUT = f"s3://{BUCKET}/tables-1-0/output"
OBJECTS = {"part-0.parquet": b"a" * 6_000_000, "_delta_log/0.json": b"{}"}


def test_the_objects_of_a_run_are_downloaded_by_their_names_and_then_removed(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3") as server:
        output = opened_elsewhere(RemotePlace(OUTPUT), server.access)
        before = server.processor_s()
        for name, content in OBJECTS.items():
            (output / name).write_bytes(content)
        server.download(OUTPUT, tmp_path / "output")
        server.clear()

        assert server.processor_s() > before
        assert output.fs.find(BUCKET) == []
    found = [path for path in (tmp_path / "output").rglob("*") if path.is_file()]
    assert {str(path.relative_to(tmp_path / "output")): path.read_bytes() for path in found} == OBJECTS
