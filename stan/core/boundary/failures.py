"""What operators hear of messages that a position has given up: a line of the log and an admin event.

Both are bounded, as whoever publishes such messages, or rejects them, can go on with it.
"""

from stan_protocol.scalars import GroupId

from stan.core.base.runs import Run
from stan.core.context import BrokerContext, shown, shown_position
from stan.core.state.group import Cursor


def tell_failure(context: BrokerContext, number: GroupId, kind: str, cursor: Cursor, run: Run, reason: bytes) -> None:
    """Tell that the messages of *run* were `rejected` by a client of *cursor*, for a *reason*, or are `exhausted`: delivered as
    often as the policy allows. *kind* is one of the two."""
    info = context.meta.by_uid.get(cursor.uid)
    channel = b"?" if info is None else info.name
    which = f"message {run.first}" if run.size == 1 else f"messages {run.first} to {run.last}"
    position = shown_position(cursor)
    if kind == "rejected":
        text = f'{which} of "{shown(channel)}" rejected for {position}'
        text += f": {shown(reason)}" if reason else ""
    else:
        text = f'{which} of "{shown(channel)}" not sent to {position} any more: delivered {run.count + 1} times in vain'
    context.complain("WRN", text)
    context.emit(kind, text, channel=channel, client_id=cursor.client_id, group=number, cursor_id=cursor.cursor_id)
