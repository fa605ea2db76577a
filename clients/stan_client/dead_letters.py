"""Dead letters as readers see them: messages with headers that tell where they come from and why they were given up.

async for message in direct.read("orders.dlq"):
    letter = dead_letter(message)

They are put back by `Admin.redrive`.
"""

from typing import NamedTuple

from stan_protocol import dead_letters as letters

from stan_client.messages.messages import Message
from stan_client.transport.session import text_of


class DeadLetter(NamedTuple):
    """The origin of a dead letter."""

    message: Message
    channel: str
    """The channel of the message that was given up."""
    sequence: int
    """Its sequence there."""
    durable: str
    """Name of the durable or queue group that has given it up; of a plain subscription the client id."""
    deliveries: int
    """How often it was delivered."""
    reason: str
    """`exhausted`, `rejected` or `too-large`."""
    error: str
    """The text with which the client reported its last failure with it."""
    published_ns: int
    """When the message was stored, Unix ns; 0: not reported."""
    redriven: int
    """How often it was put back into its channel."""


def dead_letter(message: Message) -> DeadLetter | None:
    """Parse the headers of a dead letter. None if the message was published to the channel directly."""
    headers = {name.encode("utf-8", "surrogateescape"): value for name, value in message.headers.items()}
    if letters.CHANNEL not in headers:
        return None
    return DeadLetter(
        message,
        text_of(headers[letters.CHANNEL]),
        letters.number(headers, letters.SEQUENCE),
        text_of(headers.get(letters.DURABLE, b"")),
        letters.number(headers, letters.COUNT),
        text_of(headers.get(letters.REASON, b"")),
        text_of(headers.get(letters.ERROR, b"")),
        letters.number(headers, letters.PUBLISHED),
        letters.number(headers, letters.REDRIVEN),
    )
