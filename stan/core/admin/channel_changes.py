"""Changes of channels that operators ask for, on the leader of the channel's group: purged, messages deleted, made, deleted.

Promises: a change is one committed entry, and is answered once it is applied; asked again it changes nothing more. What is
answered with "ask again" may have happened. A purge and the deletion of a message are in force for everybody at that entry: who
had a message pending has it no more.
"""

from collections.abc import Callable
from functools import partial

from stan import limits
from stan.core.context import BrokerContext
from stan.core.publishing.channels import LiveChannel, LiveChannels
from stan.core.publishing.row_batch import can_open_later
from stan.core.requests.request import LeaderRequest
from stan.core.requests.responder import Responder
from stan.core.state.group import GroupResult
from stan.core.state.limit_overrides import EDITED
from stan.core.state.meta import ChannelInfo
from stan.core.state.tombstones import below_newest, deleted_from
from stan.errors import CHANNEL_DELETING, INVALID_ADMIN, INVALID_SUBJECT, UNKNOWN_MESSAGE
from stan.protocol.channels import is_channel_name
from stan.protocol.frames import Frame
from stan.protocol.proto import admin_pb2 as admin
from stan.protocol.proto import entries_pb2 as pb
from stan.types import ChannelUid, GroupId

LIMIT_END = 1 << 63
"""Limits are below it."""


