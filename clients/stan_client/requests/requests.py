"""Requests of clients without a registration, besides reading: list channels, store many messages at once, stage and commit
messages (transactions), keep named positions.

The requester repeats every request until it is answered or the patience ends. Rows are messages without a sequence, as
`encode_rows` makes them: per row u32 little-endian length, then MsgProto's fields reply (3), data (4), headers (16), key (17)
where they are not empty.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from stan_protocol.channels import part_name
from stan_protocol.compression import Compressor
from stan_protocol.limits import COMMIT_CHANNELS_MAX, COMPRESSED_ROWS_BYTES_MAX
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.refusals import INVALID_ROWS

from stan_client.errors import ServerError
from stan_client.requests.requester import Requester, covered, together
from stan_client.transport.session import text_of

WAIT_STEP_S: Final = 2.0
"""Longest long poll of one request: after it the request is sent again, so that the successor of a dead leader gets it too."""
NEVER: Final = 1 << 64
COMMIT_BYTES_MAX: Final = 512 * 1024
"""Bytes of what one request tells of further channels."""


class ChannelInfo(NamedTuple):
    """State of one channel as the server reports it."""

    name: str
    uid: int  # another one if the channel is deleted and made again
    first: int  # oldest message kept; last + 1 if all were removed, 0 if there was none ever
    last: int  # newest message; 0 if there was none ever
    bytes: int
    first_time_ns: int
    last_time_ns: int


class BatchAck(NamedTuple):
    """Sequences of the stored rows of a batch; they are consecutive."""

    first: int  # 0: none was stored
    last: int
    duplicates: int  # rows left out because their ids had been stored before


class Committed(NamedTuple):
    """Messages that a commit has added to one channel."""

    already: bool  # this version, or a later one, had been committed before: nothing was added now
    first: int  # first sequence that this version has added, if it is the newest; 0: none
    last: int
    group: int = 0  # channels with the same one became visible at once; 0: this one by itself


class Cursor(NamedTuple):
    """A named position; its lag is `last + 1 - sequence` messages."""

    sequence: int  # the next one to be read
    last: int  # newest message of the channel
    removals: int = 0  # how often messages were purged or deleted since a policy `tier` names the position
    removed: tuple[tuple[int, int], ...] = ()  # what of these was not `taken` yet: first and last sequences


class RequestMethods:
    """A client's methods that need no registration and do not read messages.

    All of them raise ServerError: refused; RequestTimeoutError: no answer in time; MessageTooLargeError: larger than NATS
    accepts; ConnectionClosedError: the client is closed. *timeout_s* of all of them: the patience of each request that the call
    makes, in seconds; None: the client's.
    """

    _requester: Requester
    _frames_taken = True  # False: a server has refused compressed rows as one of an earlier version does

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
            newer_than: with *wait_s*: answer as soon as one of these channels has a message after the given sequence.
            wait_s: answer after this many seconds in any case; the server may wait less.
            timeout_s: patience of each request, without *wait_s*.
        """
        newer_than = newer_than or {}
        if not channels and not pattern:
            channels, pattern = tuple(newer_than), "" if newer_than else ">"
        names = [raw(name) for name in channels]
        request = pb.InfoRequest(channels=names, pattern=raw(pattern))

        def known(answers: list[pb.InfoResponse]) -> bool:
            return not pattern and {info.name for answer in answers for info in answer.channels}.issuperset(names)

        if newer_than and wait_s > 0:
            answers = await self._wait_for_news(request, newer_than, wait_s, timeout_s)
            if (covered(answers) or known(answers)) and not any(answer.more for answer in answers):
                return _by_name(info for answer in answers for info in answer.channels)
        after = {"after": "name"}
        found = await self._requester.ask_pages(
            "info", request, pb.InfoResponse, "channels", after, known, patience_s=timeout_s
        )
        return _by_name(found.values())

    async def _wait_for_news(
        self, request: pb.InfoRequest, newer_than: Mapping[str, int], wait_s: float, timeout_s: float | None
    ) -> list[pb.InfoResponse]:
        positions = [pb.Position(channel=raw(name), sequence=sequence) for name, sequence in newer_than.items()]
        watched = {raw(name): sequence for name, sequence in newer_than.items()}

        def ask(wait_s: float) -> pb.InfoRequest:
            asked = pb.InfoRequest(newer_than=positions, wait_ms=int(1000 * wait_s))
            asked.MergeFrom(request)
            return asked

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
        return min(answer.message_bytes_max or accepted for answer in (*answers, pb.InfoResponse()))

    async def seq_at_time(self, channel: str, time_ns: int, *, timeout_s: float | None = None) -> int:
        """Return the sequence of the first message at or after a time (Unix ns); without one, the sequence after the newest."""
        request = pb.SeqAtTimeRequest(channel=raw(channel), time=time_ns)
        answer = await self._requester.ask("seq_at_time", request, pb.SeqAtTimeResponse, patience_s=timeout_s)
        return answer.sequence

    # --- many messages at once ---------------------------------------------------------------------------------------

    async def publish_batch(
        self,
        channel: str,
        rows: bytes,
        count: int,
        *,
        producer: str = "",
        version: int = 0,
        ids: bytes = b"",
        compress: bool = True,
        timeout_s: float | None = None,
    ) -> BatchAck:
        """Store *count* rows: all or none of them.

        Args:
            channel: its name; the server creates the channel if it does not exist.
            rows: as `encode_rows` makes them; together, or compressed, no larger than one NATS message.
            count: number of rows.
            producer: name of the producer of the ids, the scope of deduplication.
            version: of the producer's work; the server remembers the ids of the two newest versions.
            ids: 16 bytes for each row, or none: a row whose id the producer has sent to this channel before is left out.
            compress: rows of 1 KiB or more travel, and are stored, compressed; below level 3 of the cluster they travel so alone.
            timeout_s: patience of the request.

        Raises:
            OutcomeUnknownError: no answer in time, without ids: it is not known whether the rows are stored. With ids the
                request is repeated.
        """
        frame = b""
        if compress and self._frames_taken and len(rows) <= COMPRESSED_ROWS_BYTES_MAX:
            frame = Compressor().frame(rows)
        request = pb.BatchRequest(
            channel=raw(channel), count=count, producer=raw(producer), version=version, ids=ids, compressed_rows=frame
        )
        if not frame:
            request.rows = rows
        ask = partial(self._requester.ask, "batch", repeat=bool(ids) or not count, patience_s=timeout_s)
        try:
            answer = await ask(request, pb.BatchResponse)
        except ServerError as error:
            if not frame or str(error) != INVALID_ROWS.format(0):
                raise
            request.compressed_rows, request.rows = b"", rows  # an earlier version takes a frame for no rows at all
            answer = await ask(request, pb.BatchResponse)
            self._frames_taken = False
        return BatchAck(answer.first_sequence, answer.last_sequence, answer.duplicates)

    # --- transactions ------------------------------------------------------------------------------------------------

    async def stage(
        self,
        app: str,
        version: int,
        txn: str,
        part: int,
        channel: str,
        rows: bytes,
        count: int,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Store *count* rows, durable and invisible, until `commit` or `abort`, or until the server drops them as too old.

        Args:
            app: name of the application that counts the versions.
            version: of the app's work, >= 0, growing.
            txn: a unique name.
            part: 0, 1, 2, ... of this txn in this channel, in the order of its rows.
            channel: the channel that the rows are for.
            rows: encoded as of publish_batch().
            count: number of rows.
            timeout_s: patience of the request.
        """
        request = pb.StageRequest(
            app=raw(app),
            version=version,
            txn=raw(txn),
            part=part,
            channel=raw(channel),
            count=count,
            rows=rows,
        )
        await self._requester.ask("stage", request, pb.StageResponse, patience_s=timeout_s)

    async def commit(
        self,
        app: str,
        version: int,
        txns: Mapping[str, Sequence[tuple[str, int]]],
        *,
        writer: str = "",
        timeout_s: float | None = None,
    ) -> dict[str, Committed]:
        """Add the staged rows to all channels, then record that the version is finished. May be repeated, also by another
        process: committed channels are left as they are, the others are committed.

        What goes to channels of one group of the servers becomes visible at once, whatever crashes; the groups follow each
        other. More than 1,024 channels, or 512 KiB of txns, are several requests, as if they were of several groups. Servers of
        earlier versions, and clusters below level 3, commit each channel by itself: then `Committed.group` is 0.

        Args:
            app: as staged.
            version: as staged.
            txns: for each channel the txns in the order of their rows, each with the number of its parts there.
            writer: which work of the app this is, at most 255 bytes: a query, for example. A repetition has the same one.
            timeout_s: patience of each channel's commit, and of recording it.

        Raises:
            ServerError: refused, also if another writer has committed this version of the app, or a later one; else it would be
                taken for a repetition.
        """
        shares = {
            raw(channel): pb.ChannelTxns(
                channel=raw(channel), txns=[pb.Txn(txn=raw(txn), parts=parts) for txn, parts in named]
            )
            for channel, named in txns.items()
        }
        done: dict[bytes, Committed] = {}

        async def commit(channels: Sequence[bytes]) -> list[list[bytes]]:
            """Commit what is of the first one's group; returns the others, by group if that is known."""
            first, *more = channels
            request = pb.CommitRequest(
                app=raw(app),
                version=version,
                channel=first,
                txns=shares[first].txns,
                writer=raw(writer),
                more=[shares[channel] for channel in more],
            )
            answer = await self._requester.ask("commit", request, pb.CommitResponse, patience_s=timeout_s)
            done[first] = Committed(answer.already, answer.first_sequence, answer.last_sequence, answer.group)
            for told in answer.more:
                done[told.channel] = Committed(told.already, told.first_sequence, told.last_sequence, answer.group)
            groups: dict[int, list[bytes]] = {}
            for other in answer.elsewhere:
                groups.setdefault(other.group, []).append(other.channel)
            told_of = done.keys() | {other.channel for other in answer.elsewhere}
            return [*groups.values(), *([channel] for channel in more if channel not in told_of)]

        left = _in_requests(shares)
        while left:
            left = [others for found in await together(commit, left) for others in found]
        finish = pb.FinishRequest(app=raw(app), version=version, writer=raw(writer))
        await self._requester.ask("finish", finish, pb.FinishResponse, patience_s=timeout_s)
        return {channel: done[raw(channel)] for channel in txns}

    async def abort(self, txns: Mapping[str, Sequence[str]], *, timeout_s: float | None = None) -> None:
        """Drop the rows staged under these txns of each channel; committed rows stay."""

        async def abort(channel: str) -> pb.AbortResponse:
            request = pb.AbortRequest(channel=raw(channel), txns=list(map(raw, txns[channel])))
            return await self._requester.ask("abort", request, pb.AbortResponse, patience_s=timeout_s)

        await together(abort, txns)

    async def last_committed(
        self, app: str, *, writer: str = "", version: int = 0, timeout_s: float | None = None
    ) -> int:
        """The newest version that is finished; -1: none.

        Args:
            app: its name.
            writer: who is about to write *version*, as of commit(); "": nobody is.
            version: what the writer is about to write.
            timeout_s: patience of the request.

        Raises:
            ServerError: another writer has finished this version, or a later one.
        """
        request = pb.LastCommittedRequest(app=raw(app), writer=raw(writer), version=version)
        answer = await self._requester.ask("last_committed", request, pb.LastCommittedResponse, patience_s=timeout_s)
        return answer.version if answer.known else -1

    # --- named positions ---------------------------------------------------------------------------------------------

    async def cursor_set(
        self, name: str, positions: Mapping[str, int], *, taken: int = 0, timeout_s: float | None = None
    ) -> None:
        """Store for each channel the next sequence that *name* will read, visible to others; 0 removes the position. *taken*: of
        the position of a tier: its owner has dealt with so many `removals`."""

        async def note(channel: str) -> pb.CursorSetResponse:
            request = pb.CursorSetRequest(
                name=raw(name), channel=raw(channel), sequence=positions[channel], taken=taken
            )
            return await self._requester.ask("cursor_set", request, pb.CursorSetResponse, patience_s=timeout_s)

        await together(note, positions)

    async def owned_position(
        self, group: str, channel: str, sequence: int, *, generation: int, claim: bool, uid: int
    ) -> int:
        """Commit the position of a consumer group in a channel as its owner of that *generation*; with *claim*, shut out all
        earlier owners, and start at *sequence* if there is no position. Returns the position, which never goes back.

        Raises:
            ServerError: refused, for example because a later owner has claimed it.
        """
        request = pb.CursorSetRequest(
            name=raw(group), channel=raw(channel), sequence=sequence, generation=generation, claim=claim, uid=uid
        )
        return (await self._requester.ask("cursor_set", request, pb.CursorSetResponse)).sequence

    async def consumer_group(
        self, request: pb.ConsumerGroupRequest, timeout_s: float | None
    ) -> pb.ConsumerGroupResponse:
        """Tell the servers about a member of a consumer group (see group_consumer.py), and return what they say is its own. It is
        asked once, as the next request says more than a repeat of this one; with a *timeout_s* of None until it is answered."""
        return await self._requester.ask(
            "consumer_group", request, pb.ConsumerGroupResponse, repeat=timeout_s is None, patience_s=timeout_s
        )

    async def cursors(
        self, name: str = "", *, user: str | None = None, timeout_s: float | None = None
    ) -> dict[str, dict[str, Cursor]]:
        """The named positions, by name and channel: those of one name, or all; those of one *user*, or of all. If several have
        one of a name in a channel, that of the user whose name is last."""
        request = pb.CursorsRequest(name=raw(name))
        found: dict[str, dict[str, Cursor]] = {}
        after = {"after_name": "name", "after_channel": "channel", "after_user": "user"}
        rows = await self._requester.ask_pages(
            "cursors", request, pb.CursorsResponse, "cursors", after, patience_s=timeout_s
        )
        for cursor in rows.values():
            if user is not None and text_of(cursor.user) != user:
                continue
            of_name = found.setdefault(text_of(cursor.name), {})
            removed = tuple(zip(cursor.removed[::2], cursor.removed[1::2], strict=True))
            place = Cursor(cursor.sequence, cursor.last_sequence, cursor.removals, removed)
            of_name[text_of(cursor.channel)] = place
        return found


def _in_requests(shares: Mapping[bytes, pb.ChannelTxns]) -> list[list[bytes]]:
    """The channels of a commit, divided into as many requests as they take."""
    found: list[list[bytes]] = []
    size = 0
    for channel, share in shares.items():
        size += share.ByteSize()
        if not found or size > COMMIT_BYTES_MAX or len(found[-1]) >= COMMIT_CHANNELS_MAX:
            found.append([])
            size = share.ByteSize()
        found[-1].append(channel)
    return found


def part_names(channel: str, parts: int) -> list[str]:
    """The names of the parts of a channel that has so many."""
    return [text_of(part_name(raw(channel), number)) for number in range(parts)]


def raw(name: str) -> bytes:
    """Encode a name for the wire; the inverse of `text_of`."""
    return name.encode("utf-8", "surrogateescape")


def _by_name(infos: Iterable[pb.ChannelInfo]) -> dict[str, ChannelInfo]:
    """Channels by name; of two that tell of the same the later one."""
    found = {}
    for info in infos:
        name, times = text_of(info.name), (info.first_timestamp, info.last_timestamp)
        found[name] = ChannelInfo(name, info.uid, info.first_sequence, info.last_sequence, info.bytes, *times)
    return found
