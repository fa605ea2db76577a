"""Requests that need no registered client: which node answers, from metadata that is new enough, and in which version.

    for all leaders: `scatter`, `admin_scatter`; each answers for the groups that it leads
    for the leader of a channel's group: `stan.core.requests.request`, `admin_request`, then `find`
    for the leader of the metadata: `admin_meta_request`

Promise: an answer reports what was committed and visible at a time when no other node could lead.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from stan import limits
from stan.core.context import META_GROUP, BrokerContext
from stan.core.requests.read_index import ReadIndex
from stan.core.requests.request import LeaderRequest, leader_request
from stan.core.state.meta import ChannelInfo, MetaMachine
from stan.errors import BUSY, INVALID_ADMIN, INVALID_QUESTION, TOO_MANY_REQUESTS, UNKNOWN_CHANNEL, UNKNOWN_VERSION
from stan.patterns import ONE, REST
from stan.protocol.frames import Frame
from stan.protocol.requests import because, decode
from stan.types import GroupId

HEAD_ROOM: Final = 8 * limits.RAFT_GROUPS_MAX + 64
"""Bytes of an answer besides its items."""
ITEM_ROOM: Final = 4
"""Bytes of overhead per item of a list."""
CHANNEL: Final = attrgetter("channel")
VERSIONS: Final = (0, 1)
"""Accepted versions of operators' requests; 0: the request names none."""

Kinds = tuple[type[Message], type[Message]]
"""The message types of a request and of its answer."""


class ScatterRequest(NamedTuple):
    """A request to all leaders: this node answers for *groups*."""

    context: BrokerContext
    reply: bytes
    groups: tuple[GroupId, ...]
    response: type[Message]
    request: Any = None

    def begun(self) -> Any:
        """An empty answer: the number of groups in the cluster and the groups of this node, without items."""
        return self.response(pool=self.context.config.store.raft_groups, groups=self.groups)

    def answer(self, response: Message) -> None:
        """Send the answer; it leaves only while no other node can lead the groups."""
        self.context.respond(self.reply, response.SerializeToString(), self.groups)

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """Answer with an error; *retry*: the error passes, the client may ask again."""
        self.answer(self.response(error=error.encode(), retry=retry))


