"""Channels whose messages are values of a class: pydantic's (models, dataclasses, TypedDicts) or msgspec's structs, as JSON.

    orders = TypedChannel(client, "orders", Order)
    await orders.publish(Order(id=7))
    await orders.subscribe(handle)  # async def handle(order: Order, message: Message)

The class's JSON Schema has to be one of the registered versions of the channel's schema; messages name it in the header
`stan-schema`. A class that is not registered is refused and never registered by itself: a program that was changed by accident
would change the contract. With `register` it is, if it keeps the promise of compatibility. Titles and descriptions are no
part of it.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from stan_protocol.admin_types import SchemaKind
from stan_protocol.schemas.kinds import HEADER

from stan_client.client import Client
from stan_client.errors import StanClientError
from stan_client.messages.messages import Message
from stan_client.messages.new_message import Headers, NewMessage, Published
from stan_client.subscribing.subscription import Subscription

Value = TypeVar("Value")

_HEADER = HEADER.decode()
_NAMES = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
"""Keywords under which names stand that the author of a class has chosen."""
_REMARKS = ("title", "description", "examples")


class NotRegisteredError(StanClientError):
    """The class is none of the registered versions of the channel's schema."""


class WrongClassError(StanClientError, TypeError):
    """No JSON Schema can be made of the class: it is neither msgspec's nor pydantic's, or that package is not installed."""


class TypedChannel(Generic[Value]):
    """A channel, as a client sees it, and the class of its messages."""

    def __init__(self, client: Client, channel: str, kind: type[Value], *, register: str = "") -> None:
        """Make a channel of values; the first use sends the first request.

        Args:
            client: publishes, subscribes and reads.
            channel: its name.
            kind: class of the values.
            register: pattern of channels for whose schema the class is registered as one more version, if it is none yet; this
                needs the right `admin_write` there. "": it has to be registered.

        Raises:
            WrongClassError: the class is of neither package, or the package is not installed.
        """
        self.channel = channel
        self.kind = kind
        self._client = client
        self._register = register
        self._version = 0
        self._schema, self._encode, self._decode = _codec(kind)

    @property
    def schema(self) -> bytes:
        """The class as a JSON Schema, as it is registered."""
        return json.dumps(_contract(self._schema), sort_keys=True).encode()

    async def version(self) -> int:
        """Return the number of the class among the versions of the channel's schema; requested once, then remembered.

        Raises:
            NotRegisteredError: it is none. ServerError: it cannot be registered, for example because it breaks its promise.
        """
        if not self._version:
            registered = await self._client.admin.schemas(self.channel)
            own = json.loads(self.schema)
            known = [one.schema_version for one in registered if one.kind == SchemaKind.JSON and _is(own, one.text)]
            if known:
                self._version = known[-1]
            elif self._register:
                self._version = (await self._client.admin.add_schema(self._register, self.schema)).schema_version
            else:
                there = ", ".join(str(one.schema_version) for one in registered)
                raise NotRegisteredError(
                    f"stan: {self.kind.__name__} is none of the registered versions ({there or 'there are none'}) of the schema "
                    f"of channel {self.channel}"
                )
        return self._version

    # --- values and messages -----------------------------------------------------------------------------------------

    async def encode(self, value: Value, *, headers: Headers | None = None, key: str | bytes = "") -> NewMessage:
        """A value as a message that can be published; errors as of version()."""
        named: Headers = {**(headers or {}), _HEADER: str(await self.version())}
        return NewMessage(self._encode(value), named, key)

    def decode(self, message: Message) -> Value:
        """The value of a message, of whatever version it is.

        Raises:
            ValueError: its data is no such value; the error is pydantic's or msgspec's.
        """
        return cast("Value", self._decode(message.data))

    # --- use ---------------------------------------------------------------------------------------------------------

    async def publish(
        self, value: Value, *, headers: Headers | None = None, key: str | bytes = "", **more: Any
    ) -> Published:
        """Publish a value and wait for its ack; other arguments, and errors: as of Client.publish and version()."""
        message = await self.encode(value, headers=headers, key=key)
        return await self._client.publish(self.channel, message.data, headers=message.headers, key=key, **more)

    async def publish_many(self, values: Iterable[Value], *, timeout_s: float | None = None) -> int:
        """Publish many values and wait for all acks; as Client.publish_many."""
        named: Headers = {_HEADER: str(await self.version())}
        data = (self._encode(value) for value in values)
        return await self._client.publish_many(self.channel, data, headers=named, timeout_s=timeout_s)

    async def subscribe(self, callback: Callable[[Value, Message], Awaitable[None]], **options: Any) -> Subscription:
        """Subscribe with a callback that takes values, each with its message; *options*: those of Client.subscribe. Data that is
        no value fails like a callback: `on_error` decides, by default the message comes again."""

        async def handle(message: Message) -> None:
            await callback(self.decode(message), message)

        return await self._client.subscribe(self.channel, handle, **options)

    async def read(self, **options: Any) -> AsyncIterator[tuple[Value, Message]]:
        """Read the channel without a subscription, each value with its message; *options*: those of Client.read.

        Raises:
            ValueError: data is no value. Else as of Client.read.
        """
        async for message in self._client.read(self.channel, **options):
            yield self.decode(message), message


def _codec(kind: type[Any]) -> tuple[dict[str, Any], Callable[[Any], bytes], Callable[[bytes], Any]]:
    """The JSON Schema of a class, and how its values become data, and data values."""
    name = "msgspec" if hasattr(kind, "__struct_fields__") else "pydantic"
    try:
        package = import_module(name)
        if name == "msgspec":
            return package.json.schema(kind), package.json.encode, package.json.Decoder(kind).decode
        adapter = package.TypeAdapter(kind)
        # As read, not as written: a field with a default need not be there, or none could ever be added.
        return adapter.json_schema(), lambda value: adapter.dump_json(value, by_alias=True), adapter.validate_json
    except ImportError:
        raise WrongClassError(f"stan: {kind.__name__} needs the package {name} (pip install {name})") from None
    except Exception as error:
        raise WrongClassError(f"stan: {kind.__name__} has no JSON Schema: {error}") from error


def _contract(schema: Any, *, names: bool = False) -> Any:
    """A schema without remarks; *names*: its keys are names and no keywords."""
    if isinstance(schema, list):
        return [_contract(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _contract(value, names=not names and key in _NAMES)
        if key not in ("default", "const", "enum") or names
        else value
        for key, value in schema.items()
        if names or key not in _REMARKS
    }


def _is(own: Any, text: bytes) -> bool:
    """True if a registered text is the same contract."""
    try:
        return bool(_contract(json.loads(text)) == own)
    except ValueError:
        return False
