"""Failed assertions in the tests' own helpers show what they compared, as those in test files do."""

import pytest

pytest.register_assert_rewrite("tests")
