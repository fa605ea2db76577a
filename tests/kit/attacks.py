"""Everything that somebody may say to the broker: any request with any fields, on any subject, with any reply subject.

Fields hold what is known of a victim, what is nobody's, and what is huge, tiny or no text at all.
"""

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.proto import wire_pb2 as wire

from tests.kit.batches import rows_of
from tests.kit.core_harness import CoreHarness
from tests.kit.server import CLUSTER_ID

CHANNELS = ("a.kept", "a.health", "context.tx", "m.x", "public.x")
OF_ORIGINAL = {
    f"_STAN.discover.{CLUSTER_ID}": wire.ConnectRequest,
    f"_STAN.discover.{CLUSTER_ID}.pings": wire.Ping,
    f"_STAN.close.{CLUSTER_ID}": wire.CloseRequest,
    f"_STAN.sub.{CLUSTER_ID}": wire.SubscriptionRequest,
    f"_STAN.unsub.{CLUSTER_ID}": wire.UnsubscribeRequest,
    f"_STAN.subclose.{CLUSTER_ID}": wire.UnsubscribeRequest,
    f"_STAN.raft.{CLUSTER_ID}.node.add": wire.Ping,
    f"_STAN.raft.{CLUSTER_ID}.node.remove": wire.Ping,
}
OF_EDGE = (
    "fetch",
    "replica.fetch",
    "admin.nodes",
    "admin.options",
    "admin.verify",
    "admin.explain",
    "admin.step_down",
    "none",
    "admin.none",
)
KINDS = sorted(
    {name.removeprefix(f"_STAN.x.{CLUSTER_ID}.") for name in CoreHarness().broker.frames.routes} | {*OF_EDGE}
)
BEFORE = (
    "_STAN.from.alice.",
    "_STAN.from.mallory.",
    "_STAN.from.stan-broker.",
    "_STAN.to.alice.",
    "_INBOX.",
    "_STAN.acks.",
    "$SYS.",
)
"""What may stand before a subject that somebody says, or before one that he names."""
HUGE = (b"a." * 300, b"a." * 30_000 + b"a", b"x" * 60_000, b"*." * 20_000 + b">")
MANY_BYTES = 4_000_000
"""Of a request that is its own parts over and over: lists with a million elements, if these are small."""
ODD = (b"\0\r\n\t \xff", b"..", b".", b" ", b"\xff")


def sayings(fields, inboxes):
    """Subject, payload and reply subject. *fields*: what a victim has in the field of a name; *inboxes*: where acks are sent."""
    names = [*(name for known in fields.values() for name in known), *inboxes, rows_of([b"row"])]
    texts = Texts(fields, st.sampled_from(names) | st.sampled_from(HUGE + ODD) | st.binary(max_size=4))
    requests = [(f"_STAN.x.{CLUSTER_ID}.{kind}", request_of(kind)) for kind in KINDS] + [*OF_ORIGINAL.items()]
    asked = st.sampled_from(requests).flatmap(
        lambda one: st.tuples(st.just(one[0]), messages(one[1].DESCRIPTOR, texts))
    )
    published = st.sampled_from(CHANNELS).flatmap(lambda name: publishes(name, texts))
    guessed = [f"_STAN.ack.{CLUSTER_ID}.1.{number}" for number in (1, 7, 20)]
    known = [inbox.decode() for inbox in inboxes]
    bare = [inbox.removeprefix("_STAN.from.alice.") for inbox in known]
    acked = st.tuples(st.sampled_from([*known, *bare, *guessed]), messages(wire.Ack.DESCRIPTOR, texts))
    before = st.sampled_from(("",) * len(BEFORE) + BEFORE)
    sizes = st.sampled_from((0,) * 30 + (MANY_BYTES,))
    return st.builds(
        lambda prefix, said, size, reply: (prefix + said[0], repeated(said[1].SerializeToString(), size), reply),
        before,
        asked | asked | published | acked,
        sizes,
        replies(inboxes),
    )


def repeated(payload, size):
    """*payload* as often as it fits into *size* bytes, and at least once: its lists get as many times longer."""
    return payload * max(1, size // max(1, len(payload)))


class Texts:
    """What stands in a field: mostly what a victim has there, so that a request is often almost right."""

    def __init__(self, fields, anything):
        self.anything = anything
        self.known = {name: st.sampled_from(known) for name, known in fields.items()}

    def of(self, field):
        """For one of its name."""
        known = self.known.get(field.name)
        return self.anything if known is None else st.one_of(known, known, known, self.anything)


def request_of(kind):
    """The message that a request of the extension carries."""
    words = kind.removeprefix("admin.").removeprefix("replica.").split("_")
    name = "".join(word.capitalize() for word in words) + "Request"
    return getattr(admin if kind.startswith("admin.") else ext, name, ext.InfoRequest)


def replies(inboxes):
    """Reply subjects: his own, none, those of others, those of servers, and long ones."""
    own = ("_INBOX.mallory.x", "_STAN.acks.mallory", "")
    theirs = tuple(inbox.decode() for inbox in inboxes)
    servers = tuple(prefix + subject for prefix in BEFORE for subject in OF_ORIGINAL) + tuple(
        f"_STAN.reply.{CLUSTER_ID}.0.{number}.alice" for number in range(3)
    )
    long = tuple("_INBOX." + "x" * size for size in (500, 1000, 1100, 3500))
    return st.one_of(*map(st.sampled_from, (own, own, theirs, servers, long)))


def publishes(channel, texts):
    """Subject and PubMsg, often one that is well-formed."""
    subject = st.just(f"_STAN.pub.{CLUSTER_ID}.{channel}")
    whole = messages(wire.PubMsg.DESCRIPTOR, texts).map(
        lambda made: _with(made, subject=channel.encode(), guid=made.guid or b"g")
    )
    return st.tuples(subject, messages(wire.PubMsg.DESCRIPTOR, texts) | whole)


def messages(kind, texts):
    """A message of *kind* with any of its fields."""

    def of(field):
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            one = messages(field.message_type, texts)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            one = texts.of(field)
        elif field.type == FieldDescriptor.TYPE_STRING:
            one = texts.of(field).map(lambda text: text.decode("utf-8", "replace"))
        elif field.type == FieldDescriptor.TYPE_BOOL:
            one = st.booleans()
        else:
            one = numbers(field)
        return st.lists(one, max_size=3) if field.is_repeated else one

    every = {field.name: of(field) for field in kind.fields}
    whole = st.fixed_dictionaries(every) if not kind.oneofs else st.nothing()
    given = whole | st.fixed_dictionaries({}, optional=every)
    return given.map(lambda told: GetMessageClass(kind)(**told))


def numbers(field):
    """The ends of what a field holds, and what is small."""
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    ends = {
        FieldDescriptor.CPPTYPE_INT32: [2**31 - 1, -1],
        FieldDescriptor.CPPTYPE_INT64: [2**63 - 1, -1],
        FieldDescriptor.CPPTYPE_UINT32: [2**32 - 1],
        FieldDescriptor.CPPTYPE_UINT64: [2**64 - 1],
    }[field.cpp_type]
    return st.sampled_from([1, 2, 3, 4, 30]) | st.sampled_from([0, *ends])


def _with(made, **told):
    for name, value in told.items():
        setattr(made, name, value)
    return made
