"""The copy of a channel of an old server, which may lose messages on their way, or its newest ones in a crash."""

import asyncio
from types import SimpleNamespace

from stan_protocol.admin_types import ChannelStatus

from stan.cli.commands.old_server import RunningChannel
from stan.cli.commands.takeover_channel import ChannelCopy, Copying
from tests.kit.fake_broker import eventually


class OldServer:
    """Subscriptions get what it has, each without the sequences that are lost for it; times tell messages apart."""

    def __init__(self, times, *lost):
        self.times, self.lost, self.subscriptions = times, [*lost], 0

    async def subscribe(self, _channel, callback, *, start, **_options):
        self.subscriptions += 1
        lost = self.lost.pop(0) if self.lost else ()
        messages = [
            SimpleNamespace(sequence=sequence, timestamp_ns=time, data=b"x", reply="", ack=lambda: None)
            for sequence, time in self.times.items()
            if sequence >= start.sequence and sequence not in lost
        ]
        if messages:
            callback(messages)
        return SimpleNamespace(close=lambda: asyncio.sleep(0))

    def channel(self):
        known = [*self.times]
        return RunningChannel("orders", len(known), 100 * len(known), known[0], known[-1])


class NewServer:
    """What was restored, by sequence."""

    def __init__(self):
        self.admin, self.times, self.made, self.removed = self, {}, False, 0

    async def create_channel(self, _channel):
        self.made = True

    async def channel(self, _channel):
        last = max(self.times, default=0)
        return ChannelStatus(last_sequence=last, messages=len(self.times), last_timestamp=self.times.get(last, 0))

    async def restore_channel(self, _channel, _restore, _first, _limits=None):
        return SimpleNamespace(changed=1)

    async def restore_rows(self, _channel, _restore, runs, _rows):
        self.times |= {one.first_sequence: one.timestamp for one in runs}

    async def delete_channel(self, _channel):
        self.times, self.removed = {}, self.removed + 1


async def copied(old, new):
    copy = ChannelCopy(Copying(old, new, "takeover", 1 << 20, lambda _count: None, []), old.channel())
    await copy.begin()
    try:
        await eventually(lambda: not copy.behind)
    finally:
        copy.stop()


async def test_messages_that_were_lost_on_the_way_are_asked_for_again():
    old, new = OldServer(dict.fromkeys(range(1, 9), 7), {3, 4}, {5}), NewServer()
    await copied(old, new)
    assert [*new.times] == [*old.times]
    assert old.subscriptions == 3


async def test_messages_that_limits_have_removed_are_not_awaited():
    old, new = OldServer(dict.fromkeys(range(5, 9), 7)), NewServer()
    await copied(old, new)
    assert [*new.times] == [5, 6, 7, 8]
    assert old.subscriptions == 1


async def test_messages_that_the_old_server_does_not_have_are_left_out_in_the_end():
    old, new = OldServer(dict.fromkeys([1, 2, 5, 6], 7)), NewServer()
    await copied(old, new)
    assert [*new.times] == [1, 2, 5, 6]


async def test_a_copy_whose_newest_message_is_another_one_now_is_made_again():
    old, new = OldServer({1: 7, 2: 8, 3: 9, 4: 10}), NewServer()
    new.times = {1: 7, 2: 8, 3: 8}
    await copied(old, new)
    assert (new.times, new.removed) == (old.times, 1)


async def test_a_copy_that_has_more_than_the_old_server_is_made_again():
    old, new = OldServer({1: 7, 2: 8}), NewServer()
    new.times = {1: 7, 2: 8, 3: 8}
    await copied(old, new)
    assert (new.times, new.removed) == (old.times, 1)
