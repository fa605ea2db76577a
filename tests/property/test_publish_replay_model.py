"""What a new leader takes of what it heard, against the same rules told message by message."""

from importlib import import_module, util
from itertools import islice
from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.frames import Publishes
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.base.batch_split import OWNER, last_of, owner_of
from stan.core.leader.publish_replay import ReplayFilter, encode
from tests.kit.core_harness import pub_frame
from tests.kit.guids import SHAPES, guids, mixed

NOW, SINCE = 100 * SECOND, 90 * SECOND
PEOPLE = [(b"client%d" % number, b"conn%d" % number) for number in range(3)]

messages = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), min_size=1, max_size=6)  # publisher, key
channels = st.tuples(
    st.sampled_from([b"foo", b"bar"]), st.sampled_from([b"", b"alice", b"bob"])
)  # and whose batch it is
batches = st.lists(st.tuples(channels, messages), max_size=6)


def batch_of(where: tuple[bytes, bytes], sent: list[tuple[int, int]]) -> Publishes:
    """As the kernel makes them: equal keys of several publishers, or of one that two users name, are told apart."""
    channel, user = where
    people = list(dict.fromkeys(publisher for publisher, _ in sent))
    owners = b"".join(pack("<H", people.index(publisher)) for publisher, _ in sent)
    data = [b"%d-%d" % message for message in sent]
    return Publishes(
        channel=channel,
        count=len(sent),
        bodies=b"".join(pack("<I", len(body) + 2) + b"\x22" + bytes([len(body)]) + body for body in data),
        acks=b"".join(b"PUB r %d\r\n\x0a%c%b\r\n" % (2 + len(body), len(body), body) for body in data),
        publishers=tuple(PEOPLE[publisher] for publisher in people),
        owners=owners if len(people) > 1 else b"",
        payload_bytes=0,
        keys=b"".join(pack(">Q", key) for _, key in sent),
        user=user,
    )


def told_one_by_one(logged, heard):
    """Data of what is to be taken, and of what is acknowledged, of each batch; and who is waited for."""
    known, newest, at = set(), {}, {}
    for applied, channel, sent in logged:
        if applied < SINCE - 2 * limits.FINGERPRINT_PATIENCE:
            continue  # it was heard before: nothing of it is looked at again
        for publisher, key in sent:
            known.add((channel, publisher, key))
            newest[channel, publisher], at[channel, publisher] = key, applied
    places = [
        (channel, publisher, key, (number, place))
        for number, (channel, sent) in enumerate(heard)
        for place, (publisher, key) in enumerate(sent)
    ]
    met = {message[:3] for message in places}
    waited = {
        who for who, key in newest.items() if (*who, key) not in met and at[who] - limits.FINGERPRINT_PATIENCE > SINCE
    }
    lasts = {message[:2]: message[3] for message in places if message[:3] in known}
    fates = []
    for number, (channel, sent) in enumerate(heard):
        new, acked = [], []
        for place, (publisher, key) in enumerate(sent):
            if (channel, publisher, key) in known:
                acked.append(b"%d-%d" % (publisher, key))
            elif (channel, publisher) not in waited and (number, place) >= lasts.get((channel, publisher), (-1, 0)):
                new.append(b"%d-%d" % (publisher, key))
        fates.append((new, acked))
    return fates, waited


@given(st.lists(st.tuples(st.integers(80, 100), channels, messages), max_size=6), batches)
def test_what_is_new_what_is_acknowledged_and_who_is_waited_for(logged, heard):
    logged = [(applied * SECOND, channel, sent) for applied, channel, sent in sorted(logged, key=lambda told: told[0])]
    replay_filter = ReplayFilter()
    for applied, channel, sent in logged:
        replay_filter._applied.append((applied, encode([batch_of(channel, sent)]), False))
    sorted_ = replay_filter.begin([batch_of(channel, sent) for channel, sent in heard], NOW, SINCE)
    fates, waited = told_one_by_one(logged, heard)
    assert set(replay_filter.lagging) == {(*channel, *PEOPLE[publisher]) for channel, publisher in waited}
    for found, (new, acked) in zip(sorted_, fates, strict=True):
        bodies = b"".join(batch.bodies for batch in found.new)
        assert bodies == b"".join(pack("<I", len(body) + 2) + b"\x22" + bytes([len(body)]) + body for body in new)
        assert found.acks == b"".join(b"PUB r %d\r\n\x0a%c%b\r\n" % (2 + len(body), len(body), body) for body in acked)


TWINS = ["stan.protocol.kernel.server_py", "_stan_kernel"]
there = [name for name in TWINS if util.find_spec(name)]


@pytest.mark.parametrize("twin", [import_module(name) for name in there], ids=there)
@given(
    st.sampled_from([*sorted(SHAPES), "all"]),
    st.integers(0, 1 << 32),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.integers(0, 40),
)
def test_what_was_heard_and_is_not_logged_is_never_taken_for_logged(twin, shape, seed, logged, more):
    """Guids of one publisher, whatever they look like: the log's messages alone are acknowledged without being taken."""

    def scanned(numbers):
        frames = [pub_frame("foo", names[number], b"%d" % number) for number in numbers]
        return twin.scan(b"".join(frames), 0, 1, 2, b"_STAN.pub.test-cluster.", keyed=True).publishes

    random = Random(seed)
    names = list(islice(mixed(random) if shape == "all" else guids(random, shape), len(logged) + more))
    known = [number for number, is_logged in enumerate(logged) if is_logged]
    replay_filter = ReplayFilter()
    if known:
        replay_filter.apply(encode(scanned(known)), SINCE, SINCE, old=False)
    (found,) = replay_filter.begin(scanned(range(len(names))), NOW, SINCE)
    expected = [number for number in range(len(names)) if number > max(known, default=-1)]
    assert [batch.bodies for batch in found.new] == ([scanned(expected)[0].bodies] if expected else [])
    assert found.acks == (scanned(known)[0].acks if known else b"")


@given(st.lists(st.sampled_from([0, 1, 255, 256, 257]), max_size=12), st.sampled_from([0, 1, 255, 256, 257, 2]))
def test_last_message_of_a_publisher(owners, owner):
    packed = b"".join(map(OWNER.pack, owners))
    assert last_of(packed, owner) == (max((at for at, found in enumerate(owners) if found == owner), default=-1))


def test_one_publisher_owns_all_of_a_batch():
    assert owner_of(batch_of((b"foo", b""), [(2, 0), (2, 1)]), 1) == 0
