"""NATS frames in, NATS frames out, in batches: what stands between the connection and the broker."""

import asyncio
import json
from collections.abc import Callable, Iterable

from stan.core.broker import Broker
from stan.core.ready import Delivery
from stan.edge.connection import Connection
from stan.protocol import kernel
from stan.protocol.frames import Frame
from stan.types import MiB

PUB_SID, ACK_SID, REPLY_SID, FIRST_REQUEST_SID = 1, 2, 3, 10
PENDING_BYTES_MAX = 128 * MiB
"""Bytes kept of one incomplete frame; more means that the stream is broken."""


class Gateway:
    """Scans what was read and renders what is to be sent."""

    def __init__(
        self, broker: Broker, ack_subject: str, wake: Callable[[], None], note: Callable[[str, str], None]
    ) -> None:
        shared = broker.shared
        self.broker = broker
        self.note = note
        self.pub_prefix = shared.subjects.pub_prefix.encode() + b"."
        subjects = {PUB_SID: shared.subjects.pub_prefix + ".>", ACK_SID: ack_subject}
        subjects[REPLY_SID] = shared.reply_prefix.decode() + "*"
        for at, subject in enumerate(broker.requests):
            subjects[FIRST_REQUEST_SID + at] = subject.decode()
        self.connection = Connection(subjects, on_data=self._data, on_up=self._up, on_down=self._down, on_drained=wake)
        self._wake = wake
        self._chunks: list[bytes | None] = []  # None: a new connection begins here
        self._asked: dict[bytes, asyncio.Future[Frame]] = {}
        self._rest = b""
        self._pongs = 0
        self.went_up = False
        self.went_down = False

    # --- from the connection --------------------------------------------------------------------------------------------

    def _data(self, data: bytes) -> None:
        self._chunks.append(bytes(data))
        self._wake()

    def _up(self) -> None:
        self.went_up = True
        self._wake()

    def _down(self) -> None:
        self.went_down = True
        self._chunks.append(None)
        self._wake()

    # --- in ---------------------------------------------------------------------------------------------------------------

    def take_in(self) -> int:
        """Step everything that was read; returns the number of PONGs seen."""
        while self._chunks:
            end = self._chunks.index(None) if None in self._chunks else len(self._chunks)
            chunks = [chunk for chunk in self._chunks[:end] if chunk is not None]
            if chunks:
                self._scan(self._rest + b"".join(chunks) if self._rest or len(chunks) > 1 else chunks[0])
            if end < len(self._chunks):
                self._rest = b""  # what was cut off by the end of a connection never gets its other half
            del self._chunks[: end + 1]
        pongs, self._pongs = self._pongs, 0
        return pongs

    def _scan(self, data: bytes) -> None:
        at = 0
        try:
            while at < len(data):
                scan = kernel.scan(data, at, PUB_SID, ACK_SID, self.pub_prefix)
                if not scan.consumed:
                    break
                at += scan.consumed
                self.broker.step_publishes(scan.publishes)
                self.broker.step_acks(scan.acks)
                if scan.malformed:
                    self.broker.step_malformed(scan.malformed, PUB_SID)
                for frame in scan.others:
                    self._other(frame)
        except ValueError as error:
            self._broken(f"no NATS protocol: {error}")
            return
        self._rest = data[at:] if at < len(data) else b""
        if len(self._rest) > PENDING_BYTES_MAX:
            self._broken("a message larger than any it may send")

    def _broken(self, what: str) -> None:
        self.note("ERR", f"NATS sent {what}; connecting again")
        self._rest = b""
        self.connection.break_off()

    def _other(self, frame: Frame) -> None:
        if not frame.sid:
            self._control(frame)
        elif frame.subject in self._asked:
            asked = self._asked.pop(frame.subject)
            if not asked.done():
                asked.set_result(frame)
        else:
            self.broker.step_frame(frame)

    def _control(self, frame: Frame) -> None:
        if frame.subject == b"PING":
            self.connection.write(b"PONG\r\n")
        elif frame.subject == b"PONG":
            self._pongs += 1
        elif frame.subject == b"-ERR":
            self.note("ERR", f"NATS: {frame.payload.decode(errors='replace').strip()}")
        elif frame.subject == b"INFO":
            try:
                json.loads(frame.payload)
            except ValueError:
                self.note("WRN", "NATS sent an INFO that is no JSON")

    # --- out --------------------------------------------------------------------------------------------------------------

    def send(self, sends: Iterable[bytes | Delivery]) -> None:
        """Write *sends* in their order, as one piece."""
        out = [
            send
            if isinstance(send, bytes)
            else kernel.frames(
                send.records, send.base_sequence, send.first, send.last, send.inbox, send.redelivery_count
            )
            for send in sends
        ]
        if out:
            self.connection.write(out[0] if len(out) == 1 else b"".join(out))

    # --- before the broker leads --------------------------------------------------------------------------------------------

    def reply_subscription(self) -> dict[int, str]:
        """Only what `ask` needs."""
        return {REPLY_SID: self.connection.subscriptions[REPLY_SID]}

    def listen(self, subscriptions: dict[int, str]) -> None:
        """Subscribe to everything, now and after each reconnection."""
        self.connection.subscriptions = subscriptions
        lines = (b"SUB %b %d\r\n" % (name.encode(), sid) for sid, name in subscriptions.items() if sid != REPLY_SID)
        self.connection.write(b"".join(lines))

    async def ask(self, subject: str, payload: bytes, timeout_s: float) -> bytes | None:
        """Send one request; the answer's payload, or None if there is nobody or no answer in time."""
        reply = self.broker.shared.reply_prefix + b"probe"
        asked = self._asked[reply] = asyncio.get_running_loop().create_future()
        self.connection.write(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), reply, len(payload), payload))
        try:
            frame = await asyncio.wait_for(asked, timeout_s)
        except TimeoutError:
            return None
        finally:
            self._asked.pop(reply, None)
        return None if frame.header.startswith(b"NATS/1.0 503") else frame.payload
