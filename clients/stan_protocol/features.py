"""Features that a server tells a client in `ConnectResponse.features`, so that no client relies on what a server steps over.

A server of the original knows none: it would store a message without its headers, and take a negative ack for an ack.
"""

from enum import IntFlag


class Feature(IntFlag):
    """What a server does besides the original protocol; numbers are never reused."""

    CONTEXT = 1
    """Headers and keys of messages are stored and delivered, and acks tell sequences that are asked for."""
    VERDICTS = 2
    """Negative acks, "working", rejections and cumulative acks are understood."""
    DELAYS = 4
    """Messages wait until the time that their publishers have told."""
    TTL = 8
    """Messages are gone when the time to live is over that their publishers have told."""
