"""The state of an old cluster, operation by operation."""

import itertools

import pytest
from stan_protocol.kernel.wire_py import number, text

from stan.migration.cluster.raft_directory import LoggedCommand
from stan.migration.cluster.state import ReplicatedState

PUBLISH, SUBSCRIBE, REMOVE, CLOSE, SENT, CONNECT, DISCONNECT, DELETE = 0, 1, 2, 3, 4, 6, 7, 8


class Log:
    """A state to which operations are applied."""

    def __init__(self, snapshot=b""):
        self.state = ReplicatedState(snapshot)
        self._indexes = itertools.count(1)

    def add(self, kind, *fields):
        data = number(1, kind) + b"".join(fields)
        self.state.apply(LoggedCommand(next(self._indexes), data, 0, len(data)), data)

    def connect(self, client, *, refresh=False):
        self.add(CONNECT, text(7, text(1, text(1, client)) + number(2, refresh)))

    def disconnect(self, client):
        self.add(DISCONNECT, text(8, text(1, client)))

    def publish(self, channel, *sequences, channel_id=0):
        messages = b"".join(text(1, number(1, sequence) + text(2, channel)) for sequence in sequences)
        self.add(PUBLISH, text(2, messages), number(10, channel_id))

    def subscribe(self, client, inbox, *, durable=b"", group=b"", start=1):
        request = text(1, client) + text(2, b"foo") + text(3, group) + text(4, b"_INBOX." + inbox) + number(5, 10)
        request += number(6, 30) + text(7, durable) + number(10, 3) + number(11, start)
        self.add(SUBSCRIBE, text(3, text(1, request) + text(2, inbox) + number(3, 1)))

    def leave(self, kind, client, inbox):
        self.add(kind, text(4, text(1, client) + text(2, b"foo") + text(3, inbox)))

    def sent(self, inbox, *sent, acked=()):
        lists = text(3, bytes(sent)) + text(4, bytes(acked))
        self.add(SENT, text(5, text(1, b"foo") + text(2, inbox) + lists))

    def positions(self, channel=b"foo"):
        positions, _ = self.state.channels[channel].positions()
        return {position.name: (position.last_sent, sorted(position.pending)) for position in positions}


@pytest.fixture
def log():
    log = Log()
    for client in (b"one", b"two"):
        log.connect(client)
    log.publish(b"foo", *range(1, 51))
    return log


def test_durable_keeps_what_is_pending_when_its_client_goes_closes_and_comes_again(log):
    log.subscribe(b"one", b"i1", durable=b"d", start=11)
    assert log.positions() == {b"d": (10, [])}
    log.sent(b"i1", 11, 12, 13, acked=[12])
    log.leave(CLOSE, b"one", b"i1")
    log.sent(b"i1", 14)  # of a subscription that is closed
    assert log.positions() == {b"d": (13, [11, 13])}
    log.subscribe(b"one", b"i2", durable=b"d", start=40)
    log.subscribe(b"one", b"i3", durable=b"d")  # is refused: it is online
    log.sent(b"i3", 20)
    log.disconnect(b"one")
    assert log.positions() == {b"d": (13, [11, 13])}
    log.subscribe(b"one", b"i4", durable=b"d")  # of a client that is gone
    log.sent(b"i4", 20)
    assert log.positions() == {b"d": (13, [11, 13])}
    log.connect(b"one")
    log.subscribe(b"one", b"i5", durable=b"d")
    log.leave(REMOVE, b"two", b"i5")  # not its own
    assert log.positions() == {b"d": (13, [11, 13])}
    log.leave(REMOVE, b"one", b"_INBOX.i5")
    assert log.positions() == {}


def test_client_that_connects_anew_loses_what_is_not_durable(log):
    log.subscribe(b"one", b"plain")
    log.subscribe(b"one", b"i1", durable=b"d")
    log.sent(b"i1", 1)
    log.connect(b"one", refresh=True)
    assert log.positions() == {b"d": (1, [1])}
    assert log.state.channels[b"foo"].positions()[1] == 0
    assert list(log.state.clients) == [b"two", b"one"]


