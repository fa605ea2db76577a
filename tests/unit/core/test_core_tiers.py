"""Limits that wait for a tier, and what its owner hears of messages that were removed."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import ChannelLimits, Config, StoreLimits
from stan.core.state.bookmarks import Bookmarks
from stan.policies import PolicyRule
from stan.protocol.proto import entries_pb2 as entries
from tests.kit.core_harness import CoreHarness

PREFIX = "_STAN.x.test-cluster"
ADMIN = f"{PREFIX}.admin"


def started(policy=None, **of_channel):
    policies = (PolicyRule(pattern=">", **({"tier": "lake", "tier_stretch": 3} if policy is None else policy)),)
    harness = CoreHarness(Config(policies=policies, limits=StoreLimits(default=ChannelLimits(**of_channel))))
    harness.connect()
    return harness


def index(harness):
    return harness.indexes[1, 1]


def publish(harness, count):
    for _ in range(count):
        harness.publish("foo", b"x")


def move(harness, sequence, **more):
    """The owner of the position sets it."""
    request = pb.CursorSetRequest(name=b"lake", channel=b"foo", sequence=sequence, **more)
    answer = harness.ask(f"{PREFIX}.cursor_set", request, pb.CursorSetResponse)
    assert not answer.error
    harness.pass_time(2)


def place(harness):
    (found,) = harness.ask(f"{PREFIX}.cursors", pb.CursorsRequest(name=b"lake"), pb.CursorsResponse).cursors
    return found.sequence, found.removals, list(found.removed)


def status(harness):
    (found,) = harness.ask(f"{ADMIN}.channels", admin.ChannelsRequest(version=1), admin.ChannelsResponse).channels
    return found


def told(harness, words):
    return [text for _, text in harness.notes if words in text]


def test_limits_wait_for_the_position() -> None:
    harness = started(msgs=10)
    publish(harness, 15)
    assert index(harness).first_sequence == 1, "the tier has not come yet"
    assert len(told(harness, "keeps more than its limits")) == 1
    assert (status(harness).tier, status(harness).tier_next, status(harness).tier_kept) == (b"lake", 0, 5)
    move(harness, 4)
    assert index(harness).first_sequence == 4
    move(harness, 16)
    assert index(harness).first_sequence == 6, "as the limits say"
    assert status(harness).tier_kept == 0
    publish(harness, 4)
    assert index(harness).first_sequence == 10, "what the position has passed goes at once"
    assert status(harness).tier_lost == harness.broker.view.totals().tier_lost_messages == 0


def test_limits_win_once_the_channel_has_so_many_times_more() -> None:
    harness = started(msgs=10)
    publish(harness, 30)
    assert index(harness).first_sequence == 1
    publish(harness, 5)
    assert index(harness).first_sequence == 6
    assert status(harness).tier_lost == harness.broker.view.totals().tier_lost_messages == 5
    assert len(told(harness, 'that position "lake" has not passed')) == 1
    move(harness, 20)
    assert index(harness).first_sequence == 20
    assert status(harness).tier_lost == 5


def test_without_a_bound_the_channel_grows() -> None:
    harness = started({"tier": "lake", "tier_stretch": 0}, msgs=1)
    publish(harness, 200)
    assert index(harness).first_sequence == 1


@pytest.mark.parametrize("policy", [{}, {"tier": ""}, {"ttl": 3600 * SECOND}])
def test_without_a_tier_nothing_waits(policy) -> None:
    harness = started(policy or {"max_deliver": 3}, msgs=10)
    publish(harness, 15)
    assert index(harness).first_sequence == 6
    assert status(harness).tier == b""


def test_the_age_limit_waits_too() -> None:
    harness = started(age_ns=100 * SECOND)
    publish(harness, 5)
    harness.pass_time(150)
    assert index(harness).first_sequence == 1
    assert status(harness).tier_kept == 5
    move(harness, 4)
    assert index(harness).first_sequence == 4
    harness.pass_time(200)
    assert index(harness).first_sequence == 6, "three times the age is over"
    assert status(harness).tier_lost == 2


def test_the_size_limit_waits_too() -> None:
    harness = started(bytes=1000)
    publish(harness, 30)
    assert index(harness).first_sequence == 1
    assert index(harness).bytes > 1000
    publish(harness, 60)
    assert index(harness).bytes <= 3000
    move(harness, 91)
    assert index(harness).bytes <= 1000


def test_idle_channel_stays_until_the_tier_has_it() -> None:
    harness = started(inactivity_ns=10 * SECOND)
    publish(harness, 5)
    harness.pass_time(15)
    assert b"foo" in harness.state.channels
    move(harness, 6)
    harness.pass_time(15)
    assert b"foo" not in harness.state.channels


def test_idle_channel_goes_in_the_end() -> None:
    harness = started(inactivity_ns=10 * SECOND)
    publish(harness, 5)
    harness.pass_time(35)
    assert b"foo" not in harness.state.channels


def test_compaction_waits_for_the_tier() -> None:
    harness = started({"tier": "lake", "compact": 1, "min_age": 0})
    publish(harness, 5)
    harness.pass_time(40)
    assert harness.follower().compactions.of(1).until == 0
    move(harness, 4)
    harness.pass_time(40)
    assert harness.follower().compactions.of(1).until == 3


def test_owner_hears_of_what_was_removed_until_it_says_so() -> None:
    harness = started()
    publish(harness, 20)
    move(harness, 11)
    assert place(harness) == (11, 0, [])
    delete = admin.DeleteMessageRequest(version=1, channel=b"foo", sequence=7)
    assert harness.ask(f"{ADMIN}.delete_message", delete, admin.ChangeResponse).changed == 1
    assert place(harness) == (11, 1, [7, 7])
    purge = admin.PurgeRequest(version=1, channel=b"foo", up_to=3)
    assert harness.ask(f"{ADMIN}.purge", purge, admin.ChangeResponse).changed == 3
    assert place(harness) == (11, 2, [1, 3, 7, 7])
    move(harness, 12, taken=1)
    assert place(harness) == (12, 2, [1, 3, 7, 7]), "it does not know of the second one yet"
    harness.restart()
    assert place(harness) == (12, 2, [1, 3, 7, 7])
    move(harness, 12, taken=2)
    assert place(harness) == (12, 2, [])
    harness.restart()
    assert place(harness) == (12, 2, [])


@pytest.mark.parametrize("what", [{"up_to": 8}, {"keep": 2}])
def test_owner_does_not_hear_of_what_limits_had_removed_before_a_purge(what) -> None:
    harness = started(msgs=5)
    publish(harness, 5)
    move(harness, 6)
    publish(harness, 5)
    move(harness, 11)
    assert index(harness).first_sequence == 6
    purge = admin.PurgeRequest(version=1, channel=b"foo", **what)
    assert harness.ask(f"{ADMIN}.purge", purge, admin.ChangeResponse).changed == 3
    assert place(harness) == (11, 1, [6, 8])
    assert (index(harness).first_sequence, status(harness).messages, status(harness).deleted) == (9, 2, 0)


def test_purge_of_all_messages_leaves_an_empty_channel_and_its_durable_goes_on() -> None:
    harness = started()
    harness.subscribe("foo", durable="d")
    publish(harness, 5)
    move(harness, 6)
    purge = admin.PurgeRequest(version=1, channel=b"foo", up_to=5)
    assert harness.ask(f"{ADMIN}.purge", purge, admin.ChangeResponse).changed == 5
    assert place(harness) == (6, 1, [1, 5])
    assert (status(harness).first_sequence, status(harness).messages) == (6, 0)
    publish(harness, 1)
    assert (status(harness).first_sequence, status(harness).messages) == (6, 1)


def test_where_no_tier_has_come_nothing_is_noted() -> None:
    harness = started()
    publish(harness, 5)
    purge = admin.PurgeRequest(version=1, channel=b"foo", up_to=3)
    harness.ask(f"{ADMIN}.purge", purge, admin.ChangeResponse)
    move(harness, 5)
    assert place(harness) == (5, 0, [])


def test_too_many_removals_that_nobody_takes_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(limits, "DELETED_RUNS_MAX", 3)
    harness = started()
    publish(harness, 20)
    move(harness, 15)
    answers = []
    for sequence in (2, 4, 6, 8):
        delete = admin.DeleteMessageRequest(version=1, channel=b"foo", sequence=sequence)
        answers.append(harness.ask(f"{ADMIN}.delete_message", delete, admin.ChangeResponse).error.decode())
    assert answers == ["", "", "", refusals.TOO_MANY_DELETED]
    assert place(harness) == (15, 3, [2, 2, 4, 4, 6, 6])


def test_rows_of_positions_with_removals_are_their_state() -> None:
    state = Bookmarks()
    for name, sequence in ((b"a", 1), (b"b", 7)):
        state.apply("bookmark", entries.Bookmark(uid=1, name=name, sequence=sequence), 1)
    state.note_removal(entries.Removal(uid=1, first_sequence=3, deleted=(5, 6), tier=b"b"))
    state.apply("bookmark", entries.Bookmark(uid=1, name=b"c", sequence=2, generation=9), 1)
    again = Bookmarks()
    keys = list(state.keys())
    for key in keys:
        again.load(key, state.row(key))
    assert again.by_channel == state.by_channel
    assert len(state.row(keys[0])) == 8, "as before, where there is nothing else"
