"""Asyncio client of the STAN protocol: publish with acks, subscribe with flow control, read channels without a subscription,
and recover the session after a loss.

client = await stan_client.connect("test-cluster", "me")
await client.publish("orders", b"one")
async for message in await client.subscribe("orders", start=stan_client.everything()):
    print(message.sequence, message.data)
async for message in client.read("orders"):  # without a subscription, to the end
    print(message.sequence, message.data)
"""

from stan_client.admin import Admin, which
from stan_client.client import Client, connect
from stan_client.consumer import Position, PullConsumer
from stan_client.direct import Direct
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
from stan_client.fetching import Fetched
from stan_client.group_consumer import GroupBatch, GroupConsumer
from stan_client.messages import Message
from stan_client.middleware import Correlation, Log, MiddlewareContext, Retry, Timing, correlation_id
from stan_client.new_message import NewMessage, Published
from stan_client.positions import Start, ago, everything, from_sequence, from_time, last_received, new_only, newest
from stan_client.requests import BatchAck, ChannelInfo, Committed, Cursor
from stan_client.subscription import Subscription
from stan_client.table import Table

__all__ = [
    "Admin",
    "BadAckError",
    "BadConnectionError",
    "BadSubscriptionError",
    "BatchAck",
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
    "everything",
    "from_sequence",
    "from_time",
    "last_received",
    "new_only",
    "newest",
    "which",
]
