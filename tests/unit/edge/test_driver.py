"""What the driver does with what is committed."""

from functools import partial
from types import SimpleNamespace

import pytest

from stan.core.base.ready import Delivery, LeaseAnswer, Proposal, Ready
from stan.edge.driver import Driver
from stan.edge.turns import Turns
from stan.errors import DiskFull, Frozen, NotNow
from stan.log.types import Entry
from stan.protocol.entries import Kind

CLOCK = SimpleNamespace(now=int, wall=int)
proposed = partial(Proposal, leader=None, done=None, in_doubt=None)


class FakeGroup:
    """A group that has committed some entries."""

    failed = ""

    def __init__(self, *entries):
        self.entries = list(entries)
        self.log = SimpleNamespace(commit=lambda _index: None)

    def take_committed(self):
        taken, self.entries = self.entries, []
        return taken


def test_a_change_of_the_voters_that_cannot_be_written_down_is_left_to_the_next_life():
    entries = [Entry(4, 1, Kind.CHANGE, b""), Entry(5, 1, Kind.CONFIG, b""), Entry(6, 1, Kind.CHANGE, b"")]
    groups, applied, stepped, frozen, said = {1: FakeGroup(*entries)}, {1: (3, 1)}, [], [], []

    def configured(_number, _index, _body):
        raise OSError("broken")

    broker = SimpleNamespace(
        entries=SimpleNamespace(step_committed=lambda _number, index, _kind, _body: stepped.append(index)),
        stops=SimpleNamespace(step_frozen=frozen.append),
        emit=lambda kind, _text, **_about: said.append(kind),
    )
    nothing = lambda *_: None  # noqa: E731
    leaderships = SimpleNamespace(
        events=SimpleNamespace(configured=configured),
        freeze=lambda number, _why: frozen.append(number),
    )
    turns = Turns(None, nothing)
    turns.touched.update(groups)
    driver = Driver(broker, groups, None, None, turns, applied=applied, note=nothing, leaderships=leaderships)
    driver.apply_committed()
    assert stepped == [4]
    assert applied == {1: (4, 1)}
    assert set(frozen) == {1}
    assert said == ["trouble"]


class NearlyFull:
    """A log with room for something small."""

    leads = True
    log = None

    def __init__(self, room):
        self.room = room
        self.written = []

    def propose(self, bodies, *, urgent):
        if sum(len(body) for _, body in bodies) > self.room:
            raise DiskFull("no room")
        self.written += [body for _, body in bodies]
        return len(self.written)


def test_no_change_is_in_the_log_without_the_progress_before_it_and_nothing_of_the_group_leaves():
    groups = {1: NearlyFull(5), 2: NearlyFull(50)}
    told, sent, not_sent, progress_blocked = [], [], [], set()
    broker = SimpleNamespace(
        entries=SimpleNamespace(
            step_refused=lambda proposal, _why: told.append((proposal.group, proposal.body)),
            step_written=lambda _proposal, _index: None,
        ),
        stops=SimpleNamespace(step_no_room=progress_blocked.add, without_room=progress_blocked),
        not_sent=not_sent.extend,
        emit=lambda *_, **__: None,
    )

    def send(sends, silent):
        quiet = silent(set(groups))
        sends = [send for send in sends if not isinstance(send, LeaseAnswer) or quiet.isdisjoint(send.groups)]
        lost = [send for send in sends if isinstance(send, Delivery) and send.group in quiet]
        sent.extend(send for send in sends if send not in lost)
        return lost

    gateway = SimpleNamespace(send=send)
    runtime = SimpleNamespace(soon=lambda _call: None, **vars(CLOCK))
    driver = Driver(broker, groups, gateway, runtime, Turns(runtime, None), applied={}, note=lambda *_: None)
    ready = Ready()
    ready.proposals = [
        *(proposed(group, Kind.CHANGE, b"a lot of progress", urgent=False) for group in groups),
        *(proposed(group, Kind.CHANGE, b"leave", urgent=True) for group in groups),
    ]
    one, other = (Delivery(b"inbox", b"", 1, 1, 1, 0, group, 1) for group in groups)
    answer = LeaseAnswer(b"an answer", (1,))
    ready.sends = [one, answer, other]
    driver._carry_out(ready)

    assert groups[1].written == []
    assert groups[2].written == [b"a lot of progress", b"leave"]
    assert told == [(1, b"a lot of progress"), (1, b"leave")]
    assert not_sent == [one]
    assert sent == [answer, other]  # which rests on nothing that found no room


