"""Consumers of JetStream on the core: pulled and pushed messages, acks, and what a restart keeps."""

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from tests.kit.consumers import consumer, got, info, listens, pause, pull, says, served
from tests.kit.jetstream import api, hears, publish


def filled(count=3, **config):
    h = served(**config)
    for number in range(count):
        publish(h, f"orders.{number % 2}", b"message %d" % (number + 1))
    return h


def sequences(found):
    return [one.sequence for one in found if not one.status]


def pushed():
    """A broker that has pushed a window of 256 messages of 400 to a client; and these."""
    h = filled(0)
    publish(h, "orders.x", *[b"message"] * 400)
    consumer(h, "pusher", deliver_subject="to.me", max_ack_pending=256)
    listens(h, "to.me")
    return h, got(h, "to.me")


def statuses(found):
    return [one.status for one in found if one.status]


# --- pull -----------------------------------------------------------------------------------------------------------------


def test_a_puller_gets_what_it_asks_for_under_the_subjects_of_the_messages():
    h = filled()
    assert consumer(h, "worker")["num_pending"] == 3
    one, two = pull(h, "worker", 2)

    assert (one.subject, one.payload, one.numbers) == ("orders.0", b"message 1", (1, 1, 1, 2))
    assert (two.subject, two.payload, two.numbers) == ("orders.1", b"message 2", (1, 2, 2, 1))
    assert one.ack.startswith("$JS.ACK.ORDERS.worker.1.1.1.")


def test_a_consumer_tells_the_subjects_of_a_stream_that_has_got_others():
    h = served(["orders.0"])
    publish(h, "orders.0", b"message 1")
    consumer(h, "worker")
    consumer(h, "filtered", filter_subject="bills")
    assert "error" not in api(h, "STREAM.UPDATE.ORDERS", {"name": "ORDERS", "subjects": ["bills"]})
    publish(h, "bills", b"message 2")

    assert [(one.subject, one.payload) for one in pull(h, "worker", 5, no_wait=True) if not one.status] == [
        ("orders.0", b"message 1"),
        ("bills", b"message 2"),
    ]
    assert sequences(pull(h, "filtered", 5, no_wait=True)) == [2]


def test_a_request_waits_for_messages_that_come_later():
    h = filled(0)
    consumer(h, "worker")
    assert pull(h, "worker", 5, inbox="_INBOX.a.1") == []
    publish(h, "orders.x", b"later")
    publish(h, "orders.y", b"and later")

    assert [one.payload for one in got(h, "_INBOX.a.1")] == [b"later", b"and later"]


def test_requests_are_served_in_their_order():
    h = filled(0)
    consumer(h, "worker")
    for name in ("a", "b"):
        assert pull(h, "worker", 2, inbox=f"_INBOX.{name}.1") == []
    publish(h, "orders.x", b"1", b"2", b"3")

    assert [one.payload for one in got(h, "_INBOX.a.1")] == [b"1", b"2"]
    assert [one.payload for one in got(h, "_INBOX.b.1")] == [b"3"]


def test_requests_that_wait_share_what_comes():
    """Once the first had all of it, and other clients were idle."""
    h = filled(0)
    consumer(h, "worker")
    for name in ("a", "b"):
        assert pull(h, "worker", 100, inbox=f"_INBOX.{name}.1") == []
    publish(h, "orders.x", *[b"together"] * 10)
    assert [len(got(h, f"_INBOX.{name}.1")) for name in ("a", "b")] == [5, 5]
    for _ in range(4):
        publish(h, "orders.x", b"alone")

    assert [len(got(h, f"_INBOX.{name}.1")) for name in ("a", "b")] == [2, 2]


def test_requests_with_limits_of_bytes_take_turns():
    h = filled(0)
    consumer(h, "worker")
    for name in ("a", "b"):
        assert pull(h, "worker", 100, inbox=f"_INBOX.{name}.1", max_bytes=10_000) == []
    for _ in range(4):
        publish(h, "orders.x", b"alone")

    assert [sequences(got(h, f"_INBOX.{name}.1")) for name in ("a", "b")] == [[1, 3], [2, 4]]


def test_a_request_that_does_not_wait_ends_with_404():
    h = filled()
    consumer(h, "worker")
    found = pull(h, "worker", 5, no_wait=True)

    assert sequences(found) == [1, 2, 3]
    assert found[-1].status == "404 No Messages"
    assert statuses(pull(h, "worker", 5, no_wait=True)) == ["404 No Messages"]


