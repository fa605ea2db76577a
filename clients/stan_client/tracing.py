"""Middleware that traces with OpenTelemetry: a span around each publish, and one around each handled message.

    client = await stan_client.connect(client_id="me", middleware=[Tracing()])

A publish is a PRODUCER span; the message takes its context along in the W3C headers `traceparent` and `tracestate`. Handling is
a CONSUMER span in a trace of its own, linked to the span that published: one message may be handled many times, and long
after. A server that traces joins the producer's trace. Names and attributes are those of the semantic conventions for messaging,
version 1.44.0, which are still in development; other names begin with "stan.".
"""

from collections.abc import Mapping
from typing import Any, Final

from stan_client.errors import NotSupportedError
from stan_client.messages.middleware import CallNext, MiddlewareContext
from stan_client.messages.new_message import Published
from stan_client.transport.session import text_of

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The semantic conventions that names and attributes follow."""


class Tracing:
    """Traces publishes and handled messages; best the first of the middleware, so that its spans contain retries.

    A message that is published while another span is current belongs to that span's trace; else to the trace that its own
    `traceparent` names, as when headers are passed on; else to a new one. Where the server knows no headers, the message goes
    without them and the trace ends with the publish. PublishWindow.publish() and the body of an `async for` are not traced, as
    for all middleware.
    """

    def __init__(self, tracer_provider: Any = None) -> None:
        """*tracer_provider*: an OpenTelemetry TracerProvider; None: the one that the program has set for all.

        Raises:
            ImportError: the package opentelemetry-api is missing.
        """
        try:
            from opentelemetry import context, trace  # noqa: PLC0415 - an extra, of use here only
            from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
                TraceContextTextMapPropagator,
            )
        except ImportError:
            raise ImportError("Tracing needs the package opentelemetry-api: pip install opentelemetry-api") from None
        self._trace = trace
        self._no_context = context.Context
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer("stan_client", tracer_provider=tracer_provider, schema_url=SCHEMA)

    async def __call__(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        """Run as middleware."""
        return await (self._publish if context.kind == "publish" else self._handle)(context, message, call_next)

    async def _publish(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        own = self._trace.get_current_span().get_span_context().is_valid
        parent = None if own else self._context_of(message.headers)
        attributes = _attributes(context, message, "publish", "send")
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(
            f"publish {context.channel}", context=parent, kind=kind, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            try:
                result = await self._sent(message, carrier, call_next)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                raise
            if isinstance(result, Published):
                span.set_attribute("messaging.message.id", result.guid)
            if getattr(result, "sequence", None):
                span.set_attribute("stan.sequence", result.sequence)
            return result

    @staticmethod
    async def _sent(message: Any, carrier: dict[str, str], call_next: CallNext) -> Any:
        try:
            return await call_next(message.with_headers(carrier) if carrier else message)
        except NotSupportedError:
            if not carrier or message.headers:
                raise
            return await call_next(message)  # nothing was sent yet

    async def _handle(self, context: MiddlewareContext, message: Any, call_next: CallNext) -> Any:
        published = self._trace.get_current_span(self._context_of(message.headers)).get_span_context()
        attributes = _attributes(context, message, "process", "process")
        attributes |= {"stan.sequence": message.sequence, "stan.redelivery_count": message.redelivery_count}
        with self._tracer.start_as_current_span(
            f"process {context.channel}",
            context=self._no_context(),  # a callback runs in a task that keeps the context in which it was subscribed
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[self._trace.Link(published)] if published.is_valid else [],
        ) as span:
            try:
                return await call_next(message)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                raise

    def _context_of(self, headers: Mapping[str, str | bytes]) -> Any:
        """The context that the headers of a message name; an empty one if they name none."""
        values = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
        carrier = {name: text_of(value) if isinstance(value, bytes) else value for name, value in values.items()}
        return self._propagator.extract(carrier, context=self._no_context())


def _attributes(context: MiddlewareContext, message: Any, name: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "stan",
        "messaging.operation.name": name,
        "messaging.operation.type": operation,
        "messaging.destination.name": context.channel,
        "messaging.client.id": context.client.client_id,
        "messaging.message.body.size": len(message.data),
    }
