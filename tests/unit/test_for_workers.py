"""Functions arrive in Spark's Python workers with their code, and a task begins there."""

import gc
import importlib
import sys
import zipfile
import zipimport
from pathlib import Path

import pytest
from pyspark import cloudpickle

from kafka_ingest.writing.for_workers import for_workers


def test_where_a_function_arrives_nothing_is_looked_through_again_before_the_next_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, seen = str(tmp_path / "a.zip"), list[str]()
    zipfile.ZipFile(archive, "w").close()
    monkeypatch.setitem(sys.path_importer_cache, archive, zipimport.zipimporter(archive))
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("frozen"))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: len(seen))
    monkeypatch.setattr(zipimport, "_read_directory", seen.append)

    for _ in range(2):
        assert cloudpickle.loads(cloudpickle.dumps(for_workers(len))) is len
        importlib.invalidate_caches()

    assert seen == ["frozen"]
