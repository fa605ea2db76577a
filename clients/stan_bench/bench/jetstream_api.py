"""The few requests of JetStream's API that a benchmark makes: a stream of its own, and a push consumer of it.

Plain requests over NATS, so that any server that answers them may be measured. A stream is its own subject, under a name that
nobody else has; the benchmark that has made it removes it.
"""

import json
from typing import Any, Final

from stan_client.errors import ServerError
from stan_client.transport.connection import ClientConnection
from stan_protocol.nats_client import Error as NatsError
from stan_protocol.scalars import SECOND

PREFIX: Final = "$JS.API"
ANSWER_S: Final = 15.0
"""How long an answer is waited for."""

STREAM_NOT_FOUND: Final = 10059
"""JetStream's number for that error."""


class JetStreamRefusedError(ServerError):
    """An answer that is an error."""

    def __init__(self, request: str, error: Any) -> None:
        """*error*: as it stands in the answer."""
        fields = error if isinstance(error, dict) else {}
        super().__init__(f"JetStream refuses {request.lower()}: {fields.get('description', error)}")
        self.number = fields.get("err_code", 0)


class JetStreamApi:
    """Asks JetStream over a connection."""

    def __init__(self, nats: ClientConnection) -> None:
        self._nats = nats

    async def ask(self, request: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer to a *request*, for example `STREAM.DELETE.name`.

        Raises:
            ServerError: JetStream refuses, does not answer, or is not there.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        try:
            message = await self._nats.request(f"{PREFIX}.{request}", payload, timeout=ANSWER_S)
            answer: dict[str, Any] = json.loads(message.data)
        except NatsError as error:
            if "no responders" in str(error):
                raise ServerError("no JetStream answers there: enable it, for this account, too") from None
            raise ServerError(f"JetStream does not answer {request.lower()}: {error}") from None
        except ValueError:
            raise ServerError(f"JetStream answers {request.lower()} with what is no JSON") from None
        if "error" in answer:
            raise JetStreamRefusedError(request, answer["error"])
        return answer

    async def create_stream(self, name: str, replicas: int) -> str:
        """Make a stream on disk; returns the name of the server that leads it, "" if none is named."""
        config = {"name": name, "subjects": [name], "storage": "file", "num_replicas": replicas}
        answer = await self.ask(f"STREAM.CREATE.{name}", config)
        return str((answer.get("cluster") or {}).get("leader") or "")

    async def delete_stream(self, name: str) -> None:
        """Remove a stream with its consumers; one that is not there is removed."""
        try:
            await self.ask(f"STREAM.DELETE.{name}")
        except JetStreamRefusedError as refusal:
            if refusal.number != STREAM_NOT_FOUND:
                raise

    async def create_consumer(self, stream: str, inbox: str, *, window: int, ack_wait_s: int, new_only: bool) -> None:
        """Make a consumer that pushes to *inbox*, at most *window* messages without ack, and ends with its subscriber."""
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "new" if new_only else "all",
            "ack_policy": "explicit",
            "ack_wait": ack_wait_s * SECOND,
            "max_ack_pending": window,
            "replay_policy": "instant",
        }
        await self.ask(f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config})
