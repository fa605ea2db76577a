"""Transactions: rows of many channels that become visible together, each time they are committed once.

transactions = direct.transactions  # of a Direct or a Client
await transactions.stage("job", 7, "txn-1", 0, "orders", encode_rows([b"one", b"two"]), 2)
await transactions.commit("job", 7, {"orders": [("txn-1", 1)]})

Every request is idempotent, and is repeated until it is answered or the patience ends.
Errors of all: ServerError: refused. RequestTimeoutError: no answer in time. MessageTooLargeError: larger than NATS accepts.
ConnectionClosedError: the client is closed. *timeout_s* of all: the patience of each request that the call makes, in seconds;
None: the client's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from stan_protocol.commits import commit_request
from stan_protocol.limits import COMMIT_CHANNELS_MAX, COMMIT_TXNS_MAX
from stan_protocol.proto import extension_pb2 as pb

from stan_client.requests.names import raw
from stan_client.requests.requester import Requester, together
from stan_client.transport.session import text_of

COMMIT_BYTES_MAX: Final = 512 * 1024
"""Bytes of the channels and txns in one request, if none had the same name."""
TXN_OVERHEAD: Final = 16
"""Largest number of bytes of a txn in a request beside its name."""


GROUPS_KNOWN_MAX: Final = 100_000
"""Channels of which a client remembers the group."""


class Committed(NamedTuple):
    """Messages that a commit has added to one channel."""

    already: bool  # this version, or a later one, had been committed before: nothing was added now
    first: int  # first sequence that this version has added, if it is the newest; 0: none
    last: int
    group: int = 0  # channels with the same one became visible at once; 0: this one by itself


class StagedRows(NamedTuple):
    """Rows of one channel, to be staged."""

    channel: str
    part: int  # 0, 1, 2, ... of the txn in this channel, in the order of its rows
    rows: bytes  # as `encode_rows` makes them
    count: int  # type: ignore[assignment]  # of rows


class Transactions:
    """The transactions of applications, of one client."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._groups: dict[str, int] = {}  # channel -> group of the servers, as of the last answer about it

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
            rows: as `encode_rows` makes them.
            count: number of rows.
            timeout_s: patience of the request.
        """
        await self.stage_together(app, version, txn, [StagedRows(channel, part, rows, count)], timeout_s=timeout_s)

    async def stage_together(
        self, app: str, version: int, txn: str, parts: Sequence[StagedRows], *, timeout_s: float | None = None
    ) -> None:
        """Store rows of many channels as `stage` does those of one, with one request for each group of the servers that has some
        of the channels. Those of a group are stored all or none.

        Args:
            app: as of `stage`, and *version* and *txn*.
            version: of the app's work.
            txn: a unique name.
            parts: rows of different channels, 1,024 at most; together they have to fit into a message of NATS.
            timeout_s: patience of each request.
        """

        async def stage(mine: Sequence[StagedRows]) -> list[list[StagedRows]]:
            """Stage the rows for the group of the first channel; returns the others, by group."""
            first, *more = mine
            request = pb.StageRequest(
                app=raw(app),
                version=version,
                txn=raw(txn),
                part=first.part,
                channel=raw(first.channel),
                count=first.count,
                rows=first.rows,
                more=[pb.StagedRows(channel=raw(one[0]), part=one[1], rows=one[2], count=one[3]) for one in more],
            )
            answer = await self._requester.ask("stage", request, pb.StageResponse, patience_s=timeout_s)
            if not more:
                return []
            elsewhere = {text_of(one.channel): one.group for one in answer.elsewhere}
            self._note({one.channel: elsewhere.get(one.channel, answer.group) for one in mine})
            return self._by_group([one for one in more if one.channel in elsewhere])

        left = self._by_group(parts)
        while left:
            left = [others for rest in await together(stage, left) for others in rest]

    def _note(self, groups: Mapping[str, int]) -> None:
        if len(self._groups) > GROUPS_KNOWN_MAX:
            self._groups.clear()
        self._groups.update(groups)

    def _by_group(self, parts: Iterable[StagedRows]) -> list[list[StagedRows]]:
        groups: dict[int, list[StagedRows]] = {}
        for part in parts:
            groups.setdefault(self._groups.get(part.channel, 0), []).append(part)
        return [*groups.values()]

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

        Rows in channels of one group of the servers become visible at once, whatever crashes; the groups follow each
        other. More than 1,024 channels, 5,000 txns or 512 KiB of them are several requests, as if they were of several groups.

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
        shares = {raw(channel): [(raw(txn), parts) for txn, parts in named] for channel, named in txns.items()}
        done: dict[bytes, Committed] = {}

        async def commit(channels: Sequence[bytes]) -> list[list[bytes]]:
            """Commit the channels of the first one's group; returns the others, by group."""
            request = commit_request(raw(app), version, {name: shares[name] for name in channels}, raw(writer))
            answer = await self._requester.ask("commit", request, pb.CommitResponse, patience_s=timeout_s)
            done[request.channel] = Committed(answer.already, answer.first_sequence, answer.last_sequence, answer.group)
            for row in answer.more:
                done[row.channel] = Committed(row.already, row.first_sequence, row.last_sequence, answer.group)
            groups: dict[int, list[bytes]] = {}
            for other in answer.elsewhere:
                groups.setdefault(other.group, []).append(other.channel)
            return [*groups.values()]

        left = _in_requests(shares)
        while left:
            left = [others for rest in await together(commit, left) for others in rest]
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
        """Return the newest finished version; -1: none.

        Args:
            app: its name.
            writer: the writer that is about to write *version*, as of commit(); "": none.
            version: the version to be written.
            timeout_s: patience of the request.

        Raises:
            ServerError: another writer has finished this version, or a later one.
        """
        request = pb.LastCommittedRequest(app=raw(app), writer=raw(writer), version=version)
        answer = await self._requester.ask("last_committed", request, pb.LastCommittedResponse, patience_s=timeout_s)
        return answer.version if answer.known else -1


def _in_requests(shares: Mapping[bytes, Sequence[tuple[bytes, int]]]) -> list[list[bytes]]:
    """The channels of a commit, divided into as many requests as they take."""
    requests: list[list[bytes]] = []
    size = named = 0
    for channel, txns in shares.items():
        own = len(channel) + sum(len(txn) + TXN_OVERHEAD for txn, _ in txns)
        size += own
        named += len(txns)
        full = size > COMMIT_BYTES_MAX or named > COMMIT_TXNS_MAX
        if not requests or full or len(requests[-1]) >= COMMIT_CHANNELS_MAX:
            requests.append([])
            size, named = own, len(txns)
        requests[-1].append(channel)
    return requests
