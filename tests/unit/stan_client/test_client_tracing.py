"""Tracing of the Python client: spans, what travels with a message, and servers that know no headers."""

import sys
from types import SimpleNamespace

import pytest
import stan_client
from stan_client import MiddlewareContext, NewMessage, Published
from stan_client.messages.middleware import Chain
from stan_client.tracing import Tracing

sdk = pytest.importorskip("opentelemetry.sdk.trace")
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
BROUGHT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=1"}


@pytest.fixture
def provider():
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: PLC0415 - may be missing
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: PLC0415

    provider, provider.exporter = sdk.TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(provider.exporter))
    return provider


async def run(provider, kind, message, innermost):
    context = MiddlewareContext(kind, SimpleNamespace(client_id="me"), "orders")
    return await Chain([Tracing(provider)]).run(context, message, innermost)


def published(*failures):
    """The innermost step of publishes; keeps the headers."""
    left = list(failures)

    async def publish(message):
        publish.headers.append(dict(message.headers))
        if left:
            raise left.pop(0)
        return Published("guid", 7)

    publish.headers = []
    return publish


def came(**headers):
    return SimpleNamespace(data=b"xy", headers=headers, sequence=7, redelivery_count=2)


async def test_a_publish_is_a_producer_span_whose_context_travels(provider):
    publish = published()
    assert await run(provider, "publish", NewMessage(b"xy", {"own": "1"}), publish) == Published("guid", 7)
    (span,) = provider.exporter.get_finished_spans()
    assert (span.name, span.kind.name, span.parent) == ("publish orders", "PRODUCER", None)
    assert dict(span.attributes) == {
        "messaging.system": "stan",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.client.id": "me",
        "messaging.message.body.size": 2,
        "messaging.message.id": "guid",
        "stan.sequence": 7,
    }
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    context = span.context
    told = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    assert publish.headers == [{"own": "1", "traceparent": told}]
    assert context.trace_flags & 1


@pytest.mark.parametrize("as_bytes", [False, True])
async def test_headers_that_are_passed_on_continue_their_trace(provider, as_bytes):
    brought = {name: text.encode() if as_bytes else text for name, text in BROUGHT.items()}
    publish = published()
    await run(provider, "publish", NewMessage(b"", brought), publish)
    (span,) = provider.exporter.get_finished_spans()
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert publish.headers[0]["tracestate"] == "a=1"
    assert publish.headers[0]["traceparent"] != BROUGHT["traceparent"]


async def test_the_current_span_is_the_parent_whatever_the_message_brought(provider):
    with provider.get_tracer("program").start_as_current_span("order") as order:
        await run(provider, "publish", NewMessage(b"", BROUGHT), published())
    span = provider.exporter.get_finished_spans()[0]
    assert span.parent.span_id == order.get_span_context().span_id


@pytest.mark.parametrize("broken", ["", "x", f"00-{TRACE}-{PARENT}", f"00-{'0' * 32}-{PARENT}-01", b"\xff"])
async def test_a_context_that_is_none_begins_a_new_trace(provider, broken):
    await run(provider, "publish", NewMessage(b"", {"traceparent": broken}), published())
    (span,) = provider.exporter.get_finished_spans()
    assert span.parent is None


async def test_handling_is_a_consumer_span_of_its_own_trace_linked_to_the_publish(provider):
    async def handle(_message):
        assert provider.exporter.get_finished_spans() == ()

    with provider.get_tracer("program").start_as_current_span("subscribed in here"):
        await run(provider, "handle", came(**BROUGHT), handle)
    span = provider.exporter.get_finished_spans()[0]
    assert (span.name, span.kind.name, span.parent) == ("process orders", "CONSUMER", None)
    assert (span.attributes["stan.sequence"], span.attributes["stan.redelivery_count"]) == (7, 2)
    (link,) = span.links
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, PARENT)


async def test_a_message_without_a_context_has_no_link(provider):
    async def handle(_message):
        """Well."""

    await run(provider, "handle", came(), handle)
    (span,) = provider.exporter.get_finished_spans()
    assert span.links == ()


@pytest.mark.parametrize("kind", ["publish", "handle"])
async def test_failures_are_told(provider, kind):
    async def fail(_message):
        raise stan_client.PublishAckTimeoutError

    with pytest.raises(stan_client.PublishAckTimeoutError):
        await run(provider, kind, NewMessage(b"") if kind == "publish" else came(), fail)
    (span,) = provider.exporter.get_finished_spans()
    assert span.status.status_code.name == "ERROR"
    assert span.attributes["error.type"] == "PublishAckTimeoutError"


async def test_a_server_that_knows_no_headers_gets_the_message_without(provider):
    publish = published(stan_client.NotSupportedError())
    await run(provider, "publish", NewMessage(b""), publish)
    assert [sorted(headers) for headers in publish.headers] == [["traceparent"], []]
    with pytest.raises(stan_client.NotSupportedError):
        await run(provider, "publish", NewMessage(b"", {"own": "1"}), published(stan_client.NotSupportedError()))


def test_the_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ImportError, match="pip install opentelemetry-api"):
        Tracing()