def test_group_goes_on_where_its_last_member_left_it(log):
    log.subscribe(b"one", b"i1", durable=b"d", group=b"g")
    log.sent(b"i1", 1, 2)
    log.subscribe(b"two", b"i2", durable=b"d", group=b"g", start=40)
    log.sent(b"i2", 3)
    log.leave(CLOSE, b"one", b"i1")
    assert log.positions() == {b"d:g": (3, [1, 2, 3])}, "nobody has got these yet"
    log.sent(b"i2", 1, acked=[3])
    assert log.positions() == {b"d:g": (3, [1])}, (
        "the leader has given them to the other member, which has acknowledged one"
    )
    log.disconnect(b"two")
    assert log.positions() == {b"d:g": (3, [1])}
    log.subscribe(b"one", b"i3", durable=b"d", group=b"g")
    log.sent(b"i3", 4, acked=[1])
    assert log.positions() == {b"d:g": (4, [4])}
    log.leave(REMOVE, b"one", b"i3")
    assert log.positions() == {}


def test_group_that_is_not_durable_ends_with_its_members(log):
    log.subscribe(b"one", b"i1", group=b"g")
    assert log.state.channels[b"foo"].positions() == ([], 1)
    log.disconnect(b"one")
    assert log.state.channels[b"foo"].groups == {}


def test_channel_that_is_made_again_is_another_one(log):
    log.publish(b"bar", 1, 2, channel_id=5)
    log.add(DELETE, text(9, b"bar"), number(10, 4))
    assert b"bar" in log.state.channels, "that was another one"
    log.add(DELETE, text(9, b"bar"), number(10, 5))
    assert b"bar" not in log.state.channels
    log.publish(b"bar", 1, channel_id=9)
    log.publish(b"bar", 3, channel_id=5)
    bar = log.state.channels[b"bar"]
    assert (bar.channel_id, bar.last, len(bar.batches)) == (9, 1, 1)
    log.publish(b"bar", 1, channel_id=12)
    assert (log.state.channels[b"bar"].channel_id, log.state.deleted) == (12, {b"bar": 9})


def test_snapshot_has_clients_and_what_outlives_them():
    def subscription(subscription_id, client, inbox, more, pending):
        state = number(1, subscription_id) + text(2, client) + text(5, inbox) + number(6, 10) + number(7, 30)
        return text(4, text(1, state + more) + text(2, bytes(pending)))

    channel = text(1, b"foo") + number(2, 3) + number(3, 50) + number(6, 7)
    channel += subscription(1, b"one", b"i1", text(8, b"d") + number(9, 20), [19, 20])
    channel += subscription(2, b"gone", b"i2", text(8, b"closed") + number(9, 9) + number(11, 1), [9])
    channel += subscription(3, b"one", b"i3", text(3, b"q:g") + number(9, 30) + number(10, 1), [30])
    channel += subscription(4, b"", b"i4", text(3, b"q:alone") + number(9, 12) + number(10, 1), [11])
    channel += subscription(5, b"one", b"i5", number(9, 40), [40])
    log = Log(text(1, text(1, b"one")) + text(2, channel) + text(3, bytes(1800)))
    assert log.positions() == {b"d": (20, [19, 20]), b"closed": (9, [9]), b"q:g": (30, [30]), b"q:alone": (12, [11])}
    foo = log.state.channels[b"foo"]
    assert (foo.first, foo.last, foo.channel_id, foo.positions()[1]) == (3, 50, 7, 1)
    log.sent(b"i1", 21, acked=[19])
    log.disconnect(b"one")
    assert log.positions()[b"d"] == (21, [20, 21])
    assert foo.positions()[1] == 0


def test_operations_that_cannot_be_change_nothing(log):
    log.subscribe(b"one", b"i1", durable=b"d")
    log.sent(b"i1", 51, 1)
    assert log.positions() == {b"d": (1, [1])}, "there is no message 51"
    for kind, *fields in (
        (5,),
        (PUBLISH, text(2, text(1, number(1, 1 << 63) + text(2, b"foo")))),
        (PUBLISH, text(2, text(1, number(1, 1) + text(2, b"no channel")))),
        (SUBSCRIBE, text(3, text(1, text(2, b"*")))),
        (SENT, text(5, b"\xff")),
    ):
        with pytest.raises(ValueError, match=r"."):
            log.add(kind, *fields)
    assert list(log.state.channels) == [b"foo"]
