"""Changes of cursors by operators: of durables, queue groups and plain subscriptions (docs/admin-api.md).

    create_cursor, move, skip, redeliver, pause, resume, evict_member, delete_cursor

Each change is one entry of the channel's group, and is answered once that entry is applied: from then on it holds, also after a
change of leaders.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from stan_protocol import refusals
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.scalars import WallNanos

from stan.core.base.names import text
from stan.core.boundary.group_view import CursorIdentity
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.cursor_override import well_formed
from stan.core.state.cursors import Cursor, CursorKind, cursor_row, kind_and_name
from stan.core.state.group_state import GroupResult
from stan.protocol.proto import entries_pb2 as pb

Change = dict[str, Any]
"""One change of GroupChange, by its name."""
_Change = Callable[[Any, ChannelInfo, Cursor], Change | str]
"""Returns the change that a request asks for, or why it is refused."""
Known = TypeVar("Known", Cursor, CursorIdentity)


class CursorAdmin:
    """Handles operators' requests that change one cursor."""

    def __init__(self, services: Services, channels: LiveChannels, lookup: ChannelLookup) -> None:
        self.node, self.proposals, self.stored = services.node, services.proposals, services.stored
        self.channels = channels
        self.lookup = lookup

    # --- requests -----------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        changes: dict[str, _Change] = {
            "admin.move": self._move,
            "admin.skip": self._skip,
            "admin.redeliver": _redeliver,
            "admin.pause": _pause,
            "admin.resume": _resume,
            "admin.delete_cursor": _delete,
        }
        handlers = {name: self.lookup.existing(partial(self._change, change)) for name, change in changes.items()}
        create, evict = self.lookup.existing(self._create), self.lookup.existing(self._evict)
        return {**handlers, "admin.create_cursor": create, "admin.evict_member": evict}

    def _create(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Create a durable or a durable queue group without members, as if they had left it."""
        if self._is_deleting(accepted, info):
            return
        asked, limit = accepted.request.which, self.channels.by_uid[info.uid].limits.subscriptions
        kind, name = kind_and_name(asked.queue_group, asked.durable_name)
        is_owned = kind is CursorKind.DURABLE and asked.client_id
        cursor = self._new(accepted.request, info)
        if asked.cursor_id or not (is_owned or kind is CursorKind.DURABLE_QUEUE):
            accepted.refuse(refusals.INVALID_NEW_CURSOR)
        elif isinstance(cursor, str):
            accepted.refuse(cursor)
        elif limit and self.node.group_of(info).machine.channel(info.uid).subscription_count >= limit:
            accepted.refuse(refusals.TOO_MANY_SUBSCRIPTIONS)
        else:
            cursor.kind, cursor.name, cursor.client_id = kind, name, asked.client_id if is_owned else b""
            created = partial(self._answer, accepted, info, changed=1)
            self.proposals.change_group(info.group, created, restored_cursor=pb.RestoredCursor(cursor=cursor))

    def _new(self, request: admin.CreateCursorRequest, info: ChannelInfo) -> pb.Cursor | str:
        """The position of a new cursor, as a row without a name; or why there is none."""
        if request.WhichOneof("at") != "like":
            sequence = self._next_of(request, "at", info)
            return sequence if isinstance(sequence, str) else pb.Cursor(uid=info.uid, last_sent=sequence - 1)
        known = which(list(self.node.group_of(info).machine.channel(info.uid).cursors.values()), request.like)
        if isinstance(known, str):
            return known
        return refusals.CURSOR_HAS_MEMBERS if known.members else cursor_row(known)

    def _move(self, request: admin.MoveRequest, info: ChannelInfo, cursor: Cursor) -> Change | str:
        """Set the message that the cursor gets next."""
        sequence = self._next_of(request, "to", info)
        if isinstance(sequence, str):
            return sequence
        move = pb.MoveCursor(cursor_id=cursor.cursor_id, at=self.node.clock.wall, sequence=sequence)
        return {"move_cursor": move}

    def _next_of(
        self, request: admin.MoveRequest | admin.CreateCursorRequest, place: str, info: ChannelInfo
    ) -> int | str:
        """The sequence that the field *place* of a request means, or why it means none."""
        index = self.stored.indexes(info.group, info.uid)
        end = index.last_sequence + 1
        match request.WhichOneof(place):
            case "sequence" if request.sequence > end:
                return refusals.beyond_end(text(info.name), request.sequence, index.last_sequence)
            case "sequence" if request.sequence:
                sequence = request.sequence
            case "time":
                sequence = index.sequence_at(WallNanos(request.time))
            case "new_only" if request.new_only:
                sequence = end
            case "all" if request.all:
                sequence = index.first_sequence
            case _:
                return refusals.INVALID_MOVE
        return max(sequence, index.first_sequence, 1)

    def _skip(self, request: admin.SkipRequest, info: ChannelInfo, cursor: Cursor) -> Change | str:
        """Treat messages as acked; those that were not sent yet are passed over when their turn comes."""
        last = self.stored.indexes(info.group, info.uid).last_sequence
        if not request.runs or not well_formed(request.runs):
            return refusals.INVALID_RUNS
        if max(request.runs) > last:
            return refusals.beyond_end(text(info.name), max(request.runs), last)
        return {"skip_sequences": pb.SkipSequences(cursor_id=cursor.cursor_id, runs=request.runs)}

    def _evict(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Close one subscription."""
        if self._is_deleting(accepted, info):
            return
        group, number = self.node.group_of(info), accepted.request.subscription_id
        member = group.machine.subscriptions.by_id.get(number)
        if member is None or group.machine.cursors[member.cursor_id].uid != info.uid:
            accepted.refuse(refusals.unknown_subscription(number, text(info.name)))
            return

        def done(result: object, error: str) -> None:
            found = group.dispatch.cursors.by_subscription.get(number)
            if found is not None and found[1].sub is member:  # the change was refused
                found[1].leaving = False
            self._answer(accepted, info, result, error, changed=1)

        self.proposals.leave(info.group, number, done)

    # --- one change -----------------------------------------------------------------------------------------------------

    def _change(self, change: _Change, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """Propose what *change* returns for a request, or refuse the request with the error that *change* returns."""
        if self._is_deleting(accepted, info):
            return
        of_channel = self.node.group_of(info).machine.channel(info.uid)
        cursor = which(list(of_channel.cursors.values()), accepted.request.which)
        made = cursor if isinstance(cursor, str) else change(accepted.request, info, cursor)
        if isinstance(made, str):
            accepted.refuse(made)
            return
        self.proposals.change_group(
            info.group, lambda result, error: self._answer(accepted, info, result, error), **made
        )

    def _is_deleting(self, accepted: AcceptedRequest, info: ChannelInfo) -> bool:
        channel = self.channels.by_uid.get(info.uid)
        if channel is None:
            accepted.busy()
        elif channel.deleting:
            accepted.refuse(refusals.CHANNEL_DELETING)
        return channel is None or channel.deleting

    def _answer(
        self, accepted: AcceptedRequest, info: ChannelInfo, result: object, error: str, *, changed: int = 0
    ) -> None:
        if not isinstance(result, GroupResult):
            accepted.refuse(error, retry=True)
        elif result.error:
            accepted.refuse(result.error)
        else:
            index = self.stored.indexes(info.group, info.uid)
            change = result.operator_change
            accepted.answer(
                changed=changed if change is None else change.changed,
                first_sequence=index.first_sequence,
                last_sequence=index.last_sequence,
            )


def _redeliver(request: admin.RedeliverRequest, _info: ChannelInfo, cursor: Cursor) -> Change | str:
    """Send pending messages again now."""
    if not well_formed(request.runs):
        return refusals.INVALID_RUNS
    return {"send_again": pb.SendAgain(cursor_id=cursor.cursor_id, runs=request.runs)}


def _pause(_request: admin.PauseRequest, _info: ChannelInfo, cursor: Cursor) -> Change | str:
    """Send nothing from now on."""
    return {"pause_cursor": pb.PauseCursor(cursor_id=cursor.cursor_id, paused=True)}


def _resume(_request: admin.ResumeRequest, _info: ChannelInfo, cursor: Cursor) -> Change | str:
    """End the pause."""
    return {"pause_cursor": pb.PauseCursor(cursor_id=cursor.cursor_id, paused=False)}


def _delete(_request: admin.DeleteCursorRequest, _info: ChannelInfo, cursor: Cursor) -> Change | str:
    """Delete the cursor with its position and its members."""
    return {"drop_cursor": pb.DropCursor(cursor_id=cursor.cursor_id)}


def which(cursors: list[Known], asked: admin.Which) -> Known | str:
    """The one of a channel's *cursors* that an operator names, or why it cannot be determined."""
    if not (asked.cursor_id or asked.durable_name or asked.queue_group):
        return refusals.CURSOR_NOT_NAMED
    group = asked.queue_group
    if group and asked.durable_name:
        group = asked.durable_name + b":" + group
    found = [cursor for cursor in cursors if _is_meant(cursor, asked, group)]
    if not found:
        return refusals.unknown_cursor(text(asked.channel), _named(asked))
    if len(found) > 1:
        others = [f"{cursor.cursor_id} of client {refusals.go_quote(text(cursor.client_id))}" for cursor in found]
        return refusals.ambiguous_cursor(text(asked.channel), _named(asked), others)
    return found[0]


def _is_meant(cursor: Cursor | CursorIdentity, asked: admin.Which, group: bytes) -> bool:
    if asked.cursor_id and cursor.cursor_id != asked.cursor_id:
        return False
    if group:
        return cursor.kind.shared and cursor.name == group
    if asked.durable_name:
        is_owner = asked.client_id in (b"", cursor.client_id)
        return cursor.kind is CursorKind.DURABLE and cursor.name == asked.durable_name and is_owner
    return True


def _named(asked: admin.Which) -> str:
    """The cursor that was asked for, in words, for an error text."""
    words = []
    if asked.cursor_id:
        words.append(f"position {asked.cursor_id}")
    if asked.durable_name:
        words.append(f"durable {refusals.go_quote(text(asked.durable_name))}")
    if asked.queue_group:
        words.append(f"queue group {refusals.go_quote(text(asked.queue_group))}")
    if asked.client_id:
        words.append(f"client {refusals.go_quote(text(asked.client_id))}")
    return ", ".join(words)
