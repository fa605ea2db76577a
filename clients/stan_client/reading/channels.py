"""Channels as the servers report them.

for name, info in (await direct.channels.info(pattern="orders.*")).items():  # of a Direct or a Client
    print(name, info.last)

Errors of all: ServerError: refused. RequestTimeoutError: no answer in time. MessageTooLargeError: larger than NATS accepts.
ConnectionClosedError: the client is closed. *timeout_s* of all: the patience of each request that the call makes, in seconds;
None: the client's.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from stan_protocol.proto import extension_pb2 as pb

from stan_client.messages.messages import Message
from stan_client.messages.new_message import bytes_of
from stan_client.reading.fetching import Fetcher, is_deletion
from stan_client.requests.names import raw
from stan_client.requests.requester import Requester, covered
from stan_client.transport.session import text_of

WAIT_STEP_S: Final = 2.0
"""Longest long poll of one request: after it the request is sent again, so that the successor of a dead leader gets it too."""
NEVER: Final = 1 << 64
POSITIONS_MAX: Final = 4000
POSITIONS_BYTES_MAX: Final = 1 << 18
"""Positions in one request, and bytes of their channels' names: servers refuse requests with many more parts."""


class ChannelInfo(NamedTuple):
    """State of one channel as the server reports it."""

    name: str
    uid: int  # another one if the channel is deleted and made again
    first: int  # oldest message there is; last + 1 if all were removed, 0 if there was none ever
    last: int  # newest message; 0 if there was none ever
    bytes: int
    first_time_ns: int
    last_time_ns: int
    cluster: str = ""  # names the cluster: another one if the server was set up anew, or the cluster was rescued
    lost_until: int = 0  # up to here sequences without a message are lost; others were compacted, expired or deleted
    position_time_ns: int = 0  # of the newest message up to the one in *newer_than*; 0: none is there
    next: int = 0  # oldest message behind the one in *newer_than*; last + 1 if there is none; 0: not asked for


