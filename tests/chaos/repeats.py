"""Why a message came again: an ack lost in a fault, an ack that was late, or no ack at all; anything else is a wrong repeat.

Judges by the times in the events, so only histories of readers with a clock can be judged. A checker like those of
tests.kit.history: it only reads, and gives one line per violation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.kit.history import SHOWN_MAX, Event, Reader, What

AROUND_FAULT_S = 2.0
"""Acks this long before a fault, or after its end, may be lost by it: positions are kept lazily, sockets hold bytes."""

SLACK_S = 0.2
"""Clocks of the two sides are not one."""


def unexplained(reader: Reader, faults: Sequence[tuple[float, float]], ack_wait_s: float) -> Iterator[str]:
    """Every redelivery that neither the ack wait nor one of the *faults* (begin, end) explains; some of them in words."""
    delivered: dict[int, Event] = {}  # the last one of each sequence
    acked: dict[int, Event] = {}
    found = 0
    for event in reader.events:
        if event.what is What.ACKED:
            acked[event.sequence] = event
        elif event.what is What.DELIVERED:
            before = delivered.get(event.sequence)
            if before is not None:
                ack = acked.get(event.sequence)
                answered = ack.at if ack is not None and ack.at >= before.at else event.at
                waited = answered - before.at
                if waited < ack_wait_s / 2 - SLACK_S and not _near(faults, before.at, answered):
                    found += 1
                    if found <= SHOWN_MAX:
                        yield (
                            f"{reader.name}: {event.sequence} came again {event.at - before.at:.2f} s after it came, "
                            f"{'acked' if answered < event.at else 'not acked'} within {waited:.2f} s, far from any fault"
                        )
            delivered[event.sequence] = event
    if found > SHOWN_MAX:
        yield f"{reader.name}: ... and {found - SHOWN_MAX} more unexplained repeats"


def late_ones_flagged(reader: Reader, windows: Sequence[tuple[float, float]]) -> Reader:
    """The reader with what was on its way when leadership moved, or was held by a cut connection, told from what came in order.

    An old leader sent it when it was first to be sent, so it says nothing of being late; meanwhile another one has sent it again,
    flagged, or has sent what comes after it. Two leaders have two ways to a client, and the broker no power over bytes that are
    on their way. A second copy without a flag stays what it is.
    """
    seen: set[int] = set()
    unflagged: set[int] = set()
    highest = [0] * reader.members
    events: list[Event] = []
    for event in reader.events:
        if event.what is What.DELIVERED:
            behind = event.sequence in seen or event.sequence < highest[event.member]
            late = behind and event.sequence not in unflagged and not event.redelivered
            if not event.redelivered:
                unflagged.add(event.sequence)
            seen.add(event.sequence)
            highest[event.member] = max(highest[event.member], event.sequence)
            if late and any(begin <= event.at <= end for begin, end in windows):
                event = event._replace(redelivered=True)  # noqa: PLW2901 - the same event, better told
        events.append(event)
    return replace(reader, events=events)


def _near(faults: Sequence[tuple[float, float]], begin: float, end: float) -> bool:
    return any(since - AROUND_FAULT_S <= end and begin <= until + AROUND_FAULT_S for since, until in faults)