class ChannelChanges:
    """See the module's docstring."""

    def __init__(self, context: BrokerContext, channels: LiveChannels, responder: Responder) -> None:
        self.context = context
        self.channels = channels
        self.responder = responder
        self.opening = 0  # requests that wait for a channel to be made
        self.leaving: dict[
            ChannelUid, tuple[LeaderRequest, int]
        ] = {}  # who waits for the registry; messages there were

    def requests(self) -> dict[str, Callable[[Frame], None]]:
        """Who takes each kind of request."""
        return {
            "purge": self.purge,
            "delete_message": self.delete_message,
            "edit_limits": self.edit_limits,
            "create_channel": self.create_channel,
            "delete_channel": self.delete_channel,
        }

    def follow(self, number: GroupId) -> None:
        """This node leads a group no more: its next leader is asked again."""
        for uid in [uid for uid, (about, _) in self.leaving.items() if about.number == number]:
            del self.leaving[uid]

    # --- messages -----------------------------------------------------------------------------------------------------

    def purge(self, frame: Frame) -> None:
        """A PurgeRequest."""
        self._find(frame, admin.PurgeRequest, self._purge)

    def _purge(self, about: LeaderRequest, channel: LiveChannel) -> None:
        request: admin.PurgeRequest = about.request
        index = self.context.indexes(channel.info.group, channel.info.uid)
        last = index.last_sequence
        match request.WhichOneof("what"):
            case "up_to":
                to = min(request.up_to, last)
            case "keep":
                deleted = self.context.deleted(channel.info.group, channel.info.uid)
                to = below_newest(deleted, last, request.keep)
            case _:
                about.refuse(INVALID_ADMIN)
                return
        if to < max(index.first_sequence, 1):
            self._done(about, channel, 0)
        else:
            removal = pb.Removal(uid=channel.info.uid, first_sequence=to + 1)
            self._remove(about, channel, removal, self._messages(channel, to))

    def delete_message(self, frame: Frame) -> None:
        """A DeleteMessageRequest."""
        self._find(frame, admin.DeleteMessageRequest, self._delete_message)

    def _delete_message(self, about: LeaderRequest, channel: LiveChannel) -> None:
        info, sequence = channel.info, about.request.sequence
        index = self.context.indexes(info.group, info.uid)
        if not 0 < sequence <= index.last_sequence:
            about.refuse(UNKNOWN_MESSAGE)
        elif sequence < index.first_sequence or about.group.machine.tombstones.within(info.uid, sequence, sequence):
            self._done(about, channel, 0)
        else:
            self._remove(about, channel, pb.Removal(uid=info.uid, deleted=(sequence, sequence)), 1)

    def _remove(self, about: LeaderRequest, channel: LiveChannel, removal: pb.Removal, count: int) -> None:
        def done(result: object, error: str) -> None:
            if not isinstance(result, GroupResult):
                about.refuse(error, retry=True)
            elif result.error:
                about.refuse(result.error)
            else:
                self._done(about, channel, count)

        self.context.change_group(channel.info.group, done, removal=removal)

    def _messages(self, channel: LiveChannel, last: int) -> int:
        """How many messages there are up to *last*."""
        info = channel.info
        first = max(self.context.indexes(info.group, info.uid).first_sequence, 1)
        return last - first + 1 - deleted_from(self.context.deleted(info.group, info.uid), first, last)

    # --- limits -------------------------------------------------------------------------------------------------------

    def edit_limits(self, frame: Frame) -> None:
        """An EditLimitsRequest."""
        self._find(frame, admin.EditLimitsRequest, self._edit_limits)

    def _edit_limits(self, about: LeaderRequest, channel: LiveChannel) -> None:
        edit = edit_of(channel.info.uid, about.request.limits)
        if edit is None:
            about.refuse(INVALID_ADMIN)
            return
        edit.reset = about.request.reset

        def done(result: object, error: str) -> None:
            if isinstance(result, GroupResult):
                self._done(about, channel, int(bool(result.of_part)))
            else:
                about.refuse(error, retry=True)

        self.context.change_group(channel.info.group, done, edit_limits=edit)

    # --- channels -----------------------------------------------------------------------------------------------------

    def create_channel(self, frame: Frame) -> None:
        """A CreateChannelRequest."""
        about = self.responder.admin_request(frame, (admin.CreateChannelRequest, admin.ChangeResponse))
        if about is None:
            return
        name = about.request.channel
        if not is_channel_name(name):
            about.refuse(INVALID_SUBJECT)
        elif self.opening >= limits.CHANNEL_CHANGES_WAITING_MAX:
            about.busy()
        else:
            self.opening += 1
            self.channels.open(name, partial(self._opened, about, new=name not in self.channels.by_name))

    def _opened(self, about: LeaderRequest, channel: LiveChannel | None, error: str, *, new: bool) -> None:
        self.opening -= 1
        if channel is None:
            about.refuse(error, retry=can_open_later(error))
        else:
            self._done(about, channel, int(new))

    def delete_channel(self, frame: Frame) -> None:
        """A DeleteChannelRequest. Of a channel that is not there, nothing is changed."""
        about = self.responder.admin_request(frame, (admin.DeleteChannelRequest, admin.ChangeResponse))
        if about is None:
            return
        if about.request.channel in self.context.meta.channels:
            self._delete_channel(about, known=True)
        else:
            self.responder.catch_up(lambda known: self._delete_channel(about, known=known))

    def _delete_channel(self, about: LeaderRequest, *, known: bool) -> None:
        name, uid = about.request.channel, about.request.uid
        info = self.context.meta.channels.get(name)
        if not known or not self.responder.answers_for((self.context.group_number(name),)):
            about.busy()
            return
        if info is None or uid not in (0, info.uid):
            about.answer()
            return
        channel = self.channels.by_uid.get(info.uid)
        if channel is None or len(self.leaving) >= limits.CHANNEL_CHANGES_WAITING_MAX:
            about.busy()
            return
        if channel.deleting:
            about.refuse(CHANNEL_DELETING, retry=True)
            return
        last = self.context.indexes(info.group, info.uid).last_sequence
        self.leaving[info.uid] = about, self._messages(channel, last)
        self.channels.delete(channel, partial(self._dropped, info.uid))

    def _dropped(self, uid: ChannelUid, error: str) -> None:
        if error and uid in self.leaving:
            about, _ = self.leaving.pop(uid)
            about.refuse(error, retry=True)

    def unregistered(self, uid: ChannelUid) -> None:
        """The registry does not have a channel any more."""
        if uid in self.leaving:
            about, count = self.leaving.pop(uid)
            about.answer(changed=count)

    # --- what all have in common ----------------------------------------------------------------------------------------

    def _find(self, frame: Frame, kind: type, found: Callable[[LeaderRequest, LiveChannel], None]) -> None:
        """Call with the channel that a request names, or refuse the request."""
        self.responder.find(
            self.responder.admin_request(frame, (kind, admin.ChangeResponse)), partial(self._found, found)
        )

    def _found(
        self, found: Callable[[LeaderRequest, LiveChannel], None], about: LeaderRequest, info: ChannelInfo
    ) -> None:
        channel = self.channels.by_uid.get(info.uid)
        if channel is None:
            about.busy()
        elif channel.closed:
            about.refuse(channel.closed, retry=True)
        else:
            found(about, channel)

    def _done(self, about: LeaderRequest, channel: LiveChannel, changed: int) -> None:
        """The change is made; the index may learn of it a moment later."""
        info = channel.info
        index, known = self.context.indexes(info.group, info.uid), self.context.group_of(info).machine.channel(info.uid)
        first = max(index.first_sequence, known.first_sequence) if index.last_sequence else index.first_sequence
        about.answer(changed=changed, first_sequence=first, last_sequence=index.last_sequence)


def edit_of(uid: ChannelUid, asked: admin.Limits) -> pb.EditLimits | None:
    """The change that a request asks for; None if it makes no sense."""
    edit = pb.EditLimits(uid=uid)
    for name in EDITED:
        if asked.HasField(name):
            value = getattr(asked, name)
            if not 0 <= value < LIMIT_END:
                return None
            setattr(edit, name, value)
    return edit
