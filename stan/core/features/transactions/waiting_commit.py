"""A request to commit, from its arrival to its answer."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.proto import extension_pb2 as ext
from stan_protocol.scalars import ChannelUid

from stan import limits
from stan.core.publishing.live_channel import LiveChannel
from stan.core.requests.request import AcceptedRequest
from stan.core.state.transactions import Transactions
from stan.protocol.proto import entries_pb2 as pb


@dataclass(slots=True, eq=False)
class WaitingCommit:
    """A CommitRequest: what it wants of the channels of this group, and what has come of it."""

    accepted: AcceptedRequest
    parts: dict[
        bytes, Seq[int]
    ]  # by channel of this group, as requested; the one that the request is placed by comes first
    elsewhere: dict[
        bytes, int
    ]  # channels that it names, and that belong to other groups; 0: nobody's, or another server's
    channels: dict[ChannelUid, LiveChannel] = field(default_factory=dict)  # opened so far
    already: set[int] = field(default_factory=set)  # uids of channels that had the version before
    over: bool = False  # it was answered

    def proposed(self, at: int) -> pb.Commit:
        """Return the commit to decide about, at *at* (Unix ns)."""
        request, user = self.accepted.request, self.accepted.user
        commit = pb.Commit(app=request.app, version=request.version, at=at, user=user, writer=request.writer)
        for uid, channel in self.channels.items():
            commit.channels.add(uid=uid, parts=self.parts[channel.info.name])
        commit.txns.extend(request.txns)
        return commit

    def repeats(self, commit: pb.Commit) -> bool:
        """True if it asks for nothing but what a commit under way brings."""
        request, user = self.accepted.request, self.accepted.user
        return (
            (request.app, request.version) == (commit.app, commit.version)
            and (user == commit.user or not (user and commit.user))
            and (request.writer in (commit.writer, b"") or not commit.writer)
            and self.channels.keys() <= {share.uid for share in commit.channels}
        )

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


def is_app(app: bytes, writer: bytes = b"") -> bool:
    """True if an app and its writer have names that are not too long."""
    return 0 < len(app) <= limits.APP_BYTES_MAX and len(writer) <= limits.APP_BYTES_MAX


def waiting_commit(accepted: AcceptedRequest) -> WaitingCommit | str:
    """What a request wants; or why it is invalid, whatever is staged."""
    request, placement = accepted.request, accepted.services.placement
    if len(request.more) >= limits.COMMIT_CHANNELS_MAX:
        return refusals.TOO_MANY_COMMITTED.format(limits.COMMIT_CHANNELS_MAX)
    shares = {request.channel: request.parts} | {share.channel: share.parts for share in request.more}
    if not all(map(is_channel_name, shares)):
        return refusals.INVALID_SUBJECT
    known = is_app(request.app, request.writer) and request.version >= 0
    names = len(request.txns)
    once = len({*request.txns}) == names and all(_is_once(parts, names) for parts in shares.values())
    if not known or not once or len(shares) <= len(request.more):
        return refusals.INVALID_TRANSACTION
    groups = {name: placement.group_number(name) for name in shares}
    here = {name: parts for name, parts in shares.items() if name == request.channel or groups[name] == accepted.number}
    return WaitingCommit(accepted, here, {name: max(groups[name], 0) for name in shares if name not in here})


def _is_once(parts: Seq[int], names: int) -> bool:
    """True if the parts of a channel are of txns that have a name, each once."""
    numbers = parts[::2]
    return len(parts) % 2 == 0 and len({*numbers}) == len(numbers) and max(numbers, default=-1) < names
