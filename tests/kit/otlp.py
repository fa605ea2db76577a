"""A receiver of OTLP over HTTP on the loopback, which keeps the spans of servers in memory."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

from tests.kit.server import until

pb = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, as it came."""

    name: str
    trace: str
    span: str
    parent: str  # "": it is a root
    start: int
    end: int
    about: dict[str, Any]


class OtlpReceiver:
    """Listens within the `with` block; `kill` ends it at once."""

    def __init__(self) -> None:
        self.spans: list[ReceivedSpan] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def take(self, path: str, body: bytes) -> None:
        """Keep the spans of one request."""
        assert path == "/v1/traces"
        for resource in pb.ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                assert scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
                self.spans += [
                    ReceivedSpan(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes},
                    )
                    for span in scope.spans
                ]

    def named(self, name: str) -> list[ReceivedSpan]:
        """The spans of one name, in order of their beginning."""
        return sorted((span for span in [*self.spans] if span.name == name), key=lambda span: span.start)

    def wait_for(self, name: str, count: int = 1) -> list[ReceivedSpan]:
        """The spans of one name, once there are so many."""
        until(lambda: len(self.named(name)) >= count, why=lambda: f"{name}: {self.spans}")
        return self.named(name)

    def kill(self) -> None:
        """Refuse connections from now on."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
