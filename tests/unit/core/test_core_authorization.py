"""Permissions in the core: who asks is known, what is asked is judged, and refusals say why; with users of NATS and without."""

from dataclasses import replace

import pytest
from stan_protocol.channels import Subjects
from stan_protocol.frames import Frame, Publishes
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan.config import Config
from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.policies import PolicyRule
from stan.protocol.proto import entries_pb2 as entries
from stan.protocol.user_subjects import unwrap, user_of
from tests.kit.core_harness import CoreHarness

USERS = (NatsUser(name="alice", clients=("a-*",)), NatsUser(name="bob", clients=("b-*",)))


def rule(user="", client="", **rights):
    return Rule(
        user=user, client=client, rights={Right[name.upper()]: tuple(of.split()) for name, of in rights.items()}
    )


BY_USER = Permissions(
    [rule("alice", publish="foo", subscribe="foo", durable="foo"), rule("bob", subscribe="foo", admin_read=">")], USERS
)
BY_CLIENT = Permissions([rule(client="writer", publish="foo"), rule(client="reader", subscribe="foo", durable="foo")])


class Guarded(CoreHarness):
    """A harness whose requests pass the authorizer, as those of *user*."""

    def ask(self, subject, payload, answer):
        self.inboxes += 1
        reply = f"reply.{self.inboxes}"
        self.asks(subject, payload, reply)
        self.turn()
        heard = self.hear(f"_STAN.to.{self.user}.{reply}" if self.user else reply)
        return answer.FromString(heard[0].payload) if heard else None

    def asks(self, subject, payload, reply):
        raw = payload if isinstance(payload, bytes) else payload.SerializeToString()
        told = f"_STAN.from.{self.user}.{subject}" if self.user else subject
        authorizer, frame = self.broker.view.authorizer, Frame(10, told.encode(), reply.encode(), b"", raw)
        frame = frame if authorizer is None else authorizer.admit(frame)
        if frame is not None:
            self.broker.frames.routes.get(frame.subject.decode(), self.broker.frames.step_frame)(frame)

    def as_user(self, user):
        self.user = user
        return self


def desk_of(permissions):
    return Guarded(config=Config(permissions=permissions))


@pytest.fixture
def harness():
    return desk_of(BY_USER)


def error(response):
    return response.error.decode()


# --- with users -------------------------------------------------------------------------------------------------------


def test_request_is_opened_for_its_user():
    subjects = Subjects.of("test-cluster", "_STAN.discover")
    sent = wire.SubscriptionRequest(client_id=b"c", inbox=b"_INBOX.m", subject=b"foo")
    frame = unwrap(
        Frame(1, b"_STAN.from.alice._STAN.sub.test-cluster", b"_INBOX.r", b"", sent.SerializeToString()), subjects
    )
    assert (frame.subject, frame.reply) == (b"_STAN.sub.test-cluster", b"_STAN.to.alice._INBOX.r")
    assert wire.SubscriptionRequest.FromString(frame.payload).inbox == b"_STAN.to.alice._INBOX.m"
    assert user_of(frame.reply) == "alice"
    assert unwrap(Frame(1, b"_STAN.sub.test-cluster", b"r", b"", b""), subjects) is None
    inner = Frame(1, b"_STAN.from.bob._STAN.sub.test-cluster", b"_INBOX._STAN.to.alice.r", b"", b"\xff")
    assert user_of(unwrap(inner._replace(reply=b"_INBOX.r"), subjects).reply) == "bob"
    for nobodys in (b"", b"_STAN.to.alice._INBOX.r", b"_INBOX._STAN.x", b"$SYS.x", b"_INBOX." + b"x" * 4000):
        assert unwrap(inner._replace(reply=nobodys), subjects) is None


@pytest.mark.parametrize(
    "inbox", ["_STAN.to.alice._INBOX.x", "_STAN.close.test-cluster", "$JS.API.x", "_INBOX._STAN.1"]
)
def test_inbox_on_which_servers_listen_is_refused(harness, inbox):
    connect = wire.ConnectRequest(client_id=b"b-1", heartbeat_inbox=inbox.encode(), conn_id=b"c", protocol=1)
    subscribe = wire.SubscriptionRequest(client_id=b"b-2", inbox=inbox.encode(), subject=b"foo", max_in_flight=1)
    subscribe.ack_wait_s = 30
    for asked in (harness.as_user("bob"), desk_of(Permissions([rule(subscribe=">")]))):
        asked.connect("b-2")
        answer = asked.ask("_STAN.discover.test-cluster", connect, wire.ConnectResponse)
        assert error(answer) == "stan: invalid connection request"
        answer = asked.ask("_STAN.sub.test-cluster", subscribe, wire.SubscriptionResponse)
        assert error(answer) == "stan: invalid subscription request"


