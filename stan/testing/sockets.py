"""Connections of programs to the simulated NATS: a transport of asyncio for the program, a port for NATS."""

import asyncio
import json
from typing import Any, Final, Protocol

from stan.testing.nats import SimMessage, SimNats, SimPort, encoded

MAX_PAYLOAD: Final = 1 << 20
"""Bytes of the largest message that NATS takes."""
INFO: Final = {
    "server_id": "SIMULATED",
    "server_name": "simulated",
    "version": "2.11.0",
    "proto": 1,
    "headers": True,
    "max_payload": MAX_PAYLOAD,
}


class Watcher(Protocol):
    """Sees what crosses a connection."""

    def delivered(self, socket: "Socket", *, answer: bool) -> None:
        """Note that a message of a subscription, or the answer to a request, has reached the program."""

    def lets_through(self, socket: "Socket", message: SimMessage) -> bool:
        """False: what the program has sent is lost."""


class Socket(SimPort, asyncio.Transport):
    """A connection of a program, and its subscriptions."""

    asks_for_503 = True

    def __init__(self, nats: SimNats, name: str, protocol: asyncio.BaseProtocol, watcher: Watcher) -> None:
        """Make a connection that is up; NATS greets it."""
        SimPort.__init__(self, nats, name)
        asyncio.Transport.__init__(self)
        self._protocol: Any = protocol
        self._watcher = watcher
        self._closing = False
        self._unread = b""  # the beginning of a frame
        self._answers = 0  # to requests
        self._inboxes: set[int] = set()  # sids of subjects without wildcards: of subscriptions to channels
        self.connect()
        self.inward.send(self._feed, f"INFO {json.dumps(INFO)}\r\n".encode())

    # --- the program's end ------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send frames of NATS's protocol."""
        if self._closing:
            return
        self._unread += bytes(data)
        published: list[SimMessage] = []
        while (frame := self._next_frame()) is not None:
            verb, words, body = frame
            if verb in ("PUB", "HPUB"):
                published.append(_message(verb, words, body))
                continue
            self._send_published(published)
            published = []
            if verb == "SUB":
                sid = int(words[-1])
                if not words[0].endswith((".>", ".*")):
                    self._inboxes.add(sid)
                self.outward.send(self.nats.subscribe, self, words[0], sid)
            elif verb == "UNSUB":
                self._inboxes.discard(int(words[0]))
                self.outward.send(self.nats.unsubscribe_sid, self, int(words[0]))
            elif verb == "PING":
                self.outward.send(self.inward.send, self._feed, b"PONG\r\n")
        self._send_published(published)

    def _next_frame(self) -> tuple[str, list[str], bytes] | None:
        line, end, rest = self._unread.partition(b"\r\n")
        if not end:
            return None
        verb, *words = line.decode("utf-8", "surrogateescape").split()
        if verb not in ("PUB", "HPUB"):
            self._unread = rest
            return verb, words, b""
        size = int(words[-1])
        if len(rest) < size + 2:
            return None
        self._unread = rest[size + 2 :]
        return verb, words, rest[:size]

    def _send_published(self, messages: list[SimMessage]) -> None:
        through = [message for message in messages if self._watcher.lets_through(self, message)]
        if through:
            self.send(through)

    def is_closing(self) -> bool:
        """True once the connection is closed, or broken."""
        return self._closing

    def close(self) -> None:
        """Close the connection; everything that was sent arrives."""
        if not self._closing:
            self._closing = True
            self.outward.send(SimPort.cut, self)
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def get_write_buffer_size(self) -> int:
        """Return 0: everything that is written leaves at once."""
        return 0

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The program's end of the connection."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection another end."""
        self._protocol = protocol

    # --- NATS's end -------------------------------------------------------------------------------------------------

    def received(self, messages: list[tuple[int, SimMessage]]) -> None:
        """Hand frames to the program."""
        self._feed(b"".join([encoded(sid, message) for sid, message in messages]))
        for sid, message in messages:
            if sid in self._inboxes:
                self._watcher.delivered(self, answer=False)
            elif self._is_answer(message.subject):
                self._watcher.delivered(self, answer=True)

    def _is_answer(self, subject: str) -> bool:
        """True for the answer to a request, but for the first one, of the registration."""
        if not subject.rpartition(".")[2].isdigit():
            return False  # heartbeats and answers to pings have a word there
        self._answers += 1
        return self._answers > 1

    def _feed(self, data: bytes) -> None:
        if not self._closing:
            self._protocol.data_received(data)

    def cut(self) -> bool:
        """Break the connection, which the program notices. False if there was none."""
        told = not self._closing
        if not self.die():
            return False
        if told:
            self._protocol.connection_lost(ConnectionResetError("the connection was cut"))
        return True

    def die(self) -> bool:
        """End the connection with the process that has it. False if there was none."""
        self._closing = True
        return super().cut()


def _message(verb: str, words: list[str], body: bytes) -> SimMessage:
    reply = words[1] if len(words) == (4 if verb == "HPUB" else 3) else ""
    if verb == "HPUB":
        size = int(words[-2])
        return SimMessage(words[0], reply, body[size:], body[:size])
    return SimMessage(words[0], reply, body)