def test_a_request_ends_with_408_and_what_it_has_not_got():
    h = filled(1)
    consumer(h, "worker")
    assert sequences(pull(h, "worker", 5, inbox="_INBOX.a.1", expires=2 * SECOND)) == [1]
    h.pass_time(2.1)
    (over,) = got(h, "_INBOX.a.1")

    assert over.status == "408 Request Timeout"
    assert over.fields == {"Nats-Pending-Messages": "4", "Nats-Pending-Bytes": "0"}
    publish(h, "orders.x", b"later")
    assert got(h, "_INBOX.a.1") == []


def test_heartbeats_come_while_a_request_waits():
    h = filled(0)
    consumer(h, "worker")
    pull(h, "worker", 1, inbox="_INBOX.a.1", expires=5 * SECOND, idle_heartbeat=2 * SECOND)
    h.pass_time(4.5)

    assert statuses(got(h, "_INBOX.a.1")) == ["100 Idle Heartbeat"] * 2


def test_a_request_with_a_limit_of_bytes_gets_no_more():
    h = filled()
    consumer(h, "worker")
    found = pull(h, "worker", 5, max_bytes=100, expires=5 * SECOND)

    assert sequences(found) == [1]
    assert statuses(found) == ["409 Message Size Exceeds MaxBytes"]
    assert statuses(pull(h, "worker", 5, max_bytes=10, expires=5 * SECOND)) == ["409 Message Size Exceeds MaxBytes"]
    assert sequences(pull(h, "worker", 5, no_wait=True)) == [2, 3]


def test_a_request_gets_as_many_bytes_as_its_client_counts():
    h = filled(0)
    publish(h, "orders.x", *[b"message"] * 200)
    consumer(h, "worker", ack_policy="none")
    for _ in range(12):
        *found, over = pull(h, "worker", 100, max_bytes=1100, expires=5 * SECOND)
        sizes = [len(one.subject) + len(one.ack) + len(one.payload) for one in found]
        assert 1100 - sizes[-1] < sum(sizes) <= 1100
        assert over.status == "409 Message Size Exceeds MaxBytes"
        told = int(over.fields["Nats-Pending-Messages"]), int(over.fields["Nats-Pending-Bytes"])
        assert told == (100 - len(found), 1100 - sum(sizes))


def test_a_puller_that_does_not_listen_any_more_gets_nothing():
    h = filled(0)
    consumer(h, "worker")
    pull(h, "worker", 1, inbox="_INBOX.gone.1")
    listens(h, gone=("_INBOX.gone.1",))
    pull(h, "worker", 1, inbox="_INBOX.here.1")
    publish(h, "orders.x", b"for whoever listens")

    assert got(h, "_INBOX.gone.1") == []
    assert sequences(got(h, "_INBOX.here.1")) == [1]


def test_too_many_requests_are_refused():
    h = filled(0)
    consumer(h, "worker", max_waiting=2)
    for _ in range(2):
        pull(h, "worker", expires=60 * SECOND)

    assert statuses(pull(h, "worker")) == ["409 Exceeded MaxWaiting"]


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"batch": 3}, "409 Exceeded MaxRequestBatch of 2"),
        ({"max_bytes": 60}, "409 Exceeded MaxRequestMaxBytes of 50"),
        ({"expires": 2 * SECOND}, "409 Exceeded MaxRequestExpires of 1s"),
        ({"expires": SECOND, "idle_heartbeat": SECOND}, "400 Bad Request - heartbeat value too large"),
    ],
)
def test_a_request_beyond_the_limits_of_the_consumer_is_refused(request_, status):
    h = filled()
    consumer(h, "worker", max_batch=2, max_bytes=50, max_expires=SECOND)

    assert statuses(pull(h, "worker", **request_)) == [status]


def test_a_consumer_that_is_not_there_answers_as_nats_does():
    h = filled()

    assert statuses(pull(h, "nobody")) == ["503"]


# --- acks -----------------------------------------------------------------------------------------------------------------