def test_client_belongs_to_its_user(harness):
    assert error(harness.as_user("bob").connect("a-1")) == 'stan: no permission for client id "a-1"'
    response = harness.as_user("alice").connect("a-1")
    assert (error(response), response.pub_prefix) == ("", b"_STAN.from.alice._STAN.pub.test-cluster")
    assert error(harness.as_user("bob").close("a-1")) == "stan: unknown clientID"
    assert error(harness.subscribe("foo", client_id="a-1")) == "stan: unknown clientID"
    assert error(harness.as_user("alice").close("a-1")) == ""


def test_request_outside_of_all_users_is_refused(harness):
    assert "NATS does not tell" in error(harness.as_user("").connect("a-1"))
    assert not harness.state.clients


def test_publish_needs_a_client_of_the_user_who_sends_it(harness):
    harness.as_user("alice").connect("a-1", conn_id="known to all")
    judged = harness.broker.view.authorizer.may_publish
    batch = Publishes(b"foo", 2, b"", b"", ((b"whoever", b"known to all"), (b"a-1", b"")), b"", 0)
    for user, allowed in ((b"alice", True), (b"bob", False), (b"", False)):
        assert judged(replace(batch, user=user)) == [allowed, allowed], user
    assert judged(replace(batch, user=b"alice", channel=b"bar")) == [False, False]


def test_a_connection_id_of_another_user_takes_nothing_from_the_client_that_has_it(harness):
    def ping(user):
        sent = wire.Ping(conn_id=b"known to all")
        return error(harness.as_user(user).ask("_STAN.discover.test-cluster.pings", sent, wire.PingResponse))

    harness.as_user("alice").connect("a-1", conn_id="known to all")
    assert ping("bob") == "client has been replaced or is no longer registered"
    harness.as_user("bob").connect("b-1", conn_id="known to all")
    assert (ping("alice"), ping("bob")) == ("", "")
    assert harness.as_user("alice").publish("foo", b"x", client_id="a-1", conn_id="known to all") == [""]
    harness.as_user("bob").close("b-1")
    assert ping("alice") == ""
    assert harness.as_user("alice").publish("foo", b"x", client_id="a-1", conn_id="known to all") == [""]


def test_a_user_without_clients_may_take_an_id_that_is_free():
    harness = desk_of(Permissions([rule(publish="foo")], (*USERS, NatsUser(name="carol"))))
    assert error(harness.as_user("carol").connect("a-1")) == ""
    assert error(harness.as_user("alice").connect("a-2")) == ""
    assert error(harness.as_user("carol").close("a-2")) == "stan: unknown clientID"


def test_what_another_user_sends_is_refused_as_of_an_unknown_client(harness):
    harness.as_user("alice").connect("a-1", conn_id="known to all")
    for user, answer in (("bob", "stan: invalid publish request"), ("alice", "")):
        assert harness.as_user(user).publish("foo", b"x", client_id="a-1", conn_id="known to all") == [answer]
    assert (
        harness.as_user("").publish("foo", b"x", client_id="a-1", conn_id="known to all") == []
    )  # of no user: malformed
    assert harness.broker.parts.channels.by_name[b"foo"].next_sequence == 2


def test_ack_of_another_user_changes_nothing(harness):
    harness.as_user("bob").connect("b-1")
    inbox = harness.subscribe("foo", "in", client_id="b-1").ack_inbox
    harness.as_user("alice").connect("a-1", conn_id="c")
    harness.publish("foo", b"x", client_id="a-1", conn_id="c")
    said = inbox.removeprefix(b"_STAN.from.bob.")
    for user, left in (("alice", 1), ("", 1), ("bob", 0)):
        harness.as_user(user).ack(said, 1)
        assert len(harness.state.live_position().window) == left, user


