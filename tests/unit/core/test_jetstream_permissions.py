"""Rights of clients of JetStream on one leader: each request with each right alone, to whom consumers belong, and what is left
of them when users come and go."""

import json

import pytest
from stan_protocol.scalars import SECOND, KiB

from stan import limits
from stan.config import Config
from stan.core.features.jetstream import JetStreamFeature
from stan.core.features.jetstream.consumers import requests as consumers
from stan.core.features.jetstream.consumers import resetting, showing
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.features.jetstream.streams import infos, messages, requests
from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.protocol.jetstream.api import ApiRow
from tests.kit import jetstream as js
from tests.kit.consumers import read_frames
from tests.kit.core_harness import CoreHarness

NOBODY = "nobody"
RIGHTS = {right: f"with-{right.name.lower().replace('_', '-')}" for right in Right}
OWNER, OTHER = "owner", "other"


def rule(user, *rights, channels=(">",)):
    return Rule(user=user, rights=dict.fromkeys(rights, tuple(channels)))


RULES = (
    *(rule(user, right) for right, user in RIGHTS.items()),
    *(rule(user, Right.SUBSCRIBE, Right.DURABLE) for user in (OWNER, OTHER)),
    rule("half", Right.PUBLISH, channels=("a.b", "t.x")),
    rule("maker", Right.ADMIN_WRITE, channels=("S2", "x.*")),
    Rule(client="somebody", rights={Right.PUBLISH: ("c",)}),
)
USERS = tuple(NatsUser(name=name) for name in (*RIGHTS.values(), OWNER, OTHER, "half", "maker", NOBODY))
PERMISSIONS = Permissions(RULES, USERS)


class House:
    """A broker, and what users ask of it."""

    def __init__(self, permissions=PERMISSIONS, **options):
        self.harness = CoreHarness(Config(jetstream_api=True, permissions=permissions, **options))
        self.inboxes = 0

    def says(self, user, subject, payload=b"", fields=(), inbox="_INBOX", *, reply=True):
        """What the user is answered; None: nothing."""
        self.inboxes += 1
        named = f"{inbox}.{self.inboxes}" if reply else ""
        assert js.hears(self.harness, f"_STAN.from.{user}.{subject}", payload, named, fields)
        self.harness.turn()
        return js.answer_to(self.harness, f"_STAN.to.{user}.{named}")

    def api(self, user, request, document=None):
        payload = (
            document if isinstance(document, bytes) else b"" if document is None else json.dumps(document).encode()
        )
        return self.says(user, f"$JS.API.{request}", payload)

    def told(self, user, request, document=None):
        return json.loads(self.api(user, request, document).payload)

    def publish(self, user, subject, payload=b"m", fields=()):
        return json.loads(self.says(user, subject, payload, fields).payload)

    def listens(self, user, *subjects):
        changes = [(True, subject.encode(), b"") for subject in subjects]
        self.harness.broker.stops.step_leaf(changes, up=True, forgotten=False, user=user.encode())
        self.harness.turn()

    def delivered(self):
        """What left by the leafnode connections: subject, ack subject, payload."""
        found = [one for frames in self.harness.leaf_said for one in read_frames(frames)]
        self.harness.leaf_said = []
        return [(one.to, one.ack, one.payload) for one in found if not one.status]


def code(answer):
    """403 if it was refused for want of a right, else 0."""
    if answer is None:
        return 0
    if answer.status:
        return 403 if answer.status.startswith("403") else 0
    error = json.loads(answer.payload).get("error", {}) if answer.payload.startswith(b"{") else {}
    return 403 if error.get("code") == 403 else 0


def consumer(name, **config):
    return {"stream_name": "S", "config": {"durable_name": name, "name": name, "ack_policy": "explicit"} | config}


@pytest.fixture
def house():
    """A broker with the stream S, two messages, and a consumer `c` that is the owner's."""
    made = House()
    write = RIGHTS[Right.ADMIN_WRITE]
    config = {"name": "S", "subjects": ["a.*"], "allow_direct": True, "allow_rollup_hdrs": True}
    assert "error" not in made.told(write, "STREAM.CREATE.S", config)
    for _ in range(2):
        assert "error" not in made.publish(RIGHTS[Right.PUBLISH], "a.b")
    assert "error" not in made.told(OWNER, "CONSUMER.CREATE.S.c", consumer("c"))
    return made


