"""Partitioning: servers of one cluster id share the channels, and ask each other whether their lists overlap (STAN-SPEC 11.2).

request  CtrlMsg of type Partitioning; data: for each channel 2 bytes, little-endian, with the length of its name, and the name
reply    CtrlMsg of type Partitioning; data: the first of these channels that is in conflict, empty if none is
"""

import asyncio
import contextlib
from collections.abc import Callable
from struct import Struct, error
from typing import Any

from google.protobuf.message import DecodeError
from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.base.partition import conflict
from stan.edge.nats.gateway import Gateway
from stan.errors import Aborted, StartError

_PARTITIONING = 4
"""CtrlMsg.MsgType."""
_LENGTH = Struct("<H")
_MESSAGE_ROOM = 16
"""Bytes that a CtrlMsg has besides its server id and its data, at most."""


def encode_lists(names: tuple[str, ...], room: int) -> list[bytes]:
    """Encode *names* as the data of messages, *room* bytes at most in each. Raises StartError if a name does not fit."""
    lists = [b""]
    for name in names:
        raw = name.encode()
        item = _LENGTH.pack(len(raw)) + raw
        if len(item) > room:
            raise StartError("message payload too small to send channels list")
        if len(lists[-1]) + len(item) > room:
            lists.append(b"")
        lists[-1] += item
    return lists


def decode_list(data: bytes) -> list[str] | None:
    """The channel names in the data of a message; None if the data is malformed."""
    names = []
    at = 0
    while at < len(data):
        try:
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            names.append(data[at - length : at].decode())
        except (error, ValueError):
            return None
    return names if at == len(data) else None


class Partitioning:
    """Questions and answers of a server. Make it before the gateway is connected; call `check` before clients are served."""

    def __init__(
        self,
        gateway: Gateway,
        cluster_id: str,
        server_id: str,
        patterns: tuple[str, ...],
        note: Callable[[str, str], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        """*crashed*: called with the error of a conflict after the start."""
        self._gateway = gateway
        self._subject = f"_STAN.part.{cluster_id}".encode()
        self._replies = f"_INBOX.{server_id}-part".encode()
        self._server_id = server_id.encode()
        self._patterns = patterns
        self._note = note
        self._crashed = crashed
        self._answer: asyncio.Queue[wire.CtrlMsg] = asyncio.Queue(limits.PARTITION_REPLIES_MAX)
        self._urls: set[str] | None = None  # of the known nats-servers; None before the first INFO
        self._checking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()  # set when nats-servers have joined
        gateway.subscribe(self._subject.decode(), self._on_list)
        gateway.subscribe(self._replies.decode(), self._replied)
        gateway.on_info = self._informed

    async def check(self) -> None:
        """Ask all other servers. Raises StartError if one of them has a channel of this server's list."""
        while not self._answer.empty():
            self._answer.get_nowait()
        payload_max = self._gateway.connection.max_payload
        for data in encode_lists(self._patterns, payload_max - len(self._server_id) - _MESSAGE_ROOM):
            payload = self._message(data)
            self._gateway.connection.write(publication(self._subject, payload, self._replies))
        for answer in [answer async for answer in self._answers()]:
            if answer.data:
                channel, server = (go_quote(raw.decode(errors="replace")) for raw in (answer.data, answer.server_id))
                raise StartError(f"channel {channel} causes conflict with channels on server {server}")

    async def _answers(self) -> Any:
        """Yield replies, until none has come for PARTITION_REPLY_TIMEOUT."""
        while True:
            try:
                yield await asyncio.wait_for(self._answer.get(), limits.PARTITION_REPLY_TIMEOUT / SECOND)
            except TimeoutError:
                return

    def _message(self, data: bytes) -> bytes:
        return wire.CtrlMsg(msg_type=_PARTITIONING, server_id=self._server_id, data=data).SerializeToString()

    def _decoded(self, frame: Frame) -> wire.CtrlMsg | None:
        """Decode another server's message; None if it is this server's own, or cannot be decoded."""
        try:
            message = wire.CtrlMsg.FromString(frame.payload)
        except DecodeError:
            message = wire.CtrlMsg()
        if message.msg_type != _PARTITIONING or not message.server_id:
            self._note("WRN", "A message about partitioning cannot be understood, and is ignored")
            return None
        return None if message.server_id == self._server_id else message

    def _on_list(self, frame: Frame) -> None:
        message = self._decoded(frame)
        if message is None:
            return
        names = decode_list(message.data)
        if not frame.reply or not names:
            self._note("WRN", "A list of channels of another server cannot be understood, and is ignored")
            return
        conflicting = conflict(self._patterns, names) or ""
        self._gateway.connection.write(publication(frame.reply, self._message(conflicting.encode())))

    def _replied(self, frame: Frame) -> None:
        if frame.no_responders:
            return
        message = self._decoded(frame)
        if message is not None:
            with contextlib.suppress(asyncio.QueueFull):
                self._answer.put_nowait(message)

    # --- after the start ------------------------------------------------------------------------------------------------------

    def _informed(self, info: dict[str, Any]) -> None:
        """Check the channels again if NATS has new servers, to which other broker servers may be connected."""
        urls = set(map(str, info.get("connect_urls") or ()))
        known, self._urls = self._urls, urls
        if not urls - (known or set()):
            return
        self._news.set()
        if self._checking is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_again())

    async def _check_again(self) -> None:
        """Check PARTITION_CHECKS times at growing intervals, because new routes may break and be made again; further new servers
        restart the checks."""
        done = 0
        try:
            while done < limits.PARTITION_CHECKS:
                pause = limits.PARTITION_CHECK_DELAY * 4**done / SECOND
                if done and await self._news_came(pause):
                    done = 0
                    continue
                if not done:
                    self._news.clear()
                    await asyncio.sleep(pause)
                await self.check()
                done += 1
        except StartError as problem:
            self._crashed(Aborted(f"Partitioning error: {problem}"))
        finally:
            self._checking = None

    async def _news_came(self, pause_s: float) -> bool:
        """Wait until an INFO names a new nats-server; False if none does within *pause_s* seconds."""
        try:
            await asyncio.wait_for(self._news.wait(), pause_s)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Stop the checks."""
        if self._checking is not None:
            self._checking.cancel()
