"""Asyncio client of the STAN protocol: publish with acks, subscribe with flow control, read channels without a subscription,
and recover the session after a loss.

client = await stan_client.connect("test-cluster", "me")
await client.publish("orders", b"one")
async for message in await client.subscribe("orders", start=stan_client.everything()):
    print(message.sequence, message.data)
async for message in client.read("orders"):  # without a subscription, to the end
    print(message.sequence, message.data)


Importing this package loads nothing: its attributes, and its modules, are loaded when they are first used, so that a program
which only reads does not load what publishes.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stan_client.client import Client, connect
    from stan_client.errors import (
        BadAckError,
        BadConnectionError,
        BadSubscriptionError,
        ChannelLostError,
        ChannelReplacedError,
        CloseRequestTimeoutError,
        ConnectionClosedError,
        ConnectRequestTimeoutError,
        DataLossError,
        FetchTimeoutError,
        InvalidDelayError,
        InvalidHeadersError,
        InvalidKeyError,
        InvalidNameError,
        InvalidTtlError,
        ManualAckError,
        MessageTooLargeError,
        NilMessageError,
        NoMessageError,
        NotARequestError,
        NotSentError,
        NotSupportedError,
        OutcomeUnknownError,
        PingFailureError,
        PingOptionsError,
        PublishAckTimeoutError,
        PublishManyError,
        ReplyTimeoutError,
        RequestTimeoutError,
        ServerError,
        StanClientError,
        SubscribeRequestTimeoutError,
        TooManyInFlightError,
        UnsubscribeRequestTimeoutError,
    )
    from stan_client.messages.messages import Message
    from stan_client.messages.middleware import Correlation, Log, MiddlewareContext, Retry, Timing, correlation_id
    from stan_client.messages.new_message import NewMessage, Published, encode_rows
    from stan_client.positions import Start, ago, everything, from_sequence, from_time, last_received, new_only, newest
    from stan_client.reading.consumer import Position, PullConsumer
    from stan_client.reading.direct import Direct
    from stan_client.reading.fetching import Fetched
    from stan_client.reading.group_consumer import GroupBatch, GroupConsumer
    from stan_client.reading.table import Table
    from stan_client.requests.admin import Admin, which
    from stan_client.requests.requests import BatchAck, ChannelInfo, Committed, Cursor, part_names
    from stan_client.subscribing import PartedSubscription, Subscription

__all__ = [
    "Admin",
    "BadAckError",
    "BadConnectionError",
    "BadSubscriptionError",
    "BatchAck",
    "CannotConnectError",
    "ChannelInfo",
    "ChannelLostError",
    "ChannelReplacedError",
    "Client",
    "CloseRequestTimeoutError",
    "Committed",
    "ConnectRequestTimeoutError",
    "ConnectionClosedError",
    "Correlation",
    "Cursor",
    "DataLossError",
    "Direct",
    "FetchTimeoutError",
    "Fetched",
    "GroupBatch",
    "GroupConsumer",
    "InvalidDelayError",
    "InvalidHeadersError",
    "InvalidKeyError",
    "InvalidNameError",
    "InvalidTtlError",
    "InvalidUrlError",
    "Log",
    "ManualAckError",
    "Message",
    "MessageTooLargeError",
    "MiddlewareContext",
    "NewMessage",
    "NilMessageError",
    "NoMessageError",
    "NotARequestError",
    "NotSentError",
    "NotSupportedError",
    "OutcomeUnknownError",
    "PartedSubscription",
    "PingFailureError",
    "PingOptionsError",
    "Position",
    "PublishAckTimeoutError",
    "PublishManyError",
    "Published",
    "PullConsumer",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "Retry",
    "ServerError",
    "StanClientError",
    "Start",
    "SubscribeRequestTimeoutError",
    "Subscription",
    "Table",
    "Timing",
    "TooManyInFlightError",
    "UnsubscribeRequestTimeoutError",
    "ago",
    "connect",
    "correlation_id",
    "encode_rows",
    "everything",
    "from_sequence",
    "from_time",
    "last_received",
    "new_only",
    "newest",
    "part_names",
    "which",
]

_WHERE = {
    **dict.fromkeys(("Admin", "which"), "requests.admin"),
    **dict.fromkeys(("Client", "connect"), "client"),
    **dict.fromkeys(("PullConsumer", "Position"), "reading.consumer"),
    **dict.fromkeys(("GroupBatch", "GroupConsumer"), "reading.group_consumer"),
    **dict.fromkeys(
        ("Correlation", "Log", "MiddlewareContext", "Retry", "Timing", "correlation_id"), "messages.middleware"
    ),
    **dict.fromkeys(("NewMessage", "Published", "encode_rows"), "messages.new_message"),
    **dict.fromkeys(("Start", "ago", "everything", "from_sequence", "from_time"), "positions"),
    **dict.fromkeys(("last_received", "new_only", "newest"), "positions"),
    **dict.fromkeys(("BatchAck", "ChannelInfo", "Committed", "Cursor", "part_names"), "requests.requests"),
    "Direct": "reading.direct",
    "Fetched": "reading.fetching",
    "Message": "messages.messages",
    "PartedSubscription": "subscribing.parted",
    "Subscription": "subscribing.subscription",
    "Table": "reading.table",
}
"""In which module a name is; errors are in `errors`."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = import_module(f"{__name__}.{_WHERE.get(name, 'errors')}")
        found = globals()[name] = getattr(module, name)
        return found
    if not name.startswith("_") and find_spec(f"{__name__}.{name}") is not None:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
