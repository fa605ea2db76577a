"""Publishes for FastStream by way of the client; an answer goes back to its request."""

from typing import Any

from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import IncorrectState
from faststream.response.response import PublishCommand

from stan_client import Client, Message, Published
from stan_client.faststream.messages import StanParser, StanPublishCommand


class StanProducer(ProducerProto[StanPublishCommand]):
    """Publishes to channels."""

    def __init__(self, parser: Any = None, decoder: Any = None) -> None:
        self._parser = ParserComposition(parser, StanParser.parse_message)
        self._decoder = ParserComposition(decoder, StanParser.decode_message)
        self.codec: Any = DefaultCodec()
        self.serializer: Any = None
        self._client: Client | None = None

    def connect(self, client: Client | None, serializer: Any = None, codec: Any = None) -> None:
        """Publish with *client* from now on; None: there is none."""
        self._client, self.serializer, self.codec = client, serializer, codec or DefaultCodec()

    @property
    def client(self) -> Client:
        """The client. Raises IncorrectState: the broker is not connected."""
        if self._client is None:
            raise IncorrectState("the broker is not connected")
        return self._client

    async def encoded(self, cmd: StanPublishCommand) -> tuple[bytes, dict[str, str]]:
        """The data and the headers of a message."""
        data, content_type = await self.codec.encode(cmd.body, self.serializer)
        return data, cmd.all_headers(content_type)

    async def publish(self, cmd: StanPublishCommand) -> Published:
        """Publish a message, and wait for its ack."""
        data, headers = await self.encoded(cmd)
        return await self.client.publish(
            cmd.destination,
            data,
            reply=cmd.reply_to,
            headers=headers,
            key=cmd.key,
            delay_s=cmd.delay_s,
            ttl_s=cmd.ttl_s,
            timeout_s=cmd.timeout_s,
        )

    async def request(self, cmd: StanPublishCommand) -> Message:
        """Publish a message that asks for an answer, and wait for that."""
        data, headers = await self.encoded(cmd)
        answer = await self.client.request(
            cmd.destination, data, headers=headers, key=cmd.key, ttl_s=cmd.ttl_s, timeout_s=cmd.timeout_s or 5
        )
        return Message(0, cmd.destination, data=answer)

    async def publish_batch(self, cmd: StanPublishCommand) -> None:
        """Never called: the broker has no batches."""
        raise NotImplementedError


class StanResponder(StanProducer):
    """Answers one request, straight over NATS."""

    def __init__(self, request: Message, codec: Any, serializer: Any) -> None:
        super().__init__()
        self.codec, self.serializer = codec, serializer
        self._request = request

    async def publish(self, cmd: StanPublishCommand) -> None:  # type: ignore[override] # an answer has no ack
        """Send the answer; it has no headers."""
        data, _ = await self.encoded(cmd)
        self._request.respond(data)


class StanResponsePublisher(FakePublisher):
    """Publishes what a handler of a request returns."""

    def patch_command(self, cmd: PublishCommand) -> StanPublishCommand:
        """Make the command one of ours."""
        return StanPublishCommand.from_cmd(super().patch_command(cmd))
