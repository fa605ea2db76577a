"""Bookmarks: named positions in channels, noted for others to look at; no delivery depends on them.

bookmarks = direct.bookmarks  # of a Direct or a Client
await bookmarks.set("report", {"orders": 501})
print((await bookmarks.all("report"))["report"]["orders"].lag)

Errors of all: ServerError: refused. RequestTimeoutError: no answer in time. MessageTooLargeError: larger than NATS accepts.
ConnectionClosedError: the client is closed. *timeout_s* of all: the patience of each request that the call makes, in seconds;
None: the client's.
"""

from collections.abc import Mapping
from typing import NamedTuple

from stan_protocol.proto import extension_pb2 as pb

from stan_client.requests.names import raw
from stan_client.requests.requester import Requester, together
from stan_client.transport.session import text_of


class Bookmark(NamedTuple):
    """A named position in a channel."""

    sequence: int  # the next one to be read
    last: int  # newest message of the channel
    removals: int = 0  # how often messages were purged or deleted since a policy `tier` names the position
    removed: tuple[tuple[int, int], ...] = ()  # of these, those not `taken` yet: first and last sequences

    @property
    def lag(self) -> int:
        """Number of messages from it to the end of the channel."""
        return self.last + 1 - self.sequence


class Bookmarks:
    """The named positions in channels, of one client."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester

    async def set(
        self,
        name: str,
        positions: Mapping[str, int],
        *,
        taken: int = 0,
        uids: Mapping[str, int] = {},
        cluster: str = "",
        read_ns: Mapping[str, int] = {},
        timeout_s: float | None = None,
    ) -> None:
        """Store for each channel the next sequence that *name* will read, visible to others; 0 removes the position. *taken*: of
        the position of a tier: its owner has dealt with so many `removals`. *uids*, *cluster*: of the channels from info(),
        so that the position of another channel of that name is refused. *read_ns*: timestamp of the newest message of
        each channel when it was read, so that a position in one that has lost its end since is refused; 0: not known."""

        async def note(channel: str) -> pb.CursorSetResponse:
            request = pb.CursorSetRequest(
                name=raw(name),
                channel=raw(channel),
                sequence=positions[channel],
                taken=taken,
                uid=uids.get(channel, 0),
                cluster=bytes.fromhex(cluster),
                read_timestamp=read_ns.get(channel, 0),
            )
            return await self._requester.ask("cursor_set", request, pb.CursorSetResponse, patience_s=timeout_s)

        await together(note, positions)

    async def all(
        self, name: str = "", *, user: str | None = None, timeout_s: float | None = None
    ) -> dict[str, dict[str, Bookmark]]:
        """The named positions, by name and channel: those of one name, or all; those of one *user*, or of all. If several have
        one of a name in a channel, that of the user whose name is last."""
        request = pb.CursorsRequest(name=raw(name))
        bookmarks: dict[str, dict[str, Bookmark]] = {}
        after = {"after_name": "name", "after_channel": "channel", "after_user": "user"}
        rows = await self._requester.ask_pages(
            "cursors", request, pb.CursorsResponse, "cursors", after, patience_s=timeout_s
        )
        for cursor in rows.values():
            if user is not None and text_of(cursor.user) != user:
                continue
            of_name = bookmarks.setdefault(text_of(cursor.name), {})
            removed = tuple(zip(cursor.removed[::2], cursor.removed[1::2], strict=True))
            place = Bookmark(cursor.sequence, cursor.last_sequence, cursor.removals, removed)
            of_name[text_of(cursor.channel)] = place
        return bookmarks
