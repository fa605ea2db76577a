"""Handlers of a StanBroker without a broker: published messages go to the handlers at once."""

import itertools
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from stan_client import Message, Published
from stan_client.faststream.broker import StanBroker
from stan_client.faststream.endpoints import StanPublisher, StanSubscriber
from stan_client.faststream.messages import StanPublishCommand
from stan_client.faststream.producer import StanProducer
from stan_client.messages.messages import SENT, Receipt


class TestStanBroker(TestBroker[StanBroker, EnterType], broker=StanBroker):  # type: ignore[call-arg]
    """Runs a broker's handlers in memory: `async with TestStanBroker(broker) as broker`, as FastStream's other test brokers."""

    def create_publisher_fake_subscriber(
        self, broker: StanBroker, publisher: StanPublisher
    ) -> tuple[StanSubscriber, bool]:
        """Return a subscriber of the publisher's channel, and True if it is the program's own."""
        for subscriber in _subscribers(self.brokers):
            if subscriber.channel == publisher.channel:
                return subscriber, True
        return broker.subscriber(publisher.channel, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: StanBroker) -> Generator[None]:
        with change_producer(broker.config.broker_config, InMemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: StanBroker, *_args: Any, **_options: Any) -> None:
        """Connect to nothing."""


class InMemoryProducer(StanProducer):
    """Hands messages to the handlers of their channels: to each, but of those with one queue to one alone."""

    def __init__(self, broker: StanBroker, brokers: Sequence[StanBroker]) -> None:
        super().__init__(broker._parser, broker._decoder)  # noqa: SLF001 - as FastStream's own do
        self.codec = broker.config.broker_codec or DefaultCodec()
        self.serializer = broker.config.fd_config._serializer  # noqa: SLF001
        self._brokers = brokers
        self._sequences = itertools.count(1)

    async def publish(self, cmd: StanPublishCommand) -> Published:
        """Run the handlers."""
        message = await self._message(cmd, _Unasked())
        for subscriber in self._chosen(cmd.destination):
            await subscriber.process_message(message)
        return Published("", message.sequence)

    async def request(self, cmd: StanPublishCommand) -> Message:
        """Run a handler, and return its answer."""
        for subscriber in self._chosen(cmd.destination):
            result = await subscriber.process_message(await self._message(cmd, _Unasked()))
            answer = StanPublishCommand.from_cmd(result.as_publish_command())
            return await self._message(answer, _Unasked())
        raise SubscriberNotFound

    def _chosen(self, channel: str) -> Iterator[StanSubscriber]:
        queues: set[tuple[str, str]] = set()
        for subscriber in _subscribers(self._brokers):
            group = (subscriber.options["queue"], subscriber.options["durable"])
            if subscriber.channel == channel and (not group[0] or group not in queues):
                queues.add(group)
                yield subscriber

    async def _message(self, cmd: StanPublishCommand, acker: "_Unasked") -> Message:
        data, headers = await self.encoded(cmd)
        encoded = tuple((name.encode(), value.encode()) for name, value in headers.items())
        return Message(
            next(self._sequences),
            cmd.destination,
            cmd.reply_to,
            data,
            acker=acker,
            headers=encoded,
            key=cmd.key.encode(),
        )


class _Unasked:
    """Takes the verdicts on messages that nobody waits for."""

    def ack(self, _sequence: int) -> Receipt:
        return SENT

    ack_up_to = working = ack

    def nak(self, _sequence: int, _delay_s: float | None, _reason: str) -> Receipt:
        return SENT

    def reject(self, _sequence: int, _reason: str) -> Receipt:
        return SENT

    def respond(self, _reply: str, _data: bytes) -> Receipt:
        return SENT


def _subscribers(brokers: Sequence[StanBroker]) -> Iterator[StanSubscriber]:
    return (subscriber for broker in brokers for subscriber in broker.subscribers)
