"""Messages between FastStream and the client: parsed when they come, encoded when they go."""

from typing import Any, Final

from faststream.message import StreamMessage, decode_message
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand

from stan_client import Message

CONTENT_TYPE: Final = "content-type"
CORRELATION_ID: Final = "correlation_id"
"""Headers in which FastStream's fields travel; brokers of FastStream for NATS have them there, too."""


class StanMessage(StreamMessage[Message]):
    """A message of a channel, for handlers."""

    async def ack(self) -> None:
        """Acknowledge the message, once."""
        if self.committed is None:
            self.raw_message.ack()
        await super().ack()

    async def nack(self, delay_s: float | None = None, reason: str = "") -> None:
        """Tell that the message was not handled, once: as of Message.nak()."""
        if self.committed is None:
            self.raw_message.nak(delay_s, reason)
        await super().nack()

    async def reject(self, reason: str = "") -> None:
        """Tell that the message shall never come again, once: as of Message.reject()."""
        if self.committed is None:
            self.raw_message.reject(reason)
        await super().reject()


class StanParser:
    """Makes a StanMessage of a message, and a value of that."""

    @staticmethod
    async def parse_message(message: Message) -> StanMessage:
        """Parse the headers and the data."""
        headers = {name: value.decode("utf-8", "surrogateescape") for name, value in message.headers.items()}
        return StanMessage(
            raw_message=message,
            body=message.data,
            headers=headers,
            reply_to=message.reply,
            content_type=headers.get(CONTENT_TYPE),
            correlation_id=headers.get(CORRELATION_ID),
            message_id=f"{message.channel}:{message.sequence}",
        )

    @staticmethod
    async def decode_message(message: StreamMessage[Message]) -> Any:
        """Decode the body by its content type."""
        return decode_message(message)


class StanPublishCommand(PublishCommand):
    """A message on its way to a channel."""

    def __init__(
        self,
        message: Any,
        *,
        channel: str = "",
        key: str = "",
        delay_s: float | None = None,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
        _publish_type: PublishType,
        **fields: Any,
    ) -> None:
        """Options as of Client.publish(); *fields*: `headers`, `correlation_id` and `reply_to` of FastStream."""
        super().__init__(body=message, destination=channel, _publish_type=_publish_type, **fields)
        self.key, self.delay_s, self.ttl_s, self.timeout_s = key, delay_s, ttl_s, timeout_s

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> "StanPublishCommand":
        """Return *cmd* as a command of this class."""
        if isinstance(cmd, cls):
            return cmd
        return cls(
            cmd.body,
            channel=cmd.destination,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            reply_to=cmd.reply_to,
            _publish_type=cmd.publish_type,
        )

    def all_headers(self, content_type: str | None) -> dict[str, str]:
        """The headers of the message, with those of FastStream's fields."""
        fields = {CONTENT_TYPE: content_type, CORRELATION_ID: self.correlation_id}
        return {name: str(value) for name, value in {**self.headers, **fields}.items() if value}
