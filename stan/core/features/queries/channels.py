"""Questions of clients about channels: what they hold, which message was the first at a time, which bookmarks were set; and the
setting of bookmarks, the named positions of clients that pull.

    info, cursors: each leader answers for the groups that it leads
    seq_at_time, cursor_set: the leader of the channel's group answers

Promises: an answer reports what was committed and visible while no other node could lead; an answer too large for one message
has the first part, and says so. A client that waits for newer messages is answered in the turn that commits them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial

from stan_protocol.patterns import valid_name
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.refusals import (
    CHANNEL_DELETING,
    INVALID_BOOKMARK,
    INVALID_QUERY,
    TOO_MANY_BOOKMARKS,
    UNKNOWN_CHANNEL,
)
from stan_protocol.scalars import MILLISECOND, GroupId, Sequence, WallNanos

from stan import limits
from stan.core.base.names import text
from stan.core.base.ready import Index
from stan.core.base.shares import of_user, of_whom
from stan.core.features.queries.long_poll import LongPoll
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channels import LiveChannels
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM, ChannelLookup, matcher
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.services.services import Services
from stan.core.state.bookmarks import Bookmarks, NotedPlace
from stan.core.state.group_state import GroupResult
from stan.core.state.tombstones import behind
from stan.permissions import Right
from stan.protocol.proto import entries_pb2 as entries


class ChannelQueries:
    """Handles questions about channels, and requests to set bookmarks."""

    def __init__(self, services: Services, channels: LiveChannels, lookup: ChannelLookup, long_poll: LongPoll) -> None:
        self.leading, self.nats, self.node = services.leading, services.nats, services.node
        self.placement, self.proposals, self.senders = services.placement, services.proposals, services.senders
        self.stored = services.stored
        self.channels = channels
        self.lookup = lookup
        self.long_poll = long_poll

    # --- what is there ------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "info": self._info,
            "seq_at_time": self.lookup.existing(self._sequence_at_time),
            "cursor_set": self.lookup.existing(self._set_cursor),
            "cursors": self._cursors,
        }

    def _info(self, accepted: AcceptedRequest) -> None:
        """An InfoRequest: what do channels hold?"""
        request: pb.InfoRequest = accepted.request
        if request.pattern and not valid_name(text(request.pattern), wildcards=True):
            accepted.refuse(INVALID_QUERY)
            return
        named = {*request.channels, *(position.channel for position in request.newer_than)}
        partition = self.placement.partition
        if partition is not None and named and not request.pattern and not any(partition[name] for name in named):
            return  # another server answers
        unknown = named - self.node.meta.channels.keys()
        if request.pattern or any(self.placement.group_number(name) in accepted.groups for name in unknown):
            self.lookup.catch_up(accepted, partial(self._tell_or_wait, accepted))
        else:
            self._tell_or_wait(accepted, known=True)

    def _tell_or_wait(self, accepted: AcceptedRequest, known: bool) -> None:  # noqa: FBT001 - an answer
        request: pb.InfoRequest = accepted.request
        if not known:
            accepted.busy()
            return
        watched = {
            position.channel: position.sequence
            for position in request.newer_than
            if request.wait_ms and self.placement.group_number(position.channel) in accepted.groups
        }
        if not watched or self.long_poll.is_newer(watched):
            self._tell(accepted)
        elif not self.long_poll.add(
            watched, request.wait_ms * MILLISECOND, partial(self._tell, accepted), accepted.border, accepted.user
        ):
            accepted.busy()

    def _tell(self, accepted: AcceptedRequest) -> None:
        if not self.leading.holds(accepted.groups):
            accepted.busy()
            return
        response: pb.InfoResponse = accepted.begin_answer()
        response.message_bytes_max = self.nats.delivered_bytes_max
        response.cluster = self.node.cluster
        room = self.nats.payload_bytes_max - HEAD_ROOM
        positions = {position.channel: position.sequence for position in accepted.request.newer_than}
        for info in self._chosen(accepted):
            index = self.stored.indexes(info.group, info.uid)
            shown = pb.ChannelInfo(
                name=info.name,
                uid=info.uid,
                first_sequence=index.first_sequence,
                last_sequence=index.last_sequence,
                bytes=index.bytes,
                first_timestamp=index.first_timestamp,
                last_timestamp=index.last_timestamp,
                group=info.group,
                lost_until=self.node.group_of(info).machine.lost_until(info.uid),
                timestamp_at=index.timestamp_before(positions.get(info.name, 0) + 1),
            )
            if info.name in positions:
                shown.next_sequence = self._next(info, index, positions[info.name])
            room -= shown.ByteSize() + ITEM_ROOM
            if response.channels and (room < 0 or len(response.channels) >= limits.INFO_CHANNELS_MAX):
                response.more = True
                break
            response.channels.append(shown)
        accepted.answer_with(response)

    def _next(self, info: ChannelInfo, index: Index, position: int) -> int:
        """Return the oldest message behind a position; the one after the newest if there is none."""
        deleted, end = self.node.group_of(info).machine.tombstones.by_channel.get(info.uid), index.last_sequence + 1
        at, kept = position, position + 1
        while at < kept < end:
            at = behind(deleted, index.kept_from(Sequence(kept)))
            kept = index.kept_from(Sequence(at))
        return min(kept, end)

    def _chosen(self, accepted: AcceptedRequest) -> Iterator[ChannelInfo]:
        """The channels asked for in the groups that this node answers for, sorted by name. Ephemeral ones are told to who names
        them: a pattern is of those who read what it covers, and these cannot be read."""
        request = accepted.request
        named = set(request.channels)
        if request.pattern:
            names, covers = self.lookup.names_of(request.pattern, named), matcher(request.pattern)
        else:
            names, covers = sorted(named), None
        for name in names[bisect_right(names, request.after) :] if request.after else names:
            if covers is None or name in named or covers(name):
                info = self.node.meta.channels.get(name)
                if info is None or (info.is_ephemeral and name not in named):
                    continue
                if info.group in accepted.groups and not self.lookup.is_dropped(info):
                    yield info

    # --- the sequence at a time ---------------------------------------------------------------------------------------

    def _sequence_at_time(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """A SeqAtTimeRequest: which is the first message at or after a time?"""
        index = self.stored.indexes(info.group, info.uid)
        sequence = index.sequence_at(WallNanos(accepted.request.time))
        accepted.answer(uid=info.uid, sequence=sequence or 1)  # 0: there was no message ever

    # --- named positions ------------------------------------------------------------------------------------------------

    def _set_cursor(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        """A CursorSetRequest: set a bookmark, or delete it."""
        request: pb.CursorSetRequest = accepted.request
        if not 0 < len(request.name) <= limits.BOOKMARK_NAME_BYTES_MAX or b"\0" in request.name:
            accepted.refuse(INVALID_BOOKMARK)
            return
        if request.claim and not (request.generation and request.sequence):
            accepted.refuse(INVALID_BOOKMARK)
        elif not self._is_of(info, request):
            accepted.refuse(UNKNOWN_CHANNEL)
        elif self.channels.by_uid[info.uid].deleting:
            accepted.refuse(CHANNEL_DELETING)
        elif not request.generation or request.generation <= self.node.meta.applied:
            self._set(accepted, info)
        else:  # a generation is an index of the metadata: either this copy is behind, or nobody was given it
            self.lookup.catch_up(accepted, partial(self._set_if_given, accepted, info))

    def _is_of(self, info: ChannelInfo, request: pb.CursorSetRequest) -> bool:
        """False if a position is of another channel of that name, or the channel has lost its end since it was read: it ends
        before the position, or has newer messages below it."""
        if request.uid not in (0, info.uid) or request.cluster not in (b"", self.node.cluster):
            return False
        index, read = self.stored.indexes(info.group, info.uid), request.read_timestamp
        position = request.sequence
        return not read or (position <= index.last_sequence + 1 and index.timestamp_before(position) <= read)

    def _set_if_given(self, accepted: AcceptedRequest, info: ChannelInfo, known: bool) -> None:  # noqa: FBT001
        if not known or not self.leading.holds(accepted.groups):
            accepted.busy()
        elif accepted.request.generation > self.node.meta.applied:
            accepted.refuse(INVALID_BOOKMARK)
        else:
            self._set(accepted, info)

    def _set(self, accepted: AcceptedRequest, info: ChannelInfo) -> None:
        request: pb.CursorSetRequest = accepted.request
        places = self.node.groups[info.group].machine.bookmarks
        user = b"" if self._is_of_tier(info, request.name) else self.senders.user_of(accepted.reply)
        if refused := self._bookmark_refusal(accepted, info, places, user):
            accepted.refuse(refused)
            return
        name = of_user(user, request.name)

        def done(result: object, error: str) -> None:
            if not isinstance(result, GroupResult):
                accepted.refuse(error, retry=True)
            elif result.of_part:
                accepted.refuse(str(result.of_part))
            else:
                now = places.by_channel.get(info.uid, {}).get(name)
                accepted.answer(sequence=now.sequence if now is not None and request.generation else 0)

        bookmark = entries.Bookmark(
            uid=info.uid,
            name=request.name,
            sequence=request.sequence,
            generation=request.generation,
            claim=request.claim,
            taken=request.taken,
            user=user,
        )
        self.proposals.change_group(info.group, done, bookmark=bookmark)

    def _is_of_tier(self, info: ChannelInfo, name: bytes) -> bool:
        """True if the channel's limits wait for the position of that name: it is one for all users."""
        tier = self.channels.policies.tiers.by_channel.get(info.uid)
        return tier is not None and tier.name == name

    def _bookmark_refusal(self, accepted: AcceptedRequest, info: ChannelInfo, places: Bookmarks, user: bytes) -> str:
        """Why a position that is to be *user*'s cannot be set; "" if it can."""
        name, authorizer = accepted.request.name, self.senders.authorizer
        if authorizer is not None and self._is_of_tier(info, name):
            return authorizer.right_refusal(accepted.reply, Right.ADMIN_WRITE, info.name)
        known = places.by_channel.get(info.uid, {})
        if name in known or of_user(user, name) in known or places.shares.left(user, limits.BOOKMARKS_MAX) > 0:
            return ""
        return TOO_MANY_BOOKMARKS

    def _cursors(self, accepted: AcceptedRequest) -> None:
        """A CursorsRequest: which bookmarks are set?"""
        response: pb.CursorsResponse = accepted.begin_answer()
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for name, channel, user, place, last in sorted(self._bookmarks(accepted.groups, accepted.request)):
            shown = pb.NamedCursor(
                name=name,
                channel=channel,
                sequence=place.sequence,
                last_sequence=last,
                generation=place.generation,
                removals=place.removals,
                removed=place.removed,
                user=user,
            )
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.cursors:
                response.more = True
                break
            response.cursors.append(shown)
        accepted.answer_with(response)

    def _bookmarks(
        self, groups: Iterable[GroupId], request: pb.CursorsRequest
    ) -> Iterator[tuple[bytes, bytes, bytes, NotedPlace, int]]:
        after = (request.after_name, request.after_channel, request.after_user)
        for number in groups:
            for uid, of_channel in self.node.groups[number].machine.bookmarks.by_channel.items():
                info = self.node.meta.by_uid.get(uid)
                if info is None:
                    continue
                last = self.stored.indexes(number, uid).last_sequence
                for owned, place in of_channel.items():
                    user, name = of_whom(owned)
                    if request.name in (b"", name) and (name, info.name, user) > after:
                        yield name, info.name, user, place, last
