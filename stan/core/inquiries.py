"""Questions about channels, of anybody: what is there, since when, which positions were noted; and the noting of positions.

    info, cursors: every leader answers for the groups that it leads
    seq_at_time, cursor_set: the leader of the channel's group answers

Promises: what an answer tells was committed, and visible, when no other node could lead; an answer that is too much for one
message tells so and has the first part. Who waits for newer messages is answered in the turn that commits them.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from stan import limits
from stan.core.asked import Asked, asked
from stan.core.bookmarks import Bookmarks
from stan.core.catchup import Catchup
from stan.core.channels import Channels
from stan.core.group import GroupResult
from stan.core.meta import ChannelInfo, MetaMachine
from stan.core.shared import Shared, text
from stan.core.watching import Watching
from stan.errors import (
    BUSY,
    CHANNEL_DELETING,
    INVALID_BOOKMARK,
    INVALID_QUESTION,
    UNKNOWN_CHANNEL,
)
from stan.patterns import ONE, REST, valid_name
from stan.protocol import entries_pb2 as entries
from stan.protocol import extension_pb2 as pb
from stan.protocol.frames import Frame
from stan.types import MILLISECOND, GroupId, WallNanos

HEAD_ROOM = 8 * limits.RAFT_GROUPS_MAX + 64
"""Bytes of an answer beside what it lists."""
ITEM_ROOM = 4
"""Bytes of one item of a list beside the item."""
_CHANNEL: Final = attrgetter("channel")


class _Question(NamedTuple):
    """A question for all leaders: this node answers for *groups*."""

    shared: Shared
    reply: bytes
    groups: tuple[GroupId, ...]
    response: type[Message]
    request: Any = None

    def begun(self) -> Any:
        """The answer, with nothing in it."""
        return self.response(pool=self.shared.config.store.raft_groups, groups=self.groups)

    def answer(self, response: Message) -> None:
        """Send it."""
        self.shared.respond(self.reply, response.SerializeToString())

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """There is no answer; *retry*: that passes."""
        self.answer(self.response(error=error.encode(), retry=retry))


class Inquiries:
    """See the module's docstring."""

    def __init__(self, shared: Shared, channels: Channels, catchup: Catchup) -> None:
        self.shared = shared
        self.channels = channels
        self.catchup = catchup
        self.watching = Watching(shared)
        self._waiting = 0  # for the metadata
        self._names: tuple[MetaMachine | None, int, int, list[bytes]] = (None, 0, 0, [])

    # --- what is there ------------------------------------------------------------------------------------------------

    def info(self, frame: Frame) -> None:
        """A question what there is of channels."""
        shared = self.shared
        question = self._question(frame, (pb.InfoRequest, pb.InfoResponse))
        if question is None:
            return
        request: pb.InfoRequest = question.request
        if request.pattern and not valid_name(text(request.pattern), wildcards=True):
            question.refuse(INVALID_QUESTION)
            return
        named = {*request.channels, *(position.channel for position in request.newer_than)}
        unknown = named - shared.meta.channels.keys()
        if request.pattern or any(shared.group_number(name) in question.groups for name in unknown):
            self._catch_up(partial(self._info, question))
        else:
            self._info(question, known=True)

    def _info(self, question: _Question, known: bool) -> None:  # noqa: FBT001 - an answer
        request: pb.InfoRequest = question.request
        if not known:
            question.refuse(BUSY, retry=True)
            return
        watched = {
            position.channel: position.sequence
            for position in request.newer_than
            if request.wait_ms and self.shared.group_number(position.channel) in question.groups
        }
        if not watched or self.watching.is_newer(watched):
            self._tell(question)
        elif not self.watching.add(watched, request.wait_ms * MILLISECOND, partial(self._tell, question)):
            question.refuse(BUSY, retry=True)

    def _tell(self, question: _Question) -> None:
        shared = self.shared
        if not self._answers_for(question.groups):
            question.refuse(BUSY, retry=True)
            return
        response: pb.InfoResponse = question.begun()
        room = shared.payload_bytes_max - HEAD_ROOM
        for info in self._chosen(question):
            index = shared.indexes(info.group, info.uid)
            shown = pb.ChannelInfo(
                name=info.name,
                uid=info.uid,
                first_sequence=index.first_sequence,
                last_sequence=index.last_sequence,
                bytes=index.bytes,
                first_timestamp=index.first_timestamp,
                last_timestamp=index.last_timestamp,
                group=info.group,
            )
            room -= shown.ByteSize() + ITEM_ROOM
            if response.channels and (room < 0 or len(response.channels) >= limits.INFO_CHANNELS_MAX):
                response.more = True
                break
            response.channels.append(shown)
        question.answer(response)

    def _chosen(self, question: _Question) -> Iterator[ChannelInfo]:
        """The channels asked for that this node answers for, by name."""
        shared, request = self.shared, question.request
        named = set(request.channels)
        if request.pattern:
            names, covers = self._sorted_names(), _matcher(request.pattern)
        else:
            names, covers = sorted(named), None
        for name in names[bisect_right(names, request.after) :] if request.after else names:
            if covers is None or name in named or covers(name):
                info = shared.meta.channels.get(name)
                if info is not None and info.group in question.groups and not self._is_dropped(info):
                    yield info

    def _sorted_names(self) -> list[bytes]:
        """Of all channels; kept while none comes or goes."""
        meta = self.shared.meta
        machine, next_uid, count, _ = self._names
        if machine is not meta or (next_uid, count) != (meta.next_uid, len(meta.channels)):
            self._names = (meta, meta.next_uid, len(meta.channels), sorted(meta.channels))
        return self._names[3]

    def _is_dropped(self, info: ChannelInfo) -> bool:
        return info.uid in self.shared.group_of(info).machine.dropped

    # --- the place of a time --------------------------------------------------------------------------------------------

    def sequence_at_time(self, frame: Frame) -> None:
        """A question for the first message at or after a time."""
        kinds = (pb.SeqAtTimeRequest, pb.SeqAtTimeResponse)
        self._find(asked(self.shared, frame, kinds, _CHANNEL, INVALID_QUESTION), self._sequence_at_time)

    def _sequence_at_time(self, about: Asked, info: ChannelInfo) -> None:
        index = self.shared.indexes(info.group, info.uid)
        sequence = index.sequence_at(WallNanos(about.request.time))
        about.answer(uid=info.uid, sequence=sequence or 1)  # 0: there was no message ever

    # --- named positions ------------------------------------------------------------------------------------------------

    def set_cursor(self, frame: Frame) -> None:
        """Note a position, or forget it."""
        kinds = (pb.CursorSetRequest, pb.CursorSetResponse)
        self._find(asked(self.shared, frame, kinds, _CHANNEL, INVALID_QUESTION), self._set_cursor)

    def _set_cursor(self, about: Asked, info: ChannelInfo) -> None:
        request: pb.CursorSetRequest = about.request
        if not 0 < len(request.name) <= limits.BOOKMARK_NAME_BYTES_MAX:
            about.refuse(INVALID_BOOKMARK)
            return
        if self.channels.by_uid[info.uid].deleting:
            about.refuse(CHANNEL_DELETING)
            return

        def done(result: object, error: str) -> None:
            if isinstance(result, GroupResult):
                about.refuse(str(result.of_part))  # empty: it is set
            else:
                about.refuse(error, retry=True)

        bookmark = entries.Bookmark(uid=info.uid, name=request.name, sequence=request.sequence)
        self.shared.change_group(info.group, done, bookmark=bookmark)

    def cursors(self, frame: Frame) -> None:
        """A question for positions."""
        shared = self.shared
        question = self._question(frame, (pb.CursorsRequest, pb.CursorsResponse))
        if question is None:
            return
        response: pb.CursorsResponse = question.begun()
        room = shared.payload_bytes_max - HEAD_ROOM
        for name, channel, sequence, last in sorted(self._bookmarks(question.groups, question.request)):
            shown = pb.NamedCursor(name=name, channel=channel, sequence=sequence, last_sequence=last)
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.cursors:
                response.more = True
                break
            response.cursors.append(shown)
        question.answer(response)

    def _bookmarks(
        self, groups: Iterable[GroupId], request: pb.CursorsRequest
    ) -> Iterator[tuple[bytes, bytes, int, int]]:
        after = (request.after_name, request.after_channel)
        for number in groups:
            for uid, of_channel in self.shared.groups[number].machine.part(Bookmarks).by_channel.items():
                info = self.shared.meta.by_uid.get(uid)
                if info is None:
                    continue
                last = self.shared.indexes(number, uid).last_sequence
                for name, sequence in of_channel.items():
                    if request.name in (b"", name) and (name, info.name) > after:
                        yield name, info.name, sequence, last

    # --- what happens meanwhile -------------------------------------------------------------------------------------------

    def _answers_for(self, groups: Iterable[GroupId]) -> bool:
        """Whether this node leads all of them and no other node can."""
        shared = self.shared
        return all(shared.leads(number) and not shared.groups[number].dispatch.held for number in groups)

    def _find(self, about: Asked | None, found: Callable[[Asked, ChannelInfo], None]) -> None:
        """Call with the channel that a request names, or refuse the request."""
        if about is None:
            return
        name = about.request.channel

        def known(known: bool) -> None:  # noqa: FBT001 - an answer
            info = self.shared.meta.channels.get(name)
            if not known or not self._answers_for((self.shared.group_number(name),)):
                about.busy()
            elif info is None or self._is_dropped(info):
                about.refuse(UNKNOWN_CHANNEL)
            else:
                found(about, info)

        if name in self.shared.meta.channels:
            known(True)  # noqa: FBT003
        else:
            self._catch_up(known)

    def _catch_up(self, call: Callable[[bool], None]) -> None:
        """Call when the metadata is as new as it was when this was asked for, or with False if that cannot be had."""
        if self._waiting >= limits.QUESTIONS_WAITING_MAX:
            call(False)  # noqa: FBT003
            return
        self._waiting += 1

        def caught_up(known: bool) -> None:  # noqa: FBT001
            self._waiting -= 1
            call(known)

        self.catchup.wait(caught_up)

    def _question(self, frame: Frame, kinds: tuple[type[Message], type[Message]]) -> _Question | None:
        """What every leader answers, if this node leads anything."""
        shared = self.shared
        kind, response = kinds
        groups = tuple(sorted(number for number, _ in shared.led()))
        if not frame.reply or not groups:
            return None
        question = _Question(shared, frame.reply, groups, response)
        try:
            question = question._replace(request=kind.FromString(frame.payload))
        except DecodeError:
            question.refuse(INVALID_QUESTION)
            return None
        if not self._answers_for(groups):
            question.refuse(BUSY, retry=True)
            return None
        return question


@lru_cache(maxsize=64)
def _matcher(pattern: bytes) -> Callable[[bytes], object]:
    """What tells whether a valid *pattern* covers a name."""
    tokens = {ONE.encode(): rb"[^.]+", REST.encode(): rb".+"}
    expression = rb"\.".join(tokens.get(token) or re.escape(token) for token in pattern.split(b"."))
    return re.compile(expression, re.DOTALL).fullmatch
