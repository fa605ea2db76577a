"""Properties of the assignor of consumer groups: balanced, sticky, complete, the same whenever it is asked."""

from hypothesis import given
from hypothesis import strategies as st

from stan.core.base.assignor import assign

CHANNELS = st.sets(st.integers(1, 40), max_size=25)


@st.composite
def questions(draw, *, alike):
    """Members with the channels that they may be given, and who owns channels now: also some who are gone."""
    channels = draw(CHANNELS)
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    some = st.just(channels) if alike else st.sets(st.sampled_from(sorted(channels)) if channels else st.nothing())
    members = {name: draw(some) for name in sorted(names)}
    owners = draw(st.dictionaries(st.integers(1, 45), st.sampled_from([*"abcdefgh"]), max_size=25))
    return members, owners


def kept_at_most(members, owners, channels):
    """How many channels can stay with their owners if all members get as even shares as can be."""
    if not members:
        return 0
    least, more = divmod(len(channels), len(members))
    quotas = [least + 1] * more + [least] * (len(members) - more)
    shares = sorted(
        (sum(owner == member and channel in channels for channel, owner in owners.items()) for member in members),
        reverse=True,
    )
    return sum(map(min, shares, quotas))


@given(questions(alike=True))
def test_even_shares_with_the_fewest_moves(question) -> None:
    members, owners = question
    channels = set().union(*members.values())
    given_to = assign(members, owners)
    assert given_to.keys() == channels
    counts = [list(given_to.values()).count(member) for member in members]
    assert not counts or max(counts) - min(counts) <= 1
    kept = sum(owners.get(channel) == member for channel, member in given_to.items())
    assert kept == kept_at_most(members, owners, channels)


@given(questions(alike=False))
def test_everything_is_given_to_somebody_who_may_have_it(question) -> None:
    members, owners = question
    given_to = assign(members, owners)
    assert given_to.keys() == set().union(*members.values())
    assert all(channel in members[member] for channel, member in given_to.items())
    counts = {member: list(given_to.values()).count(member) for member in members}
    for channel, member in given_to.items():  # no single move makes it more even
        assert all(counts[other] >= counts[member] - 1 for other in members if channel in members[other])


@given(st.booleans().flatmap(lambda alike: questions(alike=alike)))
def test_what_is_even_stays_as_it_is(question) -> None:
    members, owners = question
    given_to = assign(members, owners)
    assert assign(members, given_to) == given_to == assign(dict(members), dict(reversed(owners.items())))


def test_who_is_gone_leaves_only_its_own_channels_to_others() -> None:
    members = {f"m{at}": set(range(100)) for at in range(10)}
    first = assign(members, {})
    del members["m3"]
    then = assign(members, first)
    assert {channel for channel in first if first[channel] != then[channel]} == {
        channel for channel, member in first.items() if member == "m3"
    }


def test_who_comes_takes_one_share_and_nobody_else_moves() -> None:
    members = {f"m{at}": set(range(100)) for at in range(9)}
    first = assign(members, {})
    members["new"] = set(range(100))
    then = assign(members, first)
    moved = [channel for channel in first if first[channel] != then[channel]]
    assert len(moved) == 10
    assert {then[channel] for channel in moved} == {"new"}