def test_what_is_not_acked_comes_again_and_says_how_often_it_came():
    h = filled(2)
    consumer(h, "worker", ack_wait=2 * SECOND)
    one, _ = pull(h, "worker", 2)
    says(h, one, b"+ACK")
    h.pass_time(2.5)
    (again,) = pull(h, "worker", 5)

    assert again.numbers == (2, 2, 3, 0)


def test_no_more_messages_wait_for_acks_than_the_consumer_allows():
    h = filled(3)
    consumer(h, "worker", max_ack_pending=2)
    one, _ = pull(h, "worker", 5, inbox="_INBOX.a.1")
    assert info(h, "worker")["num_ack_pending"] == 2
    says(h, one)

    assert sequences(got(h, "_INBOX.a.1")) == [3]
    publish(h, "orders.x", b"4")
    assert got(h, "_INBOX.a.1") == pull(h, "worker", no_wait=True) == []


def test_a_nak_brings_a_message_again_and_its_delay_is_kept():
    h = filled(1)
    consumer(h, "worker")
    (one,) = pull(h, "worker")
    says(h, one, b"-NAK")
    h.pass_time(0.2)
    (two,) = pull(h, "worker")
    assert two.delivered == 2
    says(h, two, pause(5 * SECOND))
    assert pull(h, "worker", inbox="_INBOX.b.1") == []
    h.pass_time(4)
    assert got(h, "_INBOX.b.1") == []
    h.pass_time(1.2)

    assert [one.delivered for one in got(h, "_INBOX.b.1")] == [3]


def test_a_client_that_works_on_a_message_keeps_it():
    h = filled(1)
    consumer(h, "worker", ack_wait=2 * SECOND)
    (one,) = pull(h, "worker")
    for _ in range(3):
        h.pass_time(1.5)
        says(h, one, b"+WPI")
    assert pull(h, "worker", no_wait=True)[0].status == "404 No Messages"
    h.pass_time(2.2)

    assert sequences(pull(h, "worker")) == [1]


def test_a_terminated_message_does_not_come_again():
    h = filled(1)
    consumer(h, "worker", ack_wait=SECOND)
    (one,) = pull(h, "worker")
    says(h, one, b"+TERM cannot be read")
    h.pass_time(3)

    assert statuses(pull(h, "worker", no_wait=True)) == ["404 No Messages"]
    assert info(h, "worker")["ack_floor"]["stream_seq"] == 1


def test_an_ack_can_ask_for_the_next_message():
    h = filled(2)
    consumer(h, "worker")
    (one,) = pull(h, "worker")
    listens(h, "_INBOX.next.1")
    says(h, one, b"+NXT", "_INBOX.next.1")

    assert sequences(got(h, "_INBOX.next.1")) == [2]
    assert info(h, "worker")["ack_floor"]["stream_seq"] == 1


def test_one_ack_stands_for_all_before_it_where_the_policy_says_so():
    h = filled(3)
    consumer(h, "worker", ack_policy="all")
    found = pull(h, "worker", 3)
    says(h, found[1])

    assert info(h, "worker")["num_ack_pending"] == 1
    assert info(h, "worker")["ack_floor"] == {"consumer_seq": 2, "stream_seq": 2}


def test_without_acks_a_message_is_done_once_it_is_sent():
    h = filled(3)
    consumer(h, "worker", ack_policy="none")
    assert sequences(pull(h, "worker", 2)) == [1, 2]
    assert info(h, "worker")["num_ack_pending"] == 0
    h.restart()
    listens(h)

    assert sequences(pull(h, "worker", 5, no_wait=True)) == [3]


def test_an_ack_that_wants_an_answer_gets_it_once_it_is_stored():
    h = filled(1)
    consumer(h, "worker")
    (one,) = pull(h, "worker")
    h.hold = True
    says(h, one, b"", "_INBOX.sync.1")
    assert h.hear("_INBOX.sync.1") == []
    h.hold = False
    h.commit()
    h.turn()
    assert len(h.hear("_INBOX.sync.1")) == 1
    h.restart()
    listens(h)

    assert statuses(pull(h, "worker", no_wait=True)) == ["404 No Messages"]


def test_a_message_is_delivered_no_more_often_than_the_consumer_allows():
    h = filled(2)
    consumer(h, "worker", ack_wait=SECOND, max_deliver=2)
    pull(h, "worker", 1)
    h.pass_time(1.5)
    assert [one.delivered for one in pull(h, "worker", 1)] == [2]
    h.pass_time(1.5)

    assert sequences(pull(h, "worker", 5, no_wait=True)) == [2]
    assert info(h, "worker")["num_ack_pending"] == 1


