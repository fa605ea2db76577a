"""Every channel that a request names is judged, however deep the request names it; a new field has to say what it is."""

import pytest
from google.protobuf.descriptor import FieldDescriptor
from stan_protocol.frames import Frame

from stan.config import Config
from stan.core.clients.authorization import PermissionAuthorizer
from stan.core.requests.table import REQUESTS
from stan.permissions import NatsUser, Permissions, Right, Rule
from stan.policies import POLICY_OPTIONS, Form
from tests.kit.core_harness import CoreHarness

OWN = Permissions([Rule(user="own", rights=dict.fromkeys(Right, ("own.>",)))], [NatsUser(name="own")])
CHANNELS = frozenset({"channel", "channels", "pattern", "dead_letter", "target", "to"})
"""Fields that name a channel, or channels by a pattern."""
OTHERS = frozenset(
    {
        *(
            "after",
            "after_channel",
            "after_name",
            "after_pattern",
            "after_user",
        ),  # where a page begins of what was judged already
        *("app", "writer", "producer", "txn", "txns", "ids", "rows", "compressed_rows", "newest_of_key", "key"),
        *("client_id", "durable_name", "queue_group", "name", "group", "member", "user", "inbox", "restore", "node"),
        "cluster",
        *("message", "text", "tier"),
        *("stream", "consumer"),  # the one needs the right for all channels, the other is one of the named channel
        *(
            "dead_letter_channel",
            "dead_letter_fault",
            "pause_reason",
            "served_by",
        ),  # told of a position, never asked for
    }
)
JUDGED_ELSEWHERE = {
    ("admin.redrive", "to"): "by its handler, once it is known that there is something to put back",
    ("admin.step_down", "to"): "a node",
    ("admin.restore_stream", "channel"): "with all others: a stream takes subjects, too",
}
NOT_LOOKED_AT = (
    {("consumer_group", "released.channel"), ("admin.restore_cursor", "cursor.channel")}
    | {("admin.restore_cursor", f"cursor.policy.{option}") for option in ("dead_letter", "target")}
    | {("admin.restore_cursor", "cursor.part_of.channel")}
)
TEXTS = (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)


def paths(kind, before=()):
    """The paths of all fields of a request that hold bytes or a text."""
    for field in kind.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            yield from paths(field.message_type, (*before, field))
        elif field.type in TEXTS:
            yield *before, field


def put(request, path, value):
    """Set the field at *path*; of a repeated one a single value."""
    *way, last = path
    for field in way:
        below = getattr(request, field.name)
        request = below.add() if field.is_repeated and not below else below[0] if field.is_repeated else below
    value = value.decode() if last.type == FieldDescriptor.TYPE_STRING else value
    if last.is_repeated:
        getattr(request, last.name).append(value)
    else:
        setattr(request, last.name, value)


def dotted(path):
    return ".".join(field.name for field in path)


EVERY = [(name, path) for name, kind in REQUESTS.items() for path in paths(kind.request.DESCRIPTOR)]
NAMING = [
    (name, path)
    for name, path in EVERY
    if path[-1].name in CHANNELS and (name, dotted(path)) not in NOT_LOOKED_AT | JUDGED_ELSEWHERE.keys()
]


def refusal(name, request):
    harness = CoreHarness(config=Config(permissions=OWN))
    authorizer = harness.broker.view.authorizer
    subject = f"_STAN.from.own._STAN.x.test-cluster.{name}".encode()
    frame = Frame(10, subject, b"_INBOX.r", b"", request.SerializeToString())
    assert isinstance(authorizer, PermissionAuthorizer)
    if authorizer.admit(frame) is not None:
        return ""
    harness.turn()
    (answer,) = harness.hear("_STAN.to.own._INBOX.r")
    return REQUESTS[name].response.FromString(answer.payload).error.decode()


def test_it_is_known_of_every_field_if_it_names_a_channel():
    names = {path[-1].name for _, path in EVERY}
    assert names == CHANNELS | OTHERS
    assert {option.field for option in POLICY_OPTIONS if option.form is Form.CHANNEL} == {
        "dead_letter",
        "target",
        "tier",
    }
    assert {(name, dotted(path)) for name, path in EVERY} >= NOT_LOOKED_AT | JUDGED_ELSEWHERE.keys()


@pytest.mark.parametrize(("name", "path"), NAMING, ids=[f"{name}-{dotted(path)}" for name, path in NAMING])
def test_a_channel_that_a_request_names_needs_a_right(name, path):
    request = REQUESTS[name].request()
    for other in (p for n, p in NAMING if n == name):
        put(request, other, b"own.x")
    assert refusal(name, request) == ""
    request = REQUESTS[name].request()
    for other in (p for n, p in NAMING if n == name):
        put(request, other, b"secret.x" if other == path else b"own.x")
    assert '"secret.x"' in refusal(name, request)


@pytest.mark.parametrize("name", [name for name in REQUESTS if name not in {named for named, _ in NAMING}])
def test_a_request_that_names_no_channel_needs_the_right_to_all_or_any(name):
    kind = REQUESTS[name]
    if kind.channels is not None:
        assert '">"' in refusal(name, kind.request())


@pytest.mark.parametrize(
    ("pattern", "named", "wrong"),
    [
        ("own.x", ".dlq", ""),
        ("own.>", ".dlq", ""),
        ("own.*", ".dlq", ""),
        ("own.x", "own.y", ""),
        ("own.>", "orders.pay", "orders.pay"),
        ("own.x", "own", "own"),
    ],
)
@pytest.mark.parametrize("option", ["dead_letter", "target"])
def test_a_policy_fills_channels_that_its_user_may_fill(pattern, named, wrong, option):
    request = REQUESTS["admin.set_policy"].request(pattern=pattern.encode())
    setattr(request.policy, option, named.encode())
    assert refusal("admin.set_policy", request) == (f'stan: no permission to publish to "{wrong}"' if wrong else "")