ROWS = sorted(
    {
        row.subject
        for kind in (requests, infos, messages, consumers, showing)
        for row in vars(kind).values()
        if isinstance(row, ApiRow)
    }
    | {row.subject for row in requests.REFUSED}
)


@pytest.mark.parametrize("subject", [one for one in ROWS if "*" in one])
def test_who_may_not_see_a_stream_does_not_learn_the_name_of_its_channel(house, subject):
    hidden = {"name": "L", "subjects": ["t.hidden"], "allow_direct": True}
    assert "error" not in house.told(RIGHTS[Right.ADMIN_WRITE], "STREAM.CREATE.L", hidden)
    for document in (None, {"name": "L", "subjects": ["x.1"]}, {"stream_name": "L", "config": {}}):
        request = subject.replace("*", "L", 1).replace("*", "c").replace(">", "t.*")
        for user in ("maker", "half", NOBODY):
            answer = house.api(user, request, document)
            assert b"hidden" not in answer.payload
            assert "hidden" not in answer.status


P, S, D, R, W = Right.PUBLISH, Right.SUBSCRIBE, Right.DURABLE, Right.ADMIN_READ, Right.ADMIN_WRITE
STREAM = {"name": "S", "subjects": ["a.*"]}
EPHEMERAL = {"stream_name": "S", "config": {"name": "e", "ack_policy": "none", "inactive_threshold": 10**9}}
UNNAMED = {"stream_name": "S", "config": {"ack_policy": "none", "inactive_threshold": 10**9}}
FILTERED = {"stream_name": "S", "config": EPHEMERAL["config"] | {"filter_subject": "a.b"}}
TABLE = {
    requests.ACCOUNT: ("INFO", None, {P, S, D, R, W}),
    requests.CREATE: ("STREAM.CREATE.S", STREAM, {W}),
    requests.UPDATE: ("STREAM.UPDATE.S", STREAM, {W}),
    requests.CREATED: ("STREAM.CREATED.S", None, {P, S, R, W}),
    requests.UPDATED: ("STREAM.UPDATED.S", None, {P, S, R, W}),
    infos.INFO: ("STREAM.INFO.S", None, {P, S, R, W}),
    requests.DELETE: ("STREAM.DELETE.S", None, {W}),
    requests.NAMES: ("STREAM.NAMES", None, {*Right, None}),  # what they may see is shown
    requests.LIST: ("STREAM.LIST", None, {*Right, None}),
    **{row: (row.subject.replace("*", "S"), None, {P, S, R, W}) for row in requests.REFUSED},
    messages.GET: ("STREAM.MSG.GET.S", {"seq": 1}, {S}),
    messages.DELETE: ("STREAM.MSG.DELETE.S", {"seq": 1}, {W}),
    messages.PURGE: ("STREAM.PURGE.S", None, {W}),
    messages.DIRECT: ("DIRECT.GET.S", {"seq": 1}, {S}),
    messages.DIRECT_LAST: ("DIRECT.GET.S.a.b", None, {S}),
    consumers.CREATE_UNNAMED: ("CONSUMER.CREATE.S", UNNAMED, {S}),
    consumers.CREATE: ("CONSUMER.CREATE.S.e", EPHEMERAL, {S}),
    consumers.CREATE_FILTERED: ("CONSUMER.CREATE.S.e.a.b", FILTERED, {S}),
    consumers.CREATE_DURABLE: ("CONSUMER.DURABLE.CREATE.S.d", consumer("d"), set()),  # needs two rights
    showing.INFO: ("CONSUMER.INFO.S.c", None, {R, W}),
    consumers.DELETE: ("CONSUMER.DELETE.S.c", None, {W}),
    consumers.PAUSE: ("CONSUMER.PAUSE.S.c", {}, {W}),
    resetting.RESET: ("CONSUMER.RESET.S.c", {}, {W}),
    resetting.UNPIN: ("CONSUMER.UNPIN.S.c", {"group": "g"}, {W}),
    resetting.STEP_DOWN: ("CONSUMER.LEADER.STEPDOWN.S.c", {}, {W}),
    showing.NAMES: ("CONSUMER.NAMES.S", None, {S, R, W}),  # what they may see is shown
    showing.LIST: ("CONSUMER.LIST.S", None, {S, R, W}),
    consumers.NEXT: ("CONSUMER.MSG.NEXT.S.c", b"", set()),
}
"""Each request, and the rights that each alone are enough for a user to whom nothing belongs; None: no right at all."""


