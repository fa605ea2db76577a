"""Expiries against a plain dict of sequences: whatever is listed, expires, is trimmed and is loaded again, both hold the same."""

from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND, ChannelUid

from stan.core.base.runs import pairs
from stan.core.publishing.expiry_rows import expiring_change, restamped, runs_of, stamped, times_of
from stan.core.state.expiries import Expiries
from stan.protocol.proto import entries_pb2 as pb

UID = ChannelUid(7)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.lists(st.integers(0, 4), min_size=1, max_size=6), st.just(0)),
        st.tuples(st.just("expire"), st.integers(0, 5), st.integers(0, 40)),
        st.tuples(st.just("trim"), st.integers(1, 40), st.just(0)),
        st.tuples(st.just("load"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


def held(state):
    here = state.by_channel.get(UID)
    runs = here.runs.items() if here is not None else ()
    return {at: when for first, (last, when) in runs for at in range(first, last + 1)}


def stored(state, first, times):
    runs, found = runs_of(times)
    if found:
        change = pb.GroupChange.FromString(expiring_change(UID, runs, found, first)).expiring
        state.add(change)
    return {first + place: at for place, at in enumerate(times) if at}


@given(steps)
def test_both_hold_the_same(story):
    state, model, rows, end = Expiries(), {}, {}, 1
    for kind, what, upto in story:
        if kind == "store":
            model |= stored(state, end, what)
            end += len(what)
        elif kind == "expire":
            gone = [at for first, last in state.expire(UID, what, upto) for at in range(first, last + 1)]
            assert gone == [at for at, when in sorted(model.items()) if when <= what and at <= upto]
            model = {at: when for at, when in model.items() if at not in gone}
        elif kind == "trim":
            runs = list(state.by_channel[UID].runs.items()) if UID in state.by_channel else []
            kept = {at for first, (last, _) in runs if last >= what for at in range(first, last + 1)}
            state.trim(UID, what)
            model = {at: when for at, when in model.items() if at in kept}
        for key in state.dirty:
            rows[key] = state.row(key)
        state.dirty.clear()
        if kind == "load":
            state = Expiries()
            for key, row in reversed(rows.items()):
                if row is not None:
                    state.load(key, row)
        assert held(state) == model
        assert {key for key, row in rows.items() if row is not None} == set(state.keys())
        here = state.by_channel.get(UID)
        assert (here.next if here is not None else 0) == min(model.values(), default=0)
        assert list(here.runs if here is not None else ()) == sorted(here.runs if here is not None else ())


bodies = st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 3)), min_size=1, max_size=6)


@given(bodies, st.integers(0, 3))
def test_rows_tell_when_they_expire_and_never_later_than_a_policy_wants(messages, policy):
    wall = 100 * SECOND
    rows = b""
    for data, _ in messages:
        body = wire.MsgProto(data=data).SerializeToString()
        rows += len(body).to_bytes(4, "little") + body
    ttls = b"".join((ttl * SECOND).to_bytes(8, "little") for _, ttl in messages)
    own = times_of(ttls, len(messages), wall, 0)
    assert list(own) == [ttl and 100 + ttl for _, ttl in messages]
    both = times_of(ttls, len(messages), wall, policy * SECOND)
    made = stamped(rows, own)
    again, times = restamped(made, wall, policy * SECOND)
    assert times == both
    assert again == stamped(rows, both)
    assert [at for first, last in pairs(runs_of(both)[0]) for at in range(first, last + 1)] == [
        place for place, at in enumerate(both) if at
    ]
