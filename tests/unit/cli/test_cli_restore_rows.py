"""The requests that put saved messages back: within their room, each message in one, with when it expires."""

import pytest
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.proto.wire_pb2 import MsgProto
from stan_protocol.scalars import SECOND

from stan.cli.commands.backup import _requests

AT = 1_700_000_000


def saved(*runs):
    """A block of a backup: runs of (first sequence, when each message expires)."""
    answer = FetchResponse()
    records = b""
    for first, times in runs:
        answer.runs.add(first_sequence=first, count=len(times), timestamp=AT * SECOND)
        for sequence, at in enumerate(times, first):
            message = MsgProto(sequence=sequence, subject=b"foo", data=b"\x90\x01" * 10, timestamp=AT * SECOND)
            message.expires_at = at * SECOND
            body = message.SerializeToString()
            records += len(body).to_bytes(4, "little") + body
    answer.records = records
    return answer


def told(requests):
    """When each message expires, as the requests tell it."""
    found = {}
    for one in requests:
        numbers = [run.first_sequence + place for run in one.runs for place in range(run.count)]
        found |= dict.fromkeys(numbers, 0)
        for (first, last), at in zip(one.expiring_runs, one.expire_at, strict=True):
            assert first in numbers
            assert last in numbers
            found |= dict.fromkeys(range(first, last + 1), at)
    return found


def test_messages_that_follow_each_other_and_expire_together_are_one_run() -> None:
    (one,) = _requests(saved((5, [0, AT, AT]), (8, [AT, AT + 1]), (11, [AT + 1])), 1000)
    assert one.expiring_runs == [(6, 8), (9, 9), (11, 11)]
    assert one.expire_at == [AT, AT + 1, AT + 1]


def test_where_nothing_expires_nothing_is_told() -> None:
    (one,) = _requests(saved((5, [0, 0])), 1000)
    assert (one.expiring_runs, one.expire_at) == ([], [])


@pytest.mark.parametrize("room", [1, 60, 100, 200, 400, 100_000])
def test_each_request_has_room_for_its_expiries(room) -> None:
    times = [AT + sequence % 5 if sequence % 3 else 0 for sequence in range(40)]
    requests = [*_requests(saved((5, times[:17]), (30, times[17:])), room)]
    expected = dict(zip([*range(5, 22), *range(30, 53)], times, strict=True))
    assert told(requests) == expected
    for one in requests:
        size = len(one.rows) + 32 * len(one.runs) + 24 * len(one.expire_at)
        assert size <= room or len(expected) == len(requests)
