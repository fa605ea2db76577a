"""Which turns the driver takes, and in which order a turn syncs, sends and looks."""

from types import SimpleNamespace

import pytest

from stan import limits
from stan.core.base.ready import Ready
from stan.edge.driver import Driver
from stan.edge.nats.read_buffer import Backlog
from stan.edge.turns import Turns


class Group:
    def __init__(self, world, number, *, leads):
        self.world, self.group, self.leads, self.log = world, number, leads, self
        self.wants_sync = self.has_committed = False
        self.failed = ""
        self.durable_index = 0

    def take_committed(self):
        self.has_committed = False
        return []

    def synced(self, durable):
        self.world.seen.append(f"synced {self.group}")


class World:
    """A driver among pieces that note what it does with them."""

    def __init__(self, *, clustered=True):
        self.seen, self.soon_calls = [], []
        self.told = self.quick = False
        self.groups = {1: Group(self, 1, leads=True), 2: Group(self, 2, leads=False)}
        self.dirty, self.led, self.at_rest = set(), {1: None}, True
        self.speaks = {"n2"}
        self.owner, self.leaves_some = SimpleNamespace(runs=False), False
        self.read_buffer, self.went_up, self.went_down = self, False, False
        self.stops = SimpleNamespace(without_room=set())
        self.backlog, self.held = Backlog(), []
        self.unsent, self.connection, self.view, self.uncommitted_bytes, self.has_work = 0, self, self, 0, False
        self.leaves = {}
        self.turns = Turns(self, self.crashed)
        leaderships = self if clustered else None
        self.turns.scheduler = self.scheduler = leaderships
        self.turns.touched.update(self.groups)
        self.driver = Driver(self, self.groups, self, self, self.turns, applied={}, note=print, leaderships=leaderships)

    def crashed(self, error):
        raise error

    def __getattr__(self, name):
        return lambda *_args, **_more: self.seen.append(name)

    def soon(self, call):
        self.soon_calls.append(call)

    def hold_reading(self, hold):
        self.held.append(hold)

    def take_in(self):
        self.seen.append("take_in")
        return self.told

    def ready(self, *_):
        self.seen.append("ready")
        return Ready()

    def check_leases(self, _now):
        return False

    def is_at_rest(self, _now):
        return self.at_rest

    def settle(self, *, synced):
        return self.leaves_some

    def lapsed(self, groups):
        return set()

    def sync_now(self, group):
        self.seen.append(f"sync {group.group}")
        group.wants_sync = not self.quick
        return self.quick

    def turn(self):
        """What one turn does, without the words that do not matter here."""
        self.seen.clear()
        self.soon_calls.pop()()
        return [word for word in self.seen if word.split()[0] in ("take_in", "ready", "sync", "synced", "run")]


@pytest.fixture
def world():
    return World()


def test_frames_between_nodes_that_change_nothing_cost_no_round(world):
    world.turns.look()
    assert world.turn() == ["take_in", "run"]


@pytest.mark.parametrize("reason", ["woken", "told", "touched", "went_up", "went_down"])
def test_whatever_happened_costs_a_round(world, reason):
    world.turns.look()
    if reason == "woken":
        world.turns.wake()
    elif reason == "touched":
        world.at_rest = False
    else:
        setattr(world, reason, True)
    assert "ready" in world.turn()
    assert not world.soon_calls


def test_node_alone_takes_a_whole_turn_whatever_arrives():
    world = World(clustered=False)
    world.turns.look()
    assert world.turn() == ["take_in", "ready"]


def test_node_alone_goes_on_with_what_waits_in_the_next_turn_and_reads_on_while_there_is_room():
    world = World(clustered=False)
    world.turns.look()
    assert limits.BACKLOG_BYTES_MAX == 64 << 20  # as docs/security.md says
    world.backlog.add({b"alice": b"x" * limits.BACKLOG_BYTES_MAX})
    world.turn()
    assert (len(world.soon_calls), world.held) == (1, [False])
    world.backlog.add({b"mallory": b"x"})
    world.turn()
    assert (len(world.soon_calls), world.held) == (1, [False, True])
    world.uncommitted_bytes = limits.UNCOMMITTED_BYTES_MAX + 1  # a sync that ends brings the next turn
    world.turn()
    assert (len(world.soon_calls), world.held) == (0, [False, True, True])


def test_follower_syncs_before_it_speaks_and_leader_after(world):
    world.quick = True
    world.groups[1].wants_sync = world.groups[2].wants_sync = True
    world.dirty, world.at_rest = set(world.groups), False
    world.turns.look()
    assert world.turn() == ["take_in", "sync 2", "run", "ready", "run", "sync 1", "synced 1"]


def test_slow_sync_is_done_beside_the_loop(world):
    world.groups[2].wants_sync = True
    world.dirty, world.at_rest = {2}, False
    world.turns.look()
    assert world.turn() == ["take_in", "sync 2", "run", "ready", "run", "sync 2", "sync"]


def test_node_alone_acknowledges_what_it_synced_at_once_in_the_same_turn():
    world = World(clustered=False)
    world.quick = world.groups[1].wants_sync = True
    world.turns.look()
    assert world.turn() == ["take_in", "ready", "sync 1", "synced 1", "ready"]


def test_what_a_turn_leaves_costs_another_one(world):
    world.turns.wake()
    world.turn()
    assert not world.soon_calls
    world.turns.wake()
    world.leaves_some = True
    assert "ready" in world.turn()
    assert world.soon_calls
