"""Inheritance of channel limits: the worked example of STAN-SPEC 7.3 and its rules."""

import random

import pytest
from stan_protocol.patterns import inherit, literal, matches, narrowest, overlap, valid_name

from stan.config import ChannelLimits, ChannelOverride, StoreLimits

DEFAULT = ChannelLimits(msgs=11, bytes=12, age_ns=13, subscriptions=14, inactivity_ns=15)

WORKED_EXAMPLE = {
    "*.>": (ChannelOverride(subscriptions=5), (11, 12, 13, 5, 15)),
    "*.*": (ChannelOverride(bytes=2), (11, 2, 13, 5, 15)),
    "foo.>": (ChannelOverride(msgs=10), (10, 2, 13, 5, 15)),
    "foo.*.>": (ChannelOverride(bytes=20), (10, 20, 13, 5, 15)),
    "foo.*.*.>": (ChannelOverride(age_ns=30), (10, 20, 30, 5, 15)),
    "foo.a.b.c": (ChannelOverride(subscriptions=40), (10, 20, 30, 40, 15)),
    "foo.d.e.f": (ChannelOverride(msgs=50, age_ns=60), (50, 20, 60, 5, 15)),
    "foo.baz": (ChannelOverride(bytes=70, subscriptions=80), (10, 70, 13, 80, 15)),
    "bar.*.>": (ChannelOverride(msgs=90), (90, 12, 13, 5, 15)),
    "bar.baz.>": (ChannelOverride(bytes=100, inactivity_ns=110), (90, 100, 13, 5, 110)),
    "bar.baz.boz": (ChannelOverride(inactivity_ns=120), (90, 100, 13, 5, 120)),
}


def limits(values):
    msgs, size, age, subscriptions, inactivity = values
    return ChannelLimits(msgs=msgs, bytes=size, age_ns=age, subscriptions=subscriptions, inactivity_ns=inactivity)


@pytest.mark.parametrize("seed", range(5))
def test_inheritance_of_worked_example_gives_table_in_any_order(seed):
    rows = list(WORKED_EXAMPLE.items())
    random.Random(seed).shuffle(rows)
    resolved = inherit(DEFAULT, {name: override for name, (override, _) in rows})
    assert resolved == {name: limits(values) for name, (_, values) in rows}


@pytest.mark.parametrize(
    ("channel", "pattern"),
    [
        ("foo.a.b.c", "foo.a.b.c"),
        ("foo.x.y.z", "foo.*.*.>"),
        ("foo.x.y", "foo.*.>"),
        ("foo.x", "foo.>"),
        ("other.x", "*.*"),
        ("other.x.y", "*.>"),
        ("bar.baz.x", "bar.baz.>"),
    ],
)
def test_channel_gets_limits_of_narrowest_pattern(channel, pattern):
    store = StoreLimits(default=DEFAULT, per_channel={name: row[0] for name, row in WORKED_EXAMPLE.items()})
    assert store.for_channel(channel) == limits(WORKED_EXAMPLE[pattern][1])
    assert store.for_channel(channel) is store.for_channel(channel)


def test_channel_without_pattern_gets_default():
    resolved = inherit(DEFAULT, {"foo.>": ChannelOverride(msgs=1)})
    assert narrowest(DEFAULT, resolved, "foo") is DEFAULT
    assert StoreLimits(default=DEFAULT).for_channel("foo") is DEFAULT


def test_negative_override_is_unlimited_and_is_inherited():
    resolved = inherit(DEFAULT, {"a.>": ChannelOverride(msgs=-1, age_ns=-1), "a.b": ChannelOverride(bytes=7)})
    assert resolved["a.>"] == limits((0, 12, 0, 14, 15))
    assert resolved["a.b"] == limits((0, 7, 0, 14, 15))


@pytest.mark.parametrize(
    ("pattern", "name", "covers"),
    [
        ("foo", "foo", True),
        ("foo", "fo", False),
        ("foo", "foo.bar", False),
        ("*", "foo", True),
        ("*", "foo.bar", False),
        (">", "foo.bar", True),
        ("foo.>", "foo", False),
        ("foo.>", "foo.>", True),
        ("foo.*", "foo.>", True),
        ("foo.>", "foo.*", True),
        ("foo.bar", "foo.*", False),
        ("foo.*.>", "foo.>", False),
    ],
)
def test_match_of_pattern_and_name(pattern, name, covers):
    assert matches(pattern, name) is covers


@pytest.mark.parametrize("name", ["foo.*bar", "foo.**.bar", "foo.>.bar", "foo.", ".foo", "foo..bar", "foo/bar", ""])
def test_bad_pattern_is_no_valid_name(name):
    assert not valid_name(name, wildcards=True)


@pytest.mark.parametrize("name", ["foo", "foo.bar", "föö", "a-b_c"])
def test_plain_name_is_valid_everywhere(name):
    assert valid_name(name, wildcards=True)
    assert valid_name(name, wildcards=False)
    assert literal(name)


@pytest.mark.parametrize("name", ["*", ">", "foo.*", "foo.>", "*.foo.>"])
def test_wildcard_name_is_valid_only_in_configuration(name):
    assert valid_name(name, wildcards=True)
    assert not valid_name(name, wildcards=False)
    assert not literal(name)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("a", "a", True),
        ("a", "b", False),
        ("a.*", "a.b", True),
        ("a.*", "*.b", True),
        ("a.*", "b.*", False),
        ("a.*", "a", False),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        (">", "a", True),
        ("*", "a.b", False),
        ("a.*.c", "a.>", True),
        ("a.*.c", "*.*.d", False),
    ],
)
def test_patterns_overlap_if_a_name_has_both(one, other, common) -> None:
    assert overlap(one, other) == overlap(other, one) == common
