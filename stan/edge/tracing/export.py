"""Hands spans to a receiver of OTLP over HTTP, from a thread of its own.

Promises: `add` never waits; spans without room in the queue, or refused by the receiver, are counted and dropped. The
receiver may be down, slow or gone: the broker is not affected, its log reports it once.
"""

import gc
import logging
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.log import ServerLog, redacted
from stan.edge.tracing.sampling import SpanIds
from stan.errors import StartError

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
"""The semantic conventions that names and attributes follow."""
MISSING: Final = (
    "tracing needs the packages of OpenTelemetry: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
)


class Span(NamedTuple):
    """An event in the life of a message, from *start* to *end* (Unix ns)."""

    name: str
    ids: SpanIds
    parent: SpanIds | None
    start: int
    end: int
    attributes: Mapping[str, Any]


class SpanExport:
    """A bounded queue of spans, and the thread that sends them."""

    def __init__(self, endpoint: str, resource: Mapping[str, str], log: ServerLog) -> None:
        """Start the thread. *endpoint*: URL, to which /v1/traces is added; *resource*: attributes of this server.

        Raises:
            StartError: the packages of OpenTelemetry are missing.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
            from opentelemetry.sdk import trace as sdk  # noqa: PLC0415
            from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
            from opentelemetry.trace import SpanContext, SpanKind, TraceFlags  # noqa: PLC0415
        except ImportError:
            raise StartError(MISSING) from None
        gc.collect()
        gc.freeze()  # the imports stay, and are large: no collection needs to scan them
        library = logging.getLogger("opentelemetry")  # its failures are logged here
        library.propagate = False
        library.addHandler(logging.NullHandler())
        self.dropped = 0  # spans without room, or refused by the receiver
        self.sent = 0
        self.endpoint = redacted(endpoint)
        self._log = log
        timeout = limits.TRACE_EXPORT_TIMEOUT // SECOND
        self._exporter: Any = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=timeout)
        made, scope = Resource(dict(resource), SCHEMA), InstrumentationScope("stan", schema_url=SCHEMA)
        flags = TraceFlags(TraceFlags.SAMPLED)

        def context(ids: SpanIds | None, *, remote: bool) -> Any:
            return None if ids is None else SpanContext(ids.trace, ids.span, remote, flags)

        def encoded(span: Span) -> Any:
            return sdk.ReadableSpan(
                name=span.name,
                context=context(span.ids, remote=False),
                parent=context(span.parent, remote=True),
                resource=made,
                attributes=span.attributes,
                kind=SpanKind.INTERNAL,
                start_time=span.start,
                end_time=max(span.start, span.end),
                instrumentation_scope=scope,
            )

        self._encoded = encoded
        self._queue: deque[Span] = deque()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stan-tracing", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Queue a span; it is dropped if too many wait."""
        if len(self._queue) >= limits.TRACE_SPANS_QUEUED_MAX:
            self.dropped += 1
        else:
            self._queue.append(span)

    def close(self) -> None:
        """Send queued spans, if that takes no longer than TRACE_CLOSE_PATIENCE, and stop."""
        self._stopping.set()
        self._thread.join(limits.TRACE_CLOSE_PATIENCE / SECOND)
        self._exporter.shutdown()

    def _run(self) -> None:
        failing = False
        while not (stopping := self._stopping.wait(limits.TRACE_EXPORT_INTERVAL / SECOND)) or self._queue:
            while self._queue:
                spans = [self._queue.popleft() for _ in range(min(len(self._queue), limits.TRACE_SPANS_SENT_MAX))]
                why = self._send(spans)
                if why and not failing:
                    self._log.warning(f"Traces cannot be sent to {self.endpoint} ({why}); they are dropped meanwhile")
                elif failing and not why:
                    self._log.info(f"Traces are sent to {self.endpoint} again")
                failing = bool(why)
                if why and stopping:
                    return

    def _send(self, spans: list[Span]) -> str:
        """Send spans; returns the error, or ""."""
        why = "no success"
        try:
            result = self._exporter.export([self._encoded(span) for span in spans])
            if getattr(result, "name", "") == "SUCCESS":
                why = ""
        except Exception as error:  # noqa: BLE001 - of the library
            why = f"{type(error).__name__}"
        if why:
            self.dropped += len(spans)
        else:
            self.sent += len(spans)
        return why