def test_a_backoff_says_when_a_message_comes_again():
    h = filled(1)
    consumer(h, "worker", backoff=[SECOND, 10 * SECOND], max_deliver=5)
    pull(h, "worker", 1)
    h.pass_time(1.2)
    assert [one.delivered for one in pull(h, "worker", 1)] == [2]
    pull(h, "worker", 1, inbox="_INBOX.b.1")
    h.pass_time(7)
    assert got(h, "_INBOX.b.1") == []
    h.pass_time(6)

    assert [one.delivered for one in got(h, "_INBOX.b.1")] == [3]


def test_pauses_of_a_backoff_are_as_long_as_the_client_says():
    for number in range(20):
        h = filled(1)
        consumer(h, f"worker{number}", backoff=[SECOND, 10 * SECOND], max_deliver=5)
        pull(h, f"worker{number}", 1)
        h.pass_time(1.2)
        assert [one.delivered for one in pull(h, f"worker{number}", 1)] == [2]
        pull(h, f"worker{number}", 1, inbox="_INBOX.b.1")
        h.pass_time(9.7)
        assert got(h, "_INBOX.b.1") == []
        h.pass_time(0.3)
        assert [one.delivered for one in got(h, "_INBOX.b.1")] == [3]


@pytest.mark.parametrize("ack", [b"", b"-NAK", b"+TERM"])
def test_who_acks_what_nobody_waits_for_is_answered_at_once(ack):
    h = filled(2)
    consumer(h, "worker")
    consumer(h, "reader", ack_policy="none")
    (mine,), (theirs,) = pull(h, "worker"), pull(h, "reader")
    assert "error" not in api(h, "CONSUMER.DELETE.ORDERS.worker")
    for number, message in enumerate((mine, theirs)):
        says(h, message, ack, f"reply.ack.{number}")
        assert [one.status for one in got(h, f"reply.ack.{number}")] == ["503"]
    assert "error" not in api(h, "STREAM.DELETE.ORDERS")
    says(h, theirs, ack, "reply.ack.2")
    assert [one.status for one in got(h, "reply.ack.2")] == ["503"]


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"max_ack_pending": 0}, "max_ack_pending must be set if it's configured in stream limits"),
        ({"max_ack_pending": 5, "max_batch": -1}, "max_batch must not be negative"),
        ({"max_ack_pending": 5, "backoff": [SECOND]}, "first backoff value has to equal batch AckWait"),
        ({"max_ack_pending": 5}, None),
    ],
)
def test_a_pedantic_client_is_refused_what_would_be_changed(config, why):
    h = filled(0, consumer_limits={"max_ack_pending": 10})
    wanted = {"name": "worker", "ack_policy": "explicit"} | config
    asked = {"stream_name": "ORDERS", "config": wanted, "pedantic": True}
    told = api(h, "CONSUMER.CREATE.ORDERS.worker", asked).get("error", {})
    assert (told.get("err_code"), told.get("description")) == (
        (10157, f"pedantic mode: {why}") if why else (None, None)
    )


def test_a_consumer_without_acks_tells_the_limits_of_its_stream_too():
    h = filled(0, consumer_limits={"max_ack_pending": 10})
    assert consumer(h, "reader", ack_policy="none")["config"]["max_ack_pending"] == 10


@pytest.mark.parametrize(
    ("request_", "asked", "code"), [("UNPIN", {"group": "g"}, 10160), ("LEADER.STEPDOWN", {}, 10010)]
)
def test_requests_about_consumers_that_are_not_built_are_answered(request_, asked, code):
    """Once a client waited for an answer until it gave up."""
    h = filled()
    consumer(h, "worker")

    assert api(h, f"CONSUMER.{request_}.ORDERS.worker", asked)["error"]["err_code"] == code
    assert api(h, f"CONSUMER.{request_}.ORDERS.other", asked)["error"]["err_code"] == 10014


# --- reset ----------------------------------------------------------------------------------------------------------------


def reset(h, name, **asked):
    return api(h, f"CONSUMER.RESET.ORDERS.{name}", asked)


