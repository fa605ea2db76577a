"""The checkers of histories: a good history passes, and each mutation of it is caught, by the checker meant for it."""

import copy
from collections.abc import Iterable, Sequence

import pytest

from tests.kit import history as kit
from tests.kit.history import Event, History, Reader, What


def good() -> History:
    """Two writers, a durable, a group of two whose first message came twice, one crash."""
    history = History()
    history.stored = [(1, b"a-1"), (2, b"b-1"), (3, b"a-2"), (4, b"b-3")]
    history.published = {b"a-1", b"a-2", b"a-3", b"b-1", b"b-2", b"b-3"}
    history.acked = {b"a-1", b"b-1", b"a-2"}
    history.refused = {b"a-3"}
    durable, group = Reader("durable", 2), Reader("group", 1, members=2)
    history.readers = [durable, group]
    for sequence, data in history.stored:
        durable.delivered(0, sequence, data, redelivered=False)
        if sequence != 2:
            durable.acked(0, sequence)
        group.delivered(sequence % 2, sequence, data, redelivered=False)
        group.acked(sequence % 2, sequence)
        if sequence == 3:
            history.crashed()
            durable.delivered(0, 2, b"b-1", redelivered=True)
            group.delivered(0, 1, b"a-1", redelivered=True)
            group.acked(0, 1)
    return history


def test_good_history_has_no_violations():
    assert good().violations() == []


def drop_stored(history):
    history.stored.pop()
    history.acked.add(b"b-3")


def store_twice(history):
    history.stored.append((5, b"a-1"))


def invent(history):
    history.stored.append((5, b"c-1"))


def store_what_was_refused(history):
    history.refused.add(b"b-3")


def leave_a_gap(history):
    history.stored[-1] = (5, b"b-3")


def renumber(history):
    history.stored[1:3] = [(2, b"b-1"), (2, b"a-2")]


def swap_of_writer(history):
    history.stored[0], history.stored[2] = (1, b"a-2"), (3, b"a-1")


def skip_delivery(history):
    events = history.readers[0].events
    events[:] = [event for event in events if event.sequence != 4]


def change_data(history):
    events = history.readers[1].events
    events[0] = events[0]._replace(data=b"b-1")


def unflag(history):
    for reader in history.readers:
        reader.events[:] = [event._replace(redelivered=False) for event in reader.events]


def swap_first_deliveries(history):
    events = history.readers[0].events
    events[0], events[2] = events[2], events[0]


def lose_an_ack(history):
    events = history.readers[1].events
    events.remove(Event(What.ACKED, 1, 1))


def come_again_long_after(history):
    reader = history.readers[0]
    for sequence in range(5, kit.POSITIONS_BEHIND_MAX + 10):
        reader.acked(0, sequence)
    history.crashed()
    reader.delivered(0, 5, b"a-4", redelivered=True)


MUTATIONS = {
    drop_stored: "acked_once",
    store_twice: "acked_once",
    invent: "acked_once",
    store_what_was_refused: "refused_kept_out",
    leave_a_gap: "dense",
    renumber: "dense",
    swap_of_writer: "writers_in_order",
    skip_delivery: "complete",
    change_data: "same_data",
    unflag: "repeats_flagged",
    swap_first_deliveries: "in_order",
    lose_an_ack: "window_kept",
    come_again_long_after: "position_kept",
}
OF_LOG = ("acked_once", "refused_kept_out", "dense", "writers_in_order")
OF_READERS = ("complete", "same_data", "in_order", "repeats_flagged", "window_kept", "position_kept")


def test_every_checker_has_a_mutation():
    assert set(MUTATIONS.values()) == {*OF_LOG, *OF_READERS}