# --- the table ------------------------------------------------------------------------------------------------------------


def test_the_table_has_each_request(house):
    broker = house.harness.broker
    [feature] = [one for one in broker.features.all if isinstance(one, JetStreamFeature)]
    assert feature.router.handlers.keys() == TABLE.keys()


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.subject)
@pytest.mark.parametrize("right", [*Right, None], ids=lambda right: right.name.lower() if right else "none")
def test_a_request_needs_its_right(house, row, right):
    request, document, enough = TABLE[row]
    user = RIGHTS[right] if right else NOBODY
    assert code(house.api(user, request, document)) == (0 if right in enough else 403)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.subject)
def test_what_is_not_there_tells_those_nothing_who_may_not_ask(house, row):
    if row.rights:
        gone = row.subject.replace("*", "GONE").replace(">", "a.b")
        assert code(house.api(NOBODY, gone, TABLE[row][1])) == 403


def test_lists_show_what_a_user_may_see(house):
    write = RIGHTS[Right.ADMIN_WRITE]
    house.told(write, "STREAM.CREATE.T", {"name": "T", "subjects": ["t.*"]})
    assert house.told("maker", "STREAM.NAMES")["streams"] is None
    assert house.told(write, "STREAM.NAMES")["streams"] == ["S", "T"]
    assert house.told("maker", "INFO")["streams"] == 0
    assert house.told(NOBODY, "STREAM.LIST")["streams"] is None
    assert house.told(OTHER, "CONSUMER.NAMES.S")["consumers"] == []
    assert house.told(OWNER, "CONSUMER.NAMES.S")["consumers"] == ["c"]
    assert house.told(RIGHTS[Right.ADMIN_READ], "CONSUMER.NAMES.S")["consumers"] == ["c"]


