"""Rooms that all users share: nobody takes all of one, and of every bound it is known whether it is such a room."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol import limits as shared
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config
from stan.core.base.shares import Shares, of_user, of_whom
from stan.limits import core
from stan.permissions import NatsUser, Permissions, Rule
from stan.permissions import Right as Of
from tests.kit.batches import rows_of
from tests.unit.core.test_core_authorization import Guarded

USERS = ("alice", "mallory")
EVERYBODY = Permissions([Rule(rights=dict.fromkeys(Of, (">",)))], [NatsUser(name=name) for name in USERS])
BOUND = 8
ROW = rows_of([b"x"])

OF_OPERATORS = {  # who may change channels, or look into them, is trusted with these, and can take back what others have made
    *("PARTED_MAX", "PINS_MAX", "MOVES_MAX", "POLICIES_MAX", "SCHEMA_PATTERNS_MAX", "SCHEMAS_BYTES_MAX"),
    *("CHANNEL_CHANGES_WAITING_MAX", "NODE_ANSWERS_MAX", "REPORTS_MAX", "SCHEMA_REQUESTS_WAITING_MAX"),
}
PASSING = {  # work under way, over in moments; who finds no room asks again
    *("UNCOMMITTED_BYTES_MAX", "FETCHES_UNDER_WAY_MAX", "FETCH_BYTES_UNDER_WAY_MAX", "FETCH_UNSENT_BYTES_MAX"),
    *("QUESTIONS_WAITING_MAX", "PENDING_REQUESTS_MAX", "EVENTS_PER_SECOND_MAX", "COMPLAINTS_MAX"),
    *("WAITING_ANSWERS_BYTES_MAX", "CONNECTS_PASSED_ON_MAX"),
}
MEMORY = {  # the oldest, or largest, is forgotten for what is new
    *("EPHEMERAL_BYTES_MAX", "REMEMBERED_MAX", "REMEMBERED_BYTES_MAX", "REPLAY_BYTES_MAX", "ARRIVAL_ORDER_MAX"),
    *("RATED_CLIENTS_MAX", "CHANNEL_LIMITS_CACHED_MAX", "KEEP_BATCHES_CURSORS_MAX"),
}
TIMES = {
    *("EPHEMERAL_REFUSED_AGE_MAX", "PRODUCER_AGE_MAX", "MOVE_HOLD_MAX", "MOVE_STALLED_MAX", "MOVE_STAGING_MAX"),
    *("MOVE_RETRY_MAX", "BACKOFF_PAUSE_MAX", "MAX_HOLD_MAX", "DELAY_MAX", "TTL_MAX", "INFO_WAIT_MAX"),
    *("CONSUMER_LEASE_MAX", "STAGED_AGE_MAX", "REPLAY_AGE_MAX", "REPLAY_REQUEST_AGE_MAX", "ARRIVAL_ORDER_AGE_MAX"),
    "NAK_DELAY_MAX",
}
OF_ONE = {  # name, message, request, answer, entry, channel, position, group of one user, or configuration
    *("COMPRESSED_BYTES_MAX", "NATS_PAYLOAD_BYTES_MAX", "NATS_CONTROL_LINE_BYTES_MAX", "MESSAGE_PAYLOAD_BYTES_MAX"),
    *("CHANNEL_NAME_BYTES_MAX", "INBOX_BYTES_MAX", "NAME_BYTES_MAX", "REPLY_PREFIX_CHARS_MAX", "REPLY_PREFIXES_MAX"),
    *("KEY_BYTES_MAX", "HEADERS_BYTES_MAX", "REASON_BYTES_MAX", "PUBLISHERS_PER_BATCH_MAX", "ROWS_BYTES_MAX"),
    "STAGE_CHANNELS_MAX",
    *("COMPRESSED_ROWS_BYTES_MAX", "PRODUCER_BYTES_MAX", "WINDOW_IDS_MAX", "PARTS_MAX", "KEY_PATH_BYTES_MAX"),
    *("PART_FINGERPRINTS_BYTES_MAX", "KEY_PATH_NAMES_MAX", "KEY_DATA_BYTES_MAX", "MOVE_ANSWER_BYTES_MAX"),
    *("MOVED_STATE_BYTES_MAX", "MOVE_CHANNELS_MAX", "POLICY_COMPLAINTS_MAX", "SCHEMA_BYTES_MAX", "SCHEMA_VERSIONS_MAX"),
    *("SCHEMA_DEPTH_MAX", "SCHEMA_STEPS_MAX", "SCHEMA_COMPLAINTS_MAX", "SCHEMA_REFUSAL_BYTES_MAX", "MAX_DELIVER_MAX"),
    *("BACKOFF_PAUSES_MAX", "DEAD_LETTER_RATE_MAX", "FAILURE_REASONS_MAX", "REDRIVES_MAX", "REDRIVE_MESSAGES_MAX"),
    *("DELAY_MESSAGES_MAX", "DELAYED_PAGE_MAX", "DELAYED_IDS_MAX", "COMPACTED_CHANNELS_MAX", "TIER_STRETCH_MAX"),
    *("EXPIRING_RUNS_MAX", "EXPIRED_CHANNELS_MAX", "EXPIRED_MARKED_MAX", "PERMISSION_RULES_MAX"),
    *("COMPLAINT_CHARS_MAX", "FIND_BYTES_MAX"),
    *("FETCH_CLEAR_BYTES_MAX", "FETCH_BATCHES_MAX", "INFO_CHANNELS_MAX", "BOOKMARK_NAME_BYTES_MAX", "CONSUMERS_MAX"),
    *("CONSUMER_PATTERNS_MAX", "CONSUMER_CHANNELS_MAX", "CONSUMER_CHANNEL_BYTES_MAX", "CONSUMER_NAME_BYTES_MAX"),
    *("CONSUMER_ID_BYTES_MAX", "RESTORED_GAP_MAX", "DELETED_RUNS_MAX", "RESTORE_NAME_BYTES_MAX", "APP_BYTES_MAX"),
    *("TXN_BYTES_MAX", "COMMIT_CHANNELS_MAX", "COMMIT_TXNS_MAX", "REPORT_ITEMS_MAX", "REPORT_RUNS_MAX"),
    *("PROGRESS_MESSAGES_MAX", "PROGRESS_RUNS_MAX", "SLOTS_IN_USE_MAX", "HELD_BACK_MAX", "HELD_BACK_BYTES_MAX"),
    *("OVERRIDE_RUNS_MAX", "REQUEST_BYTES_MAX", "REQUEST_PARTS_MAX", "RESTORE_PARTS_MAX", "SCHEMA_WEIGHT_MAX"),
    *("SCHEMA_WEIGHING_STEPS_MAX", "SCHEMA_PATTERNS_SIZE_MAX", "SCHEMA_CHECK_STEPS_MAX", "SCHEMA_CHAIN_MAX"),
    *("SCHEMA_EXPLAINED_STEPS_MAX", "SCHEMA_MATCHING_STEPS_MAX"),
}

OF_JETSTREAM = {  # of one stream, consumer or request; of operators, who make streams; shared: test_jetstream_shares.py
    *("API_REQUEST_BYTES_MAX", "API_NESTED_MAX", "API_WAITING_MAX", "API_SCANS_MAX", "STREAMS_MAX"),
    *("DIRECT_BATCH_MAX", "DIRECT_BATCH_BYTES_MAX", "DIRECT_SUBJECTS_MAX", "PULLS_MAX", "CONSUMER_LOOK_MAX"),
    *("STREAM_TRIED_MAX", "STREAM_COMPARED_MAX", "API_READS_MAX"),
    *("STREAM_NAME_BYTES_MAX", "STREAM_SUBJECTS_MAX", "STREAM_DESCRIPTION_BYTES_MAX", "STREAM_METADATA_BYTES_MAX"),
    *("STREAM_INDEXED_MAX", "STREAM_IDS_MAX", "STREAM_DETAILS_MAX", "STREAM_AHEAD_MAX", "STREAM_WAITING_BYTES_MAX"),
    *("STREAM_WINDOW_MAX", "STREAM_REPLACED_MAX", "STREAMS_SUBJECTS_MAX", "STREAM_CONSUMERS_MAX"),
    *("STREAM_CONSUMER_NAME_BYTES_MAX", "STREAM_CONSUMER_METADATA_BYTES_MAX", "STREAM_CONSUMER_FILTERS_MAX"),
    *("STREAM_CONSUMER_BACKOFF_MAX", "STREAM_CONSUMER_ACK_PENDING_MAX", "STREAM_CONSUMER_WAITING_MAX"),
    *("STREAM_CONSUMER_BATCH_MAX", "STREAM_CONSUMER_SYNCED_MAX", "FLOW_BYTES_MAX", "PULL_UNHEARD_MAX"),
    *("STREAM_EARLIER_MAX", "STREAM_HISTORY_MAX", "STREAM_PENDING_COUNTED_MAX", "STREAM_PATTERNS_MAX"),
    *("ADVISORIES_WAITING_MAX", "CONSUMER_GATHER_MAX"),
}


# --- the rule -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.integers(1, 9)), max_size=30), st.integers(2, 100))
def test_nobody_has_more_than_half_of_what_the_others_leave(wanted, bound):
    shares = Shares()
    for user, count in wanted:
        if count <= shares.left(user, bound):
            shares.add(user, count)
            assert shares.of(user) <= (bound - (shares.used - shares.of(user))) // 2
    assert shares.used <= bound
    for user, count in [*shares.by_user.items()]:
        shares.add(user, -count)
    assert shares == Shares()


def test_without_users_all_of_it_is_everybodys():
    shares = Shares()
    shares.add(b"", 3)
    assert shares.left(b"", 8) == 5


@given(st.sampled_from([b"", b"alice"]), st.binary().filter(lambda name: b"\0" not in name))
def test_names_of_users_tell_whose_they_are(user, name):
    assert of_whom(of_user(user, name)) == (user, name)


# --- the rooms ----------------------------------------------------------------------------------------------------------


def extension(harness, kind, request, answer):
    return harness.ask(f"_STAN.x.test-cluster.{kind}", request, answer)


def window(harness, number, *, producer=None):
    named = b"%b%d" % (harness.user.encode(), number) if producer is None else producer
    request = ext.BatchRequest(channel=b"foo", producer=named, count=1, ids=b"%016d" % number, rows=ROW)
    return extension(harness, "batch", request, ext.BatchResponse)


def remembered_id(harness, number):
    return window(harness, number, producer=b"one")


def waiting_batch(harness, _number):
    harness.hold = True
    return extension(harness, "batch", ext.BatchRequest(channel=b"new", count=1, rows=ROW), ext.BatchResponse)


def delayed(harness, _number):
    sent = wire.PubMsg(client_id=harness.user.encode() or b"me", guid=next(harness.guids), subject=b"foo", data=b"x")
    sent.deliver_at = harness.wall + 60 * SECOND
    raw = sent.SerializeToString()
    subject = harness._told(b"_STAN.pub.test-cluster.foo")
    scan = harness._scan([b"MSG %b 1 _INBOX.acks %d\r\n%b\r\n" % (subject, len(raw), raw)])
    harness.broker.frames.step_publishes(scan.publishes)
    harness.turn()
    (heard,) = harness.hear(f"_STAN.to.{harness.user}._INBOX.acks" if harness.user else "_INBOX.acks")
    return wire.PubAck.FromString(heard.payload)


def poll(harness, _number):
    request = ext.InfoRequest(newer_than=[ext.Position(channel=b"foo", sequence=99)], wait_ms=10_000)
    return extension(harness, "info", request, ext.InfoResponse)


def position(harness, number):
    request = ext.CursorSetRequest(channel=b"foo", name=b"%d" % number, sequence=1)
    return extension(harness, "cursor_set", request, ext.CursorSetResponse)


def group(harness, number):
    request = ext.ConsumerGroupRequest(group=b"%d" % number, member=b"a member", pattern=b"none", lease_ms=9000)
    return extension(harness, "consumer_group", request, ext.ConsumerGroupResponse)


def part(harness, number, channel=b"foo"):
    app = harness.user.encode() or b"app"
    request = ext.StageRequest(channel=channel, app=app, txn=b"%d" % number, version=1, count=1, rows=ROW)
    return extension(harness, "stage", request, ext.StageResponse)


def opening(harness, number):
    harness.hold = True
    return part(harness, number, b"new")


def finished(harness, number):
    return extension(
        harness, "finish", ext.FinishRequest(app=b"%b%d" % (harness.user.encode(), number)), ext.FinishResponse
    )


def committed(harness, number):
    request = ext.CommitRequest(channel=b"foo", app=b"%b%d" % (harness.user.encode(), number), version=1)
    return extension(harness, "commit", request, ext.CommitResponse)


ROOMS = [
    ("WINDOWS_MAX", window, 1),
    ("GROUP_IDS_MAX", remembered_id, 1),
    ("BATCH_BYTES_WAITING_MAX", waiting_batch, len(ROW)),
    ("DEFERRED_MAX", delayed, 1),
    ("WATCHED_MAX", poll, 1),
    ("BOOKMARKS_MAX", position, 1),
    ("CONSUMER_GROUPS_MAX", group, 1),
    ("STAGED_PARTS_MAX", part, 1),
    ("STAGED_BYTES_MAX", part, len(ROW)),
    ("STAGES_WAITING_MAX", opening, 1),
    ("APPS_MAX", finished, 1),
    ("APPS_MAX", committed, 1),
]
"""Each shared room, what takes a place in it, and how much that is."""


def taken(harness, take, most=3 * BOUND):
    """How often *take* goes well, until it is refused."""
    for number in range(most):
        answer = take(harness, number)
        if answer is not None and (answer.error or getattr(answer, "retry", False)):
            return number
    return most


def begun(permissions):
    harness = Guarded(config=Config(permissions=permissions))
    for user in USERS if permissions else ("me",):
        harness.user = user if permissions else ""
        harness.connect(user)
        harness.publish("foo", b"1", client_id=user)
    return harness


@pytest.mark.parametrize(("name", "take", "size"), ROOMS, ids=[f"{name}-{take.__name__}" for name, take, _ in ROOMS])
def test_a_user_who_takes_what_can_be_had_leaves_room_for_others(name, take, size, monkeypatch):
    monkeypatch.setattr(limits, name, BOUND * size)
    harness = begun(EVERYBODY)
    assert taken(harness.as_user("mallory"), take) == BOUND // 2
    assert taken(harness.as_user("alice"), take) == BOUND // 4
    assert taken(begun(None), take) == BOUND


def test_it_is_known_of_every_bound_who_shares_it():
    source = "\n".join(Path(module.__file__).read_text(encoding="utf-8") for module in (core, shared))
    bounds = set(re.findall(r"^([A-Z_]+_MAX) = ", source, re.MULTILINE))
    kinds = [{name for name, _, _ in ROOMS}, OF_OPERATORS, PASSING, MEMORY, TIMES, OF_ONE, OF_JETSTREAM]
    assert set().union(*kinds) == bounds
    assert sum(map(len, kinds)) == len(bounds), "each is of one kind"
