"""What the driver does with what is committed."""

from types import SimpleNamespace

from stan.edge.driver import Driver
from stan.log.types import Entry
from stan.protocol.entries import Kind


class FakeGroup:
    """A group that has committed some entries."""

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
        step_committed=lambda _number, index, _kind, _body: stepped.append(index),
        freeze=frozen.append,
        shared=SimpleNamespace(say=lambda kind, _text, **_about: said.append(kind)),
    )
    nothing = lambda *_: None  # noqa: E731
    driver = Driver(broker, groups, None, None, applied=applied, note=nothing, crashed=nothing)
    driver.pool = SimpleNamespace(
        touched=groups.items, configured=configured, freeze=lambda number, _why: frozen.append(number)
    )
    driver.apply_committed()
    assert stepped == [4]
    assert applied == {1: (4, 1)}
    assert set(frozen) == {1}
    assert said == ["trouble"]
