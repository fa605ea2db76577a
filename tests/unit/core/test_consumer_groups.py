"""Consumer groups at the core: who gets which channel, how one changes hands, whose positions count."""

import pytest
from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb

from stan import limits
from stan.config import Config, RequestLimits
from stan.core.metadata.consumer_groups import ConsumerGroups
from stan.core.metadata.meta import MetaMachine
from stan.policies import PolicyRule
from stan.protocol.proto import entries_pb2 as entries
from stan.state.changes import add_rows
from stan.state.database import Changes, Database
from tests.kit.core_harness import CoreHarness

PREFIX = "_STAN.x.test-cluster"
LEASE_S = 2


class Member:
    """A member of a group that asks when it is told to."""

    def __init__(self, harness, name, pattern="orders.*", group="ledger"):
        self.harness, self.name, self.pattern, self.group = harness, name, pattern, group
        self.known = 0
        self.owned = {}  # channel -> (uid, generation, release)
        self.reply = ""

    def asks(self, *, wait_s=1, release=(), **more):
        """Ask without waiting for the answer."""
        self.reply = f"answer.{self.name}.{self.harness.inboxes}"
        self.harness.inboxes += 1
        request = pb.ConsumerGroupRequest(
            **{
                "group": self.group.encode(),
                "member": f"member-{self.name}".encode(),
                "pattern": self.pattern.encode(),
                "lease_ms": 1000 * LEASE_S,
                "known": self.known,
                "wait_ms": 1000 * wait_s,
                "name": self.name.encode(),
                "released": [pb.OwnedChannel(uid=self.owned[one][0], generation=self.owned[one][1]) for one in release],
            }
            | more
        )
        self.harness.broker.tick(self.harness.now, self.harness.wall)
        self.harness.asks(f"{PREFIX}.consumer_group", request, self.reply)
        self.harness.turn()
        self.harness.turn()  # what was committed in the first one is answered

    def hears(self):
        """What was answered since; None: nothing yet."""
        answers = [pb.ConsumerGroupResponse.FromString(said.payload) for said in self.harness.hear(self.reply)]
        if not answers:
            return None
        (answer,) = answers
        self.known = answer.assignment
        if not answer.error and not answer.unchanged:
            self.owned = {one.channel.decode(): (one.uid, one.generation, one.release) for one in answer.channels}
        return answer

    def ask(self, **more):
        self.asks(**more)
        return self.hears()

    @property
    def channels(self):
        return sorted(self.owned)

    @property
    def to_release(self):
        return sorted(name for name, (_, _, release) in self.owned.items() if release)

    def note(self, channel, sequence, *, claim=False, generation=None):
        """Set the position; returns the answer."""
        uid, own, _ = self.owned.get(channel, (0, 0, False))
        request = pb.CursorSetRequest(
            name=self.group.encode(),
            channel=channel.encode(),
            sequence=sequence,
            generation=own if generation is None else generation,
            claim=claim,
            uid=uid,
        )
        return self.harness.ask(f"{PREFIX}.cursor_set", request, pb.CursorSetResponse)


def listed(harness, group=""):
    request = admin.ConsumerGroupsRequest(version=1, group=group.encode())
    return harness.ask(f"{PREFIX}.admin.consumer_groups", request, admin.ConsumerGroupsResponse)


@pytest.fixture
def harness():
    made = CoreHarness()
    made.connect()
    for at in range(4):
        made.publish(f"orders.{at}", b"1", b"2")
    made.publish("other", b"1")
    return made


ALL = [f"orders.{at}" for at in range(4)]


def two_members(harness):
    """Two members, each with two of the four channels."""
    a, b = Member(harness, "a"), Member(harness, "b")
    a.ask()
    b.ask()
    b.asks()
    a.ask()
    a.ask(release=a.to_release)
    a.asks()
    a.hears()
    b.hears()
    return a, b


def test_first_member_gets_all_channels_that_match(harness) -> None:
    a = Member(harness, "a")
    answer = a.ask()
    assert (answer.error, a.channels, a.to_release) == (b"", ALL, [])
    assert len({generation for _, generation, _ in a.owned.values()}) == 1


def test_answer_waits_for_news(harness) -> None:
    a = Member(harness, "a")
    a.ask()
    assert a.ask() is None
    harness.publish("orders.new", b"1")
    assert a.hears() is not None
    assert a.channels == [*ALL, "orders.new"]
    a.asks()
    harness.pass_time(1.2)
    assert a.hears().unchanged


