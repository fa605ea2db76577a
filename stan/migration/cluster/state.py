"""The state that a cluster has replicated: a snapshot, and the operations after it, applied as a follower of the original does.

Clients count, because an operation of an unknown client does nothing. Of subscriptions those count that outlive their clients:
durables and durable queue groups, with their pending messages. Messages stay in the log: a channel has the
places of their batches.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from stan_protocol.channels import is_channel_name

from stan.migration.cluster.raft_directory import LoggedCommand
from stan.migration.messages import SEQUENCE_MAX
from stan.migration.records import ProtoFields, numbers, texts
from stan.migration.subscriptions import OldPosition, bounded_ack_wait, bounded_max_in_flight

_PUBLISH, _SUBSCRIBE, _REMOVE, _CLOSE, _SENT_AND_ACKED = range(5)
_CONNECT, _DISCONNECT, _DELETE = 6, 7, 8
_START_AT_SEQUENCE = 3


class LoggedBatch(NamedTuple):
    """Messages of one channel in an entry of the log."""

    first: int
    last: int
    offset: int
    size: int


@dataclass(slots=True, eq=False)
class _Member:
    """A subscription: online, or the remainder of one that outlives its client."""

    client_id: bytes
    durable: bytes
    group: bytes
    is_durable: bool
    inbox: bytes
    ack_inbox: bytes
    max_in_flight: int
    ack_wait_s: int
    last_sent: int = 0
    pending: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Group:
    """A queue group."""

    members: list[_Member] = field(default_factory=list)
    shadow: _Member | None = None  # of a durable group without a member: the last one that left
    last_sent: int = 0
    handed_over: set[int] = field(default_factory=set)
    """Pending messages of members that left: the leader has given them to others by the time of the group's next entry."""


@dataclass(slots=True)
class ReplicatedChannel:
    """A channel."""

    channel_id: int
    first: int = 0
    last: int = 0
    batches: list[LoggedBatch] = field(default_factory=list)
    online: dict[bytes, _Member] = field(default_factory=dict)  # by the inbox of their acks
    durables: dict[tuple[bytes, bytes], _Member] = field(default_factory=dict)
    groups: dict[bytes, _Group] = field(default_factory=dict)

    def positions(self) -> tuple[list[OldPosition], int]:
        """Return what outlives its clients, and the number of subscriptions that end because they do not."""
        positions = [
            OldPosition(
                client_id,
                durable,
                b"",
                member.last_sent,
                member.inbox,
                member.max_in_flight,
                member.ack_wait_s,
                member.pending,
            )
            for (client_id, durable), member in self.durables.items()
        ]
        for name, group in self.groups.items():
            members = [*([group.shadow] if group.shadow else []), *group.members]
            if not members or not members[-1].is_durable:
                continue
            last, (durable, _, queue) = members[-1], name.partition(b":")
            pending = group.handed_over.union(*(member.pending for member in members))
            sent = max(group.last_sent, *(member.last_sent for member in members), 0)
            positions.append(
                OldPosition(
                    last.client_id, durable, queue, sent, last.inbox, last.max_in_flight, last.ack_wait_s, pending
                )
            )
        return positions, sum(not member.is_durable for member in self.online.values())


