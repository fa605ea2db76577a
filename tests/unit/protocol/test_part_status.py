"""Parts of channels seen together: sums, and what is told to be wrong with them."""

from dataclasses import replace

import pytest
from stan_protocol.admin_types import CursorKind, PartOf
from stan_protocol.scalars import SECOND

from stan.protocol.part_status import channel_faults, position_faults, summed_channels, summed_positions
from tests.kit.fake_operator import channel, durable, member

NOW = 1_700_000_000 * SECOND


def parts(*counts, groups=(), whole="sales", **told):
    """One part for each of *counts* messages, each in a group of its own unless *groups* tells them."""
    return [
        channel(
            f"{whole}.~{number}",
            messages=count,
            last_sequence=count,
            bytes=10 * count,
            group=groups[number] if groups else number + 1,
            part_of=PartOf(channel=whole, number=number, parts=len(counts), **told),
        )
        for number, count in enumerate(counts)
    ]


def ledgers(*numbers, of=4, name="ledger", **told):
    """A durable in some parts."""
    return [
        durable(
            name,
            channel=f"sales.~{number}",
            cursor_id=number,
            waiting=number + 1,
            pending=2,
            part_of=PartOf(channel="sales", number=number, parts=of),
            **told,
        )
        for number in numbers
    ]


def faults(found, groups=4):
    return [(one.kind, one.passing) for one in channel_faults(found, dict.fromkeys(range(1, groups + 1), 0), NOW)]


def test_parts_are_one_with_their_sums_and_other_channels_stay():
    found = summed_channels([channel("a"), *reversed(parts(5, 0, 7, 1)), channel("z"), *parts(3, 4, whole="x")[:1]])
    assert [one.total.name for one in found] == ["a", "sales", "z", "x.~0"], "one part alone is itself"
    sales = found[1]
    assert (sales.total.messages, sales.total.bytes, sales.total.group) == (13, 130, 0)
    assert [one.part_of.number for one in sales.parts] == [0, 1, 2, 3]
    assert [one.parts for one in (found[0], *found[2:])] == [[], [], []]
    assert summed_channels(parts(1, 1, groups=(2, 2)))[0].total.group == 2


def test_positions_of_one_name_in_parts_are_one_with_their_sums():
    others = [*ledgers(1, name="other"), durable("ledger")]
    found = summed_positions([*ledgers(3, 0, 2, members=[member()]), *others])
    assert [(one.total.channel, len(one.parts)) for one in found] == [("sales", 3), ("sales.~1", 0), ("orders", 0)]
    total = found[0].total
    assert (total.waiting, total.pending, len(total.members)) == (8, 6, 3)
    plain = [durable("", kind=CursorKind.PLAIN, cursor_id=n, part_of=PartOf(channel="sales", number=n)) for n in (0, 1)]
    assert len(summed_positions(plain)) == 2, "plain subscriptions have no name in common"
    assert len(summed_positions(ledgers(0) + ledgers(1, client="you"))) == 2, "a durable is its client's"


@pytest.mark.parametrize(
    ("counts", "skewed"),
    [((3000, 100, 100, 100), True), ((900, 30, 20, 20), False), ((600, 500, 400, 500), False), ((1000, 10), True)],
)
def test_a_part_with_far_more_than_its_share_is_told_of(counts, skewed):
    assert faults(parts(*counts)) == ([("skew", False)] if skewed else [])


def test_what_is_older_than_the_last_doubling_counts_as_nobodys_share():
    old = [replace(one, part_of=replace(one.part_of, before=5000)) for one in parts(5000, 5000, 0, 0)]
    found = [*old[:2], *parts(5000, 5000, 0, 0)[2:]]
    assert faults(found) == []
    found[0] = replace(found[0], last_sequence=9000, messages=9000)
    assert faults(found) == [("skew", False)]
    (fault,) = channel_faults(found, dict.fromkeys(range(1, 5), 0), NOW)
    assert "Part ~0 of channel sales has 4,000 of 4,000 messages (100 %)" in fault.text


@pytest.mark.parametrize(
    ("groups", "number", "crowded"),
    [
        ((1, 2, 3, 4), 4, False),
        ((1, 2, 2, 4), 4, True),
        ((1, 1, 1, 1), 1, False),
        ((1, 2, 1, 2), 2, False),
        ((1, 1, 1, 2), 2, True),
    ],
)
def test_parts_in_one_group_are_told_of_if_another_has_room(groups, number, crowded):
    assert faults(parts(1, 1, 1, 1, groups=groups), number) == ([("parts", False)] if crowded else [])


def test_groups_of_other_acks_have_no_room_for_a_part():
    found = parts(1, 1, groups=(1, 1))
    assert list(channel_faults(found, {1: 0, 2: 1}, NOW)) == []
    (fault,) = channel_faults(found, {1: 0, 2: 0}, NOW)
    assert fault.step == "stan channel pin sales.~1 --group 2"


@pytest.mark.parametrize(("seconds", "passing"), [(2, True), (61, False)])
def test_a_doubling_that_does_not_end_is_told_with_the_parts_for_which_it_waits(seconds, passing):
    found = parts(1, 1, 1, 1, doubling=NOW - seconds * SECOND)
    found[:3] = [replace(one, part_of=replace(one.part_of, closed=True)) for one in found[:3]]
    (fault,) = channel_faults(found, dict.fromkeys(range(1, 5), 0), NOW)
    assert (fault.kind, fault.passing) == ("doubling", passing)
    assert "not closed yet: ~3 (group 4)" in fault.text


def test_a_durable_that_lacks_some_parts_is_told_of():
    assert list(position_faults(ledgers(0, 1, 2, 3))) == []
    assert list(position_faults([one for n in range(4) for one in ledgers(n, name=f"of {n}")])) == [], "one for each"
    (fault,) = position_faults(ledgers(0, 1, 3))
    assert "Durable acct/ledger reads 3 of the 4 parts of channel sales, not ~2." in fault.text
    assert not fault.passing
    (fault,) = position_faults(ledgers(0, 1, members=[member()]))
    assert fault.passing, "it reads the old parts to their ends first"
    assert [one.passing for one in position_faults(ledgers(0, 1))] == [False]
    assert len(list(position_faults(ledgers(2)))) == 1
