"""Log lines, admin events and counters: a broker's reports to operators, besides its answers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stan_protocol.scalars import GroupId

from stan.core.base.admin_events import AdminEvents
from stan.core.base.complaints import Complaints
from stan.core.base.ready import ReportMoment
from stan.core.services.node import Node
from stan.core.services.outgoing import Outgoing


@dataclass(slots=True)
class Totals:
    """Counters since the process started (STAN-SPEC 13.2)."""

    in_messages: int = 0
    in_bytes: int = 0
    unanswered_messages: int = 0  # whose publishers want no ack
    acked: dict[GroupId, int] = field(default_factory=dict)  # messages stored here whose publishers want one
    acked_in_memory: int = 0  # those of ephemeral channels, whose group does not tell where they are
    late_messages: int = 0  # delayed ones that were given up
    expired_messages: int = 0  # those whose time to live was over
    tier_lost_messages: int = 0  # those that limits have removed before their tier had them
    refused_by_schema: int = 0  # those that did not fit the schema of their channel


class Reports:
    """Log lines, events and counters of one broker."""

    __slots__ = ("_node", "_outgoing", "complaints", "events", "notes", "totals")

    def __init__(self, node: Node, outgoing: Outgoing, events_prefix: str) -> None:
        self._node = node
        self._outgoing = outgoing
        self.notes: list[tuple[str, str]] = []
        """Log lines for the next Ready: level and text."""
        self.complaints = Complaints(self.note)
        self.events = AdminEvents(events_prefix)
        self.totals = Totals()

    @property
    def moment(self) -> ReportMoment:
        """The moment of progress entries that are made now."""
        clock = self._node.clock
        return ReportMoment(clock.now, clock.wall, self._node.name.encode())

    def note(self, level: str, text: str) -> None:
        """Write a log line for the operator; *level*: INF, WRN, ERR or DBG."""
        self.notes.append((level, text))

    def complain(self, level: str, text: str | Callable[[], str]) -> None:
        """Write a log line about something a client sent, bounded in number and length (stan.core.base.complaints), as the client
        may repeat it without end."""
        self.complaints.tell(self._node.clock.now, level, text)

    def emit(self, kind: str, text: str, **about: Any) -> None:
        """Publish an admin event (stan.core.base.admin_events); *about*: channel=, client_id=, group=, cursor_id=."""
        self._outgoing.responses += self.events.frames(self._node.clock, self._node.name, kind, text, **about)