class Channels:
    """Requests about channels: their state, their sequences, their newest message of a key."""

    def __init__(self, requester: Requester, fetcher: Fetcher) -> None:
        self._requester = requester
        self._fetcher = fetcher

    async def info(
        self,
        channels: Sequence[str] = (),
        *,
        pattern: str = "",
        newer_than: Mapping[str, int] | None = None,
        wait_s: float = 0,
        timeout_s: float | None = None,
    ) -> dict[str, ChannelInfo]:
        """Return the state of channels by name; channels that do not exist are left out.

        Args:
            channels: names.
            pattern: also channels that match; `*` stands for one token, `>` for all that follow. Without names, a pattern and
                *newer_than*: all channels.
            newer_than: sequences, to which `position_time_ns` and `next` refer; with *wait_s*: answer as soon as one of these
                channels has a message after its sequence.
            wait_s: answer after this many seconds in any case; the server may wait less.
            timeout_s: patience of each request, without *wait_s*.
        """
        newer_than = newer_than or {}
        if not channels and not pattern:
            channels, pattern = tuple(newer_than), "" if newer_than else ">"
        portions = list(_portions(newer_than))
        if len(portions) <= 1:
            return await self._info(channels, pattern, newer_than, wait_s, timeout_s)
        await asyncio.sleep(wait_s)  # no server can watch them all
        rest = [name for name in channels if name not in newer_than]
        infos = await self._info(rest, pattern, {}, 0, timeout_s) if rest or pattern else {}
        wanted = infos.keys() | set(channels)
        for names in portions:
            there = {name: newer_than[name] for name in names if name in wanted}
            if there:
                infos |= await self._info(tuple(there), "", there, 0, timeout_s)
        return infos

    async def _info(
        self,
        channels: Sequence[str],
        pattern: str,
        newer_than: Mapping[str, int],
        wait_s: float,
        timeout_s: float | None,
    ) -> dict[str, ChannelInfo]:
        names = [raw(name) for name in channels]
        positions = [pb.Position(channel=raw(name), sequence=sequence) for name, sequence in newer_than.items()]
        request = pb.InfoRequest(channels=names, pattern=raw(pattern), newer_than=positions)

        def known(answers: list[pb.InfoResponse]) -> bool:
            return not pattern and {info.name for answer in answers for info in answer.channels}.issuperset(names)

        if newer_than and wait_s > 0:
            answers = await self._wait_for_news(request, newer_than, wait_s, timeout_s)
            if (covered(answers) or known(answers)) and not any(answer.more for answer in answers):
                infos = [_info(answer, row) for answer in answers for row in answer.channels]
                return {info.name: info for info in infos}  # of two of the same channel the later one
        after = {"after": "name"}
        pages = await self._requester.ask_pages(
            "info", request, pb.InfoResponse, "channels", after, known, patience_s=timeout_s, made=_info
        )
        return {info.name: info for info in pages.values()}

    async def _wait_for_news(
        self, request: pb.InfoRequest, newer_than: Mapping[str, int], wait_s: float, timeout_s: float | None
    ) -> list[pb.InfoResponse]:
        watched = {raw(name): sequence for name, sequence in newer_than.items()}

        def ask(wait_s: float) -> pb.InfoRequest:
            polling = pb.InfoRequest(wait_ms=int(1000 * wait_s))
            polling.MergeFrom(request)
            return polling

        def news(answers: list[pb.InfoResponse]) -> bool:
            return any(
                answer.more or any(info.last_sequence > watched.get(info.name, NEVER) for info in answer.channels)
                for answer in answers
            )

        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            step = min(until - clock(), WAIT_STEP_S)
            answers = await self._requester.ask_leaders(
                "info", ask, pb.InfoResponse, enough=news, wait_s=max(0, step), patience_s=timeout_s
            )
            if news(answers) or clock() >= until:
                return answers

    async def message_bytes_max(self, *, timeout_s: float | None = None) -> int:
        """Return the largest payload in bytes that carries a message, with its channel's name, reply, key, headers and some 40
        bytes: `max_payload`, which NATS accepts, may be more."""
        answers = await self._requester.ask_leaders(
            "info", lambda _wait_s: pb.InfoRequest(), pb.InfoResponse, enough=bool, patience_s=timeout_s
        )
        accepted = await self._requester.payload_max()
        return min(accepted, *(answer.message_bytes_max for answer in answers))

    async def sequence_at(self, channel: str, time_ns: int, *, timeout_s: float | None = None) -> int:
        """Return the sequence of the first message at or after a time (Unix ns); without one, the sequence after the newest."""
        request = pb.SeqAtTimeRequest(channel=raw(channel), time=time_ns)
        answer = await self._requester.ask("seq_at_time", request, pb.SeqAtTimeResponse, patience_s=timeout_s)
        return answer.sequence

    async def newest(
        self, channel: str, key: str | bytes, *, from_replica: bool = False, timeout_s: float | None = None
    ) -> Message | None:
        """Return the newest message of a channel with that key; None if there is none, or it is a tombstone. The server looks for
        it from the channel's end, so a key that was set long ago costs it reading all later messages.

        Args:
            channel: its name.
            key: text or bytes, not empty.
            from_replica: as of fetch().
            timeout_s: of each request, in seconds; None: that of the client. A request looks at 8 MiB at most.

        Raises:
            as of fetch().
        """
        name, last = bytes_of(key), 0
        while True:
            request = pb.FetchRequest(channel=raw(channel), newest_of_key=name, last=last)
            answer = await self._fetcher.fetch(request, from_replica=from_replica, timeout_s=timeout_s)
            for message in answer.messages():
                return None if is_deletion(message) else message
            if answer.searched_from <= 1:
                return None
            last = answer.searched_from - 1


def _portions(newer_than: Mapping[str, int]) -> Iterator[list[str]]:
    """Yield the names of channels with positions, as many as one request may have."""
    names: list[str] = []
    size = 0
    for name in newer_than:
        if len(names) == POSITIONS_MAX or size > POSITIONS_BYTES_MAX:
            yield names
            names, size = [], 0
        names.append(name)
        size += len(raw(name))
    yield names


def _info(answer: pb.InfoResponse, row: pb.ChannelInfo) -> ChannelInfo:
    """The channel that a row of an answer tells of."""
    return ChannelInfo(
        text_of(row.name),
        row.uid,
        row.first_sequence,
        row.last_sequence,
        row.bytes,
        row.first_timestamp,
        row.last_timestamp,
        answer.cluster.hex(),
        row.lost_until,
        row.timestamp_at,
        row.next_sequence,
    )
