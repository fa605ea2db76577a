"""NATS's interest: subjects, patterns and queue groups that come and go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stan.core.base.interest import Interest, matches

tokens = st.sampled_from([b"a", b"b", b"c"])
subjects = st.lists(tokens, min_size=1, max_size=8).map(b".".join)
patterns = st.lists(tokens | st.just(b"*"), min_size=1, max_size=8).flatmap(
    lambda found: st.sampled_from([b".".join(found), b".".join([*found, b">"]), b">"])
)
changes = st.lists(st.tuples(st.booleans(), subjects | patterns, st.sampled_from([b"", b"q"])), max_size=12)


@pytest.mark.parametrize(
    ("subject", "heard"),
    [(b"a.b", True), (b"a.b.c", True), (b"a", False), (b"x.y.z", True), (b"x.z", False), (b"q.1.r.2", True)],
)
def test_interest_knows_nats_s_patterns(subject, heard):
    interest = Interest()
    interest.change([(True, b"a.>", b""), (True, b"x.*.z", b""), (True, b"q.*.r.*", b""), (True, b"x.z", b"group")])

    assert interest.has(subject) is heard


@given(changes, subjects, st.sampled_from([b"", b"q"]))
def test_interest_is_that_of_everybody_who_listens(made, subject, queue):
    interest, listens = Interest(), set()
    interest.change(made)
    for begins, *one in made:
        (listens.add if begins else listens.discard)(tuple(one))
    heard = any(
        named == queue and (one == subject or matches(one.split(b"."), subject.split(b"."))) for one, named in listens
    )

    assert interest.has(subject, queue) is heard
    interest.clear()
    assert not interest.has(subject, queue)
