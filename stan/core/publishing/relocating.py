"""Stored messages are relocated, on the leader of their group: into another channel, in one entry with what settles them.

    a run of steps ─► open the other channel ─► read the messages ─► one entry: their rows, and a change of where they were
                      (in the same group)       (StoredReads)        (applied if and only if the rows are stored)

A feature writes a run as a generator, whose steps are those of `Relocating`; which messages are next, how a row differs from its
message, and which change settles it are the feature's. A step that fails raises StepError in the run.

Promises: of each key one run at a time is under way; it is dropped as soon as this node no longer leads the group; an exception
in any of its steps freezes the group alone.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

from stan_protocol.refusals import CHANNEL_MOVING, IN_ANOTHER_GROUP
from stan_protocol.scalars import ChannelUid

from stan.core.base.ready import ReadResult
from stan.core.leader.local_group import Leadership
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import Publishing, StoringPart
from stan.core.publishing.row_batch import RowBatch, StoreResult, can_open_later
from stan.core.publishing.stored_reads import StoredReads
from stan.core.services.services import Services

Result = TypeVar("Result")
Steps = Generator[Callable[[Callable[..., None]], None], Any, Result]
"""A run, or a step of one: yields what begins something and calls back once, and gets the arguments of that call, as a tuple."""


class StepError(Exception):
    """A step of a run has failed, and why; *retry*: the reason may pass."""

    def __init__(self, error: str, *, retry: bool = True) -> None:
        super().__init__(error)
        self.retry = retry


class Relocating(StoringPart):
    """A part of the leader of one group that relocates stored messages."""

    def __init__(
        self, services: Services, leadership: Leadership, channels: LiveChannels, publishing: Publishing
    ) -> None:
        super().__init__(services, leadership, channels, publishing)
        self.faults = services.faults
        self.running: dict[object, Steps[None]] = {}
        """The runs under way, by key."""

    def begin(self, key: object, steps: Steps[None]) -> None:
        """Begin a run; none with this key is under way."""
        self.running[key] = steps
        self._go_on(key, steps)

    def _go_on(self, key: object, steps: Steps[None], *result: object) -> None:
        if self.leadership.ended or self.running.get(key) is not steps:
            return
        try:
            step = steps.send(result or None)
        except StopIteration:
            self.running.pop(key, None)
            self.ended()
        else:
            step(partial(self.faults.within, self.number, self._go_on, key, steps))

    def ended(self) -> None:
        """A run has ended."""

    # --- steps ------------------------------------------------------------------------------------------------------------

    def open(self, name: bytes) -> Steps[LiveChannel]:
        """Open or create a channel, in the group of the messages: they could not be stored in another one by the same entry."""
        channel, error = yield lambda go_on: self.channels.openings.open(name, go_on, self.number)
        if channel is None:
            raise StepError(error, retry=can_open_later(error))
        if channel.info.group != self.number:
            raise StepError(IN_ANOTHER_GROUP.format(channel.info.group, self.number))
        opened: LiveChannel = channel
        return opened

    def read(self, uid: ChannelUid, runs: tuple[tuple[int, int], ...]) -> Steps[list[ReadResult]]:
        """Read the messages *runs* of a channel, [first, last] each, as far as one read goes."""
        batches, error = yield lambda go_on: self.leadership.part(StoredReads).ask(uid, runs, go_on)
        if error:
            raise StepError(error)
        found: list[ReadResult] = batches
        return found

    def check_open(self, *channels: LiveChannel) -> None:
        """Raise StepError if one of *channels*, which were open before, takes no messages now."""
        for channel in channels:
            gone = self.channels.by_uid.get(channel.info.uid) is not channel
            if error := channel.closed or (CHANNEL_MOVING if gone else ""):
                raise StepError(error)

    def store(
        self,
        into: LiveChannel,
        rows: Iterable[bytes],
        change: Callable[[int], bytes] | None,
        scheduled: Callable[[int], bytes] | None = None,
    ) -> Steps[None]:
        """Store rows, one or more, in one entry with what *change* and *scheduled* return; see `RowBatch`."""
        bodies = [*rows]
        (stored,) = yield lambda go_on: self.publishing.add(
            into, RowBatch(b"".join(bodies), len(bodies), go_on, change, scheduled=scheduled)
        )
        result: StoreResult = stored
        if result.error:
            raise StepError(result.error, retry=result.retry)

    def propose(self, **change: object) -> Steps[None]:
        """Propose a change of the group alone."""
        result, error = yield lambda go_on: self.change(go_on, partial(go_on, None, CHANNEL_MOVING), **change)
        if result is None:
            raise StepError(error)

    def pause(self, length: int) -> Steps[None]:
        """Go on in *length* ns."""
        yield lambda go_on: self.at(self.node.clock.now + length, go_on)
