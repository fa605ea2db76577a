"""States of positions, why they get nothing, and the next step: one table for whoever shows them."""

import pytest
from stan_protocol.admin_types import CursorKind, CursorStatus, DeliveryPolicy
from stan_protocol.scalars import SECOND

from stan.status.findings import check_positions
from stan.status.positions import (
    BEHIND,
    FULL,
    OFFLINE,
    OWED,
    PAUSED,
    SILENT,
    STUCK,
    UNACKED,
    UNACKING,
    WELL,
    full_name,
    in_vain,
    name_of,
    state_of,
    why,
    worst_of,
)
from stan.troubles import Severity
from tests.kit.fake_operator import durable, member

NOW = 1_700_000_000 * SECOND
FINE, NOTE, ATTENTION = Severity.FINE, Severity.NOTE, Severity.ATTENTION
LONG_AGO, LATELY = NOW - 1000 * SECOND, NOW - 20 * SECOND
REASON, DLQ = "100 messages became dead letters within a minute", "orders.dlq"
KEYED = DeliveryPolicy(ordered_by_key=True)
UNSENT = {"waiting": 0, "pending": 2}


def online(*members, **fields):
    return durable(members=members or [member()], **fields)


def full(*, members=(), **fields):
    usual = {"pending": 5, "waiting": 5, "oldest_pending": LATELY, "pending_runs": [(3, 7)]}
    return online(*(members or [member(stalled=True, pending=5)]), **{**usual, **fields})


def group(*members, **fields):
    return durable(name="", kind=CursorKind.QUEUE, queue_group="w", members=members, **fields)


ACTIVE = [member("a", active=True, stalled=True, pending=5), member("b")]
HANGS = [member("a", active=True, failing=True), member("b")]


WORKERS = durable(kind=CursorKind.DURABLE_QUEUE, queue_group="workers", client="")
BY_BROKER = online(paused=True, pause_reason=REASON, dead_letter_channel=DLQ, exhausted=3)
CUT = member(window_now=2, pending=2, stalled=True)
FAILED = {"exhausted": 2, "given_up_rejected": 1, "dead_letter_channel": "failed", "dead_letter_fault": "no"}
WORN_OUT = "1 rejected by a client; 1 delivered as often as the policy allows, in vain"
BY_KEY = group(member(), policy=KEYED, waiting=3, held_back=2, exhausted=1, owed=1, pending=1)
CASES = [
    (durable(), OFFLINE, NOTE, "is offline; 10 messages wait", "client 'acct' is not", "--client-id acct"),
    (durable(last_ack=1), OFFLINE, ATTENTION, "is offline since", "they are kept for it"),
    (durable(waiting=0), OFFLINE, NOTE, "", "It is offline", "Nothing waits", "stan sub orders"),
    (durable(waiting=0, last_sequence=0), OFFLINE, NOTE, "", "there never was one", "stan pub orders"),
    (WORKERS, OFFLINE, NOTE, "Durable queue group billing:workers of", "--queue workers --durable billing"),
    (online(paused=True), PAUSED, NOTE, "is paused", "It is paused", "stan durable resume orders acct/billing"),
    (durable(paused=True, waiting=0), PAUSED, NOTE, "", "Nothing waits for it"),
    (BY_BROKER, PAUSED, ATTENTION, "by the broker: 100 messages", "dlq show orders.dlq", "durable resume orders acct"),
    (online(member(failing=True)), SILENT, ATTENTION, "is not answering", "heartbeats (acct)", "evict acct"),
    (group(*HANGS), SILENT, ATTENTION, "", "Its active member does not answer heartbeats (a)"),
    (full(), FULL, NOTE, "has a full window", "full: 5 of 5", "stan durable skip orders acct/billing 3"),
    (full(oldest_pending=LONG_AGO), STUCK, ATTENTION, "is stuck", "the oldest since 16m 40s", "--seq 3"),
    (full(oldest_pending=LONG_AGO, waiting=0), STUCK, ATTENTION, "is stuck"),
    (full(oldest_pending=LONG_AGO, last_ack=LATELY), FULL, NOTE, "", "Its last ack came 20s ago"),
    (full(waiting=0), UNACKED, FINE, "", "5 are not acked yet"),
    (full(members=ACTIVE), FULL, NOTE, "", "5 of 5 messages are sent and not acked"),
    (online(CUT, pending=2), FULL, NOTE, "", "is adaptive, and 2 of 5 messages now", "within the ack wait of 30s"),
    (online(pending=2, oldest_pending=LONG_AGO), UNACKING, ATTENTION, "is not acking", "16m 40s ago"),
    (online(), BEHIND, NOTE, "", "Messages are on their way", "--watch"),
    (online(member(window_now=2, pending=1), pending=1), BEHIND, NOTE, "", "Its window is adaptive"),
    (group(member("a", stalled=True), member("b")), BEHIND, NOTE, "", "1 of 2 members have a full window: a."),
    (group(member("a", failing=True), member("b")), BEHIND, NOTE, "", "do not answer heartbeats: a."),
    (online(owed=2, pending=2), OWED, NOTE, "", "2 messages wait to be sent again", "--watch"),
    (online(waiting=0, owed=1, pending=1, exhausted=1), UNACKED, FINE, "1 message given up", "stan durable redeliver"),
    (online(**FAILED), BEHIND, NOTE, f"2 messages given up ({WORN_OUT}), not moved: no", "to failed, which fails: no."),
    (
        BY_KEY,
        BEHIND,
        NOTE,
        "given up",
        "The order by key holds later messages",
        "2 messages are held back by the order",
    ),
    (online(**UNSENT, delayed=1), UNACKED, FINE, "", "1 failed message waits until a pause is over."),
    (online(**UNSENT), UNACKED, FINE, "", "2 are not acked yet", "redeliver"),
    (online(waiting=0), WELL, FINE, "", "It is caught up", "move orders acct/billing --back 1h"),
]


