"""What travels with a message: headers and keys, sequences in acks, and the features that clients are told of."""

from stan_protocol.commits import commit_request
from stan_protocol.features import Feature
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.batches import rows_of_messages


def publish(harness, *messages):
    """Publish to channel `foo` in one read; returns the acks."""
    frames = []
    for message in messages:
        message.client_id, message.guid, message.subject = b"me", next(harness.guids), b"foo"
        payload = message.SerializeToString()
        frames.append(b"MSG _STAN.pub.test-cluster.foo 1 _INBOX.acks %d\r\n%b\r\n" % (len(payload), payload))
    scan = harness._scan(frames)
    harness.broker.frames.step_publishes(scan.publishes)
    harness.broker.frames.step_malformed(scan.malformed, 1)
    harness.turn()
    return [wire.PubAck.FromString(said.payload) for said in harness.hear("_INBOX.acks")]


def test_headers_and_key_are_stored_and_delivered_again_and_again(harness) -> None:
    headers = [wire.Header(key=b"trace", value=b"1"), wire.Header(key=b"trace", value=b"2"), wire.Header(value=b"\xff")]
    publish(harness, wire.PubMsg(data=b"x", reply=b"r", headers=headers, key=b"customer 7"))
    harness.restart()
    harness.connect()
    harness.subscribe("foo", "in", wait=1)
    harness.pass_time(1.5)
    first, again = (wire.MsgProto.FromString(said.payload) for said in harness.hear("in"))
    assert (first.data, first.reply, first.key, list(first.headers)) == (b"x", b"r", b"customer 7", headers)
    assert not first.redelivered
    again.redelivered, again.redelivery_count = False, 0
    assert again == first


def test_acks_tell_the_sequences_that_are_asked_for(harness) -> None:
    acks = publish(harness, *(wire.PubMsg(data=b"x", numbered=numbered) for numbered in (True, False, True)))
    assert [(ack.sequence, ack.error) for ack in acks] == [(1, b""), (0, b""), (3, b"")]
    (ack,) = publish(harness, wire.PubMsg(data=b"x", numbered=True))
    assert ack.sequence == 4


def test_refusals_tell_no_sequence(harness) -> None:
    harness.full = True
    (ack,) = publish(harness, wire.PubMsg(data=b"x", numbered=True))
    assert (ack.sequence, bool(ack.error), bool(ack.guid)) == (0, True, True)


def test_malformed_and_oversized_context_is_refused_and_nothing_is_stored(harness) -> None:
    wrong = [
        wire.PubMsg(key=b"k" * 1025),
        wire.PubMsg(headers=[wire.Header(key=b"k", value=b"v" * 1000)] * 66),
    ]
    acks = publish(harness, *wrong)
    assert [ack.error for ack in acks] == [b"stan: invalid publish request"] * 2
    assert publish(harness, wire.PubMsg(numbered=True))[0].sequence == 1


def test_features_are_told(harness) -> None:
    assert harness.connect("new").features == Feature.CONTEXT | Feature.VERDICTS | Feature.DELAYS | Feature.TTL


ROWS = [
    wire.MsgProto(data=b"plain", headers=[wire.Header(key=b"trace", value=b"1")]),
    wire.MsgProto(data=b"keyed", key=b"customer 7"),
]


def batch_of(*rows):
    return "batch", ext.BatchRequest(channel=b"foo", count=len(rows), rows=rows_of_messages(rows)), ext.BatchResponse


def stage_of(*rows):
    named = {"app": b"app", "txn": b"of %d" % len(rows), "channel": b"foo"}
    return "stage", ext.StageRequest(**named, count=len(rows), rows=rows_of_messages(rows)), ext.StageResponse


def ask(harness, kind, request, response):
    return harness.ask(f"_STAN.x.test-cluster.{kind}", request, response).error.decode()


def test_headers_and_keys_of_rows_are_stored_whichever_way_they_come(harness) -> None:
    assert ask(harness, *batch_of(*ROWS)) == ""
    assert ask(harness, *stage_of(*ROWS)) == ""
    of_txn = commit_request(b"app", 0, {b"foo": [(b"of 2", 1)]})
    assert ask(harness, "commit", of_txn, ext.CommitResponse) == ""
    harness.subscribe("foo", "in", seq=1)
    told = [wire.MsgProto.FromString(said.payload) for said in harness.hear("in")]
    assert [(one.data, one.key, list(one.headers)) for one in told] == [
        (row.data, row.key, list(row.headers)) for row in ROWS * 2
    ]