@pytest.mark.parametrize(("mutate", "checker"), MUTATIONS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_mutated_history_is_caught(mutate, checker):
    history = copy.deepcopy(good())
    mutate(history)
    check = getattr(kit, checker)
    if checker in OF_LOG:
        assert list(check(history))
    else:
        assert [line for reader in history.readers for line in check(history, reader)]
    assert history.violations()


def test_violations_of_one_kind_are_cut_short():
    history = good()
    history.stored = [(sequence, b"a-%d" % sequence) for sequence in range(1, 101)]
    lines = [line for line in history.violations() if "never delivered" in line]
    assert len(lines) == 2 * kit.SHOWN_MAX
    assert "durable: ... and 91 more of complete" in history.violations()


def test_redelivery_stays_inside_the_window():
    history, reader = History(), Reader("durable", 1)
    reader.delivered(0, 1, b"a-1", redelivered=False)
    reader.delivered(0, 1, b"a-1", redelivered=True)
    assert not list(kit.window_kept(history, reader))
    reader.delivered(0, 2, b"a-2", redelivered=True)
    assert list(kit.window_kept(history, reader)) == ["durable: 2 is number 2 of 1 unacknowledged"]


def test_ack_lost_in_an_earlier_crash_explains_a_repeat():
    history, reader = History(), Reader("durable", 1)
    history.readers = [reader]
    reader.acked(0, 1)
    history.crashed()
    for sequence in range(2, kit.POSITIONS_BEHIND_MAX + 10):
        reader.acked(0, sequence)
    history.crashed()
    reader.delivered(0, 1, b"a-1", redelivered=True)
    assert not list(kit.position_kept(history, reader))


def test_ack_lost_between_a_crash_and_its_end_explains_a_repeat():
    history, reader = History(), Reader("durable", 1)
    history.readers = [reader]
    history.crashed()
    reader.acked(0, 1)
    history.healed()
    for sequence in range(2, kit.POSITIONS_BEHIND_MAX + 10):
        reader.acked(0, sequence)
    history.crashed()
    reader.delivered(0, 1, b"a-1", redelivered=True)
    assert not list(kit.position_kept(history, reader))
    assert history.crashes == 2


def test_message_taken_over_by_another_member_leaves_the_first_window():
    history, reader = History(), Reader("group", 1, members=2)
    reader.delivered(0, 1, b"a-1", redelivered=False)
    reader.delivered(1, 1, b"a-1", redelivered=True)
    reader.delivered(0, 2, b"a-2", redelivered=False)
    assert not list(kit.window_kept(history, reader))


def test_first_copy_may_be_overtaken_by_the_flagged_one_of_another_member_and_by_no_other():
    """As where nats-server stands still for longer than the ack wait: then it has both, for two connections."""

    def lines(*copies):
        reader = Reader("group", 1, members=3)
        for member, redelivered in copies:
            reader.delivered(member, 1, b"a-1", redelivered=redelivered)
        return list(kit.repeats_flagged(History(), reader))

    wrong = ["group: 1 came again and is not flagged"]
    assert not lines((1, True), (0, False), (2, True))
    assert lines((0, True), (0, False)) == wrong, "one connection keeps the order"
    assert lines((0, False), (1, False)) == wrong
    assert lines((1, True), (0, False), (2, False)) == wrong, "there is one first copy"


def stored_by_one_writer(*numbers: int, loose: Sequence[Iterable[int]] = ()) -> list[str]:
    """What the checker says of a channel; *loose*: what had no ack at the end of each connection."""
    history = History(stored=[(sequence, b"a-%d" % number) for sequence, number in enumerate(numbers, 1)])
    for unacked in loose:
        history.disconnected(b"a-%d" % number for number in unacked)
    return list(kit.writers_in_order(history))


def test_message_on_its_way_when_a_connection_ended_may_come_behind_what_came_over_the_next():
    assert stored_by_one_writer(1, 4, 2, 5, 3, 6, loose=[{2, 3}]) == []
    assert stored_by_one_writer(1, 4, 2, 5, 3, 6, loose=[{2, 3, 4}]) == []  # one that waited for the next connection


def test_only_what_had_no_ack_when_a_connection_ended_may_come_behind():
    assert stored_by_one_writer(1, 4, 2, 5, 3, 6) == [
        "writer a: 2 is stored behind 4",
        "writer a: 3 is stored behind 5",
    ]
    assert stored_by_one_writer(1, 4, 2, 5, 3, 6, loose=[{2}]) == ["writer a: 3 is stored behind 5"]
    assert stored_by_one_writer(1, 4, 2, 5, 3, 6, loose=[{4, 5, 6}, {4}]) != []


def test_later_message_that_is_not_loose_itself_does_not_hide_an_earlier_one():
    assert stored_by_one_writer(1, 5, 2, 3, 4, loose=[{2, 4}]) == ["writer a: 3 is stored behind 5"]


def test_messages_of_one_connection_are_in_order_although_all_of_them_are_loose():
    assert stored_by_one_writer(5, 3, 2, 4, loose=[{2, 3, 4}]) == ["writer a: 2 is stored behind 5"]
    assert stored_by_one_writer(5, 3, 2, 4, loose=[{2}, {2, 3, 4}]) == []  # 2, then 3 and 4, then 5: three connections


def test_what_is_loose_of_one_writer_says_nothing_of_another():
    history = History(stored=[(1, b"a-2"), (2, b"a-1"), (3, b"b-2"), (4, b"b-1")])
    history.disconnected([b"a-1"])
    assert list(kit.writers_in_order(history)) == ["writer b: 1 is stored behind 2"]


def test_summary_tells_the_figures():
    assert good().summary() == (
        "3 acked of 6 published, 4 stored, 1 crashes, flagged redelivered: {'durable': 1, 'group': 1}"
    )