def test_a_consumer_is_reset_to_a_message():
    h = filled(4)
    consumer(h, "worker")
    for message in pull(h, "worker", 4):
        says(h, message)
    told = reset(h, "worker", seq=2)
    assert (told["reset_seq"], told["delivered"]) == (2, {"consumer_seq": 0, "stream_seq": 1})
    assert (told["num_pending"], told["num_ack_pending"], told["num_redelivered"]) == (3, 0, 0)

    found = pull(h, "worker", 5, no_wait=True)
    assert sequences(found) == [2, 3, 4]
    assert [one.numbers[2] for one in found[:3]] == [1, 2, 3]
    assert reset(h, "worker", seq=99)["reset_seq"] == 5
    assert sequences(pull(h, "worker", 5, no_wait=True)) == []
    publish(h, "orders.x", b"5")
    assert sequences(pull(h, "worker", 5, no_wait=True)) == [5]


def test_a_consumer_is_reset_to_what_it_has_not_acked():
    h = filled(4)
    consumer(h, "worker")
    one, two, three = pull(h, "worker", 3)
    says(h, one)
    says(h, three)
    told = reset(h, "worker")
    assert (told["reset_seq"], told["num_ack_pending"]) == (2, 0)
    assert sequences(pull(h, "worker", 5, no_wait=True)) == [2, 3, 4]
    says(h, two)
    assert info(h, "worker")["num_ack_pending"] == 2


@pytest.mark.parametrize(
    ("config", "asked", "why"),
    [
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 2, "below start seq"),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, 3, None),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2999-01-01T00:00:00Z"}, 2, "below start time"),
        ({"deliver_policy": "last"}, 1, "not allowed"),
        ({"deliver_policy": "last"}, 0, None),
    ],
)
def test_a_consumer_is_reset_to_no_message_that_it_was_not_to_get(config, asked, why):
    h = filled(4)
    consumer(h, "worker", **config)
    error = reset(h, "worker", seq=asked).get("error", {})
    assert (error.get("err_code"), error.get("description")) == (
        (10204, f"invalid reset: {why}") if why else (None, None)
    )
    assert reset(h, "nobody")["error"]["err_code"] == 10014


# --- push -----------------------------------------------------------------------------------------------------------------


def test_messages_are_pushed_while_somebody_listens():
    h = filled(2)
    consumer(h, "pusher", deliver_subject="to.me")
    assert got(h, "to.me") == []
    listens(h, "to.me")
    assert sequences(got(h, "to.me")) == [1, 2]
    listens(h, gone=("to.me",))
    publish(h, "orders.x", b"3")
    assert got(h, "to.me") == []
    listens(h, "to.me")

    assert sequences(got(h, "to.me")) == [3]


def test_acks_of_a_client_with_much_to_do_are_followed_by_messages_a_moment_later():
    h, found = pushed()
    for one in found[:5]:
        says(h, one)
    assert got(h, "to.me") == []
    h.pass_time(0.003)

    assert sequences(got(h, "to.me")) == list(range(257, 262))


def test_acks_of_half_a_window_are_followed_by_messages_at_once():
    h, found = pushed()
    for one in found[:127]:
        assert hears(h, one.ack, b"")
    h.turn()
    assert got(h, "to.me") == []
    says(h, found[127])

    assert sequences(got(h, "to.me")) == list(range(257, 385))


def test_an_ack_that_waits_for_others_is_stored_before_it_is_answered():
    h, found = pushed()
    says(h, found[0])
    says(h, found[1], b"", "_INBOX.sync.1")
    assert len(h.hear("_INBOX.sync.1")) == 1
    h.restart()

    assert info(h, "pusher")["num_ack_pending"] == 254


def test_a_terminated_message_is_stored_before_that_is_answered():
    h, found = pushed()
    says(h, found[0], b"+TERM", "_INBOX.sync.1")
    assert len(h.hear("_INBOX.sync.1")) == 1
    h.restart()

    assert info(h, "pusher")["num_ack_pending"] == 255


