"""Admin events: published on `_STAN.x.<cluster>.events.<kind>`, one stan.admin.Event each (docs/admin-api.md).

An event is sent at most once, by the node that does the thing, and at most EVENTS_PER_SECOND_MAX a second: events left out are
counted, and the count is published. Nothing waits for an event, and nothing on the path of a message makes one.
"""

from dataclasses import dataclass

from stan_protocol.channels import publication
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.scalars import SECOND, Nanos, WallNanos

from stan import limits


@dataclass(slots=True)
class Clock:
    """The two times of the newest turn; one object, in which each turn sets them."""

    now: Nanos
    wall: WallNanos


@dataclass(slots=True)
class AdminEvents:
    """Makes the frames of events."""

    prefix: str
    begun: int = 0  # Nanos: start of the current second
    sent: int = 0  # events in the current second
    left_out: int = 0

    def frames(
        self,
        clock: Clock,
        node: str,
        kind: str,
        text: str,
        *,
        channel: bytes = b"",
        client_id: bytes = b"",
        group: int = 0,
        cursor_id: int = 0,
    ) -> list[bytes]:
        """The NATS frames to send for an event: empty when too many were sent this second. *node*: the name of this node, "" if
        it is alone; *kind*: a token of the subject; *text*: a sentence for people."""
        frames = []
        if clock.now - self.begun >= SECOND:
            if self.left_out:
                frames.append(
                    self._frame(clock, node, "left_out", pb.Event(text=f"{self.left_out} events were left out"))
                )
            self.begun, self.sent, self.left_out = clock.now, 0, 0
        if self.sent >= limits.EVENTS_PER_SECOND_MAX:
            self.left_out += 1
            return frames
        self.sent += 1
        event = pb.Event(text=text, channel=channel, client_id=client_id, group=group, cursor_id=cursor_id)
        return [*frames, self._frame(clock, node, kind, event)]

    def _frame(self, clock: Clock, node: str, kind: str, event: pb.Event) -> bytes:
        event.time, event.node, event.kind = clock.wall, node, kind
        return publication(f"{self.prefix}.{kind}".encode(), event.SerializeToString())
