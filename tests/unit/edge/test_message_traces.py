"""Tracing: which messages are traced, by which ids, and that neither a receiver nor a fault in it does harm."""

import sys
import threading
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.proto import wire_pb2 as wire

from stan import limits
from stan.config import TracingConfig
from stan.core.base.ready import Proposal
from stan.edge.driver import Driver
from stan.edge.tracing import export as module
from stan.edge.tracing.export import MISSING, Span, SpanExport
from stan.edge.tracing.message_traces import MessageTraces
from stan.edge.tracing.sampling import CARRIED_MAX, Sampler, SpanIds, carried, ids_of
from stan.edge.tracing.traced_driver import TracedDriver, driver_of, tracing_of
from stan.edge.turns import Turns
from stan.errors import StartError
from stan.log.types import Entry
from stan.protocol.entries import Kind, encode_batch, encode_change
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb

UID = 7
proposed = partial(Proposal, leader=None, done=None, in_doubt=None)
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def records(*messages, base=1):
    bodies = b"".join(
        len(body).to_bytes(4, "little") + body for body in (message.SerializeToString() for message in messages)
    )
    return kernel.seal(b"orders", base, 1000, [bodies])


def message(data=b"x", *, flags=None, trace=TRACE):
    headers = [wire.Header(key=b"other", value=b"1")]
    if flags is not None:
        headers.append(wire.Header(key=b"traceparent", value=f"00-{trace}-{PARENT}-{flags}".encode()))
    return wire.MsgProto(data=data, headers=headers)


# --- sampling ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 50), st.integers(1, 2**32), st.integers(0, 2**40), st.integers(0, 300), st.integers(0, 300))
def test_one_of_each_block_is_chosen_however_the_range_is_cut(period, uid, first, one, other):
    sampler = Sampler(period)
    middle, last = first + one, first + one + other
    whole = list(sampler.within(uid, first, last))
    assert whole == [*sampler.within(uid, first, middle), *sampler.within(uid, middle + 1, last)]
    assert whole == sorted(set(whole))
    blocks = [sequence // period for sequence in whole]
    assert len(set(blocks)) == len(blocks) >= (last - first + 1) // period - 1


def test_each_message_is_chosen_with_a_share_of_one():
    assert list(Sampler(1).within(UID, 5, 9)) == [5, 6, 7, 8, 9]


@given(
    st.integers(1, 20),
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 60), st.sampled_from([None, None, None, "00", "01"])), max_size=30
    ),
)
def test_an_entry_that_holds_nothing_of_interest_is_found_by_its_headers(period, batches):
    sampler, base = Sampler(period), dict.fromkeys(range(1, 4), 1)
    for uid, count, flags in batches:
        entry = stored(1, base[uid], *[message(flags=flags)] * count, uid=uid)
        chosen = any(sampler.within(uid, base[uid], base[uid] + count - 1))
        assert sampler.concerns(entry.body) == (chosen or flags is not None)
        base[uid] += count


def test_an_entry_with_a_change_is_looked_at():
    change = pb.GroupChange(progress=[pb.Progress(cursor_id=3, acked=[1, 1])]).SerializeToString()
    body = stored(1, 1, message()).body
    assert Sampler(10**9).concerns(body + b"".join(encode_change(change)))
    assert not Sampler(10**9).concerns(body)


def test_channels_have_other_places():
    assert len({tuple(Sampler(1000).within(uid, 1, 100_000)) for uid in range(100)}) == 100


def test_ids_are_the_same_everywhere_and_differ_by_what_they_name():
    assert ids_of(b"nuid", "store", 1, 2) == ids_of(b"nuid", "store", 1, 2)
    assert len({ids_of(b"nuid", kind, uid, at) for kind in ("store", "ack") for uid in (1, 2) for at in (1, 2)}) == 8


