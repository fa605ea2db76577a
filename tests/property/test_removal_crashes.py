"""Power is lost at every single write while an operator changes channels and restores one: each change is whole or not there,
what was answered stays, and asked again each comes to the same end."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import MILLISECOND, SECOND

from tests.kit.batches import rows_of
from tests.kit.broker_state import BrokerState
from tests.sim.clients import Publisher, Subscriber
from tests.sim.history import complaints
from tests.sim.removal_worlds import NodeRemovals, Operator

CALLS_MAX = 32
"""Changing calls until everything is done, at most."""
EACH = 8
MESSAGES = 12
CHANNEL = b"a"


def _restored():
    runs = [admin.RestoredRun(first_sequence=first, count=2, timestamp=SECOND) for first in (5, 9)]
    rows = rows_of([b"5", b"6", b"9", b"10"])
    cursor = admin.CursorStatus(kind="DURABLE", durable_name=b"d", client_id=b"c", last_sent=9, owed_runs=[6, 6])
    named = {"version": 1, "channel": b"r", "restore": b"once"}
    return [
        ("restore_channel", admin.RestoreChannelRequest(first_sequence=5, **named)),
        ("restore_rows", admin.RestoreRowsRequest(runs=runs, rows=rows, **named)),
        ("restore_cursor", admin.RestoreCursorRequest(cursor=cursor, **named)),
        ("restore_end", admin.RestoreEndRequest(last_sequence=12, **named)),
    ]


def _plan():
    def delete(sequence):
        return "delete_message", admin.DeleteMessageRequest(version=1, channel=CHANNEL, sequence=sequence)

    limits = admin.Limits(max_subs=9)
    return [
        delete(5),
        delete(7),
        ("purge", admin.PurgeRequest(version=1, channel=CHANNEL, up_to=2)),
        ("create_channel", admin.CreateChannelRequest(version=1, channel=b"gone")),
        ("edit_limits", admin.EditLimitsRequest(version=1, channel=CHANNEL, limits=limits)),
        ("delete_channel", admin.DeleteChannelRequest(version=1, channel=b"gone")),
        *_restored(),
        delete(6),
    ]


class Planned(Operator):
    """Asks for one change after the other, as soon as the messages are there."""

    def __init__(self, world, client_id):
        super().__init__(world, client_id)
        self.left = _plan()

    def _make(self):
        if not self.left or len(self.world.history.acknowledged) < MESSAGES:
            return None
        kind, request = self.left.pop(0)
        sequences = range(1, request.up_to + 1) if kind == "purge" else ()
        if kind == "delete_message":
            sequences = (request.sequence,)
        channel = request.channel.decode()
        self.history.removal_asked(channel, sequences, self.loop.now)
        return kind, request, channel, sequences


class Dozen(Publisher):
    """Publishes what is changed, once."""

    def _burst(self):
        while len(self.history.publishes) < MESSAGES:
            self._publish(CHANNEL.decode())


class OneCrash(NodeRemovals):
    """A world in which nothing fails but the power, once."""

    def make_clients(self, **_options):
        self.operator = Planned(self, "operator")
        self.add(self.operator)
        writer = Dozen(self, "writer", [CHANNEL.decode()])
        writer.one_by_one = False
        self.add(writer)
        for client in self.clients.values():
            client.start()

    @property
    def finished(self):
        return not self.operator.left and self.operator.job is None

    def run_to(self, calls):
        """Whether there were as many; the complaints."""
        self.boot()
        self.make_clients()
        while len(self.history.acknowledged) < MESSAGES:
            self.loop.run_until(self.loop.now + 10 * MILLISECOND)
        self.files.cut_power_after(calls)
        struck = self.go_on_until(lambda: self.finished, 30 * SECOND, calls)
        self.quiet = True
        self.files.cut_at = None
        found = [] if self.finished else [f"never answered: {self.operator.job}"]
        found += self._content()
        self._read()
        found += self.problems + complaints(self.history) + self._replay_differs() + self._content()
        self.node.kill()
        self.database.close()
        return struck, found

    def _read(self):
        """Somebody reads the channel that was purged."""
        reader = Subscriber(self, "reader-a", "a", "reader-a", "plain", in_flight=100)
        self.add(reader)
        reader.start()
        end = self.loop.now + 20 * SECOND
        while self.loop.now < end and not self._has_read("a"):
            self.loop.run_until(self.loop.now + SECOND // 4)
        self.history.final["a"] = self._read_by("reader-a")

    def _content(self):
        """What is not as the operator wants it."""
        found, state = {}, BrokerState(self.node.broker)
        for name, info in state.channels.items():
            machine, index = state.copy(info.group), self.node.broker.view.indexes(info.group, info.uid)
            positions = state.positions(info.group, name)
            edit = machine.limit_overrides.by_channel.get(info.uid)
            found[name] = (
                index.first_sequence,
                index.last_sequence,
                state.deleted(name),
                [(one.name, one.last_sent, one.pending) for one in positions if one.kind.durable],
                edit.max_subs if edit else 0,
                machine.restores.under_way(info.uid),
            )
        wanted = {
            b"a": (3, 12, [5, 6, 7], [], 9, b""),
            b"r": (5, 12, [7, 8, 11, 12], [(b"d", 9, [6])], 0, b""),
        }
        return [] if found == wanted else [f"{found}"]


@pytest.mark.parametrize("first", range(0, CALLS_MAX, EACH))
def test_power_cut_at_any_write(first):
    struck = []
    for calls in range(first, first + EACH):
        happened, found = OneCrash(3).run_to(calls)
        assert found == [], f"power cut at call {calls}"
        struck.append(happened)
    assert all(struck) or first + EACH >= CALLS_MAX
