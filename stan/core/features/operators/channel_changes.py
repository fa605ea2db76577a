"""Changes of channels by operators, on the leader of the channel's group: channels are made, purged, limited and deleted, and
single messages deleted.

Promises: a change is one committed entry, and is answered once it is applied; the same request again changes nothing more. A
change that was answered with "ask again" may have happened. A purge and the deletion of a message hold for every subscription
from that entry on: a message that is gone is pending nowhere.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from stan_protocol.channels import is_channel_name
from stan_protocol.refusals import (
    CHANNEL_DELETING,
    CHANNEL_IS_PART,
    INVALID_ADMIN,
    INVALID_SUBJECT,
    UNKNOWN_MESSAGE,
    go_quote,
)
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.base.names import text
from stan.core.leader.local_group import Leadership
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.row_batch import can_open_later
from stan.core.requests.channel_lookup import ChannelLookup
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.leader_part import LeaderPart
from stan.core.services.services import Services
from stan.core.state.group_state import GroupResult
from stan.core.state.limit_overrides import edit_of
from stan.core.state.tombstones import below_newest, deleted_from
from stan.protocol.proto import entries_pb2 as pb

if TYPE_CHECKING:
    from stan_protocol.proto import admin_pb2 as admin


class Deletions(LeaderPart):
    """The deletions of one group's channels under way, while this node leads it."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        super().__init__(services, leadership)
        self._waiting: dict[ChannelUid, tuple[AcceptedRequest, int]] = {}

    @property
    def count(self) -> int:
        """Number of requests that wait until the registry has lost their channel."""
        return len(self._waiting)

    def begin(self, uid: ChannelUid, accepted: AcceptedRequest, messages: int) -> None:
        """Let a request wait that deletes a channel with that number of messages."""
        self._waiting[uid] = accepted, messages

    def end(self, uid: ChannelUid, error: str = "") -> None:
        """Answer the request: the channel is gone, or stays because of an error."""
        accepted, messages = self._waiting.pop(uid, (None, 0))
        if accepted is not None and error:
            accepted.refuse(error, retry=True)
        elif accepted is not None:
            accepted.answer(changed=messages)


