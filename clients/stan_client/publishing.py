"""Publishes that wait for their acks: the window, the timeouts, and their fate when the session is lost.

There is no task and no timer per message: acks come in batches from the turn that read them, and one timer watches the earliest
deadline of all, however long each publish waits. A message is sent twice only with `republish`, because a lost ack leaves open
whether the message was stored, or if NATS reports that it had no receiver, so that it certainly was not stored.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final, Literal, NamedTuple, get_args

from stan_protocol.channels import is_channel_name
from stan_protocol.features import Feature
from stan_protocol.frames import Frame
from stan_protocol.kernel.client import decode_puback, encode_more, encode_publish

from stan_client.errors import (
    BadAckError,
    InvalidNameError,
    MessageTooLargeError,
    NotSupportedError,
    PublishAckTimeoutError,
    PublishManyError,
    ServerError,
    StanClientError,
    TooManyInFlightError,
    refused,
)
from stan_client.messages.new_message import DUE_TAG, TTL_TAG, Published
from stan_client.transport.session import Session, fresh_id, text_of
from stan_client.waiting import Waiters, notify

log = logging.getLogger("stan_client")

AckLevel = Literal["commit", "none"]
"""When the server answers a publish: when the message is stored for good, or never."""

ACK_LEVELS: Final = get_args(AckLevel)

OnAck = Callable[[Published, StanClientError | None], None]
"""Called once per message with the known facts of it, and None or the error; in the turn that read the ack: must be short."""

PUBLISHES_PER_TURN_MAX: Final = 1024
"""Messages encoded by publish_many before the event loop gets its turn (and the socket its bytes)."""

UNTAKEN_PAUSE_S: Final = 0.1
"""Pause before a publish for which NATS had no receiver is sent again."""

EXPIRE_PAUSE_S: Final = 0.01
"""Least time between two looks for publishes whose time is over: each looks at all that are in flight."""

CHANNELS_KNOWN_MAX: Final = 1024
"""Channels whose NATS subject is kept ready."""

NO_CONTEXT: Final = "stan: headers and keys are not supported by the server, which would drop them"
NO_TTL: Final = "stan: a time to live is not supported by the server, which would keep the message"
NO_DELAYS: Final = "stan: delayed messages are not supported by the server, which would deliver them at once"


class PendingPublish(NamedTuple):
    """A publish without ack."""

    deadline: float  # loop time
    on_ack: OnAck
    again: tuple[str, bytes, str, bytes, bool]  # channel, data, reply, context, numbered: to be sent again
    timed: bool  # the caller has set the deadline; it stays when the message is sent again
    delayed: bool  # the ack has the number of a delayed message, not a sequence


class PublishPath:
    """The path of publishes on one session: encodes them with the ids of the session, and knows the inbox of their acks."""

    def __init__(self, session: Session, ack_inbox: str, sid: int) -> None:
        """*sid*: NATS subscription of *ack_inbox*, which this path ends with `close`."""
        self.link = session.link
        self.ask = session.ask
        self.ack_inbox = ack_inbox.encode()
        self._sid = sid
        self._prefix = session.answer.pub_prefix + b"."
        self._client_id = session.options.client_id.encode()
        self._conn_id = session.conn_id
        self._knows_context = bool(session.answer.features & Feature.CONTEXT)
        self._knows_delays = bool(session.answer.features & Feature.DELAYS)
        self._knows_ttl = bool(session.answer.features & Feature.TTL)
        self._numbered = encode_more((), b"", numbered=True) if self._knows_context else b""
        self._names: dict[str, tuple[bytes, bytes]] = {}  # channel -> NATS subject of its publishes, encoded name

    def encode(
        self,
        guid: bytes,
        channel: str,
        data: bytes,
        reply: str,
        context: bytes,
        numbered: bool,  # noqa: FBT001 - positional for speed
        *,
        acked: bool = True,
    ) -> bytes:
        """Return the NATS frame of one publish.

        Args:
            guid: of the message.
            channel: its name.
            data: the message.
            reply: a subject of the program's own.
            context: headers and key, as `encode_context` makes them.
            numbered: the ack is to tell the sequence, if the server of this session can.
            acked: the server is to answer.

        Raises:
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
            NotSupportedError: the server of this session does not know headers and keys, and would drop them.
        """
        if context and not self._knows_ttl and context.startswith(TTL_TAG):
            raise NotSupportedError(NO_TTL)
        if context and not self._knows_context:
            raise NotSupportedError(NO_CONTEXT)
        if context and not self._knows_delays and context.startswith(DUE_TAG):
            raise NotSupportedError(NO_DELAYS)
        subject, name = self._names.get(channel) or self._name(channel)
        frame = encode_publish(
            subject,
            self.ack_inbox if acked else b"",
            self._client_id,
            guid,
            name,
            reply.encode("utf-8", "surrogateescape"),
            data,
            self._conn_id,
            context + self._numbered if numbered else context,
        )
        max_payload = self.link.max_payload
        if len(frame) > max_payload and len(frame) - frame.index(b"\r\n") - 4 > max_payload:
            raise MessageTooLargeError
        return frame

    def _name(self, channel: str) -> tuple[bytes, bytes]:
        name = channel.encode("utf-8", "surrogateescape")
        if not is_channel_name(name):
            raise InvalidNameError.of_channel(channel)
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
        self._pending: dict[bytes, PendingPublish] = {}  # guid -> publish, in the order of publishing
        self._room_waiters = Waiters()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf  # loop time of the earliest deadline; without a timer: never
        self._untaken: set[bytes] = set()  # guids that will be sent again

    @property
    def in_flight(self) -> int:
        """Publishes without ack."""
        return len(self._pending)

    @property
    def attached(self) -> bool:
        """There is a session to publish on."""
        return self._path is not None

    async def attach(self, session: Session) -> None:
        """Publish on *session* from now on."""
        ack_inbox = f"_STAN.acks.{fresh_id()}"
        sid = await session.link.listen(ack_inbox, self._receive)
        self._path = PublishPath(session, ack_inbox, sid)
        self.send_again()
        self._room_waiters.wake()

    async def detach(self, error: StanClientError, *, final: bool) -> None:
        """Handle the loss of the session: publishes without ack fail with *error*, unless `republish` is on and another session
        will follow (*final* is false)."""
        path, self._path = self._path, None
        if final or not self._republish:
            pending, self._pending = self._pending, {}
            for guid, publish in pending.items():
                _settle(publish, guid, 0, error)
        self._room_waiters.wake()
        if path is not None:
            await path.close()

    def send_again(self) -> None:
        """With `republish`, send publishes without ack again after a new session or a NATS reconnect, with the same guids,
        headers and keys. Messages that the new server cannot take fail."""
        path = self._path
        if not self._republish or path is None:
            return
        pending = list(self._pending.items())
        deadline = asyncio.get_running_loop().time() + self._ack_timeout_s
        for guid, publish in pending:
            if not publish.timed:
                self._pending[guid] = publish._replace(deadline=deadline)
            self._send(path, guid, publish)

    def _send(self, path: PublishPath, guid: bytes, publish: PendingPublish) -> None:
        """Send a publish without ack again; it fails if it cannot be sent on this path."""
        try:
            frame = path.encode(guid, *publish.again)
        except StanClientError as error:
            self._pending.pop(guid, None)
            _settle(publish, guid, 0, error)
            self._room_waiters.wake()
        else:
            path.link.send(frame)

    # --- publishing ------------------------------------------------------------------------------------------------

    def free(self) -> int:
        """Messages that may be published now."""
        return self._in_flight_max - len(self._pending) if self._path is not None else 0

    async def wait_for_room(self) -> None:
        """Wait until the window or the session has changed; the caller checks `free` again."""
        await self._room_waiters.wait()

    def publish(
        self,
        channel: str,
        data: bytes,
        reply: str,
        on_ack: OnAck,
        context: bytes = b"",
        *,
        numbered: bool = False,
        delayed: bool = False,
        timeout_s: float | None = None,
    ) -> str:
        """Send one message; returns its guid. The caller waits for a session and room beforehand.

        Args:
            channel: its name.
            data: the message.
            reply: a subject of the program's own.
            on_ack: called with the outcome.
            context: headers and key, as `encode_context` makes them.
            numbered: *on_ack* gets the sequence, if the server can report it.
            delayed: the context has a time before which the message does not come into its channel.
            timeout_s: seconds until *on_ack* is called without an ack; None: as long as all others.

        Raises:
            TooManyInFlightError: no room, or no session at the moment.
            MessageTooLargeError: larger than NATS accepts. InvalidNameError: *channel* is not a valid channel name.
            NotSupportedError: there is a context, and the server does not know headers and keys.
        """
        path = self._path
        if path is None or len(self._pending) >= self._in_flight_max:
            raise TooManyInFlightError
        name = next(self._guids)
        guid = name.encode()
        frame = path.encode(guid, channel, data, reply, context, numbered)
        timed = timeout_s is not None
        deadline = asyncio.get_running_loop().time() + (self._ack_timeout_s if timeout_s is None else timeout_s)
        self._pending[guid] = PendingPublish(
            deadline, on_ack, (channel, data, reply, context, numbered), timed, delayed
        )
        path.link.send(frame)
        if deadline < self._timer_at:
            self._watch(deadline)
        return name

    def publish_unacked(self, channel: str, data: bytes, reply: str, context: bytes) -> str:
        """Send one message that the server does not answer; returns its guid. It takes no room, and is never sent again.

        Raises:
            TooManyInFlightError: no session at the moment.
            MessageTooLargeError, InvalidNameError, NotSupportedError: as of `publish`.
        """
        path = self._path
        if path is None:
            raise TooManyInFlightError
        name = next(self._guids)
        path.link.send(path.encode(name.encode(), channel, data, reply, context, False, acked=False))  # noqa: FBT003
        return name

    # --- acks ------------------------------------------------------------------------------------------------------

    def _receive(self, frames: list[Frame]) -> None:
        for frame in frames:
            if frame.no_responders:
                self._note_untaken()
                continue
            try:
                guid, error, sequence, level = decode_puback(frame.payload)
            except ValueError:
                log.warning("%s", BadAckError())
                continue
            publish = self._pending.pop(guid, None)
            if publish is not None:  # else late or unknown: ignored (STAN-SPEC 14.3)
                refusal = refused(text_of(error)) if error else None
                _settle(publish, guid, sequence, refusal, level)
                if isinstance(refusal, ServerError) and refusal.code == "invalid_publish" and self._path is not None:
                    # A server that has lost its memory answers this to each publish of a client that it does not know.
                    self._path.ask()
        self._room_waiters.wake()

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
        for guid, publish in list(self._pending.items()):
            if guid in untaken:
                self._send(path, guid, publish)

    def _watch(self, at: float) -> None:
        """Set the timer to a loop time."""
        self.stop()
        self._timer, self._timer_at = asyncio.get_running_loop().call_at(at, self._expire), at

    def _expire(self) -> None:
        """Fail publishes whose deadline has passed, and set the timer to the earliest deadline of those that remain."""
        self.stop()
        now = asyncio.get_running_loop().time()
        for guid in [guid for guid, publish in self._pending.items() if publish.deadline <= now]:
            late = self._pending.pop(guid, None)
            if late is not None:  # else an on_ack before has ended it
                _settle(late, guid, 0, PublishAckTimeoutError())
        earliest = min((publish.deadline for publish in self._pending.values()), default=math.inf)
        if earliest < self._timer_at:
            self._watch(max(earliest, now + EXPIRE_PAUSE_S))
        self._room_waiters.wake()

    def stop(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf


def _settle(publish: PendingPublish, guid: bytes, number: int, error: StanClientError | None, level: int = 0) -> None:
    if publish.delayed:
        published = Published(guid.decode(), None, number, level)
    else:
        published = Published(guid.decode(), number or None, 0, level)
    notify("on_ack of a publish", publish.on_ack, published, error)


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

    def settle(self, published: Published, error: StanClientError | None) -> None:
        """Count the ack of a message, or note its error; usable as an OnAck."""
        place = self._places.pop(published.guid)
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
