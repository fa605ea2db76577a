"""Fixtures of the tests of groups: three nodes with a leader; the library has its own clock again when a test has ended."""

import pytest

from tests.raft.rigs import CLOCK, Safe


@pytest.fixture(autouse=True)
def _clock():
    yield
    CLOCK.release()


@pytest.fixture
def rig():
    """Three nodes, of which one leads."""
    rig = Safe(3).start_all()
    rig.elect()
    rig.run(0.5)
    return rig