class ChannelChanges:
    """Handles operators' requests that change a channel."""

    def __init__(self, services: Services, channels: LiveChannels, lookup: ChannelLookup) -> None:
        self.leading, self.node, self.placement = services.leading, services.node, services.placement
        self.proposals, self.stored = services.proposals, services.stored
        self.channels = channels
        self.lookup = lookup
        self.opening = 0  # requests that wait for a channel to be made

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "admin.purge": self._existing(self._purge),
            "admin.delete_message": self._existing(self._delete_message),
            "admin.edit_limits": self._existing(self._edit_limits),
            "admin.create_channel": self._create_channel,
            "admin.delete_channel": self._delete_channel,
        }

    # --- messages -----------------------------------------------------------------------------------------------------

    def _purge(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        request: admin.PurgeRequest = accepted.request
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        last = index.last_sequence
        match request.WhichOneof("what"):
            case "up_to":
                to = min(request.up_to, last)
            case "keep":
                deleted = self.stored.deleted(channel.info.group, channel.info.uid)
                to = below_newest(deleted, last, request.keep)
            case _:
                accepted.refuse(INVALID_ADMIN)
                return
        oldest = max(index.first_sequence, 1)
        if to < oldest:
            self._done(accepted, channel, 0)
        elif channel.info.is_ephemeral:
            count = self._messages(channel, to)
            self.channels.stores.trim(channel.info.uid, to + 1)
            self.node.groups[channel.info.group].dispatch.uncovered(channel.info.uid)
            self._done(accepted, channel, count)
        else:
            removal = self.channels.policies.tiers.purge(channel.info.uid, oldest, to)
            self._remove(accepted, channel, removal, self._messages(channel, to))

    def _delete_message(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        info, sequence = channel.info, accepted.request.sequence
        index = self.stored.indexes(info.group, info.uid)
        if not 0 < sequence <= index.last_sequence:
            accepted.refuse(UNKNOWN_MESSAGE)
        elif sequence < index.first_sequence or accepted.group.machine.tombstones.within(info.uid, sequence, sequence):
            self._done(accepted, channel, 0)
        else:
            self._remove(accepted, channel, pb.Removal(uid=info.uid, deleted=(sequence, sequence)), 1)

    def _remove(self, accepted: AcceptedRequest, channel: LiveChannel, removal: pb.Removal, count: int) -> None:
        def done(result: object, error: str) -> None:
            if not isinstance(result, GroupResult):
                accepted.refuse(error, retry=True)
            elif result.error:
                accepted.refuse(result.error)
            else:
                self._done(accepted, channel, count)

        self.proposals.change_group(channel.info.group, done, removal=self.channels.policies.tiers.tell(removal))

    def _messages(self, channel: LiveChannel, last: int) -> int:
        """The number of messages in the channel up to the sequence *last*."""
        info = channel.info
        first = max(self.stored.indexes(info.group, info.uid).first_sequence, 1)
        return last - first + 1 - deleted_from(self.stored.deleted(info.group, info.uid), first, last)

    # --- limits -------------------------------------------------------------------------------------------------------

    def _edit_limits(self, accepted: AcceptedRequest, channel: LiveChannel) -> None:
        edit = edit_of(channel.info.uid, accepted.request.limits)
        if edit is None:
            accepted.refuse(INVALID_ADMIN)
            return
        edit.reset = accepted.request.reset

        def done(result: object, error: str) -> None:
            if isinstance(result, GroupResult):
                self._done(accepted, channel, int(bool(result.of_part)))
            else:
                accepted.refuse(error, retry=True)

        self.proposals.change_group(channel.info.group, done, edit_limits=edit)

    # --- channels -----------------------------------------------------------------------------------------------------

    def _create_channel(self, accepted: AcceptedRequest) -> None:
        name = accepted.request.channel
        if not is_channel_name(name):
            accepted.refuse(INVALID_SUBJECT)
        elif self.opening >= limits.CHANNEL_CHANGES_WAITING_MAX:
            accepted.busy()
        else:
            self.opening += 1
            self.channels.openings.open(name, partial(self._opened, accepted, new=name not in self.channels.by_name))

    def _opened(self, accepted: AcceptedRequest, channel: LiveChannel | None, error: str, *, new: bool) -> None:
        self.opening -= 1
        if channel is None:
            accepted.refuse(error, retry=can_open_later(error))
        else:
            self._done(accepted, channel, int(new))

    def _delete_channel(self, accepted: AcceptedRequest) -> None:
        """Delete a channel; if there is none, nothing changes."""
        if accepted.request.channel in self.node.meta.channels:
            self._delete_known(accepted, known=True)
        else:
            self.lookup.catch_up(accepted, lambda known: self._delete_known(accepted, known=known))

    def _delete_known(self, accepted: AcceptedRequest, *, known: bool) -> None:
        name, uid = accepted.request.channel, accepted.request.uid
        info = self.node.meta.channels.get(name)
        if not known or not self.leading.holds((self.placement.group_number(name),)):
            accepted.busy()
            return
        if info is None or uid not in (0, info.uid):
            accepted.answer()
            return
        whole = self.node.meta.channels.parted.whole(name)
        if whole != name:
            accepted.refuse(CHANNEL_IS_PART.format(go_quote(text(name)), go_quote(text(whole))))
            return
        channel = self.channels.by_uid.get(info.uid)
        if (
            channel is None
            or sum(one.count for one in self.leading.all_parts(Deletions)) >= limits.CHANNEL_CHANGES_WAITING_MAX
        ):
            accepted.busy()
            return
        if channel.deleting:
            accepted.refuse(CHANNEL_DELETING, retry=True)
            return
        last = self.stored.indexes(info.group, info.uid).last_sequence
        deletions = self.leading.leadership(info.group).part(Deletions)
        deletions.begin(info.uid, accepted, self._messages(channel, last))

        def dropped(error: str) -> None:
            if error:
                deletions.end(info.uid, error)

        self.channels.removal.delete(channel, dropped)

    def unregistered(self, info: ChannelInfo) -> None:
        """A channel was removed from the registry: answer the request to delete it."""
        deletions = self.leading.part(info.group, Deletions)
        if deletions is not None:
            deletions.end(info.uid)

    # --- for all requests ---------------------------------------------------------------------------------------------

    def _existing(self, found: Callable[[AcceptedRequest, LiveChannel], None]) -> Handler:
        """Return a handler that calls *found* with a request and its open channel, or refuses the request."""
        return self.lookup.existing(partial(self._found, found))

    def _found(
        self, found: Callable[[AcceptedRequest, LiveChannel], None], accepted: AcceptedRequest, info: ChannelInfo
    ) -> None:
        channel = self.channels.by_uid.get(info.uid)
        if channel is None:
            accepted.busy()
        elif channel.closed:
            accepted.refuse(channel.closed, retry=True)
        else:
            found(accepted, channel)

    def _done(self, accepted: AcceptedRequest, channel: LiveChannel, changed: int) -> None:
        """Answer that the change is made; the index may follow a moment later."""
        info = channel.info
        index, known = self.stored.indexes(info.group, info.uid), self.node.group_of(info).machine.channel(info.uid)
        first = max(index.first_sequence, known.first_sequence) if index.last_sequence else index.first_sequence
        accepted.answer(changed=changed, first_sequence=first, last_sequence=index.last_sequence)
