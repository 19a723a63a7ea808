"""A store's clients and the tables' writers without their pauses between tries."""

import asyncio
from typing import Any

import pytest

from kafka_ingest.sinks.delta import table_log
from kafka_ingest.sinks.iceberg import commits as iceberg_commits


class WithoutWaiting:
    """asyncio for a client of stores, which waits between its tries: s3fs also after the last, gcsfs half a minute."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(_: float) -> None:
        await asyncio.sleep(0)


def let_s3_try_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tries of S3's client follow each other at once."""
    monkeypatch.setattr("s3fs.core.asyncio", WithoutWaiting())
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)


def let_gcs_try_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tries of Google's client follow each other at once."""
    monkeypatch.setattr("gcsfs.retry.asyncio", WithoutWaiting())


def let_azure_try_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tries of Azure's client follow each other at once."""
    policy = "azure.storage.blob._shared.policies_async.ExponentialRetry.get_backoff_time"
    monkeypatch.setattr(policy, lambda *_: 0)


def let_tables_try_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tries to make a table, and to commit to one, follow each other at once."""
    monkeypatch.setattr(table_log, "CREATION_PAUSES_S", (0.0,) * len(table_log.CREATION_PAUSES_S))
    monkeypatch.setattr(iceberg_commits, "LONGEST_PAUSE_S", 0.0)
