"""Key-ordered queue groups against models: a list of unsettled messages per slot, and what members of a group may see."""

import struct
from array import array

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.runs import Run, Runs
from stan.core.leader.key_order import KeyOrder
from stan.protocol.kernel.server import HoldLimits, OpenWindows, assign
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_key_order import member, publish


def enters(order, sequence, slot):
    """A new message enters its slot; returns True if it is sent at once."""
    cut = struct.pack("<H", slot), struct.pack("<I", 4), bytes(4)
    windows = OpenWindows(array("q", [0, 1]), array("q", [0, 0]))
    done = assign(cut, sequence, 0, 1, order.tables, windows, HoldLimits(100, 100, 100), 0, 1)
    assert done.stop == 1
    return not done.held


@settings(max_examples=200)
@given(st.data())
def test_model_of_the_queues(data):
    """Against a list of unsettled messages per slot."""
    order, owed, model = KeyOrder(), Runs(), {}
    order.begin(())
    newest = 0
    for _ in range(data.draw(st.integers(1, 40))):
        kind = data.draw(st.sampled_from(["new", "new", "settle", "owe", "send"]))
        unsettled = sorted(s for queue in model.values() for s in queue)
        if kind == "new":
            newest += 1
            slot = data.draw(st.integers(0, 2))
            queue = model.setdefault(slot, [])
            assert enters(order, newest, slot) == (not queue)
            queue.append(newest)
            if len(queue) > 1:
                owed.add(Run(newest, newest))
        elif kind == "settle" and unsettled:
            first = data.draw(st.sampled_from(unsettled))
            last = data.draw(st.integers(first, newest))
            order.settled(first, last)
            owed.remove(first, last)
            model = {slot: [s for s in queue if not first <= s <= last] for slot, queue in model.items()}
        elif kind == "owe" and unsettled:
            sequence = data.draw(st.sampled_from(unsettled))
            if sequence not in owed:
                owed.add(Run(sequence, sequence))
                order.owed(sequence, sequence)
        elif kind == "send":
            wanted = sorted(queue[0] for queue in model.values() if queue and queue[0] in owed)
            due = [sequence for sequence in order.due() if sequence in owed]
            assert due == wanted
            if due:
                owed.remove(due[0], due[0])
                order.candidates += due[1:]
    heads, behind = order.tables.heads, order.tables.behind
    queues = {slot: [head, *behind.get(slot, ())] for slot, head in heads.items()}
    assert queues == {s: q for s, q in model.items() if q}
    assert all(behind.values()), "nothing is kept of slots in which nothing waits"
    assert sorted(order.tables.slot_of) == sorted(s for queue in model.values() for s in queue)


KINDS = ("publish", "publish", "ack", "ack", "ack", "nak", "join", "leave", "wait", "restart", "power")


class Watcher:
    """What members of a group see and do; complains when the order of a key is broken."""

    def __init__(self, harness, keys):
        self.harness, self.keys = harness, keys
        self.inboxes, self.held, self.acked, self.seen = {}, {}, set(), set()
        self.names = 0

    def join(self):
        self.names += 1
        name = "one" if self.names == 1 else f"m{self.names}"
        self.inboxes[name] = member(self.harness, name, in_flight=3, wait=5)

    def leave(self, name):
        self.harness.leave("foo", self.inboxes.pop(name), client_id="me" if name == "one" else name)
        self.held = {s: (who, until) for s, (who, until) in self.held.items() if who != name}

    def look(self):
        """Take what came, and check it."""
        came = [(s, count, name) for name in self.inboxes for s, count in self.harness.received(name)]
        for sequence, count, name in sorted(came):
            key = self.keys[sequence - 1]
            earlier = {s for s in range(1, sequence) if self.keys[s - 1] == key} - self.acked
            assert not earlier or not key.islower(), f"{sequence} came before {earlier}"
            alike = [s for s, (_, until) in self.held.items() if self.keys[s - 1] == key and until > self.harness.now]
            assert not alike or not key.islower(), f"{sequence} came to {name} while {alike} are in flight"
            assert count or sequence not in self.seen, f"{sequence} came again unflagged"
            self.seen.add(sequence)
            self.held[sequence] = name, self.harness.now + 5 * SECOND - 20 * MILLISECOND

    def idle(self):
        """Keys that have a message which might be sent."""
        now = self.harness.now
        held = {s for s, (_, until) in self.held.items() if until > now}
        room = any(sum(1 for s in held if self.held[s][0] == name) < 3 for name in self.inboxes)
        out = []
        for key in set(self.keys):
            left = [s for s, k in enumerate(self.keys, 1) if k == key and s not in self.acked]
            if key.islower() and left and not any(self.keys[s - 1] == key for s in held) and room:
                out.append(key)
        return out


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_model_of_a_group(data):
    harness = CoreHarness()
    harness.connect()
    harness.set_policy(ordered_by_key=True)
    watcher = Watcher(harness, [])
    watcher.join()
    draw, unsure_until = data.draw, 0
    for _ in range(draw(st.integers(5, 30))):
        kind = draw(st.sampled_from(KINDS))
        now_held = [s for s, (_, until) in watcher.held.items() if until > harness.now]
        if kind == "publish":
            text = draw(st.text("abcX", min_size=1, max_size=6))
            watcher.keys += text
            publish(harness, text)
        elif kind in ("ack", "nak") and now_held:
            sequence = draw(st.sampled_from(now_held))
            name, _ = watcher.held.pop(sequence)
            if kind == "ack":
                watcher.acked.add(sequence)
                harness.ack(watcher.inboxes[name], sequence)
            else:
                harness.say(watcher.inboxes[name], sequence, wire.NAK)
                harness.pass_time(0.2)
        elif kind == "join" and len(watcher.inboxes) < 4:
            watcher.join()
        elif kind == "leave" and len(watcher.inboxes) > 1:
            watcher.leave(draw(st.sampled_from(sorted(watcher.inboxes))))
        elif kind == "wait":
            harness.pass_time(draw(st.sampled_from([0.1, 6])))
        elif kind in ("restart", "power"):
            harness.power_lost = kind == "power"
            if harness.power_lost:
                harness.forget_progress(1)
                watcher.held.clear()  # nobody knows who has what
            watcher.held = {s: (who, 0) for s, (who, _) in watcher.held.items()}  # ack waits count from elsewhere
            harness.restart()
            harness.set_policy(ordered_by_key=True)
            unsure_until = harness.now + 5 * SECOND  # the new leader waits for the acks of what is in flight
        watcher.look()
        if harness.now > unsure_until:
            assert not watcher.idle(), "no slot is idle"
    for _ in range(400):
        harness.pass_time(0.3)
        watcher.look()
        for sequence, (name, _) in list(watcher.held.items()):
            if name in watcher.inboxes:
                harness.ack(watcher.inboxes[name], sequence)
            watcher.acked.add(sequence)
            del watcher.held[sequence]
        watcher.look()
        if len(watcher.seen) == len(watcher.keys):
            break
    assert sorted(watcher.seen) == list(range(1, len(watcher.keys) + 1)), "everything came"
