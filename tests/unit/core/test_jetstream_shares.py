"""Rooms of one leader that all users of JetStream's clients share: nobody takes all of one."""

import json

import pytest

from stan import limits
from stan.core.features.jetstream import JetStreamFeature
from stan.permissions import NatsUser, Permissions, Right, Rule
from tests.kit import jetstream as js
from tests.unit.core.test_jetstream_permissions import House

USERS = ("mallory", "alice")
EVERYBODY = Permissions([Rule(rights=dict.fromkeys(Right, (">", "a.>")))], [NatsUser(name=name) for name in USERS])
BOUND = 8


@pytest.fixture
def house():
    """A broker with the stream T, whose reads of the disk wait, and which has no index since its start."""
    made = House(EVERYBODY)
    config = {"name": "T", "subjects": ["a.*"], "allow_direct": True}
    assert "error" not in made.told("alice", "STREAM.CREATE.T", config)
    made.publish("alice", "a.first")
    made.harness.restart()
    made.harness.slow = True
    return made


def refused(answer):
    """True if an answer says that there is no room; None: it waits."""
    return answer is not None and (answer.status[:3] in ("503", "408") or "error" in json.loads(answer.payload))


def taken(house, user, take, most=3 * BOUND):
    """How often *take* finds room until it is refused."""
    return next((number for number in range(most) if refused(take(house, user, number))), most)


# --- publishes that wait for an index -----------------------------------------------------------------------------------------


def waiting(house, user, number):
    return house.says(user, f"a.{number:02}", b"x" * 1000, [("Nats-Msg-Id", f"{user} {number:02}")])


