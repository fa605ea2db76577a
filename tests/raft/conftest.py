"""What all tests of groups share: the bare library has its own clock again when a test has ended."""

import pytest

from tests.raft.rigs import CLOCK


@pytest.fixture(autouse=True)
def _clock():
    yield
    CLOCK.release()