def test_what_messages_bring_along_is_found_in_the_batch():
    batch = records(message(), message(flags="01"), message(b"yy", flags="00"), message(flags="03"), base=10)
    assert [(found.sequence, found.sampled) for found in carried(batch, 10, [])] == [(11, True), (13, True)]
    assert carried(memoryview(batch), 10, [])[0].parent == SpanIds(int(TRACE, 16), int(PARENT, 16))
    chosen = carried(batch, 10, [10, 12])
    assert [(one.sequence, one.parent is None, one.sampled, one.size) for one in chosen] == [
        (10, True, True, 1),
        (11, False, True, 1),
        (12, False, False, 2),
        (13, False, True, 1),
    ]


def test_a_payload_that_looks_like_a_header_is_none():
    forged = wire.Header(key=b"traceparent", value=f"00-{TRACE}-{PARENT}-01".encode())
    body = wire.MsgProto(headers=[forged]).SerializeToString()
    assert carried(records(message(body)), 1, []) == []
    assert carried(records(message(flags="01", trace="0" * 32)), 1, []) == []


def test_a_batch_brings_at_most_so_many_along():
    assert len(carried(records(*[message(flags="01")] * (CARRIED_MAX + 5)), 1, [])) == CARRIED_MAX


# --- traces ------------------------------------------------------------------------------------------------------------


class FakeView:
    """A node that knows one channel and one durable."""

    nuid, node, clustered = b"nuid", "n1", False

    def __init__(self, *, leads=True):
        cursor = SimpleNamespace(uid=UID, name=b"billing")
        self.led = SimpleNamespace(leads=leads, cursor={3: cursor}.get)
        self.group = {1: self.led}.get
        self.meta = SimpleNamespace(by_uid={UID: SimpleNamespace(name=b"orders")})


def stored(index, base, *messages, uid=UID):
    batch = records(*messages, base=base)
    return Entry(index, 1, Kind.RECORDS, b"".join(encode_batch(uid, base, len(messages), 1000, 1, batch)))


def progress(index, *, sent=(), count=0, acked=(), removed=()):
    told = pb.Progress(cursor_id=3, acked=acked, removed=removed)
    if sent:
        told.sent.add(runs=sent, count=count, client_id=b"me", first_ago=3, last_ago=1)
    return Entry(index, 1, Kind.CHANGE, pb.GroupChange(progress=[told], at=1_000_000).SerializeToString())


def test_a_message_is_stored_delivered_and_acked():
    spans = []
    traces = MessageTraces(FakeView(), 1, spans.append)
    entry = stored(4, 1, message())
    traces.written(1, 4, [proposed(1, Kind.RECORDS, entry.body, urgent=True)], lambda: 2000)
    traces.synced(1, 4, 3000)
    traces.committed(
        1, [entry, progress(5, sent=[1, 1]), progress(6, sent=[1, 1], count=1), progress(7, acked=[1, 1])], 4000
    )
    assert [span.name for span in spans] == [
        f"{what} orders" for what in ["store", "append", "sync", "deliver", "deliver", "ack"]
    ]
    store, append, sync, first, second, ack = spans
    assert [(span.start, span.end) for span in (store, append, sync)] == [(1000, 4000), (1000, 2000), (2000, 3000)]
    assert store.parent is None
    assert {span.ids.trace for span in spans} == {store.ids.trace}
    assert {span.parent for span in (append, sync, first, second)} == {store.ids}
    assert ack.parent == second.ids
    assert (first.start, first.end) == (997_000, 999_000)
    assert [span.attributes["stan.redelivery_count"] for span in (first, second)] == [0, 1]
    assert not traces.writing


def test_a_follower_makes_no_span_and_knows_the_trace_when_it_leads():
    spans, view = [], FakeView(leads=False)
    traces = MessageTraces(view, 1000_000, spans.append)
    traces.committed(1, [stored(4, 5, message(), message(flags="01")), progress(5, sent=[5, 6])], 4000)
    assert spans == []
    view.led.leads = True
    traces.committed(1, [progress(6, sent=[5, 6], count=1), progress(7, acked=[5, 6])], 5000)
    assert [span.name for span in spans] == ["deliver orders", "ack orders"]
    assert {span.ids.trace for span in spans} == {int(TRACE, 16)}
    assert spans[1].parent == spans[0].ids


