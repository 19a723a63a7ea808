"""What holds before any test is read: helpers' assertions are shown in full, and nobody looks for garbage in vain.

Failed assertions in the tests' own helpers show what they compared, as those in test files do.
"""

import gc
from collections.abc import Iterator

import pytest

from link_jars import link_jars

pytest.register_assert_rewrite("tests")

# What is imported and collected from here on stays until the end. The collector of garbage would go through all of it
# again and again: a tenth of the processor's time of the quick tests.
gc.disable()

link_jars()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Look for garbage again when the tests are collected, but not among what was imported for them."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)  # most of what tests make is gone by itself
        gc.enable()
