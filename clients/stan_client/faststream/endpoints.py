"""Subscribers and publishers of FastStream over subscriptions and publishes of the client."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import (
    BrokerConfig,
    PublisherSpecificationConfig,
    PublisherUsecaseConfig,
    SubscriberSpecificationConfig,
    SubscriberUsecaseConfig,
)
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.mixins import ConcurrentMixin, TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import IncorrectState
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.response.response import PublishCommand
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSpec
from faststream.specification.schema import Operation, PublisherSpec, SubscriberSpec

from stan_client import Client, Message, NoMessageError, Published, StanClientError, Subscription
from stan_client.faststream.messages import StanMessage, StanParser, StanPublishCommand
from stan_client.faststream.producer import StanProducer, StanResponder, StanResponsePublisher


@dataclass(kw_only=True)
class StanConfig(BrokerConfig):
    """Settings of a broker or a router, and the client of the broker."""

    producer: StanProducer = field(default_factory=StanProducer)
    connected: Client | None = None

    @property
    def client(self) -> Client:
        """The client. Raises IncorrectState: the broker is not connected."""
        if self.connected is None:
            raise IncorrectState("the broker is not connected")
        return self.connected

    def connect(self, client: Client | None) -> None:
        """Use *client* from now on; None: there is none."""
        self.connected = client
        self.producer.connect(client, self.fd_config._serializer, self.broker_codec)  # noqa: SLF001 - as FastStream's own do


@dataclass(kw_only=True)
class StanSubscriberConfig(SubscriberUsecaseConfig):
    """Settings of a subscriber."""

    channel: str
    options: Mapping[str, Any]  # as of Client.subscribe

    @property
    def ack_policy(self) -> AckPolicy:
        """The fate of a message whose handler fails: by default it comes again, as the operator's policy says."""
        policies = (self._ack_policy, self._outer_config.ack_policy)
        return next((policy for policy in policies if policy is not EMPTY), AckPolicy.NACK_ON_ERROR)


@dataclass(kw_only=True)
class StanPublisherConfig(PublisherUsecaseConfig):
    """Settings of a publisher."""

    channel: str
    headers: Mapping[str, str]


@dataclass(kw_only=True)
class ChannelSpec(SubscriberSpecificationConfig):
    """The documentation of a subscriber."""

    channel: str


@dataclass(kw_only=True)
class PublishedSpec(PublisherSpecificationConfig):
    """The documentation of a publisher."""

    channel: str


class StanSubscriberSpecification(SubscriberSpecification[StanConfig, ChannelSpec]):
    """Documents a subscriber."""

    @property
    def channel(self) -> str:
        """The channel, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.channel}"

    @property
    def channel_labels(self) -> list[str]:
        """The name under which the channel is documented."""
        return [self.channel]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The subscriber for AsyncAPI."""
        message = MessageSpec(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads()))
        operation = Operation(message=message, bindings=None)
        spec = SubscriberSpec(address=self.channel, description=self.description, operation=operation, bindings=None)
        return {self.name: spec}


class StanPublisherSpecification(PublisherSpecification[StanConfig, PublishedSpec]):
    """Documents a publisher."""

    @property
    def channel(self) -> str:
        """The channel, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self.config.channel}"

    @property
    def name(self) -> str:
        """The name under which it is documented."""
        return self.config.title_ or f"{self.channel}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The publisher for AsyncAPI."""
        payload = resolve_payloads(self.get_payloads(), "Publisher")
        operation = Operation(message=MessageSpec(title=f"{self.name}:Message", payload=payload), bindings=None)
        spec = PublisherSpec(
            address=self.channel, description=self.config.description_, operation=operation, bindings=None
        )
        return {self.name: spec}


