"""What has come and gone leaves nothing behind: no row, no byte of a snapshot, no entry of anything in memory."""

import gc
from types import FunctionType, ModuleType

import pytest

from stan import limits
from stan.config import Config, StoreConfig
from tests.kit.core_harness import CoreHarness

FEW, MANY = 40, 400
"""Rounds of what comes and goes; what is kept of each would show after many."""
GROUPS = 3
ROW_BYTES, ENTRIES = 30, 5
"""At most what a run of dropped channels has in a snapshot, and in memory."""


@pytest.fixture
def harness():
    harness = CoreHarness(Config(store=StoreConfig(raft_groups=GROUPS)))
    harness.connect("stays")
    harness.publish("stays", b"1", client_id="stays")
    harness.subscribe("stays", client_id="stays", durable="stays")
    return harness


def delete(harness, name):
    channels = harness.broker.parts.channels
    channels.removal.delete(channels.by_name[name.encode()])
    harness.turn()
    assert name.encode() not in harness.state.channels


def a_channel(harness, number):
    name = f"c.{number}"
    harness.publish(name, b"1", client_id="stays")
    harness.subscribe(name, f"in.{number}", client_id="stays", durable=f"d{number}")
    delete(harness, name)


def a_durable(harness, number):
    made = harness.subscribe("stays", f"in.{number}", client_id="stays", durable=f"d{number}")
    harness.leave("stays", made.ack_inbox, client_id="stays", unsubscribe=True)


def a_queue_group(harness, number):
    made = harness.subscribe("stays", f"in.{number}", client_id="stays", queue=f"q{number}")
    harness.leave("stays", made.ack_inbox, client_id="stays")


def a_client(harness, number):
    name = f"client{number}"
    harness.connect(name)
    harness.subscribe("stays", f"in.{number}", client_id=name)
    harness.close(name)


def groups(harness):
    return [0, *harness.broker.view.groups]


def rows_of(harness):
    """How many rows there are; all are taken, as if they were written."""
    found = 0
    for group in groups(harness):
        harness.broker.states.take_changed_rows(group)
        harness.broker.states.touch_all(group)
        rows = harness.broker.states.take_changed_rows(group)
        found += sum(len(one) for one in rows if isinstance(one, list))
    return found


def snapshot_of(harness):
    return sum(harness.state.snapshot(group).ByteSize() for group in groups(harness))


def entries_of(root):
    """How many entries all containers have that can be reached from *root*."""
    seen, ahead, found = set(), [root], 0
    while ahead:
        one = ahead.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, (dict, list, set, tuple, frozenset)) or hasattr(one, "maxlen"):
            found += len(one)
        ahead += gc.get_referents(one)
    return found


@pytest.mark.parametrize("come_and_go", [a_channel, a_durable, a_queue_group, a_client])
def test_what_comes_and_goes_leaves_nothing_behind(harness, come_and_go):
    def rounds(first, last):
        for number in range(first, last - 1):
            come_and_go(harness, number)
        harness.pass_time(40)  # what waits for an ack wait, or what a next leader may be asked, is forgotten
        come_and_go(harness, last - 1)
        harness.pass_time(1)
        harness.said.clear()
        harness.events.clear()
        return rows_of(harness), snapshot_of(harness), entries_of(harness.broker), len(harness.indexes)

    rows, size, entries, indexes = rounds(0, FEW)
    more_rows, larger, more_entries, more_indexes = rounds(FEW, FEW + MANY)
    runs = GROUPS * (limits.DROPPED_RUNS + 1)
    assert more_rows <= rows + runs
    assert larger <= size + ROW_BYTES * runs
    assert more_entries <= entries + ENTRIES * runs
    assert more_indexes == indexes
