"""The durables of one channel: its subs.dat (STAN-SPEC 8.6) as positions that outlive their clients.

A position is offline, even if its clients were connected: what they had not acknowledged goes to the client that
resumes it. Plain subscriptions and queue groups that are not durable end with their clients, as on every disconnect.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from stan.migration.records import ProtoFields, Record, read_small
from stan.migration.report import Note

_MAX_IN_FLIGHT, _ACK_WAIT_S = 1, 30
"""For a record with a value below 1."""
_INT32_MAX = (1 << 31) - 1


@dataclass(slots=True)
class OldPosition:
    """A durable of one client, or a durable queue group."""

    client_id: bytes
    durable: bytes
    queue_group: bytes  # b"" for a durable of one client
    last_sent: int
    inbox: bytes
    max_in_flight: int
    ack_wait_s: int
    pending: set[int] = field(default_factory=set)

    @property
    def name(self) -> bytes:
        """The name as the original shows it."""
        return self.durable + b":" + self.queue_group if self.queue_group else self.durable

    def runs(self) -> list[int]:
        """Return the pending sequences as first, last, first, last, ..."""
        flat: list[int] = []
        for sequence in sorted(self.pending):
            if flat and flat[-1] + 1 == sequence:
                flat[-1] = sequence
            else:
                flat += (sequence, sequence)
        return flat


@dataclass(slots=True)
class SubscriptionState:
    """A subscription of the old server."""

    fields: ProtoFields
    last_sent: int = 0
    pending: set[int] = field(default_factory=set)


def read_positions(path: Path, note: Note) -> tuple[list[OldPosition], int]:
    """Return the positions in a subs.dat, and the number of subscriptions that end because they are not durable."""
    states: dict[int, SubscriptionState] = {}
    for record in read_small(path, note, typed=True):
        try:
            _apply(states, record)
        except ValueError as error:
            note(str(path), record.offset, f"left out: {error}")
    return positions_of(states[number] for number in sorted(states))


def _apply(states: dict[int, SubscriptionState], record: Record) -> None:
    fields = ProtoFields(record.payload)
    subscription = fields.number(1)
    match record.kind:
        case 1 | 2:
            state = states.setdefault(subscription, SubscriptionState(fields))
            state.fields = fields
            state.last_sent = max(state.last_sent, fields.number(9))
        case 3:
            states.pop(subscription, None)
        case 4:
            if subscription in states:
                states[subscription].pending.discard(fields.number(2))
        case 5:
            if subscription in states and fields.number(2):
                state = states[subscription]
                state.pending.add(fields.number(2))
                state.last_sent = max(state.last_sent, fields.number(2))


def positions_of(states: Iterable[SubscriptionState]) -> tuple[list[OldPosition], int]:
    """Return the positions that these subscriptions make, and the number of subscriptions that are not durable."""
    positions: dict[tuple[bytes, bytes, bytes], OldPosition] = {}
    ended = 0
    for state in states:
        fields = state.fields
        client, group, durable = fields.text(2), fields.text(3), fields.text(8)
        if group and fields.number(10):
            durable, _, group = group.partition(b":")
            key = (b"", durable, group)
        elif durable and not group:
            key = (client, durable, b"")
        else:
            ended += 1
            continue
        position = positions.get(key)
        if position is None:
            position = positions[key] = OldPosition(client, durable, group, 0, b"", 0, 0)
        position.client_id, position.inbox = client or position.client_id, fields.text(4)
        position.max_in_flight = bounded_max_in_flight(fields.number(6))
        position.ack_wait_s = bounded_ack_wait(fields.number(7))
        position.last_sent = max(position.last_sent, state.last_sent)
        position.pending |= state.pending
    return list(positions.values()), ended


def bounded_max_in_flight(value: int) -> int:
    """Return a number of messages as a subscription may have it."""
    return _bounded(value, _MAX_IN_FLIGHT)


def bounded_ack_wait(value: int) -> int:
    """Return a number of seconds as a subscription may have it."""
    return _bounded(value, _ACK_WAIT_S)


def _bounded(value: int, otherwise: int) -> int:
    return value if 0 < value <= _INT32_MAX else otherwise