class Responder:
    """Decides which requests this node has to answer, and when its copy of the metadata is new enough to do so."""

    def __init__(self, context: BrokerContext, read_index: ReadIndex) -> None:
        self.context = context
        self.read_index = read_index
        self._waiting = 0  # requests that wait for the metadata
        self._names: tuple[MetaMachine | None, int, int, list[bytes]] = (None, 0, 0, [])

    # --- for all leaders --------------------------------------------------------------------------------------------------

    def scatter(self, frame: Frame, kinds: Kinds, invalid: str = INVALID_QUESTION) -> ScatterRequest | None:
        """Decode a request to all leaders. None if this node leads no channel group, or has refused the request."""
        context = self.context
        kind, response = kinds
        groups = tuple(sorted(number for number, _ in context.led()))
        if not frame.reply or not groups:
            return None
        question = ScatterRequest(context, frame.reply, groups, response)
        try:
            question = question._replace(request=decode(kind, frame.payload))
        except DecodeError as problem:
            question.refuse(because(invalid, problem))
            return None
        if not self.answers_for(groups):
            question.refuse(BUSY, retry=True)
            return None
        return question

    def admin_scatter(self, frame: Frame, kinds: Kinds) -> ScatterRequest | None:
        """`scatter` for a request of an operator, with its checks of version and request rate."""
        question = self.scatter(frame, kinds, INVALID_ADMIN)
        if question is None:
            return None
        if question.request.version not in VERSIONS:
            question.refuse(UNKNOWN_VERSION)
            return None
        if not self.context.rate_limiter.admit(self.context.clock.now):
            question.refuse(TOO_MANY_REQUESTS, retry=True)
            return None
        return question

    def answers_for(self, groups: Iterable[GroupId]) -> bool:
        """True if this node leads all of *groups* and holds their leases, so that no other node can lead them."""
        context = self.context
        return all(context.leads(number) and not context.groups[number].dispatch.lease_lapsed for number in groups)

    # --- for one leader ---------------------------------------------------------------------------------------------------

    def admin_request(
        self, frame: Frame, kinds: Kinds, name_of: Callable[[Any], bytes] = CHANNEL
    ) -> LeaderRequest | None:
        """Decode a request of an operator about the channel that *name_of* returns. None if this node does not lead the
        channel's group, or has refused the request."""
        return self._of_version(leader_request(self.context, frame, kinds, name_of, INVALID_ADMIN))

    def admin_meta_request(self, frame: Frame, kinds: Kinds) -> LeaderRequest | None:
        """Decode a request of an operator about the metadata. None if this node does not lead the metadata, or has refused the
        request."""
        context = self.context
        if not frame.reply or not context.leads_meta:
            return None
        about = LeaderRequest(context, frame.reply, META_GROUP, None, kinds[1])
        try:
            about = about._replace(request=decode(kinds[0], frame.payload))
        except DecodeError as problem:
            about.refuse(because(INVALID_ADMIN, problem))
            return None
        if not context.meta_lease:
            about.busy()
            return None
        return self._of_version(about)

    def _of_version(self, about: LeaderRequest | None) -> LeaderRequest | None:
        """Return the request if its version is known and the rate limit admits it; else refuse it and return None."""
        if about is None:
            return None
        if about.request.version not in VERSIONS:
            about.refuse(UNKNOWN_VERSION)
            return None
        if not self.context.rate_limiter.admit(self.context.clock.now):
            about.refuse(TOO_MANY_REQUESTS, retry=True)
            return None
        return about

    def find(
        self,
        about: LeaderRequest | None,
        found: Callable[[LeaderRequest, ChannelInfo], None],
        name_of: Callable[[Any], bytes] = CHANNEL,
    ) -> None:
        """Call *found* with the request and the channel that it names, or refuse the request if there is no such channel."""
        if about is None:
            return
        name = name_of(about.request)

        def known(known: bool) -> None:  # noqa: FBT001 - an answer
            info = self.context.meta.channels.get(name)
            if not known or not self.answers_for((self.context.group_number(name),)):
                about.busy()
            elif info is None or self.is_dropped(info):
                about.refuse(UNKNOWN_CHANNEL)
            else:
                found(about, info)

        if name in self.context.meta.channels:
            known(True)  # noqa: FBT003
        else:
            self.catch_up(known)

    def is_dropped(self, info: ChannelInfo) -> bool:
        """True if the channel's group has dropped it and the metadata still lists it."""
        return info.uid in self.context.group_of(info).machine.dropped

    def sorted_names(self) -> list[bytes]:
        """The sorted names of all channels; cached until a channel comes or goes. Callers must not change the list."""
        meta = self.context.meta
        machine, next_uid, count, _ = self._names
        if machine is not meta or (next_uid, count) != (meta.next_uid, len(meta.channels)):
            self._names = (meta, meta.next_uid, len(meta.channels), sorted(meta.channels))
        return self._names[3]

    # --- the metadata -----------------------------------------------------------------------------------------------------

    def catch_up(self, call: Callable[[bool], None]) -> None:
        """Call *call* with True once this copy of the metadata is as new as the leader's was at the time of this call; with False
        if that fails in time, or too many requests wait already."""
        if self._waiting >= limits.QUESTIONS_WAITING_MAX:
            call(False)  # noqa: FBT003
            return
        self._waiting += 1

        def caught_up(known: bool) -> None:  # noqa: FBT001
            self._waiting -= 1
            call(known)

        self.read_index.wait(caught_up)


def matcher(pattern: bytes) -> Callable[[bytes], bool]:
    """Return a function that tests if a valid *pattern* covers a name, in one pass over the name for any pattern."""
    wanted = pattern.split(b".")
    one, rest = ONE.encode(), wanted[-1] == REST.encode()
    if rest:
        wanted.pop()
    literal = next((at for at, want in enumerate(wanted) if want == one), len(wanted))
    if literal == len(wanted) and not rest:
        return pattern.__eq__
    begins = b"".join(b"%b." % want for want in wanted[:literal])
    some, count = wanted[literal:], len(wanted)

    def covers(name: bytes) -> bool:
        if not name.startswith(begins):
            return False
        tokens = name.split(b".", count)
        if len(tokens) <= count if rest else len(tokens) != count:
            return False
        return all(want in (one, token) for want, token in zip(some, tokens[literal:], strict=False))

    return covers