def test_channel_goes_over_once_it_is_released(harness) -> None:
    a, b = Member(harness, "a"), Member(harness, "b")
    a.ask()
    a.asks()
    b.ask()
    assert b.channels == []
    assert a.hears() is not None
    assert (a.channels, a.to_release) == (ALL, ["orders.2", "orders.3"])
    kept = [a.owned[name] for name in ("orders.0", "orders.1")]
    b.asks()
    a.ask(release=["orders.3"])
    assert b.hears() is not None
    assert (b.channels, a.channels, a.to_release) == (["orders.3"], ["orders.0", "orders.1", "orders.2"], ["orders.2"])
    b.asks()
    a.ask(release=["orders.2"])
    b.hears()
    assert (a.channels, b.channels) == (["orders.0", "orders.1"], ["orders.2", "orders.3"])
    assert [a.owned[name] for name in ("orders.0", "orders.1")] == kept  # what stays was not disturbed


def test_release_of_what_is_not_owned_changes_nothing(harness) -> None:
    a, b = two_members(harness)
    a.owned["orders.3"] = b.owned["orders.3"]
    a.ask(release=["orders.3"])
    b.owned["orders.3"] = (b.owned["orders.3"][0], 1, False)
    b.ask(release=["orders.3"])
    assert {c.channel: c.member for c in listed(harness, "ledger").groups[0].channel_list} == {
        b"orders.0": 1,
        b"orders.1": 1,
        b"orders.2": 2,
        b"orders.3": 2,
    }


def test_silent_member_loses_its_channels_after_its_lease(harness) -> None:
    a, b = two_members(harness)
    for _ in range(8):
        b.ask()
        harness.pass_time(LEASE_S / 8)
        b.hears()
    b.asks()
    harness.pass_time(0.3)
    b.hears()
    assert b.channels == ALL
    assert a.ask().channels == []  # it is a new member, which owns nothing yet
    assert (a.channels, len(b.owned)) == ([], 4)


def test_who_leaves_gives_its_channels_at_once(harness) -> None:
    a, b = two_members(harness)
    b.asks()
    a.ask(leave=True)
    b.hears()
    assert b.channels == ALL
    assert b.ask(leave=True).error == b""
    assert not harness.follower(0).consumer_groups.by_name
    assert listed(harness).groups == []


def test_earlier_owner_sets_no_position_once_the_later_one_has_claimed(harness) -> None:
    a, b = Member(harness, "a"), Member(harness, "b")
    a.ask()
    assert a.note("orders.3", 1, claim=True).sequence == 1
    assert a.note("orders.3", 2).sequence == 2
    harness.pass_time(LEASE_S + 0.2)
    b.ask()
    assert a.note("orders.3", 3).sequence == 3  # nobody else has begun
    assert b.note("orders.3", 1, claim=True).sequence == 3
    assert a.note("orders.3", 4).error.decode() == refusals.OUTDATED_GENERATION
    assert a.note("orders.3", 1, claim=True).error.decode() == refusals.OUTDATED_GENERATION
    assert a.note("orders.3", 0).error.decode() == refusals.OUTDATED_GENERATION
    assert a.note("orders.3", 9, generation=0).error.decode() == refusals.OUTDATED_GENERATION
    assert b.note("orders.3", 2).sequence == 3  # it never goes back
    assert b.note("orders.3", 4).sequence == 4
    harness.restart()
    assert a.note("orders.3", 5).error.decode() == refusals.OUTDATED_GENERATION
    assert b.note("orders.3", 5).sequence == 5


def test_generation_that_was_never_given_is_refused(harness) -> None:
    a = Member(harness, "a")
    a.ask()
    assert a.note("orders.1", 1, generation=1 << 40).error.decode() == refusals.INVALID_BOOKMARK
    assert a.note("orders.1", 0, claim=True).error.decode() == refusals.INVALID_BOOKMARK


def test_channel_that_was_made_again_has_another_position(harness) -> None:
    a = Member(harness, "a")
    a.ask()
    old = a.owned["orders.1"]
    a.note("orders.1", 2, claim=True)
    a.asks()
    harness.broker.parts.channels.removal.delete(harness.broker.parts.channels.by_name[b"orders.1"])
    harness.turn()
    a.hears()
    assert a.channels == ["orders.0", "orders.2", "orders.3"]
    harness.publish("orders.1", b"again")
    a.ask()
    a.owned["orders.1"] = old
    assert a.note("orders.1", 3).error.decode() == refusals.UNKNOWN_CHANNEL
    a.known = 0
    a.ask()
    assert a.note("orders.1", 1, claim=True).sequence == 1


