"""The one error of a benchmark; nothing else, so that every module can import it."""


class BenchmarkError(RuntimeError):
    """Something cannot be measured, or did not do the work that it should have: says what was expected and found."""
