"""Publishes that wait for their acks: the window, the timeouts, and what happens to them when the session is lost.

There is no task and no timer per message: acks come in batches from the turn that read them, and one timer watches the oldest
publish, because all wait equally long. A message is sent twice only with `republish`, because a lost ack leaves open whether the
message was stored, or if NATS reports that it had no receiver, so that it certainly was not stored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, NamedTuple

from stan.protocol.channels import is_channel_name
from stan.protocol.frames import Frame
from stan.protocol.kernel.client import decode_puback, encode_publish
from stan_client.errors import (
    BadAckError,
    InvalidNameError,
    MessageTooLargeError,
    PublishAckTimeoutError,
    PublishManyError,
    ServerError,
    StanClientError,
    TooManyInFlightError,
)
from stan_client.session import Session, fresh_id, text_of

log = logging.getLogger("stan_client")

OnAck = Callable[[str, StanClientError | None], None]
"""Called once per message with its guid and None or the error, in the turn that read the ack: must be short."""

PUBLISHES_PER_TURN_MAX: Final = 1024
"""Messages encoded by publish_many before the event loop gets its turn (and the socket its bytes)."""


UNTAKEN_PAUSE_S: Final = 0.1
"""Pause before a publish for which NATS had no receiver is sent again."""

CHANNELS_KNOWN_MAX: Final = 1024
"""Channels whose NATS subject is kept ready."""


class PendingPublish(NamedTuple):
    """A publish without ack."""

    deadline: float  # loop time
    on_ack: OnAck
    again: tuple[str, bytes, str]  # channel, data, reply: to be sent again


class PublishPath:
    """The path of publishes on one session: encodes them with the ids of the session, and knows the inbox of their acks."""

    def __init__(self, session: Session, ack_inbox: str, sid: int) -> None:
        """*sid*: NATS subscription of *ack_inbox*, which this path ends with `close`."""
        self.link = session.link
        self.ack_inbox = ack_inbox.encode()
        self._sid = sid
        self._prefix = session.answer.pub_prefix + b"."
        self._client_id = session.options.client_id.encode()
        self._conn_id = session.conn_id
        self._names: dict[str, tuple[bytes, bytes]] = {}  # channel -> NATS subject of its publishes, encoded name

    def encode(self, guid: bytes, channel: str, data: bytes, reply: str) -> bytes:
        """Return the NATS frame of one publish.

        Raises:
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
        """
        subject, name = self._names.get(channel) or self._name(channel)
        frame = encode_publish(
            subject,
            self.ack_inbox,
            self._client_id,
            guid,
            name,
            reply.encode("utf-8", "surrogateescape"),
            data,
            self._conn_id,
        )
        max_payload = self.link.max_payload
        if len(frame) > max_payload and len(frame) - frame.index(b"\r\n") - 4 > max_payload:
            raise MessageTooLargeError
        return frame

    def _name(self, channel: str) -> tuple[bytes, bytes]:
        name = channel.encode("utf-8", "surrogateescape")
        if not is_channel_name(name):
            raise InvalidNameError
        if len(self._names) >= CHANNELS_KNOWN_MAX:
            self._names.clear()
        self._names[channel] = self._prefix + name, name
        return self._names[channel]

    async def close(self) -> None:
        """Stop listening for acks."""
        await self.link.unlisten(self._sid)


class Publisher:
    """All publishes of one client; outlives its sessions."""

    def __init__(self, *, in_flight_max: int, ack_timeout_s: float, republish: bool) -> None:
        """Make a publisher without a session.

        Args:
            in_flight_max: the window: publishes without ack at most.
            ack_timeout_s: seconds that a publish waits for its ack.
            republish: after a loss, send publishes without ack again.
        """
        self._in_flight_max = in_flight_max
        self._ack_timeout_s = ack_timeout_s
        self._republish = republish
        self._path: PublishPath | None = None  # None while there is no session
        prefix = fresh_id()
        self._guids: Iterator[str] = (f"{prefix}{number:x}" for number in count(1))
        self._pending: dict[bytes, PendingPublish] = {}  # guid -> publish, oldest deadline first
        self._room_waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._untaken: set[bytes] = set()  # guids that will be sent again

    @property
    def in_flight(self) -> int:
        """Publishes without ack."""
        return len(self._pending)

    async def attach(self, session: Session) -> None:
        """Publish on *session* from now on."""
        ack_inbox = f"_STAN.acks.{fresh_id()}"
        sid = await session.link.listen(ack_inbox, self._take)
        self._path = PublishPath(session, ack_inbox, sid)
        self.send_again()
        self._wake()

    async def detach(self, error: StanClientError, *, final: bool) -> None:
        """Handle the loss of the session: publishes without ack fail with *error*, unless `republish` is on and another session
        will follow (*final* is false)."""
        path, self._path = self._path, None
        if final or not self._republish:
            pending, self._pending = self._pending, {}
            for guid, publish in pending.items():
                _tell(publish.on_ack, guid, error)
        self._wake()
        if path is not None:
            await path.close()

    def send_again(self) -> None:
        """After a new session or a NATS reconnect: with `republish`, send publishes without ack again, with the same guids."""
        path = self._path
        if not self._republish or path is None:
            return
        pending, self._pending = self._pending, {}
        deadline = asyncio.get_running_loop().time() + self._ack_timeout_s
        for guid, publish in pending.items():
            self._pending[guid] = publish._replace(deadline=deadline)
            path.link.send(path.encode(guid, *publish.again))

    # --- publishing ------------------------------------------------------------------------------------------------

    def free(self) -> int:
        """Messages that may be published now."""
        return self._in_flight_max - len(self._pending) if self._path is not None else 0

    async def wait_for_room(self) -> None:
        """Wait until the window or the session has changed; the caller checks `free` again."""
        waiter = asyncio.get_running_loop().create_future()
        self._room_waiters.append(waiter)
        await waiter

    def publish(self, channel: str, data: bytes, reply: str, on_ack: OnAck) -> str:
        """Send one message; returns its guid. The caller waits for a session and room beforehand.

        Raises:
            TooManyInFlightError: no room, or no session at the moment.
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
        """
        path = self._path
        if path is None or len(self._pending) >= self._in_flight_max:
            raise TooManyInFlightError
        name = next(self._guids)
        guid = name.encode()
        frame = path.encode(guid, channel, data, reply)
        loop = asyncio.get_running_loop()
        self._pending[guid] = PendingPublish(loop.time() + self._ack_timeout_s, on_ack, (channel, data, reply))
        path.link.send(frame)
        if self._timer is None:
            self._timer = loop.call_later(self._ack_timeout_s, self._expire)
        return name

    # --- acks ------------------------------------------------------------------------------------------------------

    def _take(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.nobody:
                self._note_untaken()
                continue
            try:
                guid, error, _ = decode_puback(frame.payload)
            except ValueError:
                log.warning("%s", BadAckError())
                continue
            publish = self._pending.pop(guid, None)
            if publish is not None:  # else late or unknown: ignored (STAN-SPEC 14.3)
                _tell(publish.on_ack, guid, ServerError(text_of(error)) if error else None)
        self._wake()

    def _note_untaken(self) -> None:
        """Handle "no responders" from NATS: a publish had no receiver, so no server runs at the moment. NATS does not report
        which publish it was.

        A single publish in flight is the one that was not received and may be sent again; with several in flight they are sent
        again only with `republish`.
        """
        if not self._republish and len(self._pending) != 1:
            return
        if not self._untaken:
            asyncio.get_running_loop().call_later(UNTAKEN_PAUSE_S, self._send_untaken)
        self._untaken.update(self._pending)

    def _send_untaken(self) -> None:
        untaken, self._untaken = self._untaken, set()
        path = self._path
        if path is None:
            return
        for guid, publish in self._pending.items():
            if guid in untaken:
                path.link.send(path.encode(guid, *publish.again))

    def _expire(self) -> None:
        """Fail publishes whose deadline has passed, and set the timer to the deadline of the oldest one that remains."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._pending:
            guid, publish = next(iter(self._pending.items()))
            if publish.deadline > now:
                self._timer = loop.call_at(publish.deadline, self._expire)
                break
            del self._pending[guid]
            _tell(publish.on_ack, guid, PublishAckTimeoutError())
        self._wake()

    def _wake(self) -> None:
        if self._room_waiters:
            waiters, self._room_waiters = self._room_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _tell(on_ack: OnAck, guid: bytes, error: StanClientError | None) -> None:
    try:
        on_ack(guid.decode(), error)
    except Exception:
        log.exception("on_ack of publish %s failed", guid.decode())


class PublishManyResult:
    """The outcome of one publish_many, counted as the acks come."""

    def __init__(self) -> None:
        self.acked = 0
        self.failures: list[tuple[int, StanClientError]] = []
        self._places: dict[str, int] = {}  # guid -> place in the iterable, of those without ack
        self._done: asyncio.Future[None] | None = None

    def expect(self, guid: str, place: int) -> None:
        """Note a published message: its guid and its place in the iterable."""
        self._places[guid] = place

    def settle(self, guid: str, error: StanClientError | None) -> None:
        """Count the ack of a message, or note its error; usable as an OnAck."""
        place = self._places.pop(guid)
        if error is None:
            self.acked += 1
        else:
            self.failures.append((place, error))
        if not self._places and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def result(self) -> int:
        """Wait until every message is acked or has failed; returns the number of acked messages.

        Raises:
            PublishManyError: some failed; carries their places and errors.
        """
        if self._places:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        if self.failures:
            raise PublishManyError(self.acked, self.failures)
        return self.acked