@pytest.mark.parametrize("now_there", [{}, {3: FakeGroup()}])
@pytest.mark.parametrize("durable", [7, None])
def test_a_sync_that_ends_when_its_group_has_left_the_node_freezes_nothing(now_there, durable):
    """The log was closed under it, and the process ended with a KeyError; or the copy in its place froze."""
    frozen = []
    broker = SimpleNamespace(stops=SimpleNamespace(step_frozen=frozen.append), emit=lambda *_, **__: None)
    leaderships = SimpleNamespace(freeze=lambda number, _why: frozen.append(number))
    nothing = lambda *_: None  # noqa: E731
    driver = Driver(broker, now_there, None, None, Turns(None, None), applied={}, note=nothing, leaderships=leaderships)
    left = FakeGroup()
    left.group = 3
    driver._synced(left, durable, "/groups/3 is closed")
    assert frozen == []
    assert driver.faults.frozen == {}


def test_what_is_to_be_done_for_a_group_that_has_left_the_node_in_the_same_turn_is_left_out():
    in_doubt, notes = [], []
    broker = SimpleNamespace(
        entries=SimpleNamespace(step_in_doubt=in_doubt.append),
        stops=SimpleNamespace(without_room=set()),
        not_sent=lambda _: None,
        emit=lambda *_, **__: None,
    )
    leaderships = SimpleNamespace(is_left_to_successor=lambda *_: True, led={})
    note = lambda *note: notes.append(note)  # noqa: E731
    driver = Driver(broker, {}, None, None, Turns(None, None), applied={}, note=note, leaderships=leaderships)
    proposal = proposed(3, Kind.CHANGE, b"", urgent=True)
    ready = Ready()
    ready.trims, ready.drops, ready.proposals, ready.faults = [(3, 7, 5)], [(3, 7)], [proposal], [(3, ValueError("x"))]
    driver._carry_out(ready)
    assert in_doubt == [proposal]
    assert "when it had left this node" in notes[0][1]


def test_a_group_that_has_left_something_open_writes_nothing():
    """What would follow has a gap before it: the sequences of what was left open."""
    group, in_doubt = FakeGroup(), []
    group.leads, group.propose = True, pytest.fail
    broker = SimpleNamespace(
        entries=SimpleNamespace(step_in_doubt=in_doubt.append),
        stops=SimpleNamespace(without_room=set()),
        emit=lambda *_, **__: None,
    )
    leaderships = SimpleNamespace(
        is_left_to_successor=lambda *_: True, led={1: SimpleNamespace(left_open=DiskFull("full"))}
    )
    nothing = lambda *_: None  # noqa: E731
    driver = Driver(
        broker, {1: group}, None, CLOCK, Turns(None, None), applied={}, note=nothing, leaderships=leaderships
    )
    proposal = proposed(1, Kind.RECORDS, b"", urgent=True)
    driver._propose_all([proposal])
    assert in_doubt == [proposal]


class Failing:
    """A log that takes nothing."""

    leads = True
    log = None

    def __init__(self, error):
        self.error = error

    def propose(self, _bodies, *, urgent):
        assert urgent
        raise self.error

    def freeze(self, why):
        self.failed = why


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DiskFull("/var/lib/stan/1/0007.log: [Errno 28] No space left"), "stan: no space left on the server's disk"),
        (Frozen("/var/lib/stan/1: [Errno 5] I/O"), "stan: the channel takes nothing until the server is restarted"),
        (NotNow("too much waits for a majority"), "stan: not now: too much waits for a majority"),
    ],
)
def test_who_publishes_is_not_told_where_the_files_of_the_server_are_and_the_log_is(error, told):
    refused, notes = [], []
    broker = SimpleNamespace(
        entries=SimpleNamespace(step_refused=lambda _proposal, why: refused.append(why)),
        stops=SimpleNamespace(step_frozen=lambda _number: None, without_room=set()),
        emit=lambda *_, **__: None,
        not_sent=lambda _deliveries: None,
    )
    gateway, runtime = (
        SimpleNamespace(send=lambda _sends: None),
        SimpleNamespace(soon=lambda _call: None, **vars(CLOCK)),
    )
    groups = {1: Failing(error)}
    turns = Turns(runtime, None)
    driver = Driver(broker, groups, gateway, runtime, turns, applied={}, note=lambda *note: notes.append(note))
    ready = Ready()
    ready.proposals = [proposed(1, Kind.RECORDS, b"", urgent=True)]
    driver._carry_out(ready)
    assert refused == [told]
    assert str(error) in notes[0][1]