def test_verdict_of_another_user_changes_nothing(harness):
    harness.as_user("bob").connect("b-1")
    inbox = harness.subscribe("foo", "in", client_id="b-1").ack_inbox
    harness.as_user("alice").connect("a-1", conn_id="c")
    harness.publish("foo", b"x", client_id="a-1", conn_id="c")
    said = inbox.removeprefix(b"_STAN.from.bob.")
    for user, left in (("alice", 1), ("", 1), ("bob", 0)):
        harness.as_user(user).say(said, 1, wire.REJECT)
        assert len(harness.state.live_position().window) == left, user


def test_ack_inboxes_of_users_and_members_keep_their_order(harness):
    harness.as_user("bob").connect("b-1")
    inboxes = [harness.subscribe("foo", f"in.{n}", client_id="b-1", queue="q").ack_inbox for n in range(8)]
    keys = [int(inbox.rpartition(b".")[2]) for inbox in inboxes]
    assert all(inbox.startswith(b"_STAN.from.bob._STAN.ack.test-cluster.1.") for inbox in inboxes)
    assert len(set(keys)) == 8
    members = [sub.settings.inbox for sub in harness.state.positions()[0].members]
    harness.restart()
    assert [sub.settings.inbox for sub in harness.state.positions()[0].members] == members


def test_durable_needs_its_own_right(harness):
    harness.as_user("bob").connect("b-1")
    assert (
        error(harness.subscribe("foo", client_id="b-1", durable="d")) == 'stan: no permission to keep durables on "foo"'
    )
    assert error(harness.subscribe("foo", client_id="b-1")) == ""
    harness.as_user("alice").connect("a-1")
    made = harness.subscribe("foo", "mine", client_id="a-1", durable="d")
    assert error(made) == ""
    assert (
        error(harness.as_user("bob").leave("foo", made.ack_inbox, client_id="a-1", unsubscribe=True))
        == "stan: unknown clientID"
    )
    assert error(harness.as_user("alice").leave("foo", made.ack_inbox, client_id="a-1", unsubscribe=True)) == ""


def test_nobody_answers_heartbeats_for_another_user(harness):
    harness.as_user("alice").connect("a-1", alive=False)
    harness.pass_time(31)
    beat = next(said for said in harness.said if said.subject.startswith("_STAN.to.alice."))
    assert beat.reply.endswith(".alice")
    number = beat.reply.split(".")[-2].encode()
    for suffix in (number, number + b".bob", b"x.alice", b"1" * 20 + b".alice"):
        harness.broker.frames.step_frame(Frame(3, b"_INBOX.node." + suffix, b"", b"", b""))
        assert harness.state.waiting().requests == 1
    harness.broker.frames.step_frame(Frame(3, b"_INBOX.node." + number + b".alice", b"", b"", b""))
    assert harness.state.waiting().requests == 0


def test_requests_of_operators_are_judged_by_pattern(harness):
    def ask(kind, request):
        return error(harness.ask(f"_STAN.x.test-cluster.admin.{kind}", request, admin.ChangeResponse))

    harness.as_user("bob")
    assert ask("channels", admin.ChannelsRequest()) == ""
    assert ask("purge", admin.PurgeRequest(channel=b"foo")) == 'stan: no permission to change "foo"'
    assert ask("move", admin.MoveRequest(which=admin.Which(channel=b"foo"))) == 'stan: no permission to change "foo"'
    assert ask("unheard_of", admin.NodesRequest()) == 'stan: no permission to change ">"'
    harness.as_user("alice")
    assert ask("channels", admin.ChannelsRequest(pattern=b"foo.*")) == 'stan: no permission to look into "foo.*"'


def test_a_channel_with_a_delay_needs_the_right_for_its_target_too():
    delay = PolicyRule(pattern="foo.later", delay=SECOND, target="foo")
    secret = PolicyRule(pattern="foo.hidden", delay=SECOND, target="secret")
    rules = Permissions([rule("alice", publish="foo foo.later foo.hidden")], USERS)
    harness = Guarded(config=Config(permissions=rules, policies=(delay, secret))).as_user("alice")
    harness.connect("a-1")
    assert harness.publish("foo.later", b"x", client_id="a-1") == [""]
    refusal = 'stan: no permission to publish to "foo.hidden"'
    assert harness.publish("foo.hidden", b"x", client_id="a-1") == [refusal]
    batch = ext.BatchRequest(channel=b"foo.hidden", rows=b"\x03\0\0\0\x22\x01x", count=1)
    assert error(harness.ask("_STAN.x.test-cluster.batch", batch, ext.BatchResponse)) == refusal