def test_a_client_with_flow_control_is_asked_until_it_has_what_left_at_once():
    """Once what had left behind the first question was never asked for: an object of 8 MiB got stuck."""
    h = filled(0)
    consumer(h, "pusher", deliver_subject="to.me", flow_control=True, idle_heartbeat=5 * SECOND)
    listens(h, "to.me")
    size = limits.FLOW_BYTES_MAX // 16
    publish(h, "orders.x", *[bytes(size)] * 9)
    *found, asked = got(h, "to.me")
    publish(h, "orders.x", *[bytes(size)] * 24)
    found += got(h, "to.me")
    publish(h, "orders.x", b"one more")
    assert (asked.status, len(found), got(h, "to.me")) == ("100 FlowControl Request", 33, [])

    assert hears(h, asked.ack)
    h.turn()
    (again,) = got(h, "to.me")
    assert again.status == "100 FlowControl Request"
    assert hears(h, again.ack)
    h.turn()
    assert [one.payload for one in got(h, "to.me")] == [b"one more"]


def test_a_queue_group_that_listens_gets_the_messages():
    h = filled(1)
    consumer(h, "pusher", deliver_subject="to.us", deliver_group="workers")
    listens(h, "to.us")
    assert got(h, "to.us") == []
    listens(h, "to.us", queue="workers")

    assert b" + $JS.ACK.ORDERS.pusher." in h.leaf_said[0]
    assert b"@orders.0 workers " in h.leaf_said[0]


def test_a_pushing_consumer_that_has_nothing_to_send_beats():
    h = filled(1)
    consumer(h, "pusher", deliver_subject="to.me", idle_heartbeat=SECOND)
    listens(h, "to.me")
    got(h, "to.me")
    h.pass_time(2.5)
    beats = got(h, "to.me")

    assert statuses(beats) == ["100 Idle Heartbeat"] * 2
    assert beats[0].fields == {"Nats-Last-Consumer": "1", "Nats-Last-Stream": "1"}


def test_nothing_leaves_while_the_leafnode_connection_is_away():
    h = filled(1)
    consumer(h, "pusher", deliver_subject="to.me")
    listens(h, "to.me", up=False)
    assert got(h, "to.me") == []
    listens(h)

    assert sequences(got(h, "to.me")) == [1]


def test_a_request_outlasts_a_leafnode_connection():
    h = filled(0)
    consumer(h, "worker")
    pull(h, "worker", 2, inbox="_INBOX.a.1", expires=60 * SECOND, idle_heartbeat=2 * SECOND)
    h.broker.stops.step_leaf([], up=False, forgotten=True)
    h.pass_time(5)
    publish(h, "orders.x", b"meanwhile")
    h.broker.stops.step_leaf([(True, b"_INBOX.a.1", b"")], up=True, forgotten=True)
    h.turn()
    h.pass_time(5)
    publish(h, "orders.x", b"later")

    assert sequences(got(h, "_INBOX.a.1")) == [1, 2]


def test_headers_alone_tell_the_size_of_what_was_left_out():
    h = filled(1)
    consumer(h, "worker", headers_only=True)
    (one,) = pull(h, "worker")

    assert (one.payload, one.fields) == (b"", {"Nats-Msg-Size": "9"})


def test_filters_choose_messages_by_subject():
    h = filled(6)
    consumer(h, "worker", filter_subject="orders.1", ack_wait=2 * SECOND)
    found = pull(h, "worker", 2)
    assert [(one.subject, one.numbers[:3]) for one in found] == [("orders.1", (1, 2, 1)), ("orders.1", (1, 4, 2))]
    h.pass_time(2.5)

    assert [(one.subject, one.delivered) for one in pull(h, "worker", 9)] == [
        ("orders.1", 2),
        ("orders.1", 2),
        ("orders.1", 1),
    ]


def test_a_key_cannot_bring_frames_of_its_own():
    h = served()
    h.connect()
    h.publish("ORDERS", b"by stan", key_of=lambda _payload: b"a b\r\nLMSG _INBOX.other 1\r\nx")
    consumer(h, "worker")
    (one,) = pull(h, "worker")

    assert (one.subject, one.payload) == ("a_b__LMSG__INBOX.other_1__x", b"by stan")
    assert got(h, "_INBOX.other") == []


def test_a_name_in_the_subject_is_in_the_configuration_too():
    """nats.go makes up a name, says it in the subject alone, and reads it there."""
    h = filled(0)
    plain = {"stream_name": "ORDERS", "config": {"ack_policy": "explicit"}}
    told = api(h, "CONSUMER.CREATE.ORDERS.given", plain)

    assert (told["name"], told["config"]["name"]) == ("given", "given")
    assert "error" not in api(h, "CONSUMER.CREATE.ORDERS.given", plain)
    assert "name" not in api(h, "CONSUMER.CREATE.ORDERS", plain)["config"]


