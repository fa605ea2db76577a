"""The broker and the router of FastStream."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.broker.registrator import Registrator
from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.logger import DefaultLoggerStorage, make_logger_state
from faststream._internal.logger.logging import get_broker_logger
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.specification.schema import BrokerSpec

from stan_client import Client, Message, Published, Start, connect, everything
from stan_client.faststream.endpoints import (
    ChannelSpec,
    ConcurrentStanSubscriber,
    PublishedSpec,
    StanConfig,
    StanPublisher,
    StanPublisherConfig,
    StanPublisherSpecification,
    StanSubscriber,
    StanSubscriberConfig,
    StanSubscriberSpecification,
)
from stan_client.faststream.messages import StanMessage, StanPublishCommand
from stan_client.faststream.producer import StanProducer

LINE: Final = "%(asctime)s %(levelname)-8s - %(channel)s | %(message_id)-10s - %(message)s"


class StanLoggerStorage(DefaultLoggerStorage):
    """The logger of a broker that was given none."""

    def __init__(self) -> None:
        super().__init__()
        self.level = logging.INFO

    def set_level(self, level: int) -> None:
        """Log from that level on."""
        self.level = level

    def register_subscriber(self, params: dict[str, Any]) -> None:
        """Does nothing: columns are as wide as their text."""

    def get_logger(self, *, context: ContextRepo) -> Any:
        """Return the logger."""
        if not (found := self._get_logger_ref()):
            found = get_broker_logger(
                name="stan",
                default_context={"channel": ""},
                message_id_ln=10,
                fmt=LINE,
                context=context,
                log_level=self.level,
            )
            self._logger_ref.add(found)
        return found


class StanRegistrator(Registrator[Message, StanConfig]):
    """The common part of a broker and a router: subscribers and publishers."""

    def subscriber(  # type: ignore[override] # each broker of FastStream has its own arguments
        self,
        channel: str,
        *,
        queue: str = "",
        durable: str = "",
        start: Start | None = None,
        max_in_flight: int = 1024,
        ack_wait_s: int = 30,
        max_workers: int = 1,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> StanSubscriber:
        """Subscribe a handler to a channel.

        Args:
            channel: its name, behind the prefixes of routers.
            queue: as of Client.subscribe(), and *durable*, *max_in_flight*, *ack_wait_s*.
            durable: name of the position on the server, as of Client.subscribe().
            start: where a new subscription begins; None: with everything that is there.
            max_in_flight: messages without a verdict.
            ack_wait_s: seconds after which such a message comes again.
            max_workers: messages that are handled at a time.
            ack_policy: what becomes of a message whose handler fails; by default NACK_ON_ERROR: it comes again, as the
                operator's delivery policy says.
            no_reply: do not answer requests with what the handler returns.
            dependencies: of FastStream, and *parser*, *decoder*, *codec*, *persistent*.
            parser: of messages.
            decoder: of bodies.
            codec: of bodies.
            persistent: keep the subscriber as long as the broker.
            title: for AsyncAPI, and *description*, *include_in_schema*.
            description: of the subscriber.
            include_in_schema: document it.
        """
        outer: Any = self.config
        options = {
            "queue": queue,
            "durable": durable,
            "start": start or everything(),
            "max_in_flight": max_in_flight,
            "ack_wait_s": ack_wait_s,
        }
        config = StanSubscriberConfig(
            channel=channel, options=options, no_reply=no_reply, _outer_config=outer, _ack_policy=ack_policy
        )
        spec = ChannelSpec(channel=channel, title_=title, description_=description, include_in_schema=include_in_schema)
        calls: Any = CallsCollection[Any]()
        specification = StanSubscriberSpecification(outer, spec, calls)
        kind: Any = ConcurrentStanSubscriber if max_workers > 1 else StanSubscriber
        workers = {"max_workers": max_workers} if max_workers > 1 else {}
        made: Any = kind(config, specification, calls, **workers)
        super().subscriber(made, persistent=persistent)
        added: StanSubscriber = made.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )
        return added

    def publisher(  # type: ignore[override] # as of subscriber
        self,
        channel: str,
        *,
        headers: Mapping[str, str] | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any | None = None,
        include_in_schema: bool = True,
    ) -> StanPublisher:
        """Make a publisher, also for use as a decorator of a handler, whose result it publishes.

        Args:
            channel: its name, behind the prefixes of routers.
            headers: of all its messages.
            persistent: keep the publisher as long as the broker.
            title: for AsyncAPI, and *description*, *schema*, *include_in_schema*.
            description: of the publisher.
            schema: type of the messages.
            include_in_schema: document it.
        """
        outer: Any = self.config
        spec = PublishedSpec(
            channel=channel,
            title_=title,
            description_=description,
            schema_=schema,
            include_in_schema=include_in_schema,
        )
        config = StanPublisherConfig(channel=channel, headers=headers or {}, _outer_config=outer)
        made = StanPublisher(config, StanPublisherSpecification(outer, spec))
        super().publisher(made, persistent=persistent)
        return made


class StanRouter(StanRegistrator, BrokerRouter[Message, StanConfig]):
    """Subscribers and publishers that a broker includes, under a prefix."""

    def __init__(
        self,
        prefix: str = "",
        handlers: Iterable[Any] = (),
        *,
        routers: Iterable[StanRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        include_in_schema: bool | None = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
    ) -> None:
        """Arguments as of FastStream's other routers."""
        config = StanConfig(
            prefix=prefix,
            ack_policy=ack_policy,
            include_in_schema=include_in_schema,
            broker_dependencies=dependencies,
            broker_middlewares=middlewares,
        )
        super().__init__(handlers=handlers, config=config, routers=routers)