def test_each_channel_that_a_request_stages_rows_for_needs_the_right(harness):
    rows = b"\x03\0\0\0\x22\x01x"
    request = ext.StageRequest(app=b"app", txn=b"t", channel=b"foo", rows=rows, count=1)
    request.more.add(channel=b"bar", rows=rows, count=1)
    refused = harness.as_user("alice").ask("_STAN.x.test-cluster.stage", request, ext.StageResponse)
    assert error(refused) == 'stan: no permission to publish to "bar"'
    del request.more[:]
    assert error(harness.ask("_STAN.x.test-cluster.stage", request, ext.StageResponse)) == ""


def test_what_belongs_to_an_app_needs_a_right_to_publish_somewhere(harness):
    asked = ext.LastCommittedRequest(app=b"app")
    subject = "_STAN.x.test-cluster.last_committed"
    assert error(harness.as_user("alice").ask(subject, asked, ext.LastCommittedResponse)) == ""
    assert (
        error(harness.as_user("bob").ask(subject, asked, ext.LastCommittedResponse))
        == 'stan: no permission to publish to ">"'
    )


def test_subscription_ends_where_the_right_has_gone(harness):
    harness.as_user("bob").connect("b-1")
    harness.subscribe("foo", "in", client_id="b-1")
    harness.as_user("alice").connect("a-1")
    harness.subscribe("foo", "in", client_id="a-1")
    harness.config = Config(permissions=Permissions([rule("alice", subscribe="foo")], USERS))
    harness.restart()
    harness.turn()
    assert [sub.client_id for sub in harness.state.subscriptions()] == [b"a-1"]
    assert any("has no permission any more" in text for _, text in harness.notes)


# --- what belongs to users ---------------------------------------------------------------------------------------------

# Where users share client ids, e.g. because no `clients` are set.
PEERS = (NatsUser(name="alice"), NatsUser(name="bob"))
BY_PEERS = Permissions([rule(user, subscribe=">", durable=">", publish=">") for user in ("alice", "bob")], PEERS)
ANOTHERS = "stan: the durable or queue group belongs to another user"


@pytest.fixture
def peers():
    return desk_of(BY_PEERS)


def gone(harness, **names):
    """A durable of alice, who is away; one of three messages is acked."""
    harness.as_user("alice").connect("c")
    sub = harness.subscribe("foo", client_id="c", **names)
    harness.publish("foo", b"1", b"2", b"3", client_id="c")
    harness.ack(sub.ack_inbox, 1)
    harness.close("c")


DURABLES = [{"durable": "d"}, {"durable": "d", "queue": "q"}]


@pytest.mark.parametrize("names", DURABLES)
def test_durable_is_resumed_by_its_user_alone(peers, names):
    gone(peers, **names)
    peers.as_user("bob").connect("c")
    assert error(peers.subscribe("foo", client_id="c", **names)) == ANOTHERS
    peers.close("c")
    peers.restart()
    peers.as_user("bob").connect("c")
    assert error(peers.subscribe("foo", client_id="c", **names)) == ANOTHERS
    peers.close("c")
    peers.as_user("alice").connect("c")
    assert error(peers.subscribe("foo", "mine", client_id="c", **names)) == ""
    assert [sequence for sequence, _ in peers.received("_STAN.to.alice.mine")] == [2, 3]


@pytest.mark.parametrize("names", [{"queue": "q"}, {"durable": "d", "queue": "q"}])
def test_queue_group_is_joined_by_its_user_alone(peers, names):
    peers.as_user("alice").connect("a")
    peers.as_user("bob").connect("b")
    made = peers.as_user("alice").subscribe("foo", client_id="a", **names)
    assert error(made) == ""
    assert error(peers.as_user("bob").subscribe("foo", client_id="b", **names)) == ANOTHERS
    assert error(peers.as_user("alice").subscribe("foo", client_id="a", **names)) == ""


@pytest.mark.parametrize("names", DURABLES)
def test_durable_made_without_users_belongs_to_the_user_who_resumes_it_first(peers, names):
    peers.config, peers.user = Config(), ""
    peers.restart()
    peers.connect("c")
    peers.subscribe("foo", client_id="c", **names)
    peers.close("c")
    peers.config = Config(permissions=BY_PEERS)
    peers.restart()
    for user, refused in (("bob", ""), ("alice", ANOTHERS), ("bob", "")):
        peers.as_user(user).connect("c")
        assert error(peers.subscribe("foo", client_id="c", **names)) == refused
        peers.close("c")