def test_whoever_may_publish_to_a_part_of_a_stream_learns_no_subjects_of_others(house):
    assert code(house.api(RIGHTS[Right.PUBLISH], "STREAM.INFO.S", {"subjects_filter": ">"})) == 403
    assert house.told(RIGHTS[Right.SUBSCRIBE], "STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]


# --- streams --------------------------------------------------------------------------------------------------------------


def test_a_stream_needs_the_right_to_change_each_of_its_subjects_and_its_channel(house):
    def made(name, *subjects):
        return house.told("maker", f"STREAM.CREATE.{name}", {"name": name, "subjects": list(subjects)})

    refused = made("S2", "x.*", "y")
    assert refused["error"] == {"code": 403, "err_code": 10403, "description": 'no permission to change "y"'}
    assert "error" in made("S3", "x.*")
    assert "error" in made("S2", "x.>")
    assert "error" not in made("S2", "x.*")
    more = {"name": "S2", "subjects": ["x.*", "a.z"]}
    assert house.told("maker", "STREAM.UPDATE.S2", more)["error"]["code"] == 403


def test_a_stream_has_subjects_whose_messages_come(house):
    answer = house.told(RIGHTS[Right.ADMIN_WRITE], "STREAM.CREATE.N", {"name": "N", "subjects": ["never.*"]})
    assert answer["error"]["err_code"] == 10052
    assert 'begin with "never"' in answer["error"]["description"]


def test_a_stream_cannot_have_the_subjects_of_replies():
    house = House(reply_prefixes=("my.inbox.",))
    answer = house.told(RIGHTS[Right.ADMIN_WRITE], "STREAM.CREATE.S", {"name": "S", "subjects": ["my.*"]})
    assert answer["error"]["err_code"] == 10052


def test_a_publish_needs_the_right_to_its_subject(house):
    assert house.publish("half", "a.b")["seq"] == 3
    refused = house.publish("half", "a.c")
    assert refused["error"]["description"] == 'no permission to publish to "a.c"'
    assert (refused["stream"], refused["seq"]) == ("S", 0)
    assert house.publish(OWNER, "a.b")["error"]["code"] == 403
    assert house.says("half", "a.b", b"silent", reply=False) is None
    assert house.says("half", "a.c", b"silent", reply=False) is None
    assert house.told(OWNER, "STREAM.INFO.S")["state"]["messages"] == 4


def test_of_messages_that_come_together_those_are_stored_that_their_user_may_publish(house):
    senders = ("half", "a.b"), ("half", "a.c"), (NOBODY, "a.b"), (RIGHTS[Right.PUBLISH], "a.c"), ("half", "a.b")
    replies = [f"_INBOX.together.{number}" for number in range(len(senders))]
    frames = [
        (f"_STAN.from.{user}.{subject}", b"%d" % number, replies[number], ())
        for number, (user, subject) in enumerate(senders)
    ]
    assert js.arrive(house.harness, *frames)
    house.harness.turn()
    answers = [
        js.answer_to(house.harness, f"_STAN.to.{user}.{reply}")
        for (user, _), reply in zip(senders, replies, strict=True)
    ]
    assert [code(answer) for answer in answers] == [0, 403, 403, 0, 0]
    assert sorted(house.harness.stored("S")[2:]) == [b"0", b"3", b"4"]


def test_to_replace_all_messages_needs_the_right_to_change_the_channel(house):
    rollup = [("Nats-Rollup", "all")]
    assert house.publish(RIGHTS[Right.PUBLISH], "a.b", fields=rollup)["error"]["code"] == 403
    assert house.publish(RIGHTS[Right.PUBLISH], "a.b", fields=[("Nats-Rollup", "sub")])["seq"] == 3


def test_a_rule_for_a_client_id_is_not_about_clients_of_jetstream(house):
    house.told(RIGHTS[Right.ADMIN_WRITE], "STREAM.CREATE.C", {"name": "C", "subjects": ["c"]})
    assert house.publish("half", "c")["error"]["code"] == 403


def test_what_is_said_outside_of_any_account_of_a_user_is_left_alone(house):
    for subject in ("$JS.API.STREAM.DELETE.S", "a.b"):
        assert not js.hears(house.harness, subject, b"", "_INBOX.x")
    for reply in ("_STAN.to.other._INBOX.x", "$JS.API.STREAM.DELETE.S", "_INBOX.*"):
        js.hears(house.harness, "_STAN.from.half.a.b", b"", reply)
    house.harness.turn()
    assert house.told(OWNER, "STREAM.INFO.S")["state"]["messages"] == 2


# --- consumers ------------------------------------------------------------------------------------------------------------


def pulls(house, user, name="c", inbox="_INBOX", **request):
    house.listens(user, f"{inbox}.{house.inboxes + 1}")
    return house.says(user, f"$JS.API.CONSUMER.MSG.NEXT.S.{name}", json.dumps(request).encode(), inbox=inbox)


def test_messages_leave_into_the_account_of_the_owner_alone(house):
    assert pulls(house, OWNER, batch=2) is None
    assert set(house.harness.leaf_users) == {OWNER.encode()}
    assert [payload for _, _, payload in house.delivered()] == [b"m", b"m"]


def test_nobody_else_asks_for_messages_or_acks_them(house):
    pulls(house, OWNER, batch=2)
    (_, first, _), (_, second, _) = house.delivered()
    assert pulls(house, OTHER, batch=1).status == "403 the consumer belongs to another user"
    assert house.delivered() == []

    def pending():
        return house.told(OWNER, "CONSUMER.INFO.S.c")["num_ack_pending"]

    for said in (b"", b"+ACK", b"+TERM", b"-NAK", b"+NXT"):
        for reply in (True, False):
            house.says(OTHER, first, said, reply=reply)
    assert pending() == 2
    assert house.says(OWNER, first, b"") is not None  # it is answered
    house.says(OWNER, second, b"", reply=False)
    assert pending() == 0


def test_nobody_else_makes_changes_or_sees_a_consumer(house):
    for request, document in (
        ("CONSUMER.INFO.S.c", None),
        ("CONSUMER.DELETE.S.c", None),
        ("CONSUMER.PAUSE.S.c", {"pause_until": "2100-01-01T00:00:00Z"}),
        ("CONSUMER.RESET.S.c", {"seq": 1}),
        ("CONSUMER.CREATE.S.c", consumer("c")),
        ("CONSUMER.DURABLE.CREATE.S.c", consumer("c", max_deliver=3)),
    ):
        assert house.told(OTHER, request, document)["error"]["description"] == "the consumer belongs to another user"
    assert house.told(OWNER, "CONSUMER.CREATE.S.c", consumer("c", max_deliver=3))["config"]["max_deliver"] == 3
    assert house.told(RIGHTS[Right.ADMIN_WRITE], "CONSUMER.DELETE.S.c")["success"]


def test_an_operator_who_pauses_a_consumer_does_not_own_it(house):
    house.told(RIGHTS[Right.ADMIN_WRITE], "CONSUMER.PAUSE.S.c", {"pause_until": "2100-01-01T00:00:00Z"})
    assert house.told(OWNER, "CONSUMER.INFO.S.c")["paused"]
    assert house.told(OTHER, "CONSUMER.INFO.S.c")["error"]["code"] == 403


def test_what_lasts_needs_the_right_to_keep_durables(house):
    reader = RIGHTS[Right.SUBSCRIBE]
    for config in ({"durable_name": "d"}, {"name": "d", "inactive_threshold": 10**15}):
        answer = house.told(reader, "CONSUMER.CREATE.S.d", {"stream_name": "S", "config": config})
        assert answer["error"]["description"] == 'no permission to keep durables on "S"'
    assert "error" not in house.told(reader, "CONSUMER.CREATE.S.e", EPHEMERAL)


@pytest.mark.parametrize("subject", ["a.b", "push.here", "$JS.API.STREAM.DELETE.S", "_STAN.from.other.a.b"])
def test_messages_are_pushed_to_inboxes_alone(house, subject):
    answer = house.told(OWNER, "CONSUMER.CREATE.S.p", consumer("p", deliver_subject=subject))
    assert "error" in answer


def test_a_pull_from_elsewhere_than_an_inbox_gets_nothing(house):
    pulls(house, OWNER, inbox="elsewhere", batch=1)
    assert house.delivered() == []


def test_a_user_pushes_to_inboxes_of_its_own(house):
    made = house.told(OWNER, "CONSUMER.CREATE.S.p", consumer("p", deliver_subject="_INBOX.mine"))
    assert made["config"]["deliver_subject"] == "_INBOX.mine"
    house.listens(OTHER, "_INBOX.mine")  # the same name, in another account
    assert house.delivered() == []
    house.listens(OWNER, "_INBOX.mine")
    assert [to for to, _, _ in house.delivered()] == ["_INBOX.mine"] * 2


def test_nobody_else_answers_for_flow_control(house):
    big = b"x" * (512 * KiB)
    for _ in range(6):
        house.publish(RIGHTS[Right.PUBLISH], "a.b", big)
    config = consumer("p", deliver_subject="_INBOX.mine", flow_control=True, idle_heartbeat=5 * SECOND)
    house.told(OWNER, "CONSUMER.CREATE.S.p", config)
    house.listens(OWNER, "_INBOX.mine")
    [asked] = {
        one.ack for data in house.harness.leaf_said for one in read_frames(data) if one.ack.startswith("$JS.FC.")
    }
    uid = house.harness.broker.view.meta.channels[b"S"].uid
    flow = house.harness.leader_part(ConsumerDeliveries).find(uid, b"p")[2].flow
    house.says(OTHER, asked, reply=False)
    assert (flow.asked, flow.arrived) == (asked.encode(), 0)
    house.says(OWNER, asked, reply=False)
    assert flow.asked == b""
    assert flow.arrived > 0


def test_a_user_has_half_of_the_consumers_that_others_leave(house):
    write = RIGHTS[Right.ADMIN_WRITE]
    house.told(write, "STREAM.UPDATE.S", STREAM | {"max_consumers": 5, "allow_direct": True})

    def made(user, name):
        return "error" not in house.told(user, f"CONSUMER.CREATE.S.{name}", consumer(name))

    assert [made(OTHER, f"o{at}") for at in range(3)] == [True, True, False]
    assert made(OWNER, "c2") is False  # it has one of the half of 3 that others leave


# --- advisories -----------------------------------------------------------------------------------------------------------


def audience(house, about):
    """The users who got the newest advisory about something, each once; in the broker's own account it is not said."""
    subject = f"$JS.EVENT.ADVISORY.{about}"
    assert house.harness.hear(subject) == []
    got = {user.name: house.harness.hear(f"_STAN.to.{user.name}.{subject}") for user in USERS}
    assert all(len(said) <= 1 for said in got.values())
    assert len({json.loads(said[0].payload)["id"] for said in got.values() if said}) <= 1
    return {user for user, said in got.items() if said}


WATCHES = {RIGHTS[right] for right in (R, W)}
SEES = WATCHES | {RIGHTS[P], RIGHTS[S], OWNER, OTHER}


def test_whoever_may_see_a_stream_hears_what_happens_to_it(house):
    assert audience(house, "STREAM.CREATED.S") == SEES
    house.told(RIGHTS[W], "STREAM.CREATE.T", {"name": "T", "subjects": ["t.x", "t.y"]})
    assert audience(house, "STREAM.CREATED.T") == SEES | {"half"}
    house.told(RIGHTS[W], "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.y", "t.z"]})
    assert audience(house, "STREAM.UPDATED.T") == SEES | {"half"}  # its last one, as to `half`
    house.told(RIGHTS[W], "STREAM.DELETE.T")
    assert audience(house, "STREAM.DELETED.T") == SEES


