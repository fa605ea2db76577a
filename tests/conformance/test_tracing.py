"""Traces through a real cluster whose leader dies: one connected trace, with a published client and with a new one."""

import asyncio

import pytest
import stan_client
from stan_client.tracing import Tracing

from tests.conformance.clients import Client, Program
from tests.kit.cluster import StanCluster
from tests.kit.otlp import OtlpReceiver
from tests.kit.server import CLUSTER_ID, NatsServer, until

trace = pytest.importorskip("opentelemetry.sdk.trace")
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def receiver():
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def traced_cluster(tmp_path, receiver):
    with (
        NatsServer(tmp_path) as nats,
        StanCluster(tmp_path, "--trace_sample", "1", "--trace_endpoint", receiver.url, nats=nats) as cluster,
    ):
        yield cluster


def connected(spans, root):
    """Check that the spans are one trace whose only root is *root*."""
    known = {span.span for span in spans} | {root.parent}
    assert {span.trace for span in spans} == {root.trace}
    assert [span for span in spans if span.parent not in known] == []
    assert all(span.start <= span.end for span in spans)


def check(receiver, name, killed):
    """The trace of message 1, whose leader was killed before it was acked; returns its store span."""
    (ack,) = receiver.wait_for(f"ack {name}")
    (store,) = receiver.named(f"store {name}")
    spans = [span for span in receiver.spans if span.trace == store.trace]
    connected(spans, store)
    for step in ("append", "sync", "replicate"):
        (span,) = receiver.named(f"{step} {name}")
        assert span.parent == store.span
        assert store.start <= span.start <= span.end <= store.end
    deliveries = receiver.named(f"deliver {name}")
    assert {span.parent for span in deliveries} == {store.span}
    assert deliveries[0].about["stan.node"] == killed
    assert deliveries[0].about["stan.redelivery_count"] == 0
    assert deliveries[-1].about["stan.node"] != killed
    assert deliveries[-1].about["stan.redelivery_count"] > 0
    assert ack.parent == deliveries[-1].span
    assert ack.about["messaging.destination.name"] == name
    assert ack.about["stan.sequence"] == 1
    return store


def test_the_trace_of_a_published_client_goes_on(traced_cluster, receiver, py_program: Program):
    client = Client(py_program, traced_cluster.url, CLUSTER_ID, "old", (5, 88))
    try:
        client.wait("connected")
        client.subscribe("s", "orders", durable="d", start="first", manual=1, ack_wait=2000)
        client.publish_and_wait("orders", b"x")
        client.messages("s", 1)
        receiver.wait_for("deliver orders")
        killed = traced_cluster.leader_of("orders")
        traced_cluster.kill9(killed)
        client.wait("message", 1, sub="s", redelivered=True)
        until(lambda: receiver.named("deliver orders")[-1].about["stan.node"] != killed)
        client.ack("s", 1)
        assert check(receiver, "orders", killed).parent == ""
    finally:
        client.release()


async def test_the_trace_of_a_traced_publish_goes_on(traced_cluster, receiver):
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415 - may be missing
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    exporter, provider = InMemorySpanExporter(), trace.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    killed = ""

    async def handle(message):
        if not killed or receiver.named("deliver bills")[-1].about["stan.node"] == killed:
            raise RuntimeError("not yet")

    async with await stan_client.connect(
        traced_cluster.url, client_id="new", cluster_id=CLUSTER_ID, middleware=[Tracing(provider)]
    ) as client:
        await client.subscribe("bills", handle, durable="d", start=stan_client.everything(), ack_wait_s=1)
        published = await client.publish("bills", b"x")
        await asyncio.to_thread(receiver.wait_for, "deliver bills")
        leader = traced_cluster.leader_of("bills")
        await asyncio.to_thread(traced_cluster.kill9, leader)
        killed = leader
        await asyncio.to_thread(receiver.wait_for, "ack bills")
    store = check(receiver, "bills", killed)
    (producer,) = [span for span in exporter.get_finished_spans() if span.kind.name == "PRODUCER"]
    consumers = [span for span in exporter.get_finished_spans() if span.kind.name == "CONSUMER"]
    assert (store.trace, store.parent) == (f"{producer.context.trace_id:032x}", f"{producer.context.span_id:016x}")
    assert producer.attributes["messaging.message.id"] == published.guid
    assert producer.attributes["stan.sequence"] == 1
    assert {link.context.span_id for span in consumers for link in span.links} == {producer.context.span_id}
    assert producer.context.trace_id not in {span.context.trace_id for span in consumers}
    assert [span.status.status_code.name for span in (consumers[0], consumers[-1])] == ["ERROR", "UNSET"]
    assert consumers[0].attributes["stan.redelivery_count"] == 0
    assert consumers[-1].attributes["stan.redelivery_count"] > 0
