"""Many channels into one lake, round by round: a channel whose tiering fails is reported and tried again in the next round, and
holds up no other.

A channel that another tierer has taken over is left to that one; after a takeover for a deletion the tierer goes on.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from stan_client import Bookmark, ChannelInfo, StanClientError
from stan_client.reading.direct import Direct

from stan_lake.errors import LakeError, TakenOverError
from stan_lake.store import Store
from stan_lake.table import LakeTable
from stan_lake.tierer import ChannelTierer, TierSettings

if TYPE_CHECKING:
    from stan_lake.manifest import TableManifest

PASSING: Final = (LakeError, OSError, StanClientError)
"""Errors that may be over in the next round."""
TOGETHER_MAX: Final = 2
"""Channels that are written at once; each holds one file's messages in memory."""

Note = Callable[[str, str], None]
"""Called with a channel and its outcome."""

_Identity = tuple[str, int, str]
"""Name, uid and cluster of a channel."""


def _identity(info: ChannelInfo) -> _Identity:
    return info.name, info.uid, info.cluster


class Tiering:
    """The tierers of all channels that match one of some patterns."""

    def __init__(self, store: Store, direct: Direct, settings: TierSettings, note: Note) -> None:
        self._store, self._direct = store, direct
        self._settings = settings
        self._note = note
        self._tierers: dict[_Identity, ChannelTierer] = {}
        self._left: dict[_Identity, TableManifest | None] = {}  # to other tierers; as they were last seen
        self._room = asyncio.Semaphore(TOGETHER_MAX)

    async def round(self, infos: Mapping[str, ChannelInfo], *, all_of_it: bool = False) -> tuple[int, bool]:
        """Move due messages of these channels, or *all_of_it*. Returns the number of moved messages, and True if none failed."""
        places = await self._direct.bookmarks.all(self._settings.name)
        known = places.get(self._settings.name, {})
        there = set(map(_identity, infos.values()))
        self._tierers = {key: tierer for key, tierer in self._tierers.items() if key in there}
        moved = await asyncio.gather(
            *(self._channel(info, known.get(info.name), all_of_it=all_of_it) for info in infos.values())
        )
        return sum(filter(None, moved)), None not in moved

    async def _channel(self, info: ChannelInfo, place: Bookmark | None, *, all_of_it: bool) -> int | None:
        """Do one round of a channel; None: it has failed."""
        key = _identity(info)
        table = LakeTable(self._store, info.name, info.uid)
        async with self._room:
            try:
                if key in self._left:
                    self._left[key] = newest = await asyncio.to_thread(table.manifest, self._left[key])
                    if not newest.released:
                        return None
                    del self._left[key]
                tierer = self._tierers.get(key)
                if tierer is None:
                    tierer = ChannelTierer(table, self._direct, self._settings)
                    await tierer.begin(info)
                    self._tierers[key] = tierer
                moved = await tierer.step(info, place, all_of_it=all_of_it)
            except PASSING as error:
                self._tierers.pop(key, None)
                if isinstance(error, TakenOverError):
                    self._left[key] = None
                self._note(info.name, f"failed: {error}" if str(error) else f"failed: {type(error).__name__}")
                return None
        if moved:
            self._note(info.name, f"{moved} messages moved, up to {tierer.manifest.next - 1}")
        return moved
