"""The conditions of a search of messages, and its bounds."""

from typing import NamedTuple

import pytest

from stan.status.message_search import (
    BadConditionError,
    SearchTally,
    has_header,
    has_key,
    has_pattern,
    has_text,
)


class Message(NamedTuple):
    data: bytes = b""
    key: bytes = b""
    headers: dict[str, bytes] = {}  # noqa: RUF012 - never changed


@pytest.mark.parametrize(
    ("condition", "fits", "differs"),
    [
        (has_text("a.b", ignore_case=False), Message(b"xa.by"), Message(b"xaxby")),
        (has_text("GRÖßE", ignore_case=False), Message("GRÖßE".encode()), Message(b"GROSSE")),
        (has_text("Ab", ignore_case=True), Message(b"xaB"), Message(b"xa-B")),
        (has_pattern("a+b", ignore_case=False), Message(b"xaab"), Message(b"xb")),
        (has_key("k"), Message(key=b"k"), Message(key=b"kk")),
        (has_header("n"), Message(headers={"n": b""}), Message(headers={"m": b"n"})),
        (has_header("n=v=w"), Message(headers={"n": b"v=w"}), Message(headers={"n": b"v"})),
    ],
)
def test_condition_holds_for_one_message_and_not_for_another(condition, fits, differs):
    assert condition(fits)
    assert not condition(differs)


@pytest.mark.parametrize("make", [lambda: has_pattern("(", ignore_case=False), lambda: has_header("=v")])
def test_what_is_no_condition_is_refused(make):
    with pytest.raises(BadConditionError):
        make()


@pytest.mark.parametrize(
    ("bounds", "looked_at"),
    [({"matches_max": 2}, 3), ({"messages_max": 4}, 4), ({"bytes_max": 3}, 2), ({"messages_max": 0}, 0)],
)
def test_search_is_full_at_each_of_its_bounds(bounds, looked_at):
    tally = SearchTally([has_text("x", ignore_case=False)], **{"matches_max": 99, "messages_max": 99} | bounds)
    for data in (b"x-", b"--", b"x-", b"--", b"x-"):
        if tally.is_full:
            break
        tally.add(Message(data))
    assert tally.messages == looked_at
    assert tally.bytes == 2 * looked_at
