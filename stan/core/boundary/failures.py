"""What operators hear of messages that a position has given up: a line of the log and an admin event.

Both are bounded, as whoever publishes such messages, or rejects them, can go on with it.
"""

from stan_protocol.scalars import GroupId

from stan.core.base.names import shown
from stan.core.base.runs import Run
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor


def tell_failure(services: Services, number: GroupId, kind: str, cursor: Cursor, run: Run, reason: bytes) -> None:
    """Tell that the messages of *run* were `rejected` by a client of *cursor*, for a *reason*, or are `exhausted`: delivered as
    often as the policy allows. *kind* is one of the two."""
    info = services.node.meta.by_uid.get(cursor.uid)
    channel = b"?" if info is None else info.name
    which = f"message {run.first}" if run.size == 1 else f"messages {run.first} to {run.last}"
    position = cursor.in_words
    if kind == "rejected":
        text = f'{which} of "{shown(channel)}" rejected for {position}'
        text += f": {shown(reason)}" if reason else ""
    else:
        text = f'{which} of "{shown(channel)}" not sent to {position} any more: delivered {run.count + 1} times in vain'
    services.reports.complain("WRN", text)
    services.reports.emit(
        kind, text, channel=channel, client_id=cursor.client_id, group=number, cursor_id=cursor.cursor_id
    )