class StanBroker(StanRegistrator, BrokerUsecase[Message, Client, StanConfig]):
    """Connects handlers of FastStream with channels."""

    _connection: Client | None

    def __init__(
        self,
        servers: str | list[str] = "nats://127.0.0.1:4222",
        *,
        client_id: str,
        routers: Iterable[StanRegistrator] = (),
        ack_policy: AckPolicy = EMPTY,
        graceful_timeout: float | None = 15.0,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        serializer: Any = EMPTY,
        apply_types: bool = True,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        description: str | None = None,
        **options: Any,
    ) -> None:
        """Make a broker that is not connected yet.

        Args:
            servers: as of stan_client.connect(), and *client_id*.
            client_id: one program at a time may use it.
            routers: that are included.
            ack_policy: of subscribers that have none; see subscriber().
            graceful_timeout: seconds that handlers have to end when the broker stops.
            dependencies: of FastStream, and *middlewares*, *parser*, *decoder*, *codec*, *serializer*, *apply_types*, *logger*.
            middlewares: around each message.
            parser: of messages.
            decoder: of bodies.
            codec: of bodies.
            serializer: of bodies and arguments.
            apply_types: convert arguments to their types.
            logger: for FastStream's lines.
            log_level: of these.
            description: for AsyncAPI.
            options: as of stan_client.connect().
        """
        injection = FastDependsConfig(
            use_fastdepends=apply_types, serializer=serializer, provider=dependency_provider, context=ContextRepo()
        )
        config = StanConfig(
            producer=StanProducer(parser, decoder),
            broker_middlewares=middlewares,
            broker_parser=parser,
            broker_decoder=decoder,
            broker_codec=codec,
            logger=make_logger_state(logger=logger, log_level=log_level, default_storage_cls=StanLoggerStorage),
            fd_config=injection,
            broker_dependencies=dependencies,
            graceful_timeout=graceful_timeout,
            ack_policy=ack_policy,
            extra_context={"broker": self},
        )
        urls = servers.split(",") if isinstance(servers, str) else servers
        specification = BrokerSpec(
            url=urls, protocol="stan", protocol_version="1", description=description, tags=(), security=None
        )
        super().__init__(
            config=config,
            specification=specification,
            routers=routers,
            servers=urls,
            client_id=client_id,
            **options,
        )

    async def _connect(self) -> Client:
        client = await connect(**self._connection_kwargs)
        self.config.connect(client)
        return client

    async def start(self) -> None:
        """Connect, and start all subscribers."""
        await self.connect()
        await super().start()

    async def stop(self, exc_type: Any = None, exc_val: Any = None, exc_tb: Any = None) -> None:
        """Stop all subscribers, and close the client."""
        await super().stop(exc_type, exc_val, exc_tb)
        client = self._connection
        self._connection = None
        self.config.connect(None)
        if client is not None:
            await client.__aexit__(exc_type or StopAsyncIteration)

    async def ping(self, timeout: float | None = None) -> bool:  # noqa: ARG002, ASYNC109 - FastStream's
        """True while the client has a session, as far as it knows."""
        return self._connection is not None and self._connection.connected

    async def publish(
        self,
        message: Any = None,
        channel: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        reply_to: str = "",
        key: str = "",
        delay_s: float | None = None,
        ttl_s: float | None = None,
        timeout_s: float | None = None,
    ) -> Published:
        """Publish a message, and wait for its ack.

        Args:
            message: bytes, text, or what FastStream makes JSON of.
            channel: its name.
            headers: text by name.
            correlation_id: of FastStream; a new one by default.
            reply_to: as `reply` of Client.publish().
            key: as of Client.publish(), and *delay_s*, *ttl_s*, *timeout_s*.
            delay_s: seconds before which it does not come into its channel.
            ttl_s: seconds after which no reader gets it.
            timeout_s: seconds that the call takes at most.
        """
        cmd = StanPublishCommand(
            message,
            channel=channel,
            headers=dict(headers or {}),
            correlation_id=correlation_id or self.config.id_generator(),
            reply_to=reply_to,
            key=key,
            delay_s=delay_s,
            ttl_s=ttl_s,
            timeout_s=timeout_s,
            _publish_type=PublishType.PUBLISH,
        )
        published: Published = await self._basic_publish(cmd, producer=self.config.producer)
        return published

    async def request(
        self,
        message: Any = None,
        channel: str = "",
        *,
        timeout: float = 5.0,  # noqa: ASYNC109 - FastStream's name
        headers: Mapping[str, str] | None = None,
        correlation_id: str | None = None,
        key: str = "",
    ) -> StanMessage:
        """Publish a message that asks for an answer, and return the answer.

        Args:
            message: as of publish(), and *channel*, *headers*, *correlation_id*, *key*.
            channel: its name.
            timeout: seconds for the ack of the message and the answer together.
            headers: text by name.
            correlation_id: of FastStream.
            key: of the message.
        """
        cmd = StanPublishCommand(
            message,
            channel=channel,
            headers=dict(headers or {}),
            correlation_id=correlation_id or self.config.id_generator(),
            key=key,
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        answer: StanMessage = await self._basic_request(cmd, producer=self.config.producer)
        return answer
