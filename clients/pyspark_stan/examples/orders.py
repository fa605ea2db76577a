"""Events of orders, each with the new state of one order, and the table that the pipeline must keep of them. Pure."""

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

CHANNEL: Final = "orders"
TABLE: Final = "orders-table"
COLUMNS: Final = {"order_id": "string", "status": "string", "amount": "decimal(9,2)", "changes": "bigint"}
"""Columns of a message in the changelog, and their types."""
STATES: Final = ("placed", "paid", "packed", "shipped", "delivered")
OPEN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Event:
    """Something has happened to an order."""

    order_id: str
    status: str
    cents: int

    def message(self) -> bytes:
        """Return the event as a JSON message."""
        amount = f"{self.cents // 100}.{self.cents % 100:02}"
        return f'{{"order_id": {json.dumps(self.order_id)}, "status": "{self.status}", "amount": {amount}}}'.encode()


def events(seed: int) -> Iterator[Event]:
    """Generate events without an end: orders are placed, change their states and are delivered; the amounts of some grow."""
    chance, placed = random.Random(seed), 0
    under_way: list[Event] = []
    while True:
        if len(under_way) < OPEN_MAX and (not under_way or chance.random() < 0.3):
            placed += 1
            event = Event(f"order-{placed}", STATES[0], chance.randrange(100, 50_000))
        else:
            before = under_way.pop(chance.randrange(len(under_way)))
            status = STATES[STATES.index(before.status) + 1]
            event = Event(before.order_id, status, before.cents + chance.choice((0, 0, 0, 250)))
        if event.status != STATES[-1]:
            under_way.append(event)
        yield event


def messages(seed: int) -> Iterator[bytes]:
    """Generate events as messages, without an end."""
    return (event.message() for event in events(seed))


def table_of(happened: Iterable[Event]) -> dict[str, Event]:
    """Return the last event of each order: the rows that the table must have."""
    return {event.order_id: event for event in happened}
