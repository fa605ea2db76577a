"""Whatever clients of JetStream send is answered, refused or left alone; what is written is read as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.limits import KEY_BYTES_MAX

from stan.core.base.names import text
from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import PREFIX, ApiRow, ApiTable
from stan.protocol.jetstream.consumers import decode, read_config
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.json_data import Fields, encode, read_object
from stan.protocol.jetstream.streams import decoded, requested
from tests.kit import jetstream as js
from tests.kit.consumers import served

OPTIONS = tuple(requested({"name": "S"}, "S", 1).document())
texts = st.text(
    st.characters() | st.sampled_from("\ud800\udfff"), max_size=9
)  # lone surrogates, too, as JSON can have them
moments = st.sampled_from(
    ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "1969-12-31T23:59:59Z", "2030-01-01T00:00:00Z")
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | texts | moments,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FIELDS = (*OPTIONS, "mirror", "seq", "keep", "filter", "last_by_subj", "next_by_subj", "subjects_filter", "offset")
documents = st.dictionaries(st.sampled_from(FIELDS) | texts, values)
numbers = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from((1, 2, (1 << 63) - 1))
patterns = st.sampled_from(("a.*", ">", "a.b"))
places = st.sampled_from((-1, 0, 1, 2, 3, 1 << 62, (1 << 63) - 1))
READS = {
    "STREAM.INFO.S": {"deleted_details": st.booleans(), "subjects_filter": patterns, "offset": places},
    "STREAM.NAMES": {"offset": places},
    "STREAM.LIST": {"offset": places},
    "STREAM.PURGE.S": {"filter": patterns, "seq": places, "keep": places},
    "STREAM.MSG.GET.S": {"seq": places, "last_by_subj": patterns, "next_by_subj": patterns},
    "STREAM.MSG.DELETE.S": {"seq": places},
    "DIRECT.GET.S": {"seq": places, "last_by_subj": patterns, "next_by_subj": patterns},
    "CONSUMER.NAMES.S": {"offset": places},
    "CONSUMER.LIST.S": {"offset": places},
}
read = st.sampled_from(list(READS)).flatmap(
    lambda request: st.tuples(st.just(request), st.fixed_dictionaries({}, optional=READS[request]))
)
WISHES = {
    "durable_name": st.just("c"),
    "deliver_policy": st.sampled_from(("all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject")),
    "ack_policy": st.sampled_from(("none", "all", "explicit")),
    "opt_start_seq": numbers,
    "opt_start_time": moments | texts,
    "pause_until": moments | texts,
    "filter_subject": st.sampled_from(("a.*", "a b", "a..b", ">", "a." + "x" * 2000)) | texts,
    "filter_subjects": st.lists(st.sampled_from(("a.b", "a.*", "b", "", ".", "\n", ">.a", "é")), max_size=3),
    "deliver_subject": st.sampled_from(("to.me", "to..me", "to " * 3, "x" * 2000, "$JS.API.INFO", ">")) | texts,
    "deliver_group": st.sampled_from(("group", "a b", "g" * 2000)) | texts,
    "metadata": st.dictionaries(texts, texts, max_size=2),
    "backoff": st.lists(numbers, max_size=3),
    "flow_control": st.booleans(),
    **dict.fromkeys(("ack_wait", "max_deliver", "max_ack_pending", "max_waiting", "max_batch", "max_bytes"), numbers),
    **dict.fromkeys(("idle_heartbeat", "inactive_threshold", "num_replicas"), numbers),
}
wish = st.sampled_from(list(WISHES)).flatmap(lambda name: st.tuples(st.just(name), WISHES[name]))
wishes = st.lists(wish, max_size=4).map(dict)
subjects = st.lists(st.sampled_from(("a.b", "a.*", "b.>", "c", ">", "x y", "", "$KV.B.>")), max_size=3)
REQUESTS = (
    *("INFO", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.INFO.S", "STREAM.NAMES", "STREAM.LIST", "STREAM.PURGE.S"),
    *("STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "DIRECT.GET.S", "DIRECT.GET.S.a.b", "STREAM.DELETE.S", "STREAM.X"),
)
OF_CONSUMERS = ("CREATE.S", "CREATE.S.c", "INFO.S.c", "LIST.S", "NAMES.S", "PAUSE.S.c", "MSG.NEXT.S.c", "DELETE.S.c")
NAMED = ("CREATE", "DURABLE.CREATE", "INFO", "PAUSE", "MSG.NEXT", "DELETE")
names = st.binary(min_size=1, max_size=4).filter(lambda one: not set(one) & set(b" .\r\n\t\0"))


def outcome(call, *arguments):
    """What a call returns, and with what it refuses."""
    try:
        return call(*arguments), None
    except RequestError as error:
        return None, error.error


@given(st.binary(max_size=60) | documents.map(lambda one: json.dumps(one).encode()))
def test_bytes_are_an_object_or_refused(payload):
    found, error = outcome(read_object, payload)
    assert isinstance(found, dict) if error is None else 400 <= error.code < 600


@given(documents, subjects)
def test_a_configuration_is_taken_whole_or_refused(document, wanted):
    asked = document | {"name": "S", "subjects": wanted}
    config, error = outcome(requested, asked, "S", 3)
    if error is not None:
        assert error.err_code in {10025, 10052, 10056, 10074}
        return
    assert decoded(config.encoded()) == config
    again = requested(config.document(), "S", 3)
    assert again == config, "a client that sends back what it was told changes nothing"


@given(wishes)
def test_a_consumer_is_read_from_the_log_as_it_was_written(document):
    config, error = outcome(read_config, document, "c")
    if error is not None:
        assert 400 <= error.code <= 500
        return
    assert decode(config.encoded()) == config
    assert all(len(one) <= KEY_BYTES_MAX for one in (*config.filters, config.deliver_subject))


@given(st.lists(st.tuples(st.text("Nats-Xy", min_size=1), st.text("abc :é"))))
def test_header_blocks_are_read_as_they_were_written(fields):
    encoded = [(name.encode(), value.strip(" ").encode()) for name, value in fields]
    assert headers.parse(headers.render(encoded)) == encoded


@given(st.binary(max_size=80))
def test_any_header_block_is_read(block):
    assert all(name for name, _ in headers.parse(block))


@given(st.lists(st.sampled_from(("A", "B", "x", "", ">", "*")), max_size=5))
def test_a_request_has_one_row(tokens):
    rows = [ApiRow(one, "", ()) for one in ("A", "A.B", "A.*", "A.*.>", "B.>")]
    found = ApiTable(rows).find(PREFIX + ".".join(tokens))
    if found is not None:
        row, named = found
        rest = iter(named)
        rebuilt = [next(rest) if token in ("*", ">") else token for token in row.subject.split(".")]
        assert ".".join(rebuilt) == ".".join(tokens)
    assert (found is not None) == (bool(tokens) and all(tokens) and tokens[0] in "AB" and tokens != ["B"])


@given(st.lists(st.tuples(st.sampled_from(REQUESTS), st.binary(max_size=30) | documents), max_size=6))
def test_requests_are_answered_refused_or_left_alone(asked):
    broker = js.harness()
    js.api(broker, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"], "allow_direct": True})
    js.publish(broker, "a.b", b"1", b"2")
    for request, document in asked:
        reply = js.asks(broker, request, document)
        broker.turn()
        answer = js.answer_to(broker, reply)
        known = request != "STREAM.X"
        assert (answer is not None) == known
    broker.follower(0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["Nats-Msg-Id", "Nats-Rollup", "Nats-TTL", "x"]), st.text(max_size=9)), max_size=3
    )
)
def test_publishes_with_any_headers_are_answered(fields):
    broker = js.harness()
    js.api(
        broker, "STREAM.CREATE.S", {"name": "S", "subjects": ["a.*"], "allow_rollup_hdrs": True, "allow_msg_ttl": True}
    )
    plain = [(name, "".join(one for one in value if one.isprintable())) for name, value in fields]
    (answer,) = js.publish(broker, "a.b", b"1", fields=plain)
    assert answer["stream"] == "S"


@given(documents)
def test_what_is_read_by_its_type_is_of_that_type(document):
    fields = Fields(document)
    for name in document:
        found, error = outcome(fields.text, name)
        assert isinstance(found, str) if error is None else encode(error.document())


pauses = moments.map(lambda at: {"pause_until": at})


@given(st.lists(st.tuples(st.sampled_from(OF_CONSUMERS), wishes | documents | pauses), max_size=6))
def test_requests_about_consumers_are_answered(asked):
    broker = served(("a.*",), "S")
    js.publish(broker, "a.b", b"1", b"2")
    for request, document in asked:
        about = {"stream_name": "S", "config": document} if request.startswith("CREATE") else document
        reply = js.asks(broker, f"CONSUMER.{request}", about)
        broker.turn()
        assert js.answer_to(broker, reply) is not None or request == "MSG.NEXT.S.c"
    broker.follower(1)
    assert not [text for level, text in broker.notes if level == "ERR"]


@given(st.lists(st.tuples(st.sampled_from(NAMED), names), max_size=4))
def test_consumers_of_any_name_are_answered(asked):
    broker = served(("a.*",), "S")
    for request, name in asked:
        broker.inboxes += 1
        reply = b"reply.%d" % broker.inboxes
        js.hears(broker, f"$JS.API.CONSUMER.{request}.S.{text(name)}", b'{"stream_name":"S"}', reply.decode())
        broker.turn()
        assert js.answer_to(broker, reply.decode()) is not None or request == "MSG.NEXT"
    assert not [text for level, text in broker.notes if level == "ERR"]


@given(st.lists(read, max_size=4), st.sampled_from((-1, 1, 2)))
def test_what_is_read_may_begin_and_end_anywhere(asked, history):
    broker = served(("a.*",), "S", max_msgs_per_subject=history, allow_direct=True)
    js.publish(broker, "a.b", b"1", b"2")
    js.publish(broker, "a.c", b"3")
    for request, document in asked:
        reply = js.asks(broker, request, document)
        broker.turn()
        assert js.answer_to(broker, reply) is not None
    assert not [told for level, told in broker.notes if level == "ERR"]