def test_entries_that_the_leader_has_looked_at_when_it_wrote_them_are_not_looked_at_again():
    traces = MessageTraces(FakeView(), 10**9, lambda _span: None)

    def writes(*entries):
        told = [proposed(1, entry.kind, entry.body, urgent=True) for entry in entries]
        traces.written(1, entries[-1].index, told, lambda: 2000)
        return bool(traces.writing)

    assert not writes(stored(4, 1, message()))
    assert not writes(stored(5, 2, message()), stored(6, 3, message()))
    assert traces.looked_at == {1: (4, 6)}
    assert not writes(stored(8, 4, message()))  # entry 7 was another leader's
    assert traces.looked_at == {1: (8, 8)}
    assert not writes(stored(9, 5, message()), progress(10, sent=[1, 1]))
    assert traces.looked_at == {}, "what progress tells is looked at when it is committed"
    carries = stored(11, 6, message(flags="01"))
    assert writes(carries)
    assert traces.looked_at == {}
    traces.committed(1, [carries], 3000)
    assert not writes(stored(12, 7, message()))


def test_what_a_limit_removed_was_not_acked():
    spans = []
    traces = MessageTraces(FakeView(), 1, spans.append)
    traces.committed(1, [progress(5, acked=[1, 2], removed=[2, 2])], 4000)
    assert [span.attributes["stan.sequence"] for span in spans] == [1]


def test_a_trace_that_its_publisher_does_not_sample_is_left_out_although_the_message_is_chosen():
    spans = []
    traces = MessageTraces(FakeView(), 1, spans.append)
    traces.committed(1, [stored(4, 1, message(flags="00")), progress(5, sent=[1, 1]), progress(6, acked=[1, 1])], 4000)
    assert spans == []


def test_what_is_kept_in_mind_is_bounded(monkeypatch):
    monkeypatch.setattr(limits, "TRACED_MESSAGES_MAX", 10)
    traces = MessageTraces(FakeView(), 1, lambda _span: None)
    for at in range(1, 100):
        traces.written(
            1,
            at,
            [proposed(1, Kind.RECORDS, stored(at, at, message(flags="01")).body, urgent=True)],
            lambda: 1,
        )
        traces.committed(1, [stored(1000 + at, at, message(flags="01")), progress(2000 + at, sent=[at, at])], 1)
        kept = sum(len(one.sequences) for one in traces._contexts.values())
        assert max(len(traces.writing), len(traces._delivered), kept) <= 10
        assert kept == traces._carried
    assert traces._contexts[UID].sequences[-1] == 99


# --- the driver --------------------------------------------------------------------------------------------------------