class StanSubscriber(TasksMixin, SubscriberUsecase[Message]):
    """Handles the messages of a subscription one after the other."""

    def __init__(self, config: StanSubscriberConfig, specification: Any, calls: Any) -> None:
        config.parser, config.decoder = StanParser.parse_message, StanParser.decode_message
        super().__init__(config, specification, calls)
        self._channel = config.channel
        self.options = config.options
        self._subscription: Subscription | None = None

    @property
    def channel(self) -> str:
        """The channel, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._channel}"

    async def start(self) -> None:
        """Subscribe, and handle messages from now on."""
        await super().start()
        if self.calls:
            await self._subscribed()
            self.add_task(self._consume_all, restart_on_failure=False)
        self._post_start()

    async def stop(self) -> None:
        """Finish the messages in hand, and close the subscription; a durable one stays on the server."""
        await super().stop()
        subscription, self._subscription = self._subscription, None
        if subscription is not None and not subscription.closed:
            with suppress(StanClientError):
                await subscription.close()

    async def _subscribed(self) -> Subscription:
        if self._subscription is None:
            client: Client = self._outer_config.client
            self._subscription = await client.subscribe(self.channel, manual_acks=True, **self.options)
        return self._subscription

    async def _consume_all(self) -> None:
        async for message in await self._subscribed():
            await self._dispatch_message(message)

    async def _dispatch_message(self, message: Message) -> None:
        await self.consume(message)

    async def _processed(self, message: Message) -> StanMessage:
        context = self._outer_config.context
        parser, decoder = self._get_parser_and_decoder()
        middlewares = (one(message, context=context) for one in self._broker_middlewares)
        processed: StanMessage = await process_msg(msg=message, middlewares=middlewares, parser=parser, decoder=decoder)
        return processed

    async def get_one(self, *, timeout: float = 5.0) -> StanMessage | None:  # noqa: ASYNC109 - FastStream's name
        """Wait for one message, *timeout* seconds; None: none came."""
        try:
            message = await (await self._subscribed()).next(timeout_s=timeout)
        except NoMessageError:
            return None
        return await self._processed(message)

    async def __aiter__(self) -> AsyncIterator[StanMessage]:
        async for message in await self._subscribed():
            yield await self._processed(message)

    def _make_response_publisher(self, message: Any) -> Sequence[StanResponsePublisher]:
        producer: StanProducer = self._outer_config.producer
        return (
            StanResponsePublisher(producer=StanResponder(message.raw_message, producer.codec, producer.serializer)),
        )

    def get_log_context(self, message: Any) -> dict[str, str]:
        """The fields of a line of the log."""
        return {"channel": self.channel, "message_id": getattr(message, "message_id", "")}


class ConcurrentStanSubscriber(ConcurrentMixin[Message], StanSubscriber):
    """Handles several messages at a time."""

    async def start(self) -> None:
        """Subscribe, and handle messages from now on."""
        await super().start()
        self.start_consume_task()

    async def _dispatch_message(self, message: Message) -> None:
        await self._put_msg(message)


class StanPublisher(PublisherUsecase):
    """Publishes what handlers return."""

    def __init__(self, config: StanPublisherConfig, specification: Any) -> None:
        super().__init__(config, specification)
        self._channel = config.channel
        self.headers = dict(config.headers)

    @property
    def channel(self) -> str:
        """The channel, with the prefixes of routers."""
        return f"{self._outer_config.prefix}{self._channel}"

    async def publish(
        self, message: Any, channel: str = "", *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Published:
        """Publish a message. *channel*: another one than its own. *options*: as of StanBroker.publish()."""
        published: Published = await self._basic_publish(
            self._command(message, channel, headers, PublishType.PUBLISH, options),
            producer=self._outer_config.producer,
            _extra_middlewares=(),
        )
        return published

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        command = StanPublishCommand.from_cmd(cmd)
        command.destination = self.channel
        command.add_headers(self.headers, override=False)
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
        self, message: Any, channel: str = "", *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> StanMessage:
        """Publish a message that asks for an answer, and return that. Arguments as of publish()."""
        answer: StanMessage = await self._basic_request(
            self._command(message, channel, headers, PublishType.REQUEST, options),
            producer=self._outer_config.producer,
        )
        return answer

    def _command(
        self, message: Any, channel: str, headers: Mapping[str, str] | None, kind: PublishType, options: dict[str, Any]
    ) -> StanPublishCommand:
        options["correlation_id"] = options.get("correlation_id") or self._outer_config.id_generator()
        return StanPublishCommand(
            message,
            channel=channel or self.channel,
            headers=self.headers | dict(headers or {}),
            _publish_type=kind,
            **options,
        )
