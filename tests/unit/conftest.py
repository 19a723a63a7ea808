"""What the unit tests share. Properties are tried without a time limit, and no example is kept from run to run."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.fakes import FeedInMemory

settings.register_profile("unit", deadline=None, database=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("unit"), max_examples=15)


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples where a run is to be quick. They are drawn again each time: many runs try many."""
    settings.load_profile("quick" if config.getoption("quick") else "unit")


@pytest.fixture(scope="session")
def airflow_home() -> Iterator[Path]:
    """The home of the Airflow that a test imports."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
        yield Path(os.environ["AIRFLOW_HOME"])


@pytest.fixture
def feed() -> "FeedInMemory":
    """A feed that was never planned; its topic holds orders-0[0, 100) and orders-1[0, 50)."""
    from tests.fakes import FeedInMemory

    return FeedInMemory()