def test_the_owner_of_a_consumer_and_who_manages_its_channel_hear_what_happens_to_it(house):
    assert audience(house, "CONSUMER.CREATED.S.c") == {OWNER} | WATCHES
    house.told(OWNER, "CONSUMER.CREATE.S.c", consumer("c", max_deliver=1, ack_wait=SECOND))
    pulls(house, OWNER, batch=2)
    (_, first, _), _ = house.delivered()
    house.says(OWNER, first, b"+TERM")
    assert audience(house, "CONSUMER.MSG_TERMINATED.S.c") == {OWNER} | WATCHES
    house.harness.pass_time(1.1)
    pulls(house, OWNER, no_wait=True)
    assert audience(house, "CONSUMER.MAX_DELIVERIES.S.c") == {OWNER} | WATCHES
    house.told(OWNER, "CONSUMER.DELETE.S.c")
    assert audience(house, "CONSUMER.DELETED.S.c") == {OWNER} | WATCHES


@pytest.mark.parametrize(("name", "subjects"), [("S", ["a.*"]), ("T", ["t.x"])])
def test_those_who_saw_a_consumer_hear_that_it_went_with_its_stream(house, name, subjects):
    if name != "S":
        house.told(RIGHTS[W], f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects})
        house.told(OWNER, f"CONSUMER.CREATE.{name}.c", consumer("c") | {"stream_name": name})
    house.told(RIGHTS[W], f"STREAM.DELETE.{name}")
    house.harness.turn()
    assert audience(house, f"CONSUMER.DELETED.{name}.c") == {OWNER} | WATCHES


