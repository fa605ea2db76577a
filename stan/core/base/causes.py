"""Why a message is delivered: the causes that the leader records with each delivery.

Stored in progress entries, so the numbers are never reused.
"""

from enum import IntEnum


class Cause(IntEnum):
    """Why a message was delivered."""

    NEW = 0
    """It is new to the position."""
    ACK_WAIT_OVER = 1
    """The delivery before was not acked in time."""
    NEGATIVE_ACK = 2
    """The client said that it had failed with the message."""
    MEMBER_GONE = 3
    """The member of a queue group that held it has left."""
    LEADER_CHANGED = 4
    """The leader before may have sent it, and no entry tells whether it has."""
    RESUMED = 5
    """The position came back online: its last member had not acked the message."""
    MOVED = 6
    """An operator moved the position back, or asked for the message to be sent again."""
    NOT_SENT = 7
    """The delivery before never left the server."""
    OWED = 8
    """It was to be sent again when this leader began; what the log tells before that is the cause."""
    SERVER_CHANGED = 9
    """Another node has served the subscription before, or another leader, and may have sent it; no entry tells whether it has."""
