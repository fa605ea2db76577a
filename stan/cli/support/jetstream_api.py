"""Requests of JetStream's API over a connection, of these servers or of NATS's own: plain JSON, as the commands need it."""

import asyncio
import json
from base64 import b64decode
from typing import Any, Final

from stan_client.transport.connection import ClientConnection
from stan_client.transport.session import fresh_id
from stan_protocol.channels import publication
from stan_protocol.frames import Frame
from stan_protocol.nats_client import Error as NatsError

from stan.protocol.jetstream import headers
from stan.protocol.jetstream.api import PREFIX
from stan.protocol.jetstream.consumer_errors import NO_CONSUMER
from stan.protocol.jetstream.errors import NO_STREAM

ABSENT: Final = (NO_STREAM.err_code, NO_CONSUMER.err_code)
"""Error codes of answers about what is not there."""


class ApiRefusalError(Exception):
    """An answer that is an error; the text is JetStream's."""


class StreamsApi:
    """Asks JetStream. Every request raises NatsError or TimeoutError where nobody answers, and ApiRefusalError."""

    def __init__(self, link: ClientConnection, answer_s: float) -> None:
        """*answer_s*: the patience for an answer, in seconds."""
        self._link, self._answer_s = link, answer_s

    async def ask(self, request: str, document: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request, `STREAM.INFO.<name>` for example."""
        found = await self.find(request, document, accepted=())
        assert found is not None  # noqa: S101 - for mypy
        return found

    async def find(
        self, request: str, document: dict[str, Any] | None = None, *, accepted: tuple[int, ...] = ABSENT
    ) -> dict[str, Any] | None:
        """The answer to a request; None if it is an error that is *accepted*, by default that there is no such thing."""
        payload = json.dumps(document).encode() if document is not None else b""
        message = await self._link.request(f"{PREFIX}{request}", payload, timeout=self._answer_s)
        answer: dict[str, Any] = json.loads(message.data)
        error = answer.get("error")
        if error is None:
            return answer
        if error.get("err_code") in accepted:
            return None
        raise ApiRefusalError(str(error.get("description", error)))

    async def headers_of(self, stream: str, sequence: int) -> dict[str, str]:
        """The headers of one message of a stream."""
        answer = await self.ask(f"STREAM.MSG.GET.{stream}", {"seq": sequence})
        return header_fields(b64decode(answer["message"].get("hdrs", "")))

    async def pull(self, stream: str, consumer: str, count: int) -> list[Frame]:
        """Take so many messages of a consumer, which has them; acks go to the reply subjects of the frames."""
        got: list[Frame] = []
        whole = asyncio.Event()

        def arrived(frames: list[Frame]) -> None:
            got.extend(frames)
            if len(got) >= count or any(not _has_message(one) for one in frames):
                whole.set()

        inbox = f"_INBOX.{fresh_id()}"
        sid = await self._link.listen(inbox, arrived)
        try:
            wanted = json.dumps({"batch": count, "expires": int(self._answer_s * 1e9)}).encode()
            self._link.send(
                publication(f"{PREFIX}CONSUMER.MSG.NEXT.{stream}.{consumer}".encode(), wanted, inbox.encode())
            )
            async with asyncio.timeout(self._answer_s):
                await whole.wait()
        finally:
            await self._link.unlisten(sid)
        for one in got:
            if not _has_message(one):
                raise NatsError(one.header.partition(b"\r\n")[0].removeprefix(headers.LINE).strip().decode())
        return got

    async def say(self, frame: Frame, verdict: bytes = b"") -> None:
        """Answer a message of a consumer: an ack, or another *verdict*."""
        self._link.send(publication(frame.reply, verdict))
        await self._link.drained()


def header_fields(block: bytes) -> dict[str, str]:
    """The headers of a block of NATS by their names, of several with one name the last."""
    return {name.decode(): value.decode(errors="surrogateescape") for name, value in headers.parse(block)}


def _has_message(frame: Frame) -> bool:
    """True for a message of a stream, False for a status."""
    return frame.reply.startswith(b"$JS.ACK.")