def test_a_consumer_that_is_nobodys_is_seen_by_who_may_have_durables_there(house):
    left = [one for one in USERS if one.name != OWNER]
    restarted(house, Permissions([one for one in RULES if one.user != OWNER], left))
    house.told(RIGHTS[W], "CONSUMER.DELETE.S.c")
    assert audience(house, "CONSUMER.DELETED.S.c") == {OTHER} | WATCHES


def test_copies_for_all_users_count_as_advisories_that_wait(house, monkeypatch):
    monkeypatch.setattr(limits, "ADVISORIES_WAITING_MAX", 10)
    house.told(OWNER, "CONSUMER.CREATE.S.c", consumer("c", max_deliver=1, ack_wait=SECOND))
    pulls(house, OWNER, batch=2)
    house.harness.pass_time(1.1)
    pulls(house, OWNER, no_wait=True)
    assert audience(house, "CONSUMER.MAX_DELIVERIES.S.c") == {OWNER} | WATCHES  # one for each of three, not two
    assert any("are left out" in text for _, text in house.harness.notes)


# --- users come and go ----------------------------------------------------------------------------------------------------


def restarted(house, permissions):
    """The same broker, with other permissions."""
    house.harness.config = Config(jetstream_api=True, permissions=permissions)
    house.harness.restart()
    return house


