"""The rows of channels that are moved to another group: everything that their group's state has of them, besides the messages.

While a channel is held nothing of it changes, so every leader of the group makes the same rows in the same order.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from stan_protocol.scalars import ChannelUid

from stan.core.state.cursors import cursor_row, subscription_row
from stan.core.state.deferred import Deferred
from stan.core.state.dropped import DroppedChannels
from stan.core.state.group import GroupMachine
from stan.core.state.moves import MoveStages
from stan.core.state.transactions import COMMITTED, Transactions
from stan.protocol.proto import entries_pb2 as pb

UID_BYTES: Final = 4
LONG_UID_BYTES: Final = 8
_STAYING: Final = (Deferred.KIND, DroppedChannels.KIND, MoveStages.KIND)
"""Kinds of components of which nothing moves. Rows of all others have keys that begin with a channel, transactions aside."""


def _belongs(kind: str, key: bytes, uid: int) -> bool:
    """True if a row moves with a channel."""
    if kind == Transactions.KIND:
        return key[:1] == COMMITTED and key[1 : 1 + LONG_UID_BYTES] == uid.to_bytes(LONG_UID_BYTES)
    return key[:UID_BYTES] == uid.to_bytes(UID_BYTES)


def moved_rows(
    machine: GroupMachine, uids: Iterable[int], last_of: Callable[[ChannelUid], int]
) -> Iterator[pb.MovedRow]:
    """Each row of the channels, in an order that depends on the state alone. *last_of*: returns the sequence of a channel's
    newest message; 0 if it never had one."""
    for number in uids:
        uid = ChannelUid(number)
        channel, last = machine.channel(uid), last_of(uid)
        first = pb.FirstSequence(uid=uid, first_sequence=channel.first_sequence, last_sequence=last)
        yield pb.MovedRow(first=first)
        for cursor_id in sorted(channel.cursors):
            yield pb.MovedRow(cursor=cursor_row(channel.cursors[cursor_id]))
        members = [member for cursor in channel.cursors.values() for member in cursor.members]
        for member in sorted(members, key=lambda one: one.subscription_id):
            row = subscription_row(member)
            row.ack_group = row.ack_group or machine.group
            row.joined = member.joined_at
            yield pb.MovedRow(subscription=row)
        for part in machine.components:
            for key in sorted(part.keys()) if part.KIND not in _STAYING else ():
                if _belongs(part.KIND, key, uid):
                    yield pb.MovedRow(part=pb.PartRow(kind=part.KIND, key=key, state=part.row(key) or b""))