@pytest.mark.parametrize("names", DURABLES)
def test_durable_of_who_is_no_user_any_more_can_be_taken_over(peers, names):
    gone(peers, **names)
    peers.config = Config(permissions=Permissions([rule("bob", subscribe=">", durable=">")], PEERS[1:]))
    peers.restart()
    peers.as_user("bob").connect("c")
    assert error(peers.subscribe("foo", client_id="c", **names)) == ""


@pytest.mark.parametrize("names", DURABLES)
def test_a_restored_durable_belongs_to_the_user_who_made_it(names):
    operator = rule("ops", admin_read=">", admin_write=">")
    harness = desk_of(Permissions([*BY_PEERS.rules, operator], (*PEERS, NatsUser(name="ops"))))
    gone(harness, **names)

    def ask(kind, request, answer=admin.ChangeResponse):
        found = harness.as_user("ops").ask(f"_STAN.x.test-cluster.admin.{kind}", request, answer)
        assert error(found) == ""
        return found

    (kept,) = ask("subscriptions", admin.SubscriptionsRequest(), admin.SubscriptionsResponse).cursors
    ask("delete_channel", admin.DeleteChannelRequest(version=1, channel=b"foo"))
    named = {"version": 1, "channel": b"foo", "restore": b"r"}
    ask("restore_channel", admin.RestoreChannelRequest(**named, first_sequence=1))
    ask("restore_cursor", admin.RestoreCursorRequest(**named, cursor=kept))
    ask("restore_end", admin.RestoreEndRequest(**named, last_sequence=3))
    for user, refusal in (("bob", ANOTHERS), ("alice", "")):
        harness.as_user(user).connect("c")
        assert error(harness.subscribe("foo", client_id="c", **names)) == refusal
        harness.close("c")


def test_members_of_another_user_are_not_ended(peers):
    peers.as_user("alice").connect("c")
    made = peers.subscribe("foo", client_id="c", durable="d")
    sub = peers.state.subscription()
    peers.close("c")
    peers.as_user("bob").connect("c")
    refusal = peers.broker.view.authorizer.leave_refusal(sub, b"_STAN.to.bob._INBOX.r", b"foo", ends_durable=True)
    assert refusal == "stan: unknown clientID"
    assert error(peers.leave("foo", made.ack_inbox, client_id="c", unsubscribe=True)) != ""


def test_durable_tells_whose_it_is(peers):
    gone(peers, durable="d")
    peers.config = Config(permissions=Permissions([rule("bob", admin_read=">")], PEERS))
    peers.restart()
    subject = "_STAN.x.test-cluster.admin.subscriptions"
    told = peers.as_user("bob").ask(subject, admin.SubscriptionsRequest(), admin.SubscriptionsResponse)
    assert [cursor.user for cursor in told.cursors] == [b"alice"]


def test_who_may_not_use_a_channel_is_not_told_of_its_parts(watched):
    create = admin.CreatePartsRequest(version=1, channel=b"orders", parts=4)
    assert (
        error(watched.as_user("ops").ask("_STAN.x.test-cluster.admin.create_parts", create, admin.ChangeResponse)) == ""
    )
    refusal = 'stan: no permission to publish to "orders"'
    told = {
        *(text for n in range(4) for text in watched.as_user("alice").publish(f"orders.~{n}", b"x", client_id="a-1")),
        *watched.publish("orders", b"x", client_id="a-1"),
        *watched.publish("orders.~0", b"x", client_id="unknown"),
    }
    assert told <= {refusal, "stan: invalid publish request"}
    for channel in ("orders", "orders.~1"):
        answer = watched.subscribe(channel, client_id="a-1")
        assert error(answer) == f'stan: no permission to read "{channel}"'


