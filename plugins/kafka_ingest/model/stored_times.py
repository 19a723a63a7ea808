"""Which days and times are stored: those of the years 1 to 9999, in UTC.

They are what Spark, Parquet, Delta, Iceberg and the SQL standard hold. The first and the last day are stored like the
others: producers write them for "none" and "for ever". East or west of UTC some readers have no such local time
(Python's ``datetime``); in UTC all have them.
"""

from typing import Final

FIRST_SECOND: Final = -62_135_596_800
END_OF_SECONDS: Final = 253_402_300_800
"""0001-01-01 and the end of 9999-12-31, in seconds since 1970. The end is not stored."""

FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"
FIRST_TIME, LAST_TIME = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
"""The first and the last of them, both stored, as SQL writes them in literals (the times without a zone)."""
