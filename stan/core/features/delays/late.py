"""Delayed messages that are later than their policy allows (`max_late`): what is told of them, what their dead letters say."""

from stan_protocol import dead_letters as letters
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId

from stan.core.base.names import shown
from stan.core.services.placement import ChannelPlacement
from stan.core.services.reports import Reports
from stan.core.state.meta import ChannelInfo


def letters_of(placement: ChannelPlacement, reports: Reports, name: bytes, group: GroupId) -> bytes:
    """The channel *name* for dead letters if it is, or will be, in the *group* of the messages; b"": there is none. Elsewhere a
    message cannot be stored in one entry."""
    if name and placement.group_number(name) != group:
        text = f"Messages that are later than max_late are delivered: {shown(name)} is in another group than they are"
        reports.complain("WRN", text)
        return b""
    return name


def mark(message: wire.MsgProto, info: ChannelInfo, sequence: int) -> None:
    """Say in the headers of a dead letter why it is one, and from which channel; *sequence*: there, or its id. It does not
    expire as the message would have."""
    message.ClearField("expires_at")
    headers = letters.of_every_letter(info.name, sequence, letters.LATE, message.timestamp)
    letters.rewrite(message, headers, letters.ADDED)


def report_late(reports: Reports, info: ChannelInfo, count: int, channel: bytes) -> None:
    """Report to operators that *count* messages of a channel were given up."""
    reports.totals.late_messages += count
    where = f"stored in {shown(channel)}" if channel else "dropped, as no policy names a channel for dead letters"
    text = f"{count} delayed messages of channel {shown(info.name)} were later than max_late: {where}"
    reports.note("WRN", text)
    reports.emit("late_messages", text, channel=info.name, group=info.group)
