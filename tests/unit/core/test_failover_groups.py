"""Failover groups: the member that joined first gets all messages, and the next one when it is gone."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import wire_pb2 as wire

from stan.core.state.group import GroupMachine
from tests.kit.core_harness import CoreHarness, Node
from tests.kit.cursor_admin import PREFIX, agrees

MEMBERS = ("one", "two", "three")


@pytest.fixture
def harness(harness):
    yield harness
    harness.turn()
    agrees(harness)


def members(harness, **settings):
    """Three members of a durable group, in the order in which they join: name -> ack inbox."""
    out = {}
    for name in MEMBERS:
        if name != "one":
            harness.connect(name)
        client = "me" if name == "one" else name
        settings = {"queue": "q", "durable": "d", "wait": 5, **settings}
        out[name] = harness.subscribe("foo", name, client_id=client, **settings).ack_inbox
    return out


def got(harness):
    return {name: harness.received(name) for name in MEMBERS}


def test_the_first_member_gets_all_messages_also_when_its_window_is_full(harness):
    harness.set_policy(failover=True)
    inboxes = members(harness, in_flight=2)

    harness.publish("foo", *[b"x"] * 5)
    assert got(harness) == {"one": [(1, 0), (2, 0)], "two": [], "three": []}
    harness.ack(inboxes["one"], 1, 2)
    assert got(harness) == {"one": [(3, 0), (4, 0)], "two": [], "three": []}


def test_what_comes_again_comes_to_the_active_member(harness):
    harness.set_policy(failover=True)
    members(harness, in_flight=2)
    harness.publish("foo", b"a", b"b")
    got(harness)

    harness.pass_time(6)

    assert got(harness) == {"one": [(1, 1), (2, 1)], "two": [], "three": []}


def test_the_next_member_takes_over_and_what_the_former_held_is_flagged(harness):
    harness.set_policy(failover=True)
    inboxes = members(harness, in_flight=2)
    harness.publish("foo", b"a", b"b", b"c")
    harness.ack(inboxes["one"], 1)
    got(harness)

    harness.leave("foo", inboxes["one"])
    assert got(harness) == {"one": [], "two": [(2, 1), (3, 1)], "three": []}
    harness.leave("foo", inboxes["two"], client_id="two")
    assert got(harness) == {"one": [], "two": [], "three": [(2, 2), (3, 2)]}
    harness.ack(inboxes["three"], 2, 3)
    harness.publish("foo", b"d")
    assert got(harness)["three"] == [(4, 0)]


def test_who_comes_back_comes_last(harness):
    harness.set_policy(failover=True)
    inboxes = members(harness)
    harness.leave("foo", inboxes["one"])
    harness.subscribe("foo", "one", queue="q", durable="d")

    harness.publish("foo", b"a")

    assert got(harness) == {"one": [], "two": [(1, 0)], "three": []}


def test_a_member_whose_heartbeats_fail_stays_active_and_no_attempt_is_spent_on_it(harness):
    harness.set_policy(failover=True, max_deliver=2)
    inboxes = members(harness, in_flight=2)
    harness.publish("foo", b"a")
    got(harness)
    harness.fail_heartbeats(harness.state.position().members[0].client_id.decode())

    harness.pass_time(20)
    assert got(harness) == {"one": [], "two": [], "three": []}

    harness.leave("foo", inboxes["one"])
    assert got(harness)["two"] == [(1, 1)]


def test_the_policy_may_change_while_messages_are_in_flight(harness):
    inboxes = members(harness, in_flight=1)
    harness.publish("foo", *[b"x"] * 5)
    before = {name: [sequence for sequence, _ in found] for name, found in got(harness).items()}
    assert all(before.values())

    harness.set_policy(failover=True)
    for name in ("two", "three"):
        harness.ack(inboxes[name], *before[name])
    assert got(harness) == {"one": [], "two": [], "three": []}
    harness.ack(inboxes["one"], *before["one"])
    assert got(harness) == {"one": [(4, 0)], "two": [], "three": []}
    harness.set_policy()
    assert sum(map(bool, got(harness).values())) == 1, "the others get messages again"


def test_a_full_active_member_does_not_make_the_leader_read_again_and_again(harness):
    """Members that get nothing have open windows."""
    harness.set_policy(failover=True)
    inboxes = members(harness, in_flight=2)
    harness.publish("foo", *[b"x"] * 4)
    harness.leave("foo", inboxes["one"])
    before = harness.state.reads()
    for _ in range(20):
        harness.turn()
    assert harness.state.reads() <= before + 1
    assert len(got(harness)["two"]) == 2


def test_a_restart_and_another_leader_keep_the_active_member(harness):
    harness.set_policy(failover=True)
    members(harness, in_flight=2)
    harness.publish("foo", b"a")
    got(harness)

    harness.restart()
    harness.set_policy(failover=True)
    harness.publish("foo", b"b")

    assert got(harness) == {"one": [(2, 0)], "two": [], "three": []}


def test_members_have_their_order_from_rows_and_snapshots_in_any_order():
    harness = CoreHarness()
    harness.connect()
    members(harness)
    shot, other = harness.state.snapshot(), harness.state.copy()
    backwards = GroupMachine(1)
    backwards.load(shot.cursors, list(reversed(shot.subscriptions)))
    wanted = [member.settings.inbox for member in harness.state.position().members]
    assert wanted == [b"one", b"two", b"three"]
    for loaded in (other, backwards):
        (found,) = loaded.cursors.values()
        assert [member.settings.inbox for member in found.members] == wanted


def test_cumulative_acks_stay_refused(harness):
    harness.set_policy(failover=True)
    inboxes = members(harness)
    harness.publish("foo", b"a", b"b")
    got(harness)

    harness.say(inboxes["one"], 2, wire.ACK, cumulative=True)

    assert harness.state.live_position().window == [1, 2]


def test_operators_see_who_is_active(harness):
    harness.set_policy(failover=True)
    inboxes = members(harness)
    harness.leave("foo", inboxes["one"])

    def active():
        request = admin.SubscriptionsRequest(version=1, pattern=b"foo")
        found = harness.ask(f"{PREFIX}subscriptions", request, admin.SubscriptionsResponse)
        return {member.inbox.decode(): member.active for member in found.cursors[0].members}

    assert active() == {"two": True, "three": False}
    harness.set_policy()
    assert active() == {"two": False, "three": False}


def test_a_leader_whose_metadata_lags_sends_nothing_before_it_knows_the_channel():
    """It does not know the policy either."""
    first = Node()
    first.feed_client()
    first.feed_channel()
    first.lead()
    first.subscribe("foo", queue="q")
    first.meta_says(len(first.logs[0]))
    first.publish("foo", b"a")
    assert [sequence for sequence, _ in first.received()] == [1]
    second = Node()
    second.feed_client()
    for _, kind, body in first.logs[1]:
        second.feed(1, kind, body)
    second.lead(1)
    second.pass_time(60)
    assert second.received() == []
    second.feed_channel()
    second.pass_time(60)
    assert {sequence for sequence, _ in second.received()} == {1}
