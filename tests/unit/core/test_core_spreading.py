"""Channels go by themselves to the group where they belong: after the pool has grown, one after the other, whoever leads."""

import pytest
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.refusals import NOT_A_CLUSTER
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.features.moves import source as move_source
from stan.core.features.moves import target as move_target
from stan.protocol.placement import channel_group
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.core_harness import CoreHarness
from tests.unit.core.test_core_channel_moves import Everywhere
from tests.unit.core.test_core_pool import growth

GROUPS, MORE, MOST = 2, 5, 8
NAMES = [f"c{at}" for at in range(24)]
REQUEST = "_STAN.x.test-cluster.admin.pause_moves"


def home(name, pool):
    return channel_group(name.encode(), pool)


GO = [name for name in NAMES if home(name, MORE) != home(name, GROUPS)]
STAY = [name for name in NAMES if name not in GO]


def grow(node, groups, before):
    for number in range(before + 1, groups + 1):
        node.broker.states.reset(number)
    node.feed_meta(grow_pool=growth(groups, before))
    node.feed_meta(open_pool=groups)


@pytest.fixture
def node():
    """It leads all groups of a pool that is about to grow, and has known all publishes for long enough."""
    made = Everywhere()
    made.lead(0, *range(1, GROUPS + 1))
    made.feed_client()
    for name in NAMES:
        made.feed_channel(name, home(name, GROUPS))
        assert made.publish(name, name.encode()) == [""]
    made.pass_time(10)
    return made


def places(node):
    return {
        name: info.group for name, info in ((name, node.broker.view.meta.channels[name.encode()]) for name in NAMES)
    }


def ask(node, *, paused):
    answer = node.ask(REQUEST, admin.PauseMovesRequest(version=1, paused=paused), admin.ChangeResponse)
    return answer and (answer.error.decode(), answer.changed)


def watched(node, seconds):
    """The most moves that were under way at once."""
    most = 0
    for _ in range(int(seconds / 0.05)):
        node.pass_time(0.05)
        most = max(most, len({info.move for info in node.broker.view.meta.by_uid.values() if info.move}))
    return most


def test_channels_that_the_hash_moves_go_to_the_new_groups_one_after_the_other(node) -> None:
    assert GO
    assert STAY
    assert node.broker.view.channels_to_move == 0
    grow(node, MORE, GROUPS)
    assert node.broker.view.channels_to_move == len(GO)
    node.lead(*range(GROUPS + 1, MORE + 1))
    assert watched(node, 5 * len(GO)) == 1
    assert places(node) == {name: home(name, MORE) for name in NAMES}
    assert node.broker.view.channels_to_move == 0
    for name in NAMES:
        assert set(node.publish(name, b"again")) == {""}
        assert node.stored(name, home(name, MORE)) == [name.encode(), b"again"]
    before = len(node.order)
    node.pass_time(60)
    assert not [pb.MetaChange.FromString(body) for group, _, body in node.order[before:] if group == 0], "that is all"


def test_a_pool_that_grows_twice_at_once_moves_each_channel_once(node) -> None:
    grow(node, MORE, GROUPS)
    grow(node, MOST, MORE)
    node.lead(*range(GROUPS + 1, MOST + 1))
    node.pass_time(150)
    assert places(node) == {name: home(name, MOST) for name in NAMES}
    assert all(len(info.left) <= 1 for info in node.broker.view.meta.channels.values())


def test_the_next_leader_of_the_metadata_goes_on(node) -> None:
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(1)
    left = node.broker.view.channels_to_move
    assert 0 < left <= len(GO)
    node.follow(0)
    assert node.broker.view.channels_to_move == 0
    node.pass_time(30)
    assert len([name for name, group in places(node).items() if group != home(name, MORE)]) >= left - 1, (
        "only a move that was under way may have ended"
    )
    node.lead(0)
    assert node.broker.view.channels_to_move in (left, left - 1)
    node.pass_time(100)
    assert places(node) == {name: home(name, MORE) for name in NAMES}


