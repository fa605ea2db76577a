"""Features that a server reports to a client in `ConnectResponse.features`, so that no client relies on fields that it ignores.

A server of the original knows none: it would store a message without its headers, and take a negative ack for an ack.
"""

from enum import IntFlag


class Feature(IntFlag):
    """The services of a server beyond the original protocol; numbers are never reused."""

    CONTEXT = 1
    """Headers and keys of messages are stored and delivered, and acks have the sequence on request."""
    VERDICTS = 2
    """Negative acks, "working", rejections and cumulative acks are understood."""
    DELAYS = 4
    """Messages wait until the time that their publishers have set."""
    TTL = 8
    """Messages are gone when the time to live is over that their publishers have set."""
