"""The page takes only so many of the API server's threads."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from fastapi import HTTPException

from kafka_ingest.page.kept_answers import Turns


def test_who_comes_when_all_turns_are_taken_is_sent_away_and_a_turn_that_ended_is_free_again() -> None:
    take = asynccontextmanager(Turns(2))

    async def crowd() -> None:
        async with AsyncExitStack() as inside:
            for _ in range(2):
                await inside.enter_async_context(take())
            with pytest.raises(HTTPException) as refused:
                await inside.enter_async_context(take())
            assert refused.value.status_code == 503
        async with AsyncExitStack() as inside:
            for _ in range(2):
                await inside.enter_async_context(take())
        with pytest.raises(ZeroDivisionError):
            async with take(), take():
                raise ZeroDivisionError
        async with take(), take():
            pass

    asyncio.run(crowd())