def test_restart_gives_members_a_full_lease(harness) -> None:
    a, b = two_members(harness)
    harness.pass_time(LEASE_S - 0.2)
    harness.restart()
    harness.pass_time(LEASE_S - 0.2)
    a.known = b.known = 0
    mine, others = a.channels, b.channels
    a.ask()
    b.ask()
    assert (a.channels, b.channels) == (mine, others)
    assert a.note(mine[0], 1, claim=True).error == b""


def test_members_that_could_not_be_heard_keep_their_channels(harness) -> None:
    a = Member(harness, "a")
    a.ask()
    harness.broker.step_disconnected()
    harness.pass_time(3 * LEASE_S)
    harness.broker.step_reconnected(3 * LEASE_S * 10**9)
    harness.turn()
    harness.now += 3 * 10**9  # the process was stopped
    harness.wall += 3 * 10**9
    harness.turn()
    assert a.ask() is None
    assert len(harness.follower(0).consumer_groups.by_name[b"ledger"].owners) == 4


def test_members_have_patterns_of_their_own(harness) -> None:
    a, b = Member(harness, "a"), Member(harness, "b", "other")
    a.ask()
    b.ask()
    assert (a.channels, b.channels) == (ALL, ["other"])
    a.pattern = "orders.0"
    a.ask()
    assert a.to_release == ["orders.1", "orders.2", "orders.3"]
    a.ask(release=a.to_release)
    assert a.channels == ["orders.0"]


def test_dead_letters_and_waiting_messages_are_for_who_names_them() -> None:
    rules = (
        PolicyRule(pattern="orders.>", dead_letter=".dlq", max_deliver=3),
        PolicyRule(pattern="orders.later", delay=10**9, target="orders.1"),
    )
    harness = CoreHarness(Config(policies=rules))
    harness.connect()
    for name in ("orders.1", "orders.1.dlq", "orders.later"):
        harness.ask(
            f"{PREFIX}.admin.create_channel",
            admin.CreateChannelRequest(version=1, channel=name.encode()),
            admin.ChangeResponse,
        )
    a, b = Member(harness, "a", "orders.>"), Member(harness, "b", "orders.1.dlq")
    a.ask()
    b.ask()
    assert (a.channels, b.channels) == (["orders.1"], ["orders.1.dlq"])


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"group": b""}, "a group has a name, without zero bytes"),
        ({"group": b"a\0b"}, "a group has a name, without zero bytes"),
        ({"group": b"x" * 256}, "the name of the group has 256 bytes, and at most 255 are allowed"),
        ({"member": b"short"}, "the id of a member has 8 to 64 bytes"),
        ({"member": b"x" * 65}, "the id of a member has 8 to 64 bytes"),
        ({"pattern": b""}, "it is no pattern of channels"),
        ({"pattern": b"a..b"}, "it is no pattern of channels"),
        ({"lease_ms": 100}, "a lease is 500ms to 5m0s long, not 100ms"),
        ({"lease_ms": 400_000}, "a lease is 500ms to 5m0s long, not 6m40s"),
        ({"wait_ms": 3000}, "it waits longer than its lease"),
        ({"name": b"x" * 256}, "the name of the member has 256 bytes, and at most 255 are allowed"),
        ({"released": [pb.OwnedChannel()] * (limits.CONSUMER_CHANNELS_MAX + 1)}, "it releases more than 2000 channels"),
    ],
)
def test_impossible_requests_are_refused_with_the_bound(harness, wrong, why) -> None:
    assert Member(harness, "a").ask(**wrong).error.decode() == f"{refusals.INVALID_CONSUMER}: {why}"
    assert not harness.state.watched_consumer_groups


def test_bounds(harness, monkeypatch) -> None:
    monkeypatch.setattr(limits, "CONSUMER_GROUPS_MAX", 1)
    monkeypatch.setattr(limits, "CONSUMERS_MAX", 2)
    monkeypatch.setattr(limits, "CONSUMER_CHANNELS_MAX", 3)
    a, b, c = (Member(harness, name) for name in "abc")
    a.ask()
    assert a.channels == ["orders.0", "orders.1", "orders.2"]
    b.ask()
    assert c.ask().error.decode() == refusals.TOO_MANY_CONSUMERS
    monkeypatch.setattr(limits, "CONSUMER_PATTERNS_MAX", 1)
    assert Member(harness, "b", "orders.1").ask().error.decode() == refusals.TOO_MANY_CONSUMER_PATTERNS
    assert Member(harness, "d", group="other").ask().error.decode() == refusals.TOO_MANY_CONSUMER_GROUPS