def test_a_fault_in_tracing_ends_the_tracing_and_nothing_else():
    said, stepped = [], []
    entries = SimpleNamespace(step_committed=lambda _number, index, _kind, _body: stepped.append(index))
    broker = SimpleNamespace(entries=entries)
    log = SimpleNamespace(commit=lambda _index: None)
    group = SimpleNamespace(failed="", leads=True, log=log, take_committed=lambda: [Entry(4, 1, Kind.CHANGE, b"")])
    turns = Turns(None, said.append)
    turns.touched.add(1)
    runtime = SimpleNamespace(wall=lambda: 1)
    driver = TracedDriver(
        broker, {1: group}, None, runtime, turns, applied={}, note=lambda level, text: said.append((level, text))
    )
    driver.traces = SimpleNamespace(looked_at={}, committed=lambda *_: 1 // 0)
    driver.apply_committed()
    assert stepped == [4]
    assert driver.traces is None
    ((level, text),) = said
    assert (level, "Tracing is off until a restart" in text) == ("ERR", True)


def test_a_sync_that_ends_after_all_messages_to_trace_are_stored_is_told_to_its_group():
    """It began while some were on their way."""
    told, waits = [], []
    log = SimpleNamespace(durable_index=4)
    group = SimpleNamespace(group=1, log=log, wants_sync=True, has_committed=False)
    group.synced = lambda durable: (told.append(durable), setattr(group, "wants_sync", False))
    turns = Turns(SimpleNamespace(soon=lambda _: None), told.append)
    turns.touched.add(1)
    runtime = SimpleNamespace(wall=lambda: 1, sync_now=lambda _: False, sync=lambda _, done: waits.append(done))
    driver = TracedDriver(None, {1: group}, None, runtime, turns, applied={}, note=lambda *_: None)
    driver.traces = SimpleNamespace(synced=lambda *_: None, writing={(1, 4): None})
    driver._sync_touched()
    driver.traces.writing.clear()
    (done,) = waits
    done(4, "")
    assert told == [4]


def test_without_tracing_the_driver_is_the_plain_one():
    assert tracing_of(SimpleNamespace(tracing=TracingConfig()), "", None) is None
    assert driver_of(None) is Driver


# --- export ------------------------------------------------------------------------------------------------------------


class Lines:
    """A log."""

    def __init__(self):
        self.warnings, self.infos = [], []
        self.warning, self.info = self.warnings.append, self.infos.append


def span(number=1):
    return Span("store orders", SpanIds(1, number), None, 1, 2, {})


@pytest.fixture
def exporting(monkeypatch):
    """Makes an export whose receiver is a function."""
    otlp = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    made = []

    def make(receive, **bounds):
        for name, value in bounds.items():
            monkeypatch.setattr(module.limits, name, value)
        library = SimpleNamespace(export=receive, shutdown=lambda: None)
        monkeypatch.setattr(otlp, "OTLPSpanExporter", lambda **_: library)
        made.append(SpanExport("http://user:secret@127.0.0.1:1", {}, Lines()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_receiver_that_hangs_holds_up_nobody_and_the_queue_is_bounded(exporting):
    hangs, ends = threading.Event(), threading.Event()

    def receive(_spans):
        hangs.set()
        assert ends.wait(60)
        return SimpleNamespace(name="SUCCESS")

    export = exporting(receive, TRACE_EXPORT_INTERVAL=1, TRACE_SPANS_QUEUED_MAX=5)
    export.add(span())
    assert hangs.wait(60)
    for number in range(2, 10):
        export.add(span(number))
    assert export.dropped == 3
    ends.set()
    export.close()
    assert (export.sent, export.dropped) == (6, 3)


def test_failures_are_counted_and_told_once(exporting):
    left, done = [None, ConnectionError("gone"), "again", "again"], threading.Event()

    def receive(_spans):
        outcome = left.pop(0)
        if not left:
            done.set()
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(name="SUCCESS" if outcome else "FAILURE")

    export = exporting(receive, TRACE_EXPORT_INTERVAL=1, TRACE_SPANS_SENT_MAX=1)
    for number in range(1, 5):
        export.add(span(number))
    assert done.wait(60)
    export.close()
    assert (export.sent, export.dropped) == (2, 2)
    assert len(export._log.warnings) == len(export._log.infos) == 1
    assert "secret" not in export._log.warnings[0]


def test_the_packages_that_are_missing_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(StartError, match="pip install opentelemetry-sdk") as refused:
        SpanExport("http://127.0.0.1:1", {}, Lines())
    assert str(refused.value) == MISSING


# --- settings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "period"), [("", 0), ("0", 0), ("0.0", 0), ("1", 1), ("0.001", 1000), (".5", 2), ("1e-06", 1_000_000)]
)
def test_the_share_of_messages(sample, period):
    config = TracingConfig(sample=sample)
    assert config.period == period
    assert config.complaints() == []


@pytest.mark.parametrize("sample", ["1.5", "-1", "nan", "inf", "a", "1e-12", "0,1", "1e9999"])
def test_a_share_that_is_none(sample):
    config = TracingConfig(sample=sample)
    assert config.period == 0
    (complaint,) = config.complaints()
    assert complaint.startswith("trace_sample must be 0, or between 1e-09 and 1")


@pytest.mark.parametrize("endpoint", ["", "127.0.0.1:4318", "grpc://x:1", "http://", "http://x y/", "http://x/?a"])
def test_an_endpoint_that_is_none(endpoint):
    (complaint,) = TracingConfig(endpoint=endpoint).complaints()
    assert complaint.startswith("trace_endpoint must be an http or https URL")
