"""Whatever clients of JetStream send is answered, refused or left alone; what is written is read as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st

from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import PREFIX, ApiRow, ApiTable
from stan.protocol.jetstream.errors import RequestError
from stan.protocol.jetstream.json_data import Fields, encode, read_object
from stan.protocol.jetstream.streams import decoded, requested
from tests.kit import jetstream as js

OPTIONS = tuple(requested({"name": "S"}, "S", 1).document())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from((*OPTIONS, "mirror", "seq", "last_by_subj", "filter")) | st.text(), values)
subjects = st.lists(st.sampled_from(("a.b", "a.*", "b.>", "c", ">", "x y", "", "$KV.B.>")), max_size=3)
REQUESTS = (
    *("INFO", "STREAM.CREATE.S", "STREAM.UPDATE.S", "STREAM.INFO.S", "STREAM.NAMES", "STREAM.LIST", "STREAM.PURGE.S"),
    *("STREAM.MSG.GET.S", "STREAM.MSG.DELETE.S", "DIRECT.GET.S", "DIRECT.GET.S.a.b", "STREAM.DELETE.S", "STREAM.X"),
)


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
