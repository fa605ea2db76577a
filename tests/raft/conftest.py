"""What all tests of groups share: the library's clock is nobody's when a test has ended."""

import pytest

from stan.raft.pysyncobj.compat import CLOCK


@pytest.fixture(autouse=True)
def _clock():
    yield
    CLOCK.now = None