def test_rights_on_a_part_are_those_on_its_channel():
    rules = [
        rule("alice", publish="orders", subscribe="orders"),
        rule("bob", publish="orders.*", subscribe="orders.*"),
        rule("ops", admin_write=">"),
    ]
    harness = desk_of(Permissions(rules, (*PEERS, NatsUser(name="ops"))))
    create = admin.CreatePartsRequest(version=1, channel=b"orders", parts=2)
    asked = harness.as_user("ops").ask("_STAN.x.test-cluster.admin.create_parts", create, admin.ChangeResponse)
    assert error(asked) == ""
    for user, no in (("alice", False), ("bob", True)):
        harness.as_user(user).connect(user)
        refusal = 'stan: no permission to publish to "orders"'
        published = [text for part in (0, 1) for text in harness.publish(f"orders.~{part}", b"x", client_id=user)]
        assert published.count("") == (0 if no else 1)  # the key belongs to one of the parts
        assert published.count(refusal) == (2 if no else 0)
        refusal = 'stan: no permission to read "orders.~0"' if no else ""
        assert error(harness.subscribe("orders.~0", client_id=user)) == refusal
        asked = harness.ask(
            "_STAN.x.test-cluster.seq_at_time", ext.SeqAtTimeRequest(channel=b"orders.~0"), ext.SeqAtTimeResponse
        )
        assert error(asked) == refusal


def test_inboxes_with_wildcards_or_empty_tokens_are_refused(peers):
    peers.as_user("alice").connect("c")
    for inbox in ("_INBOX.>", "_INBOX.*", "a..b", "_INBOX.", ".a", "*"):
        assert error(peers.subscribe("foo", inbox, client_id="c")) == "stan: invalid subscription request"
        request = wire.ConnectRequest(client_id=b"d", heartbeat_inbox=inbox.encode(), conn_id=b"d", protocol=1)
        answer = peers.ask("_STAN.discover.test-cluster", request, wire.ConnectResponse)
        assert error(answer) == "stan: invalid connection request"
    assert error(peers.subscribe("foo", "inbox", client_id="c")) == ""


# --- by client id alone -----------------------------------------------------------------------------------------------


def test_client_ids_have_rights_without_users():
    harness = desk_of(BY_CLIENT)
    assert error(harness.connect("stranger")) == 'stan: no permission for client id "stranger"'
    for client_id in ("writer", "reader"):
        assert error(harness.connect(client_id, protocol=0)) == ""
    assert harness.publish("foo", b"x", client_id="writer") == [""]
    assert harness.publish("foo", b"x", client_id="reader") == ['stan: no permission to publish to "foo"']
    assert error(harness.subscribe("foo", client_id="writer")) == 'stan: no permission to read "foo"'
    made = harness.subscribe("foo", client_id="reader", durable="d")
    assert made.ack_inbox.startswith(b"_INBOX.")
    assert harness.received() == [(1, 0)]
    fetch = ext.SeqAtTimeRequest(channel=b"foo")
    assert "no permission" in error(harness.ask("_STAN.x.test-cluster.seq_at_time", fetch, ext.SeqAtTimeResponse))


def test_client_with_a_connection_id_has_to_show_it():
    harness = desk_of(BY_CLIENT)
    harness.connect("writer")
    assert harness.publish("foo", b"x", client_id="writer") == ['stan: no permission to publish to "foo"']


def test_channel_is_not_made_by_what_is_refused():
    harness = desk_of(BY_CLIENT)
    harness.connect("writer", protocol=0)
    assert harness.publish("bar", b"x", client_id="writer") == ['stan: no permission to publish to "bar"']
    assert error(harness.subscribe("bar", client_id="writer")) == 'stan: no permission to read "bar"'
    assert not harness.state.channels


def test_log_gets_each_refusal_once_a_minute_and_not_too_many(monkeypatch):
    monkeypatch.setattr("stan.limits.COMPLAINTS_MAX", 3)
    harness = desk_of(BY_CLIENT)
    authorizer = harness.broker.view.authorizer

    def told():
        harness.turn()
        lines, harness.notes[:] = [text for level, text in harness.notes if level == "WRN"], []
        return lines

    for _ in range(5):
        authorizer.refusal("", b"c", Right.PUBLISH, b"foo")
    assert told() == ['client "c": stan: no permission to publish to "foo"']
    for n in range(10):
        authorizer.refusal("u", b"c", Right.PUBLISH, b"foo%d" % n)
    assert len(told()) == 2
    harness.pass_time(61)
    authorizer.refusal("", b"", Right.PUBLISH, b"foo")
    assert told() == [
        "12 more lines about what clients have sent were left out",
        'somebody without a client id: stan: no permission to publish to "foo"',
    ]


def test_without_permissions_there_is_no_door():
    assert CoreHarness().broker.view.authorizer is None


# --- consumer groups --------------------------------------------------------------------------------------------------


