"""Requests to commit that wait on the leader of their group, and their answers.

A request may name several channels. It stands in a queue of each of those that belong to the group, in the order of arrival, and
is decided when it is the first one in all of them: so of two requests with channels in common one is before the other everywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.scalars import ChannelUid, GroupId

from stan import limits
from stan.core.features.transactions.staging import is_app
from stan.core.publishing.live_channel import LiveChannel
from stan.core.requests.request import AcceptedRequest
from stan.core.state.transactions import Transactions
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True, eq=False)
class WaitingCommit:
    """A CommitRequest: what it wants of the channels of this group, and what has come of it."""

    accepted: AcceptedRequest
    txns: dict[bytes, list[ext.Txn]]  # by channel of this group; the one that the request is placed by comes first
    elsewhere: dict[bytes, GroupId]  # channels that it names, and that belong to other groups
    channels: dict[ChannelUid, LiveChannel] = field(default_factory=dict)  # opened so far
    already: set[ChannelUid] = field(default_factory=set)  # had the version before
    left: set[ChannelUid] = field(default_factory=set)  # have not got the version yet
    over: bool = False  # it was answered

    def refuse(self, error: str, *, retry: bool = False) -> None:
        """Answer with an error."""
        self.over = True
        self.accepted.refuse(error, retry=retry)

    def confirm(self, known: Transactions) -> None:
        """Answer that the version is committed in all channels of this group."""
        self.over = True
        request, answer = self.accepted.request, ext.CommitResponse()
        for uid, channel in self.channels.items():
            is_first = channel.info.name == request.channel
            told: ext.CommitResponse | ext.CommittedChannel = (
                answer if is_first else answer.more.add(channel=channel.info.name)
            )
            told.already = uid in self.already
            last = known.committed.get((uid, request.app))
            if (
                last is not None and last.version == request.version
            ):  # the sequences are known only of the newest version
                told.first_sequence, told.last_sequence = last.first_sequence, last.last_sequence
        for name, group in self.elsewhere.items():
            answer.elsewhere.add(channel=name, group=group)
        if request.more:
            answer.group = self.accepted.number
        self.accepted.answer_with(answer)


class CommitQueues:
    """The requests that wait for one group, by channel."""

    def __init__(self) -> None:
        self._by_channel: dict[ChannelUid, list[WaitingCommit]] = {}

    def of(self, uid: ChannelUid) -> list[WaitingCommit]:
        """Those that name a channel, in the order of arrival."""
        return [*self._by_channel.get(uid, ())]

    def first(self, uid: ChannelUid) -> WaitingCommit | None:
        """The next one that names the channel, if it is the next one in all of its channels."""
        queue = self._by_channel.get(uid)
        if not queue:
            return None
        first = queue[0]
        return first if all(self._by_channel[other][0] is first for other in first.channels) else None

    def add(self, waiting: WaitingCommit) -> bool:
        """Put a request at the end; False, and it is not put there, if too many wait for one of its channels."""
        if any(len(self._by_channel.get(uid, ())) >= limits.COMMITS_WAITING_MAX for uid in waiting.channels):
            return False
        for uid in waiting.channels:
            self._by_channel.setdefault(uid, []).append(waiting)
        return True

    def remove(self, waiting: WaitingCommit) -> None:
        """Take a request out."""
        for uid in waiting.channels:
            queue = self._by_channel[uid]
            queue.remove(waiting)
            if not queue:
                del self._by_channel[uid]

    def of_version(self, commit: pb.Commit | pb.Committed) -> list[WaitingCommit]:
        """Those that wait for one version of an app in a channel."""
        return [
            one
            for one in self._by_channel.get(ChannelUid(commit.uid), ())
            if (one.accepted.request.app, one.accepted.request.version) == (commit.app, commit.version)
            and (one.accepted.user == commit.user or not (one.accepted.user and commit.user))
            and (one.accepted.request.writer in (commit.writer, b"") or not commit.writer)
        ]


def waiting_commit(accepted: AcceptedRequest) -> WaitingCommit | str:
    """What a request wants; or why it is invalid, whatever is staged."""
    request, placement = accepted.request, accepted.services.placement
    shares = {request.channel: [*request.txns]}
    if len(request.more) >= limits.COMMIT_CHANNELS_MAX:
        return refusals.TOO_MANY_COMMITTED.format(limits.COMMIT_CHANNELS_MAX)
    shares |= {share.channel: [*share.txns] for share in request.more}
    if not all(map(is_channel_name, shares)):
        return refusals.INVALID_SUBJECT
    twice = any(len({txn.txn for txn in txns}) < len(txns) for txns in shares.values())
    known = is_app(request.app, request.writer) and request.version >= 0
    if not known or twice or len(shares) <= len(request.more):
        return refusals.INVALID_TRANSACTION
    groups = {name: placement.group_number(name) for name in shares}
    here = {name: txns for name, txns in shares.items() if name == request.channel or groups[name] == accepted.number}
    return WaitingCommit(accepted, here, {name: groups[name] for name in shares if name not in here})


def sequences_of(
    known: Transactions, uid: ChannelUid, accepted: AcceptedRequest, txns: Iterable[ext.Txn]
) -> list[int] | str:
    """The sequences of the parts that *txns* of a request name for a channel, in the order of their rows; or the error: a part is
    missing, or a transaction has a part more, whose rows would be dropped silently."""
    request, sequences = accepted.request, []
    for txn in txns:
        for number in range(txn.parts):
            part = known.find(uid, accepted.user, txn.txn, number)
            if part is None or (part.app, part.version) != (request.app, request.version):
                return refusals.STAGED_GONE
            sequences.append(part.sequence)
        if known.find(uid, accepted.user, txn.txn, txn.parts):
            return refusals.STAGED_UNNAMED
    return sequences