def test_a_user_who_publishes_while_an_index_is_read_leaves_room_for_others(house, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_WAITING_BYTES_MAX", BOUND * 1100)
    assert taken(house, "mallory", waiting) == BOUND // 2
    assert taken(house, "alice", waiting) == BOUND // 4
    house.harness.slow = False
    house.harness.answer_reads()
    house.harness.turn()
    assert len(house.harness.stored("T")) == 1 + BOUND // 2 + BOUND // 4
    house.harness.restart()
    house.harness.slow = True
    assert taken(house, "alice", waiting) == BOUND // 2  # everything was given back


def test_publishes_without_reply_count_for_their_user(house, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_WAITING_BYTES_MAX", BOUND * 1100)
    for number in range(3 * BOUND):
        assert house.says("mallory", f"a.{number:02}", b"x" * 1000, [("Nats-Msg-Id", f"{number}")], reply=False) is None
    assert taken(house, "alice", waiting) == BOUND // 4


def test_messages_without_content_take_room_too(house, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_WAITING_BYTES_MAX", 1000)
    waiting_for_index = house.says("mallory", "a.x", b"", [("Nats-Msg-Id", "1")])
    assert waiting_for_index is None
    assert taken(house, "mallory", lambda house, user, _number: house.says(user, "a.x"), 100) < 100


def test_without_users_all_of_it_is_everybodys(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_WAITING_BYTES_MAX", BOUND * 1100)
    h = js.harness()
    js.api(h, "STREAM.CREATE.T", {"name": "T", "subjects": ["a.*"]})
    js.publish(h, "a.first", b"1")
    h.restart()
    h.slow = True
    answers = [js.publish(h, "a.x", b"x" * 1000, fields=[("Nats-Msg-Id", f"{one:02}")])[0] for one in range(2 * BOUND)]
    assert answers.index(next(filter(None, answers))) == BOUND


# --- requests that read, or wait ----------------------------------------------------------------------------------------------


def reading(house, user, _number):
    return house.api(user, "STREAM.MSG.GET.T", {"seq": 1})


def awaiting_index(house, user, _number):
    return house.api(user, "STREAM.MSG.GET.T", {"last_by_subj": "a.first"})


@pytest.mark.parametrize(("name", "take"), [("API_READS_MAX", reading), ("API_WAITING_MAX", awaiting_index)])
def test_a_user_whose_requests_wait_for_the_disk_leaves_room_for_others(house, monkeypatch, name, take):
    monkeypatch.setattr(limits, name, BOUND)
    assert taken(house, "mallory", take) == BOUND // 2
    assert taken(house, "alice", take) == BOUND // 4
    house.harness.slow = False
    house.harness.answer_reads()
    house.harness.turn()
    house.harness.slow = True
    house.harness.restart()
    assert taken(house, "alice", take) == BOUND // 2


def test_publishes_find_an_index_for_which_requests_wait(house, monkeypatch):
    monkeypatch.setattr(limits, "API_WAITING_MAX", BOUND)
    for user in USERS:
        taken(house, user, awaiting_index)
    assert waiting(house, "alice", 1) is None
    house.harness.slow = False
    house.harness.answer_reads()
    house.harness.turn()
    assert len(house.harness.stored("T")) == 2


def test_scans_find_room_while_indexes_are_made(house, monkeypatch):
    monkeypatch.setattr(limits, "API_SCANS_MAX", 2)
    assert awaiting_index(house, "mallory", 0) is None
    assert reading(house, "alice", 0) is None


def test_requests_of_a_user_that_wait_for_the_metadata_leave_room_for_others(house, monkeypatch):
    monkeypatch.setattr(limits, "API_WAITING_MAX", BOUND)
    [feature] = [one for one in house.harness.broker.features.all if isinstance(one, JetStreamFeature)]
    held = []
    monkeypatch.setattr(feature.router.read_index, "wait", lambda call, _group: held.append(call))
    counts = []
    for user in USERS:
        before = len(held)
        for _ in range(3 * BOUND):
            assert house.api(user, "STREAM.INFO.UNKNOWN") is None
        counts.append(len(held) - before)
    assert counts == [BOUND // 2, BOUND // 4]
    for call in held:
        call(True)  # noqa: FBT003 - as the read index calls it
    del held[:]
    for _ in range(3 * BOUND):
        house.api("alice", "STREAM.INFO.UNKNOWN")
    assert len(held) == BOUND // 2


# --- acks ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def delivered(monkeypatch):
    """A broker, and for each user a consumer with the ack subjects of many messages."""
    made = House(EVERYBODY)
    assert "error" not in made.told("alice", "STREAM.CREATE.T", {"name": "T", "subjects": ["a.*"]})
    for _ in range(3 * BOUND):
        made.publish("alice", "a.x")
    acks = {}
    for user in USERS:
        config = {"durable_name": user, "name": user, "ack_policy": "explicit"}
        made.told(user, f"CONSUMER.CREATE.T.{user}", {"stream_name": "T", "config": config})
        made.listens(user, f"_INBOX.{made.inboxes + 1}")
        made.says(user, f"$JS.API.CONSUMER.MSG.NEXT.T.{user}", json.dumps({"batch": 3 * BOUND}).encode())
        acks[user] = [ack for _, ack, _ in made.delivered()]
    monkeypatch.setattr(limits, "STREAM_CONSUMER_SYNCED_MAX", BOUND)
    monkeypatch.setattr(limits, "ADVISORIES_WAITING_MAX", BOUND * len(USERS))
    return made, acks


def said_at_once(house, acks, payload):
    """Say something about all messages, the users one after the other, in one turn."""
    for user in USERS:
        for number, ack in enumerate(acks[user]):
            assert js.hears(house.harness, f"_STAN.from.{user}.{ack}", payload, f"_INBOX.{number}")
    house.harness.turn()


def test_a_user_who_wants_answers_to_acks_leaves_room_for_others(delivered):
    house, acks = delivered
    said_at_once(house, acks, b"")
    counts = [
        sum(bool(house.harness.hear(f"_STAN.to.{user}._INBOX.{at}")) for at in range(3 * BOUND)) for user in USERS
    ]
    assert counts == [BOUND // 2, BOUND // 4]


def test_a_user_who_rejects_messages_leaves_room_for_advisories_of_others(delivered):
    house, acks = delivered
    said_at_once(house, acks, b"+TERM")
    subject = "_STAN.to.alice.$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.T"
    assert [len(house.harness.hear(f"{subject}.{user}")) for user in USERS] == [BOUND // 2, BOUND // 4]