def joined(harness, user, pattern, member=b"a member of it"):
    request = ext.ConsumerGroupRequest(group=b"ledger", member=member, pattern=pattern, lease_ms=2000)
    harness.as_user(user)
    reply = f"reply.{harness.inboxes}"
    harness.inboxes += 1
    harness.asks("_STAN.x.test-cluster.consumer_group", request, reply)
    harness.turn()
    harness.turn()
    (heard,) = harness.hear(f"_STAN.to.{user}.{reply}")
    return ext.ConsumerGroupResponse.FromString(heard.payload)


def test_a_consumer_needs_the_right_to_its_whole_pattern(harness):
    harness.as_user("alice").connect("a-1")
    harness.publish("foo", b"1", client_id="a-1")
    assert error(joined(harness, "alice", b"*")) == 'stan: no permission to read "*"'
    answer = joined(harness, "alice", b"foo")
    assert [one.channel for one in answer.channels] == [b"foo"]


def test_each_user_has_consumer_groups_of_its_own(harness):
    harness.as_user("alice").connect("a-1")
    harness.publish("foo", b"1", client_id="a-1")
    assert [one.channel for one in joined(harness, "alice", b"foo").channels] == [b"foo"]
    assert [one.channel for one in joined(harness, "bob", b"foo").channels] == [b"foo"]
    assert [one.channel for one in joined(harness, "bob", b"foo", b"another member").channels] == []
    told = listed_groups(harness)
    assert [(one.group, one.user, one.members) for one in told] == [(b"ledger", b"alice", 1), (b"ledger", b"bob", 2)]
    assert [one.user for one in listed_groups(harness, max=1, after=b"ledger", after_user=b"alice")] == [b"bob"]
    (bobs,) = listed_groups(harness, group=b"ledger", user=b"bob")
    assert {member.user for member in bobs.member_list} == {b"bob"}


def listed_groups(harness, **asked):
    subject = "_STAN.x.test-cluster.admin.consumer_groups"
    request = admin.ConsumerGroupsRequest(**asked)
    return list(harness.as_user("bob").ask(subject, request, admin.ConsumerGroupsResponse).groups)


def position(harness, user, sequence, name=b"p", **more):
    request = ext.CursorSetRequest(channel=b"foo", name=name, sequence=sequence, **more)
    return harness.as_user(user).ask("_STAN.x.test-cluster.cursor_set", request, ext.CursorSetResponse)


def positions(harness):
    asked = harness.as_user("ops").ask("_STAN.x.test-cluster.cursors", ext.CursorsRequest(), ext.CursorsResponse)
    return [(one.name, one.user, one.sequence) for one in asked.cursors]


WITH_OPS = Permissions(
    [*BY_USER.rules, rule("ops", subscribe=">", admin_read=">", admin_write=">")], (*USERS, NatsUser(name="ops"))
)


@pytest.fixture
def watched():
    harness = desk_of(WITH_OPS)
    harness.as_user("alice").connect("a-1")
    harness.publish("foo", b"1", b"2", b"3", client_id="a-1")
    return harness


def test_each_user_has_named_positions_of_its_own(watched):
    assert error(position(watched, "alice", 2)) == ""
    assert error(position(watched, "bob", 3)) == ""
    assert positions(watched) == [(b"p", b"alice", 2), (b"p", b"bob", 3)]
    watched.restart()
    assert error(position(watched, "bob", 0)) == ""
    assert positions(watched) == [(b"p", b"alice", 2)]
    assert error(position(watched, "bob", 2, b"a\0p")) == "stan: invalid name of a position"


def test_a_position_from_before_there_were_users_is_that_of_the_user_who_sets_it_first(watched):
    watched.feed_group(bookmark=entries.Bookmark(uid=1, name=b"p", sequence=2))
    assert positions(watched) == [(b"p", b"", 2)]
    assert position(watched, "alice", 3, generation=1).sequence == 3
    assert error(position(watched, "bob", 1)) == ""
    assert positions(watched) == [(b"p", b"alice", 3), (b"p", b"bob", 1)]


def test_the_position_of_a_tier_is_set_by_who_may_change_the_channel(watched):
    watched.config = replace(watched.config, policies=(PolicyRule(pattern="foo", tier="lake"),))
    watched.restart()
    assert error(position(watched, "bob", 3, b"lake")) == 'stan: no permission to change "foo"'
    assert error(position(watched, "ops", 2, b"lake")) == ""
    assert positions(watched) == [(b"lake", b"", 2)]