class ReplicatedState:
    """The state at the end of the log. Raises ValueError: the snapshot or an operation cannot be decoded."""

    def __init__(self, snapshot: bytes) -> None:
        self.clients: dict[bytes, None] = {}
        self.channels: dict[bytes, ReplicatedChannel] = {}
        self.deleted: dict[bytes, int] = {}  # channels that an entry has deleted: the newest id
        for client in texts(snapshot, 1):
            self.clients[ProtoFields(client).text(1)] = None
        for one in texts(snapshot, 2):
            fields = ProtoFields(one)
            channel = self.channels[fields.text(1)] = ReplicatedChannel(
                fields.number(6), fields.number(2), fields.number(3)
            )
            for subscription in texts(one, 4):
                state = ProtoFields(subscription).text(1)
                self._recover(channel, ProtoFields(state), set(numbers(subscription, 2)))

    def apply(self, command: LoggedCommand, data: bytes) -> None:
        """Apply an operation. Raises ValueError: it cannot be decoded; nothing is changed then."""
        operation = ProtoFields(data)
        match operation.number(1):
            case kind if kind == _PUBLISH:
                self._publish(command, operation)
            case kind if kind == _SUBSCRIBE:
                request = operation.text(3)
                self._subscribe(ProtoFields(request), operation.number(10))
            case kind if kind in (_REMOVE, _CLOSE):
                self._leave(ProtoFields(operation.text(4)), unsubscribe=kind == _REMOVE)
            case kind if kind == _SENT_AND_ACKED:
                self._sent_and_acked(operation.text(5))
            case kind if kind == _CONNECT:
                added = ProtoFields(operation.text(7))
                client_id = ProtoFields(added.text(1)).text(1)
                if added.number(2):
                    self._disconnect(client_id)
                self.clients[client_id] = None
            case kind if kind == _DISCONNECT:
                self._disconnect(ProtoFields(operation.text(8)).text(1))
            case kind if kind == _DELETE:
                self._delete(operation.text(9), operation.number(10))
            case kind:
                raise ValueError(f"an operation of the unknown kind {kind}")

    # --- operations -------------------------------------------------------------------------------------------------

    def _publish(self, command: LoggedCommand, operation: ProtoFields) -> None:
        messages = texts(operation.text(2), 1)
        if not messages:
            return
        message = ProtoFields(messages[0])
        first = message.number(1)
        last = first + len(messages) - 1
        if not 0 < first <= last <= SEQUENCE_MAX or not is_channel_name(message.text(2)):
            raise ValueError(f"messages {first} to {last} of the channel {message.text(2)!r}")
        channel = self._channel(message.text(2), operation.number(10))
        if channel is not None and last > channel.last:
            channel.last = last
            channel.batches.append(LoggedBatch(first, last, command.offset, command.size))

    def _subscribe(self, added: ProtoFields, channel_id: int) -> None:
        request = ProtoFields(added.text(1))
        if not is_channel_name(request.text(2)):
            raise ValueError(f"a subscription to the channel {request.text(2)!r}")
        channel = self._channel(request.text(2), channel_id)
        client_id, group, durable = request.text(1), request.text(3), request.text(7)
        if channel is None or client_id not in self.clients or (group and b":" in durable):
            return
        is_durable = bool(durable)
        if group and durable:
            group, durable = durable + b":" + group, b""
        member = _Member(
            client_id, durable, group, is_durable, request.text(4), added.text(2),
            bounded_max_in_flight(request.number(5)), bounded_ack_wait(request.number(6)),
        )  # fmt: skip
        before = self._resumed(channel, member)
        if before is member:
            return  # a second subscription to a durable that is online
        if before is not None:
            member.last_sent, member.pending = before.last_sent, before.pending
        elif not group or group not in channel.groups:
            start = request.number(11) if request.number(10) == _START_AT_SEQUENCE else 0
            member.last_sent = min(max(start - 1, 0), channel.last)
        channel.online[member.ack_inbox] = member
        if durable:
            channel.durables[client_id, durable] = member
        if group:
            joined = channel.groups.setdefault(group, _Group())
            joined.members.append(member)
            joined.last_sent = max(joined.last_sent, member.last_sent)

    def _resumed(self, channel: ReplicatedChannel, member: _Member) -> _Member | None:
        """Return the remainder that *member* resumes, None if it begins one; *member* itself: it may not."""
        if member.group:
            group = channel.groups.get(member.group)
            if group is None:
                return None
            shadow, group.shadow = group.shadow, None
            return shadow
        known = channel.durables.get((member.client_id, member.durable)) if member.durable else None
        return member if known is not None and known.ack_inbox in channel.online else known

    def _leave(self, request: ProtoFields, *, unsubscribe: bool) -> None:
        channel = self.channels.get(request.text(2))
        if channel is None:
            return
        inbox = request.text(3)
        member = channel.online.get(inbox) or next(
            (member for member in channel.online.values() if member.inbox == inbox), None
        )
        if member is not None and member.client_id == request.text(1):
            _remove(channel, member, unsubscribe=unsubscribe)

    def _sent_and_acked(self, operation: bytes) -> None:
        fields = ProtoFields(operation)
        channel = self.channels.get(fields.text(1))
        member = channel.online.get(fields.text(2)) if channel is not None else None
        if channel is None or member is None:
            return
        sent = [sequence for sequence in numbers(operation, 3) if sequence <= channel.last]
        acked = numbers(operation, 4)
        member.last_sent = max(member.last_sent, *sent, 0)
        member.pending.update(sent)
        member.pending.difference_update(acked)
        group = channel.groups.get(member.group) if member.group else None
        if group is not None:
            group.last_sent = max(group.last_sent, *sent, 0)
            group.handed_over.clear()

    def _disconnect(self, client_id: bytes) -> None:
        if client_id not in self.clients:
            return
        del self.clients[client_id]
        for channel in self.channels.values():
            for member in [member for member in channel.online.values() if member.client_id == client_id]:
                _remove(channel, member, unsubscribe=False)

    def _delete(self, name: bytes, channel_id: int) -> None:
        channel = self.channels.get(name)
        if channel is None or same_channel(channel_id, channel.channel_id):
            self.channels.pop(name, None)
            self.deleted[name] = channel_id

    def _channel(self, name: bytes, channel_id: int) -> ReplicatedChannel | None:
        """Return the channel of that id, made if it is new or newer; None if there is a newer one."""
        channel = self.channels.get(name)
        if channel is not None and (channel.channel_id >= channel_id or same_channel(channel_id, channel.channel_id)):
            return channel if same_channel(channel_id, channel.channel_id) else None
        if channel is not None:
            self.deleted[name] = channel.channel_id
        channel = self.channels[name] = ReplicatedChannel(channel_id)
        return channel

    def _recover(self, channel: ReplicatedChannel, state: ProtoFields, pending: set[int]) -> None:
        """Take a subscription of a snapshot."""
        client_id, group, durable = state.text(2), state.text(3), state.text(8)
        member = _Member(
            client_id, durable, group, bool(durable or state.number(10)), state.text(4), state.text(5),
            bounded_max_in_flight(state.number(6)), bounded_ack_wait(state.number(7)), state.number(9), pending,
        )  # fmt: skip
        is_online = client_id in self.clients and not (durable and state.number(11))
        if is_online:
            channel.online[member.ack_inbox] = member
        if durable:
            channel.durables[client_id, durable] = member
        if not group or not (is_online or member.is_durable):
            return
        recovered = channel.groups.setdefault(group, _Group())
        recovered.last_sent = max(recovered.last_sent, member.last_sent)
        if is_online:
            recovered.members.append(member)
        elif recovered.shadow is None:
            recovered.shadow = member
        else:
            recovered.shadow.pending |= member.pending


def same_channel(one_id: int, other_id: int) -> bool:
    """Return True if both are ids of the same channel; older versions gave none, which is 0 and counts as any."""
    return one_id == other_id or 0 in (one_id, other_id)


def _remove(channel: ReplicatedChannel, member: _Member, *, unsubscribe: bool) -> None:
    """Remove a subscription; a durable one stays as a remainder, unless it is unsubscribed."""
    del channel.online[member.ack_inbox]
    if unsubscribe and member.durable:
        channel.durables.pop((member.client_id, member.durable), None)
    group = channel.groups.get(member.group) if member.group else None
    if group is None:
        return
    group.members.remove(member)
    if group.members:
        group.handed_over |= member.pending
    elif unsubscribe or not member.is_durable:
        del channel.groups[member.group]
    else:
        group.shadow = member
