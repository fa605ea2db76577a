"""Frames that came before this node led a group are stepped again when it begins to: those that the previous leader has not
handled."""

from collections.abc import Iterable, Iterator

from stan_protocol.frames import Acks, Frame, Publishes, Verdicts
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.broker.frames import ReceivedFrames
from stan.core.features import BrokerParts
from stan.core.services.services import Services


class FrameReplay:
    """Chooses the frames that are replayed for a group, and steps them."""

    def __init__(self, services: Services, parts: BrokerParts, frames: ReceivedFrames) -> None:
        self.leading, self.node = services.leading, services.node
        self.parts = parts
        self.frames = frames
        self.original_requests = frames.original_requests

    def step_heard_since(self, since: Nanos) -> None:
        """The replay buffer has everything that was read from NATS since *since*, for when this node becomes leader."""
        self.leading.heard_since = since

    def run(
        self,
        group: GroupId,
        steps: list[Publishes | Acks | Verdicts | Frame],
        since: Nanos,
        channels: frozenset[bytes] | None = None,
    ) -> None:
        """This node leads a group from now on, or some *channels* that have come to it: handle the buffered frames of the group
        since *since* that the previous leader has not handled."""
        with self.leading.replay_of(group):
            self._run(group, steps, since, channels)

    def _run(
        self,
        group: GroupId,
        steps: list[Publishes | Acks | Verdicts | Frame],
        since: Nanos,
        channels: frozenset[bytes] | None,
    ) -> None:
        if channels is None:
            self.original_requests.forget_pending(group)  # they are among the steps
        frames = [step for step in steps if isinstance(step, Frame)]
        done, followed = self.parts.clients.done_before(frames)
        self.parts.clients.refuse_followed(followed)
        followed += self.parts.subscribing.refuse_overtaken(frames)
        skipped = {id(frame) for frame in (*done, *followed)}  # one that was sent again equals the first
        heard = [step for step in steps if isinstance(step, Publishes)]
        left = iter(self.parts.filters.split_replayed(group, heard, since, channels))
        parted = self.node.meta.channels.parted.by_name
        for step in steps:
            if isinstance(step, Publishes):
                parts = next(left)
                if parted:
                    parts = parts._replace(new=self.parts.routing.routed(parts.new))
                self.parts.filters.admit_replayed(parts)
            elif isinstance(step, Acks):
                found = self.leading.acked(step.group, step.key)
                if found is not None and not found[0].dispatch.acks.is_outdated(found[1], self.node.clock.wall):
                    self.frames.step_acks((step,))
            elif isinstance(step, Verdicts):
                self.frames.step_verdicts(step.frames, replayed=True)
            elif id(step) not in skipped:
                self.frames.step_frame(step)

    # --- what is replayed ---------------------------------------------------------------------------------------------

    def bounds(self, group: GroupId) -> set[Nanos]:
        """Times at which it changes which publishes that were heard are replayed for a group (see `publishes`)."""
        held = self.node.groups.get(group)
        return set() if held is None else held.replay_filter.bounds()

    def publishes(self, group: GroupId, batches: Iterable[Publishes], at: Nanos) -> Iterator[Publishes]:
        """Yield the publishes that came at *at* and are to be replayed for a group; of a channel with parts, for each part."""
        held, parted = self.node.groups.get(group), self.node.meta.channels.parted.by_name
        if held is None:
            return
        for batch in batches:
            info = self.node.meta.channels.get(batch.channel)
            old = at < self.node.clock.now - limits.EPHEMERAL_REFUSED_AGE_MAX
            if old and info is not None and info.is_ephemeral:
                continue  # those that are younger are refused
            for one in self.parts.routing.divided(batch) if parted else (batch,):
                if held.replay_filter.replays(batch.channel, one.channel, at):
                    yield one

    def requests(self, group: GroupId, frames: list[Frame], at: Nanos) -> list[Frame]:
        """Return the requests that came at *at* and are to be replayed for a group: without those about channels that were
        deleted since, which would make the channels again."""
        held = self.node.groups.get(group)
        deleted = (
            {name for name, since in held.replay_filter.deleted.items() if at <= since} if held is not None else ()
        )
        if not deleted:
            return frames
        return [frame for frame in frames if not self.original_requests.is_about(frame, deleted)]

    def is_about(self, frame: Frame, channels: frozenset[bytes]) -> bool:
        """True if a frame is a client's request about one of *channels*."""
        return self.original_requests.is_about(frame, channels)

    def unregistered(self, frames: Iterable[Frame]) -> list[Frame]:
        """See `Clients.unregistered`."""
        return self.parts.clients.unregistered(frames)
