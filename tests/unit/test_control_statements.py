"""How statements of the control tables reach PostgreSQL."""

from typing import Any

from sqlalchemy.dialects import postgresql

from kafka_ingest.control.feed_statements import TOUCH


def test_rows_that_are_added_to_a_feeds_sum_are_numbers_of_64_bits() -> None:
    dialect: Any = postgresql.psycopg.dialect()
    assert "%(more_rows)s::BIGINT" in str(TOUCH.compile(dialect=dialect))