# --- where it begins --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "first"),
    [
        ({"deliver_policy": "all"}, 1),
        ({"deliver_policy": "last"}, 3),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 2}, 2),
        ({"deliver_policy": "by_start_time", "opt_start_time": "1970-01-01T00:00:01Z"}, 1),
        ({"deliver_policy": "by_start_time", "opt_start_time": "0001-01-01T00:00:00Z"}, 1),
    ],
)
def test_a_consumer_begins_where_its_deliver_policy_says(config, first):
    h = filled()
    told = consumer(h, "worker", **config)["config"]

    assert told | config == told
    assert consumer(h, "worker", **config)["config"] == told
    assert sequences(pull(h, "worker", 9))[0] == first


def test_a_consumer_of_new_messages_gets_no_old_ones():
    h = filled()
    consumer(h, "worker", deliver_policy="new")
    assert statuses(pull(h, "worker", no_wait=True)) == ["404 No Messages"]
    publish(h, "orders.x", b"new")

    assert sequences(pull(h, "worker")) == [4]


def test_a_consumer_can_begin_with_the_newest_message_of_each_subject():
    h = filled(6)
    publish(h, "orders.2", b"message 7")
    answer = consumer(h, "worker", deliver_policy="last_per_subject", filter_subjects=["orders.0", "orders.2"])
    assert answer["num_pending"] == 2
    publish(h, "orders.0", b"message 8")
    publish(h, "orders.0", b"message 9")
    found = pull(h, "worker", 9)

    assert [(one.sequence, one.subject) for one in found] == [(7, "orders.2"), (8, "orders.0"), (9, "orders.0")]
    assert found[-1].numbers[3] == 0


def test_a_consumer_of_a_bucket_begins_with_one_revision_of_each_key():
    h = served(("$KV.B.>",), "KV_B", max_msgs_per_subject=1)
    for key in "klk":
        publish(h, f"$KV.B.{key}", b"")
    assert consumer(h, "watch", "KV_B", deliver_policy="all")["num_pending"] == 2
    assert sequences(pull(h, "watch", 2, "KV_B")) == [2, 3]
    publish(h, "$KV.B.l", b"")
    assert sequences(pull(h, "watch", 1, "KV_B")) == [4]


def test_a_consumer_can_begin_with_the_last_message_that_its_filter_lets_through():
    h = filled(6)
    consumer(h, "worker", deliver_policy="last", filter_subject="orders.0")
    (one,) = pull(h, "worker", 9)

    assert one.numbers[1::2] == (5, 0)


# --- what stays -----------------------------------------------------------------------------------------------------------


def test_a_restart_keeps_the_position_and_flags_what_was_sent():
    h = filled(4)
    consumer(h, "worker", ack_wait=60 * SECOND)
    found = pull(h, "worker", 3)
    says(h, found[0])
    says(h, found[2])
    h.restart()
    listens(h)
    assert info(h, "worker")["num_ack_pending"] == 1
    assert sequences(pull(h, "worker", 9, inbox="_INBOX.b.1")) == [4]
    h.pass_time(61)

    assert (2, 2) in [one.numbers[:2] for one in got(h, "_INBOX.b.1")]


def test_what_may_have_been_sent_before_a_loss_of_power_is_flagged():
    h = filled(2)
    consumer(h, "worker", ack_wait=SECOND)
    pull(h, "worker", 2)
    h.forget_progress(1)
    h.power_lost = True
    h.restart()
    listens(h)

    assert [one.numbers[:2] for one in pull(h, "worker", 2)] == [(2, 1), (2, 2)]


def test_a_consumer_that_is_deleted_is_gone_and_tells_its_pullers():
    h = filled()
    consumer(h, "worker")
    pull(h, "worker", 3)
    pull(h, "worker", 3, inbox="_INBOX.waits.1")
    assert api(h, "CONSUMER.DELETE.ORDERS.worker")["success"]
    assert statuses(got(h, "_INBOX.waits.1")) == ["409 Consumer Deleted"]
    assert info(h, "worker")["error"]["err_code"] == 10014
    h.restart()

    assert info(h, "worker")["error"]["err_code"] == 10014


