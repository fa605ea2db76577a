"""A leader's view of one follower: windows, and answers that come too late."""

from stan import limits
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.raft.pysyncobj.replication import Progress
from stan.raft.transport.codec import AppendAnswer, AppendEntries


def entries(first, last, size=10):
    return [Entry(index, 1, Kind.META, bytes(size)) for index in range(first, last + 1)]


def test_window_closes_by_bytes_and_by_messages_and_opens_with_answers():
    progress = Progress(1)
    progress.sent(entries(1, 1, limits.RAFT_WINDOW_BYTES_MAX), 1)
    assert not progress.window.has_room
    progress.answered(1)
    assert progress.window.has_room
    assert progress.window.bytes == 0
    for index in range(2, 2 + limits.RAFT_WINDOW_APPENDS_MAX):
        assert progress.window.has_room
        progress.sent(entries(index, index), 1)
    assert not progress.window.has_room
    progress.answered(2)
    assert progress.window.has_room


def test_heartbeats_take_no_room():
    progress = Progress(1)
    for _ in range(2 * limits.RAFT_WINDOW_APPENDS_MAX):
        progress.sent([], 1)
    assert progress.window.has_room


def test_resets_that_answer_what_was_sent_before_the_last_one_say_nothing():
    progress = Progress(9)
    first = progress.sent(entries(9, 9), 1)
    second = progress.sent(entries(10, 10), 1)
    assert progress.reset(first, 3)
    progress.sent(entries(3, 8), 1)
    assert not progress.reset(second, 3), "it answers what was sent before the reset"
    assert progress.next_index == 9


def test_answers_older_than_the_newest_one_are_no_news():
    progress = Progress(1)
    for index in range(1, 4):
        progress.sent(entries(index, index), 1)
    assert progress.appends.is_news(2)
    assert not progress.appends.is_news(1)
    assert not progress.appends.is_news(4), "it was never sent"
    assert progress.appends.is_news(2)


def test_acknowledgement_never_pulls_back_what_is_on_the_way():
    progress = Progress(1)
    for index in range(1, 6):
        progress.sent(entries(index, index), 1)
    progress.answered(2)
    assert progress.next_index == 6
    progress.answered(1)
    assert progress.acked == 2


def test_group_sends_nothing_twice_for_acknowledgements_in_a_pipeline(rig):
    group, sent = rig.leader().group, []
    for _ in range(30):
        group.propose([(Kind.META, b"x" * 20)], urgent=True)
        rig.tick(0)
        sent += [e.index for _, to, m in rig.sent if to == "n1" and isinstance(m, AppendEntries) for e in m.entries]
        rig.deliver()
        for node in rig.nodes.values():
            node.sync()
    assert sent == sorted(set(sent))
    assert len(sent) == 30


def test_group_ignores_a_late_reset(rig):
    group = rig.leader().group
    late = AppendAnswer(group.term, 0, 1, success=False, reset=True)
    before = group.progress()["n1"]
    rig.give("n0", "n1", late)
    assert group.progress()["n1"] == before
    assert not any("lost entries" in note for note in rig.notes)
