"""What happened in a run, as clients saw it, and what must be true of it (FIELD 3f). Every check returns complaints."""

from collections import defaultdict
from dataclasses import dataclass, field

from stan.types import MILLISECOND

RESTART = ("restart", "", 0)
"""The node began a new life."""
SLACK = 25 * MILLISECOND
"""The broker's own slack on ack waits, and the way of a message."""


@dataclass
class Delivery:
    consumer: str  # a subscription, durable or group: what shares one position
    member: str
    channel: str
    sequence: int
    value: str
    redelivered: bool
    count: int
    in_flight: int  # window of the member
    joined: int  # which incarnation of the member's subscription
    at: int  # ns
    ack_wait: int  # ns


@dataclass
class History:
    attempted: set = field(default_factory=set)  # (channel, value)
    acked: set = field(default_factory=set)
    refused: set = field(default_factory=set)
    events: list = field(default_factory=list)  # Delivery, RESTART, or ("ack", consumer, sequence), in order of time
    must_finish: dict = field(default_factory=dict)  # consumer -> (channel, first sequence it must get)
    final: dict = field(default_factory=lambda: defaultdict(list))  # channel -> [(sequence, value)] of the last reader

    @property
    def deliveries(self):
        return [event for event in self.events if isinstance(event, Delivery)]


def check_lost(history):
    """C1: every acknowledged message is there."""
    stored = {(channel, value) for channel, read in history.final.items() for _, value in read}
    return [f"lost {channel}: {value}" for channel, value in sorted(history.acked - stored)]


def check_phantom(history):
    """C2: nothing is there that nobody published."""
    seen = {(d.channel, d.value) for d in history.deliveries}
    return [f"phantom {channel}: {value}" for channel, value in sorted(seen - history.attempted)]


def check_refused(history):
    """C12: what was answered with an error is not there."""
    stored = {(channel, value) for channel, read in history.final.items() for _, value in read}
    return [f"refused and stored {channel}: {value}" for channel, value in sorted(history.refused & stored)]


def check_one_order(history):
    """C3: a sequence holds the same message for every reader at all times, and a message has one sequence."""
    complaints, content, place = [], {}, {}
    readings = [(d.channel, d.sequence, d.value) for d in history.deliveries]
    readings += [(channel, sequence, value) for channel, read in history.final.items() for sequence, value in read]
    for channel, sequence, value in readings:
        if content.setdefault((channel, sequence), value) != value:
            complaints.append(f"{channel}:{sequence} is {content[channel, sequence]} and {value}")
        if place.setdefault((channel, value), sequence) != sequence:
            complaints.append(f"{channel}: {value} is at {place[channel, value]} and {sequence}")
    return complaints


def check_dense(history):
    """C4: a reader from the beginning finds no gap."""
    return [
        f"{channel}: {read[at][0]} follows {read[at - 1][0] if at else 0}"
        for channel, read in history.final.items()
        for at in range(len(read))
        if read[at][0] != (read[at - 1][0] if at else 0) + 1
    ]


def check_writer_order(history):
    """C5: what one writer sent on one connection keeps its order."""
    complaints = []
    for channel, read in history.final.items():
        last = defaultdict(int)
        for _, value in read:
            writer, number = value.rsplit("-", 1)
            if int(number) <= last[writer]:
                complaints.append(f"{channel}: {value} after {writer}-{last[writer]}")
            last[writer] = int(number)
    return complaints


def check_repeats_flagged(history):
    """C6: whatever comes a second time to the same position is flagged and counted."""
    complaints, seen = [], set()
    for d in history.deliveries:
        key = (d.consumer, d.sequence)
        if key in seen and not d.redelivered:
            complaints.append(f"{d.consumer}: {d.sequence} came again unflagged (to {d.member})")
        if d.redelivered != (d.count > 0):
            complaints.append(f"{d.consumer}: {d.sequence} flagged {d.redelivered}, counted {d.count}")
        seen.add(key)
    return complaints


def check_window(history):
    """C7: no member holds more than its window. What was not acked in time belongs to nobody until it is sent again; so
    does everything when the node starts anew, since ack waits then count from the messages' timestamps."""
    found, held, owner, acked = [], defaultdict(dict), {}, set()
    for event in history.events:
        if event == RESTART:
            held.clear()
            owner.clear()
            continue
        if not isinstance(event, Delivery):
            _, consumer, sequence = event
            acked.add((consumer, sequence))
            held[owner.pop((consumer, sequence), None)].pop(sequence, None)
            continue
        if (event.consumer, event.sequence) in acked:  # that ack was on its way when this was sent again
            continue
        held[owner.get((event.consumer, event.sequence))].pop(event.sequence, None)
        holder = (event.consumer, event.member, event.joined)
        owner[event.consumer, event.sequence] = holder
        mine = held[holder]
        for sequence in [s for s, at in mine.items() if at + event.ack_wait - SLACK <= event.at]:
            del mine[sequence]
        mine[event.sequence] = event.at
        if len(mine) > event.in_flight:
            found.append(f"{holder}: {len(mine)} in flight, window {event.in_flight}")
    return found


def check_first_order(history):
    """D2: first deliveries to a position that one member holds come in increasing order."""
    complaints, highest = [], defaultdict(int)
    for d in history.deliveries:
        if not d.redelivered and not d.consumer.startswith("group"):
            if d.sequence < highest[d.consumer]:
                complaints.append(f"{d.consumer}: {d.sequence} first sent after {highest[d.consumer]}")
            highest[d.consumer] = max(highest[d.consumer], d.sequence)
    return complaints


def check_at_least_once(history):
    """C9, C10: every position got, and had acked, everything from its start to the end."""
    complaints = []
    acked = defaultdict(set)
    for event in history.events:
        if not isinstance(event, Delivery):
            acked[event[1]].add(event[2])
    for consumer, (channel, first) in history.must_finish.items():
        wanted = {sequence for sequence, _ in history.final[channel] if sequence >= first}
        missing = sorted(wanted - acked[consumer])
        if missing:
            complaints.append(f"{consumer}: {len(missing)} never acked, the first is {missing[0]}")
    return complaints


CHECKS = (
    check_lost,
    check_phantom,
    check_refused,
    check_one_order,
    check_dense,
    check_writer_order,
    check_repeats_flagged,
    check_window,
    check_first_order,
    check_at_least_once,
)


def complaints(history):
    """All of them, with the name of the check."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(history)]
