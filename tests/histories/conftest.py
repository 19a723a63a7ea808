"""What the random histories need once: a migrated SQLite file to copy."""

from pathlib import Path

import pytest
from sqlalchemy import URL

from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.upgrade import upgrade


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("histories") / "template.db"
    engine = open_database(ControlDatabaseSettings(URL.create("sqlite", database=str(file))), create=True)
    upgrade(engine, create=True)
    engine.dispose()
    return file