def test_a_channel_to_which_more_is_published_than_is_copied_holds_up_no_other(node, monkeypatch) -> None:
    monkeypatch.setattr(limits, "MOVE_BYTES_PER_SECOND", 1_000)
    monkeypatch.setattr(limits, "MOVE_ANSWER_BYTES_MAX", move_source.ROOM + 500)
    monkeypatch.setattr(move_target, "TAIL_BYTES", 1_000)
    busy, others = GO[0], GO[1:]

    def publish_for(seconds):
        for _ in range(seconds):
            node.pass_time(1)
            assert set(node.publish(busy, *[b"x" * 300] * 10)) == {""}

    publish_for(2)
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    publish_for(limits.MOVE_STALLED_MAX // SECOND - 2)
    assert {name: places(node)[name] for name in GO} == {name: home(name, GROUPS) for name in GO}
    publish_for(30)
    assert {name: places(node)[name] for name in others} == {name: home(name, MORE) for name in others}
    assert places(node)[busy] == home(busy, GROUPS)
    assert (
        "WRN",
        f'Channel "{busy}" is not moved to group {home(busy, MORE)} yet: {move_target.FALLS_BEHIND}',
    ) in node.notes
    monkeypatch.undo()
    node.pass_time(limits.MOVE_RETRY_MAX / SECOND)
    assert places(node) == {name: home(name, MORE) for name in NAMES}
    assert len(node.stored(busy, home(busy, MORE))) == 1 + 10 * (2 + 58 + 30)


def test_channels_of_a_group_without_a_leader_hold_up_no_others(node) -> None:
    without = home(GO[0], GROUPS)
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.follow(without)
    node.pass_time(len(GO) * limits.MOVE_STALLED_MAX / SECOND)
    stay = {name for name in GO if places(node)[name] != home(name, MORE)}
    assert stay == {name for name in GO if home(name, GROUPS) == without}
    assert (
        "WRN",
        f'Channel "{GO[0]}" is not moved to group {home(GO[0], MORE)} yet: {move_target.NO_ANSWER}',
    ) in node.notes
    node.lead(without)
    node.pass_time((1 + len(stay)) * limits.MOVE_RETRY_MAX / SECOND)
    assert places(node) == {name: home(name, MORE) for name in NAMES}


def test_an_operator_pauses_them(node) -> None:
    assert ask(node, paused=True) == ("", 1)
    assert ask(node, paused=True) == ("", 0)
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(60)
    assert places(node) == {name: home(name, GROUPS) for name in NAMES}
    assert node.broker.view.channels_to_move == len(GO)
    assert node.pin(home(GO[0], MORE), GO[0].encode()) == ("", 1), "who asks for a move has it"
    node.pass_time(5)
    assert places(node)[GO[0]] == home(GO[0], MORE)
    assert node.broker.view.channels_to_move == len(GO) - 1
    assert ask(node, paused=False) == ("", 1)
    node.pass_time(100)
    assert places(node) == {name: home(name, MORE) for name in NAMES}


def test_who_is_pinned_or_was_placed_by_hand_stays(node) -> None:
    pinned, placed = GO[0], GO[1]
    elsewhere = home(placed, GROUPS) % GROUPS + 1
    node.feed_meta(pin_channel=pb.Pin(channel=pinned.encode(), group=home(pinned, GROUPS)))
    assert node.pin(elsewhere, placed.encode()) == ("", 1)
    node.pass_time(5)
    assert node.pin(0, placed.encode()) == ("", 1)
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(100)
    expected = {name: home(name, MORE) for name in NAMES}
    assert places(node) == expected | {pinned: home(pinned, GROUPS), placed: elsewhere}
    assert node.pin(0, pinned.encode()) == ("", 1)
    assert node.broker.view.channels_to_move == 1
    node.pass_time(5)
    assert places(node)[pinned] == home(pinned, MORE), "it is where the hash had put it, and follows the hash again"


def test_parts_of_a_channel_stay_side_by_side(node) -> None:
    """Also those that are, by chance, where the hash of their own names would have put them."""
    parts = 16
    row = pb.CreateParted(name=b"many", groups=[at % GROUPS + 1 for at in range(parts)])
    node.feed_meta(create_parted=row)
    made = {info.name.decode(): info.group for info in node.broker.view.meta.channels.values() if b"many" in info.name}
    assert len(made) == parts
    assert any(group == home(name, GROUPS) != home(name, MORE) for name, group in made.items())
    grow(node, MORE, GROUPS)
    assert node.broker.view.channels_to_move == len(GO)


def test_what_belongs_to_a_channel_goes_with_it(node) -> None:
    node.feed_meta(set_policy=pb.Policy(pattern=GO[0].encode(), max_deliver=1, dead_letter=b".dlq"))
    node.feed_channel(f"{GO[0]}.dlq", home(GO[0], GROUPS))
    grow(node, MORE, GROUPS)
    assert node.broker.view.channels_to_move == len(GO)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(100)
    channels = node.broker.view.meta.channels
    assert channels[f"{GO[0]}.dlq".encode()].group == channels[GO[0].encode()].group == home(GO[0], MORE)


def test_a_channel_that_was_made_where_the_smaller_pool_would_have_it_follows(node) -> None:
    """A node that had not heard of the new groups has asked for it."""
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(100)
    late = next(name for name in (f"late{at}" for at in range(99)) if home(name, MORE) > GROUPS)
    node.feed_channel(late, home(late, GROUPS))
    assert node.broker.view.channels_to_move == 1
    node.pass_time(5)
    assert node.broker.view.meta.channels[late.encode()].group == home(late, MORE)


def test_one_that_waits_lets_others_go_first_and_comes_later(node) -> None:
    """A transaction of it is staged, and nobody commits it."""
    waits = GO[0]
    group, uid = home(waits, GROUPS), node.broker.view.meta.channels[waits.encode()].uid
    part = pb.StagedPart(uid=uid, sequence=1, count=1, bytes=1)
    staged = pb.Staged(app=b"a", version=1, txn=b"t", at=node.wall, parts=[part])
    node.feed(group, 3, pb.GroupChange(staged=staged).SerializeToString())
    grow(node, MORE, GROUPS)
    node.lead(*range(GROUPS + 1, MORE + 1))
    node.pass_time(60)
    assert places(node) == {name: home(name, MORE) for name in NAMES} | {waits: group}
    assert node.broker.view.channels_to_move == 1
    assert set(node.publish(waits, b"in between")) == {""}
    node.feed(group, 3, pb.GroupChange(drop_staged=pb.DropStaged(uid=uid, txns=[b"t"])).SerializeToString())
    node.pass_time(120)
    assert places(node)[waits] == home(waits, MORE)
    assert node.stored(waits, home(waits, MORE)) == [waits.encode(), b"in between"]


def test_a_great_many_channels_are_looked_at_a_few_at_a_time(node, monkeypatch) -> None:
    monkeypatch.setattr(limits, "MOVE_LOOKED_AT", 5)
    node.follow(0)
    grow(node, MORE, GROUPS)
    node.lead(0)
    first = len([name for name in NAMES[:5] if name in GO])
    assert node.broker.view.channels_to_move == first
    node.feed_meta(delete_channel=pb.DeleteChannel(uid=node.broker.view.meta.channels[GO[-1].encode()].uid))
    node.pass_time(1)
    assert node.broker.view.channels_to_move == len(GO) - 1


def test_a_pause_outlives_a_restart_and_needs_a_cluster(node) -> None:
    assert ask(node, paused=True) == ("", 1)
    assert node.state.copy_of_meta().moves_paused
    alone = CoreHarness()
    asked = alone.ask(REQUEST, admin.PauseMovesRequest(version=1, paused=True), admin.ChangeResponse)
    assert asked.error.decode() == NOT_A_CLUSTER