@pytest.mark.parametrize("case", CASES)
def test_state_finding_and_reasons(case):
    cursor, word, severity, finding, *parts = case
    assert state_of(cursor, NOW) == (word, severity)
    reasons = " ".join(why(cursor, NOW))
    assert [part for part in parts if part not in reasons] == []
    assert finding in " ".join(one.text for one in check_positions([cursor], NOW))
    assert ("All other messages go on" in reasons) <= (not cursor.paused), "a paused one sends nothing"
    assert ("adaptive" in reasons) == any(one.window_now < one.max_in_flight for one in cursor.members)


def test_well_positions_are_no_findings():
    assert not list(check_positions([online(), online(waiting=0), online(**UNSENT), durable(waiting=0)], NOW))


def test_the_time_that_is_left_is_part_of_the_reason():
    assert why(online(), NOW, 180.0)[0].endswith("It is catching up, about 3m left.")


@pytest.mark.parametrize(("age_s", "stuck"), [(59, False), (89, False), (91, True), (1000, True)])
def test_three_ack_waits_without_an_ack_are_too_many(age_s, stuck):
    for cursor in (full(oldest_pending=NOW - age_s * SECOND), full(oldest_pending=1, last_ack=NOW - age_s * SECOND)):
        assert (state_of(cursor, NOW).word == STUCK) == stuck
    slow = full(members=[member(stalled=True, ack_wait_s=1000)], oldest_pending=NOW - age_s * SECOND)
    assert state_of(slow, NOW).word == FULL, "the ack wait is that of the members"


def test_the_worst_of_several_is_the_state_of_all():
    several = [online(waiting=0), online(), durable(), full(oldest_pending=1)]
    assert worst_of(several, NOW) is several[3]
    assert worst_of(several[:3], NOW) is several[2]
    assert [in_vain(one, NOW) for one in several] == [False, False, True, True]


def test_names():
    both = durable(kind=CursorKind.DURABLE_QUEUE, queue_group="workers")
    plain = CursorStatus(inbox="_INBOX.a", client_id="me")
    assert [name_of(one) for one in (both, durable(), plain)] == ["billing:workers", "billing", "_INBOX.a"]
    assert [full_name(one) for one in (both, durable(), plain)] == ["billing:workers", "acct/billing", "_INBOX.a"]