def test_joins_are_limited_as_other_requests_are() -> None:
    harness = CoreHarness(Config(requests=RequestLimits(rate=2)))
    a, b, c = (Member(harness, name) for name in "abc")
    assert a.ask().error == b.ask().error == b""
    refused = c.ask()
    assert (refused.error.decode(), refused.retry) == (refusals.TOO_MANY_REQUESTS, True)
    for _ in range(5):
        assert a.ask() is None  # who is a member asks as often as it likes
        assert len(harness.follower(0).consumer_groups.by_name[b"ledger"].members) == 2
    harness.pass_time(1)
    assert c.ask().error == b""


def test_full_disk_passes(harness) -> None:
    a = Member(harness, "a")
    harness.full = True
    assert a.ask() is None
    harness.full = False
    a.asks()
    harness.pass_time(1.1)
    a.hears()
    assert a.channels == ALL


def test_change_of_unknown_fate_is_made_anew(harness) -> None:
    a = Member(harness, "a")
    harness.in_doubt = True
    assert a.ask() is None
    harness.in_doubt = False
    for _ in range(12):
        a.ask()
        harness.pass_time(0.5)
    a.hears()
    assert a.channels == ALL


def test_listing(harness) -> None:
    two_members(harness)
    (row,) = listed(harness).groups
    assert (row.group, row.members, row.channels, row.unowned, row.releasing) == (b"ledger", 2, 4, 0, 0)
    (details,) = listed(harness, "ledger").groups
    assert [(one.name, one.channels, one.lease_ms) for one in details.member_list] == [
        (b"a", 2, 1000 * LEASE_S),
        (b"b", 2, 1000 * LEASE_S),
    ]
    assert [one.channel.decode() for one in details.channel_list] == ALL
    assert listed(harness, "nope").error.decode() == refusals.UNKNOWN_CONSUMER_GROUP


def test_change_that_knows_an_older_state_is_not_taken() -> None:
    groups = ConsumerGroups()
    row = entries.ConsumerMember(member=b"member-a")
    given = [entries.GivenChannels(member=b"member-a", uids=[1, 2, 9])]
    change = entries.ConsumerGroupChange(group=b"g", joined=[row], given=given)
    assert groups.apply(change, 5, {1, 2}) == ""
    assert groups.apply(change, 6, {1, 2}) == refusals.CONSUMER_GROUP_CHANGED
    assert {uid: owner.generation for uid, owner in groups.by_name[b"g"].owners.items()} == {1: 5, 2: 5}


async def test_state_is_in_rows_and_snapshots(tmp_path) -> None:
    meta = MetaMachine()
    meta.apply(entries.MetaChange(cluster_info=entries.ClusterInfo(level=1)), 1)
    channels = [entries.Channel(name=b"c%d" % at, group=1) for at in range(3)]
    meta.apply(entries.MetaChange(create_channels=entries.CreateChannels(channels=channels)), 2)
    row = entries.ConsumerMember(member=b"member-a", pattern=b"*", lease_ms=1000)
    for at, name in enumerate([b"one", b"two", b"gone"]):
        given = [entries.GivenChannels(member=b"member-a", uids=[1, 2])]
        change = entries.ConsumerGroupChange(group=name, joined=[row], given=given)
        meta.apply(entries.MetaChange(consumer_group=change), 3 + at)
    database = await Database.open(tmp_path / "state.db")

    async def flush(index):
        changes = Changes()
        add_rows(changes, 0, meta.take_changed_rows(), (index, 1))
        await database.flush(changes)

    await flush(5)
    gone = entries.ConsumerGroupChange(group=b"gone", changed=5, left=[b"member-a"])
    assert meta.apply(entries.MetaChange(consumer_group=gone), 6).error == ""
    meta.apply(entries.MetaChange(delete_channel=entries.DeleteChannel(uid=2)), 7)
    await flush(7)
    await database.close()
    database = await Database.open(tmp_path / "state.db")
    stored = await database.snapshot(0)
    await database.close()
    taken = entries.Snapshot()
    meta.snapshot(taken)
    for snapshot in (stored, taken):
        again = MetaMachine()
        again.restore(snapshot)
        assert again.consumer_groups.by_name == meta.consumer_groups.by_name
        assert again.consumer_groups.by_name.keys() == {b"one", b"two"}
        assert set(again.consumer_groups.by_name[b"one"].owners) == {1}