def test_a_consumer_that_nobody_asks_for_goes():
    h = filled()
    consumer(h, "passing", durable_name=None, inactive_threshold=5 * SECOND)
    pull(h, "passing", 1)
    h.pass_time(3)
    pull(h, "passing", 1)
    h.pass_time(4)
    assert "error" not in info(h, "passing")
    h.pass_time(3)

    assert info(h, "passing")["error"]["err_code"] == 10014


def test_a_consumer_whose_clients_got_all_they_asked_for_goes_once_nobody_asks():
    h = filled(9)
    consumer(h, "passing", durable_name=None, inactive_threshold=5 * SECOND)
    for _ in range(4):
        pull(h, "passing", 1)
        h.pass_time(3)
    assert "error" not in info(h, "passing")
    h.pass_time(11)

    assert info(h, "passing")["error"]["err_code"] == 10014


def test_the_consumers_of_a_stream_go_with_it_although_its_channel_stays():
    h = served(subjects=("a",), name="A")
    assert api(h, "STREAM.DELETE.A")["success"]
    h.connect()
    h.publish("b", b"1")
    api(h, "STREAM.CREATE.B", {"name": "B", "subjects": ["b"]})
    consumer(h, "worker", stream="B")
    assert api(h, "STREAM.DELETE.B")["success"]
    api(h, "STREAM.CREATE.B", {"name": "B", "subjects": ["b"]})

    assert info(h, "worker", stream="B")["error"]["err_code"] == 10014
    assert not h.state.positions(1)


def test_a_paused_consumer_delivers_once_the_pause_is_over():
    h = filled()
    consumer(h, "worker")
    answer = api(h, "CONSUMER.PAUSE.ORDERS.worker", {"pause_until": "2023-11-14T22:13:40Z"})
    assert answer["paused"]
    assert pull(h, "worker", 1, inbox="_INBOX.a.1") == []
    h.pass_time(21)

    assert sequences(got(h, "_INBOX.a.1")) == [1]


# --- as published clients have it -----------------------------------------------------------------------------------------


def test_a_request_that_does_not_wait_but_has_a_time_ends_with_its_first_messages():
    h = filled(0)
    consumer(h, "worker")
    assert pull(h, "worker", 5, inbox="_INBOX.a.1", no_wait=True, expires=5 * SECOND) == []
    publish(h, "orders.x", b"1", b"2")
    found = got(h, "_INBOX.a.1")
    assert (sequences(found), statuses(found)) == ([1, 2], ["404 No Messages"])
    publish(h, "orders.x", b"3")
    assert got(h, "_INBOX.a.1") == []


def test_a_request_that_does_not_wait_is_over_at_a_heartbeat_though_acks_are_missing():
    h = filled(5)
    consumer(h, "worker", max_ack_pending=2)
    found = pull(h, "worker", 4, inbox="_INBOX.a.1", no_wait=True, expires=5 * SECOND, idle_heartbeat=SECOND)
    assert sequences(found) == [1, 2]
    h.pass_time(1.1)
    assert statuses(got(h, "_INBOX.a.1"))[0] == "404 No Messages"
    for one in found:
        says(h, one)
    assert sequences(got(h, "_INBOX.a.1")) == []


def test_a_message_with_a_nak_comes_before_new_ones_to_a_client_that_asks():
    h = filled(3)
    consumer(h, "worker")
    (first,) = pull(h, "worker", 1)
    says(h, first, b"-NAK")
    (again,) = pull(h, "worker", 1)
    assert (again.sequence, again.delivered) == (1, 2)


def test_what_is_pushed_goes_to_all_queue_groups_if_the_consumer_names_none():
    h = filled(1)
    consumer(h, "pusher", deliver_subject="to.me")
    listens(h, "to.me", queue="two")
    listens(h, "to.me", queue="one")
    publish(h, "orders.x", b"later")

    assert b"@orders.0 two " in h.leaf_said[0]
    assert b"@orders.x one two " in h.leaf_said[-1]


def test_what_a_consumer_with_a_filter_still_gets_is_counted():
    h = filled(9)
    consumer(h, "worker", filter_subject="orders.1")
    assert info(h, "worker")["num_pending"] == 4
    pull(h, "worker", 1)
    assert info(h, "worker")["num_pending"] == 3
