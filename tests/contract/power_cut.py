"""A process that ends at one of its file system calls."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class PowerCut(BaseException):
    """The process ends here: nothing catches this."""


@contextmanager
def power_cut(after: int) -> Iterator[None]:
    """End the process before its file system call number ``after`` (fsync, rename or link), counted from 0."""
    real = {"fsync": os.fsync, "rename": os.rename, "link": os.link}
    calls = 0

    def cut(name: str) -> Callable[..., object]:
        def call(*arguments: Any, **named: Any) -> object:
            nonlocal calls
            calls += 1
            if calls > after:
                raise PowerCut
            return real[name](*arguments, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(os, name, cut(name))
        yield