def test_a_consumer_outlives_a_restart_with_its_owner(house):
    house.harness.restart()
    assert house.told(OTHER, "CONSUMER.INFO.S.c")["error"]["code"] == 403
    assert pulls(house, OWNER, batch=1) is None
    assert len(house.delivered()) == 1


def test_a_consumer_of_a_user_who_is_gone_is_the_first_ones_who_asks(house):
    without = Permissions([one for one in RULES if one.user != OWNER], [one for one in USERS if one.name != OWNER])
    restarted(house, without)
    assert code(house.api(RIGHTS[Right.SUBSCRIBE], "CONSUMER.INFO.S.c")) == 403  # without the right to keep durables
    assert pulls(house, OTHER, batch=1) is None
    assert len(house.delivered()) == 1
    assert house.told(OTHER, "CONSUMER.INFO.S.c")["num_ack_pending"] == 1


def test_whoever_lost_the_right_to_read_gets_no_more_messages(house):
    house.told(OWNER, "CONSUMER.CREATE.S.p", consumer("p", deliver_subject="_INBOX.mine"))
    restarted(house, Permissions([one for one in RULES if one.user != OWNER], USERS))
    house.listens(OWNER, "_INBOX.mine")
    assert house.delivered() == []
    assert pulls(house, OWNER, batch=1).status.startswith("403")


def test_without_users_what_was_somebodys_is_everybodys(house):
    restarted(house, None)
    h = house.harness
    h.broker.stops.step_leaf([(True, b"_INBOX.x", b"")], up=True, forgotten=False)
    assert js.hears(h, "$JS.API.CONSUMER.MSG.NEXT.S.c", b"", "_INBOX.x")
    h.turn()
    assert [payload for _, _, payload in house.delivered()] == [b"m"]


def test_rules_without_users_are_about_everybody():
    house = House(Permissions([rule("", Right.ADMIN_WRITE, Right.PUBLISH, channels=("a",))]))
    h = house.harness
    assert "error" not in js.api(h, "STREAM.CREATE.A", {"name": "A", "subjects": ["a"]})
    assert js.api(h, "STREAM.CREATE.B", {"name": "B", "subjects": ["b"]})["error"]["code"] == 403
    assert [one["seq"] for one in js.publish(h, "a", b"1", b"2")] == [1, 2]
    assert js.api(h, "STREAM.MSG.GET.A", {"seq": 1})["error"]["code"] == 403


def test_a_user_who_reads_much_leaves_room_for_others(house, monkeypatch):
    for at in range(20):
        house.publish(RIGHTS[Right.PUBLISH], f"a.{at}")
    house.told(OWNER, "STREAM.MSG.GET.S", {"last_by_subj": "a.1"})  # makes the index
    monkeypatch.setattr(limits, "STREAM_SLICE", 2)
    monkeypatch.setattr(limits, "API_SCANS_MAX", 4)
    asked = [house.api(OWNER, "STREAM.MSG.GET.S", {"last_by_subj": "a.*"}) for _ in range(3)]

    assert asked[:2] == [None, None]
    assert json.loads(asked[2].payload)["error"]["err_code"] == 10023
    assert house.api(OTHER, "STREAM.MSG.GET.S", {"last_by_subj": "a.*"}) is None
    house.harness.pass_time(0.1)
    assert house.told(OTHER, "STREAM.MSG.GET.S", {"last_by_subj": "a.3"})["message"]["subject"] == "a.3"
