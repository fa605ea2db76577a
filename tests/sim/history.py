"""What happened in a run, as clients saw it and nodes stored it, and what must be true of it (FIELD 3f, C1 to C12).

The world and its clients only record, the checks only read; every check returns complaints. Each is proven by histories that
it must refuse (test_history.py). A repeat, a gap or a change of hands is *explained* by a fault that the world has noted as a
`Cause` over the time in which it can show, by an ack wait that is over, or by a member that has left.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.runs import pairs
from stan.core.features.queries.account import Account
from stan.testing.nats import DELAY_MAX

CROSSING = 25 * MILLISECOND
"""A client that fails with a message may say so while the message is on its way to it again."""
SLACK = 25 * MILLISECOND
"""The broker's own slack on ack waits, and the way of a message."""
UNNOTICED = 6000 * MILLISECOND
"""A client that dies is given up by then."""
REACH = 250 * MILLISECOND
"""What a fault has swallowed may have been sent this much earlier."""
ON_THE_WAY = 3 * DELAY_MAX
"""From a node to its NATS server, to a client's, and to the client: what arrives has left, or its link has let it go, that much
earlier at most."""
HOLDING = ("delayed", "clogged")
"""Causes of which a link keeps what was sent, and hands it over later."""
NO_NATS = "NATS away"
"""The cause of ack waits that stand still."""
KEPT_AFTER = 600 * MILLISECOND
"""An ack is in the log of a majority by then, if somebody led its group, and unless a fault came between."""
IDLE = 1000 * MILLISECOND
"""A message that may be sent, while a window is open, has come by then."""
NOTICED = 6 * SECOND
"""A client that has died is given up by then; until then it is sent messages."""
MICROSECOND = 1000
CLOCKS = 2 * MILLISECOND
"""How far a node's clock is off when it tells how long ago something was ..."""
DRIFT = 90
"""... and by which part of that time it may be off besides."""
FOREVER = 1 << 62


@dataclass(eq=False)
class Sub:
    """One subscription of one life of a client, as it asked for it."""

    consumer: str  # what shares one position: itself, a durable, a group
    member: str
    channel: str
    kind: str  # plain, durable, queue, durable queue
    in_flight: int
    ack_wait: int  # ns
    start: str = "first"  # or "new"
    since: int = 0  # when somebody asked for that position first
    joined_at: int = 0
    ended_at: int = 0
    died_at: int = 0  # its process did, and what it had just sent may not have left

    @property
    def shared(self):
        return self.kind.endswith("queue")

    def __repr__(self):
        return f"{self.consumer}({self.member})"


class Delivered(NamedTuple):
    at: int
    sub: Sub
    sequence: int
    value: str
    redelivered: bool
    count: int


class Acked(NamedTuple):
    at: int
    sub: Sub
    sequence: int


class Failed(NamedTuple):
    """A client says that it has failed with a message."""

    at: int
    sub: Sub
    sequence: int
    pause: int  # the least that must pass before it is sent again, ns


class Working(NamedTuple):
    """A client says that it works on a message: its ack wait begins anew."""

    at: int
    sub: Sub
    sequence: int


class Joined(NamedTuple):
    at: int
    sub: Sub


class Ended(NamedTuple):
    """Closed, unsubscribed or dead: asked for by the client, or found out by the broker."""

    at: int
    sub: Sub


class Reset(NamedTuple):
    """A node begins to lead a group, and knows of what was sent only what the log tells. None: all groups."""

    at: int
    group: int | None


class Cause(NamedTuple):
    """Something that explains repeats; nothing before `at - REACH` and nothing after `until`."""

    until: int
    at: int
    what: str
    client: str  # whom it concerns; "": everybody


@dataclass(eq=False)
class Publish:
    writer: str  # one life of a writer: one connection
    number: int
    channel: str
    value: str
    asked_at: int
    ok_at: int = 0
    failed_at: int = 0


class Groups(dict):
    """The group of each channel now, and those in which it ever was."""

    def __init__(self):
        super().__init__()
        self.ever = defaultdict(set)

    def __setitem__(self, channel, group):
        super().__setitem__(channel, group)
        self.ever[channel].add(group)


class History:
    """What one run did."""

    def __init__(self):
        self.publishes = {}  # value -> Publish, in the order in which they were sent
        self.events = []  # in order of time
        self.causes = []  # sorted by their ends
        self.members = defaultdict(set)  # of positions
        self.begun = {}  # position -> when somebody asked for it first
        self.stored = defaultdict(dict)  # channel -> sequence -> value, as committed on any node
        self.first = defaultdict(lambda: 1)  # channel -> first sequence at the end
        self.limits = {}  # channel -> most messages
        self.removed = defaultdict(
            dict
        )  # channel -> sequence -> [when that was asked for, when it was done; 0: not known]
        self.expires = {}  # (channel, sequence) -> Unix ns, as the message tells it; 0: never
        self.shown = []  # (channel, sequence, wall time of the leader) of what was sent or fetched, and may expire
        self.expired = {}  # (channel, sequence) -> Unix ns up to which the log says that all that expires is gone
        self.group_of = Groups()  # channel -> its group
        self.handovers = defaultdict(list)  # group -> [begin, end] of times in which its log takes nothing
        self.moved = set()  # channels that came from another group
        self.final = defaultdict(list)  # channel -> [(sequence, value)] of a reader at the end
        self.must_finish = {}  # consumer -> channel: acks everything from its start on
        self.leaders = {}  # (group, term) -> node
        self.unled = defaultdict(list)  # group -> [since when nobody leads it, until when], in order
        self.replicas = defaultdict(dict)  # group -> node -> what must be the same on all
        self.max_deliver = 0  # deliveries that the policy of all positions allows; 0: no limit
        self.failover = False  # queue groups are failover groups
        self.keyed = {}  # channel -> sequence -> (key, whether it is a tombstone), of channels that are compacted
        self.acked_away = set()  # channels whose messages go with their acks
        self.with_ids = ()  # the beginnings of values that are published under ids
        self.key_of = None  # gives the key of a value, where queue groups are key-ordered
        self.wide = False  # no window is ever full
        self.dead_letters = set()  # (channel, sequence, client id) of what became a dead letter of a plain subscription
        self.told = []  # complaints made on the way
        self.operations = defaultdict(list)  # consumer -> what an operator has asked to be changed about it
        self.gives_up = False  # what a client has rejected stays pending until it is a dead letter
        self.tells_causes = False  # the broker records why it sends what it sends
        self.changes = {}  # (group, index) -> [changes of the entry], and the wall time of their leader when the run began
        self.cursors = {}  # (group, cursor id) -> Cursor, of those that a progress entry tells of
        self.taken_back = defaultdict(list)  # group -> when subscriptions of it were taken back from a node
        self._leading = {}  # group -> node
        self._batches = {}  # (channel, base) -> records: the same on every node

    # --- recording --------------------------------------------------------------------------------------------------------

    def cause(self, at, until, what, client=""):
        insort(self.causes, Cause(until, at, what, client))

    def joined(self, at, sub):
        sub.joined_at = at
        self.members[sub.consumer].add(sub.member)
        self.events.append(Joined(at, sub))

    def explained(self, since, until, members=()):
        """Whether a fault that concerns one of *members* shows somewhere in [since, until]."""
        first = bisect_left(self.causes, (since,))
        return any(c.at - REACH <= until and (not c.client or c.client in members) for c in self.causes[first:])

    def explained_after(self, arrived, until, members):
        """Whether a fault explains what came at *until*, where the one before has *arrived*: it may have left before that fault
        was over, as what an old leader has sent does that a link lets go of when another one leads."""
        return self.explained(arrived - ON_THE_WAY, until, members)

    def held_back(self, arrived, until):
        """Whether a link kept what came at *until*, and let it go when what has *arrived* was on its way, or later."""
        first = bisect_left(self.causes, (arrived - ON_THE_WAY,))
        return any(c.at <= until and c.what.endswith(HOLDING) for c in self.causes[first:])

    def without_nats(self, since, until):
        """For how long the broker had no NATS, all in all, of the times that show in [since, until]."""
        first = bisect_left(self.causes, (since,))
        return sum(c.until - c.at for c in self.causes[first:] if c.what == NO_NATS and c.at <= until)

    def operated(self, consumer, since, until):
        """Whether an operator's change of a position may have shown somewhere in [since, until]; what was sent before it may have
        come a little after it was answered."""
        return any(one.asked_at <= until and one.until >= since - SLACK for one in self.operations.get(consumer, ()))

    def sent_to_the_dead(self, sub, since, joined):
        """How often a message that came at *since* to a position may have been sent, before *sub* joined it, to members that were
        dead already: until the broker learns of their end."""
        died = any(
            isinstance(e, Ended) and e.sub.consumer == sub.consumer and e.sub.died_at and since <= e.at <= joined
            for e in self.events
        )
        return 1 + (joined - since) // sub.ack_wait if died else 0

    def may_be_again(self, channel, value, first, again):
        """Whether a message may be stored once more: another leader knows no ids of messages that are gone by a limit, or acked
        in a work queue."""
        limit = self.limits.get(channel, 0)
        return value.startswith(self.with_ids) and (channel in self.acked_away or 0 < limit <= abs(again - first))

    def batch(self, node, channel, base, records, values):
        """A node has committed a batch; *values* decodes it when it is new."""
        known = self._batches.setdefault((channel, base), records)
        if known is records:
            for sequence, value in enumerate(values(), base):
                if self.stored[channel].setdefault(sequence, value) != value:
                    self.told.append(
                        f"C3 {channel}:{sequence} is {self.stored[channel][sequence]} and {value} on {node}"
                    )
        elif known != records:
            self.told.append(f"C3 {channel}:{base} is another batch on {node}")

    def forget_batches(self, channel):
        """What nodes commit from now on may be another message than the one that had its sequence."""
        for key in [key for key in self._batches if key[0] == channel]:
            del self._batches[key]

    def removal_asked(self, channel, sequences, at):
        """An operator asks that messages go."""
        for sequence in sequences:
            self.removed[channel].setdefault(sequence, [at, 0])

    def removal_done(self, channel, sequences, at):
        """He was told that they are gone."""
        for sequence in sequences:
            times = self.removed[channel][sequence]
            times[1] = times[1] or at

    def gone(self, channel, sequence, at):
        """Whether a message may be gone by then because an operator wants it."""
        return self.removed[channel].get(sequence, (at + 1,))[0] <= at

    def compacted(self, channel):
        """What compaction may have left out: one node still has it, another one that has led has not."""
        return self.removed[channel].keys() if channel in self.keyed else set()

    def surely_there(self, channel):
        """Stored sequences that neither an operator nor the channel's limit can have removed."""
        stored = self.stored.get(channel, ())
        limit = self.limits.get(channel)
        floor = max(stored, default=0) - limit if limit else 0
        return [sequence for sequence in stored if sequence > floor and sequence not in self.removed[channel]]

    def leads(self, at, group, term, node):
        if self.leaders.setdefault((group, term), node) != node:
            self.told.append(f"C11 group {group}: {self.leaders[group, term]} and {node} lead in term {term}")
        self._leading[group] = node
        if self.unled[group]:
            self.unled[group][-1][1] = min(at, self.unled[group][-1][1])

    def leads_no_more(self, at, group, node):
        """It has stepped down, or is dead."""
        if self._leading.get(group) == node:
            del self._leading[group]
            self.unled[group].append([at, FOREVER])

    def led_again(self, group, at, until):
        """When somebody leads *group* again, which nobody led at some time of [at, until]; else 0."""
        return next((end for since, end in reversed(self.unled[group]) if since <= until and at < end), 0)

    def channel_led_again(self, channel, at, until):
        """As `led_again`, of any group that the channel was ever in: it may have moved since."""
        return max((self.led_again(group, at, until) for group in self.group_of.ever[channel]), default=0)

    def is_kept(self, ack):
        """Whether an ack came into the log of a majority: no fault shows until then. Where nobody led the group, none either in
        the first moments of whoever leads again, who has the ack in memory alone at first; that he leads is no such fault."""
        member = (ack.sub.member,)
        again = self.channel_led_again(ack.sub.channel, ack.at, ack.at + KEPT_AFTER)
        after = [c for c in self.causes if again and again < c.at <= again + KEPT_AFTER + REACH]
        return not self.explained(ack.at, self.kept_at(ack), member) and all(
            c.client not in ("", *member) for c in after
        )

    def kept_at(self, ack):
        """When an ack is in the log of a majority, unless a fault came between. That somebody leads again is no such fault, nor
        is a handover, during which the log takes nothing."""
        usual = ack.at + KEPT_AFTER
        for group in self.group_of.ever[ack.sub.channel]:
            for begin, end in self.handovers[group]:
                if ack.at <= end and begin <= usual:
                    usual = max(usual, end + KEPT_AFTER)
        return max(usual, self.channel_led_again(ack.sub.channel, ack.at, usual) - REACH - 1)

    @property
    def deliveries(self):
        return [event for event in self.events if isinstance(event, Delivered)]

    @property
    def acknowledged(self):
        return [publish for publish in self.publishes.values() if publish.ok_at]


# --- what is stored -------------------------------------------------------------------------------------------------------


def places(history):
    """By channel and value: the sequence, from nodes, deliveries and the last reader."""
    found = defaultdict(dict)
    for channel, content in history.stored.items():
        for sequence, value in content.items():
            found[channel].setdefault(value, sequence)
    for d in history.deliveries:
        found[d.sub.channel].setdefault(d.value, d.sequence)
    for channel, read in history.final.items():
        for sequence, value in read:
            found[channel].setdefault(value, sequence)
    return found


def check_lost(history):
    """C1: every acknowledged message is there, unless the channel's limit has removed it."""
    place, kept = places(history), {c: {value for _, value in read} for c, read in history.final.items()}
    by_writer = defaultdict(list)
    for publish in history.acknowledged:
        by_writer[publish.writer].append(publish)
    for writer, acked in by_writer.items():
        there = [
            p.value in kept.get(p.channel, ())
            or place[p.channel].get(p.value, 1 << 60) < history.first[p.channel]
            or place[p.channel].get(p.value) in history.removed[p.channel]
            for p in acked
        ]
        for at, publish in enumerate(acked):
            if not there[at]:
                where = "prefix" if not any(there[:at]) else "middle" if any(there[at:]) else "postfix"
                yield f"{publish.channel}: {publish.value} was acknowledged and is not there ({where} of {writer})"


def check_phantom(history):
    """C2: nothing is there that nobody published."""
    for channel, values in places(history).items():
        for value in values:
            publish = history.publishes.get(value)
            if publish is None or publish.channel != channel:
                yield f"{channel}: {value} was never published"


def check_one_order(history):
    """C3: a sequence holds the same message for every reader and node at all times, and a message has one sequence."""
    content, place = defaultdict(dict), defaultdict(dict)
    readings = [(channel, s, value) for channel, content in history.stored.items() for s, value in content.items()]
    readings += [(d.sub.channel, d.sequence, d.value) for d in history.deliveries]
    readings += [(channel, sequence, value) for channel, read in history.final.items() for sequence, value in read]
    for channel, sequence, value in readings:
        if content[channel].setdefault(sequence, value) != value:
            yield f"{channel}:{sequence} is {content[channel][sequence]} and {value}"
        first = place[channel].setdefault(value, sequence)
        if first != sequence and not history.may_be_again(channel, value, first, sequence):
            yield f"{channel}: {value} is at {place[channel][value]} and {sequence}"


def check_dense(history):
    """C4: a reader from the beginning finds no gap but where messages were removed, and begins where the channel's limit says."""
    for channel, read in history.final.items():
        last = read[-1][0] if read else 0
        limit, removed = history.limits.get(channel), history.removed[channel]
        newest = max(history.stored.get(channel, ()), default=last)
        before = max(0, newest - limit) if limit else 0
        for sequence, _ in read:
            if any(between not in removed for between in range(before + 1, sequence)) or sequence <= before:
                yield f"{channel}: {sequence} follows {before}"
            before = sequence
        wanted = max(history.surely_there(channel), default=0) if channel in history.stored else last
        if not wanted <= last <= newest:
            yield f"{channel}: the reader ends at {last}, the nodes at {newest}"


def check_removed(history):
    """C13: what an operator has removed, and was told to be gone, nobody gets."""
    for channel, read in history.final.items():
        for sequence, _ in read:
            if history.removed[channel].get(sequence, (0, 0))[1]:
                yield f"{channel}: {sequence} is there, and was removed"
    for d in history.deliveries:
        done = history.removed[d.sub.channel].get(d.sequence, (0, 0))[1]
        if done and d.at > done + REACH and not history.explained(done, d.at, (d.sub.member,)):
            yield f"{d.sub}: got {d.sequence} {(d.at - done) / 1e9:.3f}s after it was removed"


def table_of(keyed, sequences):
    """What who has read *sequences* knows: of each key the newest message, without keys that were deleted."""
    table = {}
    for sequence in sorted(sequences):
        key, tombstone = keyed[sequence]
        table.pop(key, None)
        if not tombstone:
            table[key] = sequence
    return table


def check_tables(history):
    """C19: who folds what is left of a compacted channel by key gets what the fold of all messages gives, and so does every
    position that has got to the end, wherever it stood when messages went."""
    for channel, keyed in history.keyed.items():
        floor = max(keyed) - history.limits[channel] if channel in history.limits else 0

        def table(sequences, keyed=keyed, floor=floor):
            return {key: sequence for key, sequence in table_of(keyed, sequences).items() if sequence > floor}

        whole, left = table(keyed), table([sequence for sequence, _ in history.final[channel]])
        if left != whole:
            yield f"{channel}: what is left gives {left}, all gives {whole}"
        got = defaultdict(set)
        for d in history.deliveries:
            if d.sub.channel == channel and d.sequence in keyed:
                got[d.sub.consumer].add(d.sequence)
        for consumer, where in history.must_finish.items():
            if where == channel and (made := table(got[consumer])) != whole:
                yield f"{consumer}: has made {made}, all gives {whole}"


def check_expired(history):
    """C15: nothing is sent once its time is over by the clock of who leads, nothing goes before that, and at the end, when the
    time of all is over, nothing that expires is there. What is said to be gone is looked at by check_removed."""
    for channel, sequence, wall in history.shown:
        expires = history.expires.get((channel, sequence), 0)
        if 0 < expires <= wall:
            yield f"{channel}: {sequence} is shown {(wall - expires) / 1e9:.3f}s after it has expired"
    for (channel, sequence), until in history.expired.items():
        expires = history.expires.get((channel, sequence), 0)
        if not 0 < expires <= until:
            yield f"{channel}: {sequence} is gone at {until / 1e9:.0f}, and expires at {expires / 1e9:.0f}"
    for channel, read in history.final.items():
        for sequence, _ in read:
            if history.expires.get((channel, sequence)):
                yield f"{channel}: {sequence} is there, and has expired"


def check_real_time(history):
    """C5: what one connection sent keeps its order; what was acknowledged before another was sent is in front of it."""
    place = places(history)
    per_writer, oks = {}, defaultdict(list)
    for publish in history.publishes.values():
        at = place[publish.channel].get(publish.value)
        if at is None:
            continue
        key = publish.writer, publish.channel
        if per_writer.get(key, (0,))[0] > at:
            yield f"{publish.channel}: {publish.value} is at {at}, {per_writer[key][1]} at {per_writer[key][0]}"
        per_writer[key] = at, publish.value
        if publish.ok_at:
            oks[publish.channel].append((publish.ok_at, at, publish.value))
    for channel, acked in oks.items():
        acked.sort()
        highest = [acked[0][1:]]
        for _, at, value in acked[1:]:
            highest.append(max(highest[-1], (at, value)))
        for publish in history.publishes.values():
            at = place[channel].get(publish.value) if publish.channel == channel else None
            before = bisect_left(acked, (publish.asked_at, 0, ""))
            if at is not None and before and highest[before - 1][0] > at:
                yield f"{channel}: {publish.value} is at {at}, before {highest[before - 1]}, acknowledged when it was sent"


def check_honest(history):
    """C12: what was answered with an error is not there, and nothing gets two answers."""
    place = places(history)
    for publish in history.publishes.values():
        if publish.failed_at and publish.value in place[publish.channel]:
            yield f"{publish.channel}: {publish.value} was refused and is at {place[publish.channel][publish.value]}"
        if publish.failed_at and publish.ok_at:
            yield f"{publish.channel}: {publish.value} was acknowledged and refused"


# --- what subscribers get -------------------------------------------------------------------------------------------------


def check_repeats(history):
    """C6: whatever comes a second time to the same position is flagged, and counted, and explained.

    What an old leader has sent first may arrive after what its successor has sent, flagged, if the old one's link is slow. What
    arrives at a subscription that has ended was on its way, and goes to the next member, where it may arrive earlier."""
    last, left, firsts, ended, failed = {}, defaultdict(int), set(), set(), {}
    for event in history.events:
        if isinstance(event, Ended):
            left[event.sub.consumer] = event.at
            ended.add(event.sub)
        elif isinstance(event, Failed):
            failed[event.sub.consumer, event.sequence] = event.at
        elif isinstance(event, Delivered):
            consumer = event.sub.consumer
            before = last.get((consumer, event.sequence))
            again = before is not None and not event.redelivered
            overtaken = again and event.sub in ended and event.at - before.at <= ON_THE_WAY
            if again and (
                (consumer, event.sequence) in firsts
                or not (overtaken or history.explained_after(before.at, event.at, history.members[consumer]))
            ):
                yield f"{consumer}: {event.sequence} came again unflagged (to {event.sub.member})"
            if event.redelivered != (event.count > 0):
                yield f"{consumer}: {event.sequence} flagged {event.redelivered}, counted {event.count}"
            if event.redelivered:
                since = before.at if before else event.sub.since
                waited = before is not None and event.at - before.at >= before.sub.ack_wait - SLACK
                somebody_left = left[consumer] >= since - SLACK and left[consumer] > 0
                somebody_left |= before is not None and before.sub in ended
                asked_for = history.operated(consumer, since, event.at)
                asked_for |= failed.get((consumer, event.sequence), 0) >= since - SLACK > 0
                explained = history.explained_after if before else history.explained
                faulty = explained(since, event.at, history.members[consumer])
                if not (waited or somebody_left or asked_for or faulty):
                    yield f"{consumer}: {event.sequence} came to {event.sub.member} flagged for no reason"
            last[consumer, event.sequence] = event
            if not event.redelivered:
                firsts.add((consumer, event.sequence))


def check_windows(history):
    """C7, C8: no member holds more than its window, and no two hold the same message.

    What was not acked in time belongs to nobody until it is sent again. A leader that begins counts ack waits from the messages'
    timestamps and may not know who holds what."""
    held, owner, acked, ended = defaultdict(dict), {}, set(), set()
    failed = {}  # when the client said last that it failed with a message
    for event in history.events:
        if isinstance(event, Reset):
            for sub in [s for s in held if s and event.group in (None, history.group_of.get(s.channel))]:
                for sequence in held.pop(sub):
                    owner.pop((sub.consumer, sequence), None)
        elif isinstance(event, Failed):
            failed[event.sub.consumer, event.sequence] = event.at
            held[owner.pop((event.sub.consumer, event.sequence), None)].pop(event.sequence, None)
        elif isinstance(event, Acked):
            key = event.sub.consumer, event.sequence
            acked.add(key)
            held[owner.pop(key, None)].pop(event.sequence, None)
        elif isinstance(event, Ended):
            ended.add(event.sub)
            for sequence in held.pop(event.sub, ()):
                owner.pop((event.sub.consumer, sequence), None)
        elif isinstance(event, Delivered):
            key = event.sub.consumer, event.sequence
            if key in acked or event.sub in ended:  # that ack, or that end, was on its way when this was sent
                continue
            if event.at - failed.get(key, event.at - CROSSING) < CROSSING:
                continue  # the leader may take it for a failure of this delivery: the message is nobody's then
            previous = owner.get(key)
            if previous is not None and previous is not event.sub:
                since = held[previous][event.sequence]
                expired = since + previous.ack_wait - SLACK <= event.at
                let_go = history.operated(key[0], since, event.at)
                faulty = history.explained_after(since, event.at, history.members[key[0]])
                if not (expired or let_go or faulty):
                    yield f"C8 {key[0]}: {event.sequence} came to {event.sub.member} while {previous.member} had it"
            held[previous].pop(event.sequence, None)
            owner[key] = event.sub
            mine = held[event.sub]
            for sequence in [s for s, at in mine.items() if at + event.sub.ack_wait - SLACK <= event.at]:
                del mine[sequence]
                del owner[key[0], sequence]
            for sequence in [s for s in mine if history.gone(event.sub.channel, s, event.at)]:
                del mine[sequence]
                del owner[key[0], sequence]
            mine[event.sequence] = event.at
            full = len(mine) > event.sub.in_flight
            since = min(mine.values())
            let_go = full and history.operated(key[0], since, event.at)
            if full and not let_go and not history.explained_after(since, event.at, history.members[key[0]]):
                yield f"C7 {event.sub}: {len(mine)} in flight, window {event.sub.in_flight}"


def check_first_order(history):
    """C4, G2: first deliveries to a position that one member holds come in increasing order, without a gap in times of peace.

    What an old leader has sent may arrive after what its successor has sent, if the old one's link held it back. What a fault has
    swallowed comes again when its ack wait is over, and what is new may go ahead of it until then: that is after another ack wait
    if its client has failed a heartbeat, and ack waits stand still while the broker has no NATS."""
    highest, before, seen = defaultdict(int), {}, set()
    for d in history.deliveries:
        consumer = d.sub.consumer
        again = (consumer, d.sequence) in seen
        seen.add((consumer, d.sequence))
        if d.sub.shared or again:  # check_repeats looks at these
            continue
        if history.operated(consumer, 0, d.at):
            continue
        late = d.sequence < highest[consumer] and not d.redelivered
        if late and not history.held_back(before[consumer], d.at):
            yield f"{consumer}: {d.sequence} first sent after {highest[consumer]}"
        jumps = consumer in before and d.sub.channel not in history.limits
        jumps = jumps and not all(
            history.gone(d.sub.channel, between, d.at) for between in range(highest[consumer] + 1, d.sequence)
        )
        if jumps:
            swallowed = before[consumer] - 2 * d.sub.ack_wait - SLACK
            swallowed -= history.without_nats(swallowed, d.at)
            if not history.explained(swallowed, d.at, (d.sub.member,)):
                yield f"{consumer}: {d.sequence} follows {highest[consumer]}"
        highest[consumer] = max(highest[consumer], d.sequence)
        before[consumer] = d.at


def check_position(history):
    """C9: an ack that was kept is kept for ever, and who comes back begins no later than at its lowest unacked message. While
    nobody leads, an ack is only in the memory of the nodes that have heard it."""
    acked, sent, waiting, meant = defaultdict(dict), defaultdict(dict), {}, {}
    exhausted = defaultdict(set)
    left = defaultdict(int)  # deliveries that the policy allows after the newest one, by (consumer, sequence)
    for event in history.events:
        if isinstance(event, Acked):
            acked[event.sub.consumer].setdefault(event.sequence, event)
            meant[event] = sent[event.sub.consumer].get(event.sequence, event.at)
        elif isinstance(event, Joined) and event.sub.kind == "durable":
            waiting[event.sub] = event.at
        elif isinstance(event, Delivered):
            consumer = event.sub.consumer
            ack = acked[consumer].get(event.sequence)
            kept = ack and history.is_kept(ack)
            kept = kept and not ack.at <= ack.sub.died_at <= ack.at + SLACK
            asked_for = kept and history.operated(consumer, meant[ack], event.at)
            if kept and not asked_for and event.at > history.kept_at(ack):
                yield f"{consumer}: {event.sequence} came again {(event.at - ack.at) / 1e9:.3f}s after it was acked"
            joined = waiting.pop(event.sub, None)
            if joined is not None and not history.operated(consumer, 0, event.at):
                channel = event.sub.channel
                owed = sent[consumer].keys() - acked[consumer].keys()
                owed = {s for s in owed if not history.gone(channel, s, event.at)}
                owed -= exhausted[consumer]
                if history.max_deliver:  # a fault may have swallowed the last delivery
                    members = history.members[consumer]
                    owed = {s for s in owed if not history.explained(sent[consumer][s], event.at, members)}
                    swallowed = {s: history.sent_to_the_dead(event.sub, sent[consumer][s], joined) for s in owed}
                    owed = {s for s in owed if swallowed[s] < left[consumer, s]}
                low = min((s for s in owed if s >= history.first[channel]), default=event.sequence)
                if event.sequence > low and not history.explained(joined, event.at, (event.sub.member,)):
                    yield f"{consumer}: comes back with {event.sequence}, {low} is unacked"
            sent[consumer][event.sequence] = event.at
            left[consumer, event.sequence] = history.max_deliver - event.count - 1
            if event.count + 1 == history.max_deliver:
                exhausted[consumer].add(event.sequence)


def check_at_least_once(history):
    """C10: every position got, and acked, everything from its start to the end; so did whoever was there all the time."""
    acked, got, sent = defaultdict(set), defaultdict(set), set()
    for event in history.events:
        if isinstance(event, Acked):
            acked[event.sub.consumer].add(event.sequence)
        elif isinstance(event, Delivered):
            got[event.sub].add(event.sequence)
            sent.add((event.sub.consumer, event.sequence))
    for consumer, channel in history.must_finish.items():
        if history.operations.get(consumer):  # what must be then is looked at by who has asked
            continue
        missing = sorted(
            {sequence for sequence, _ in history.final[channel]} - acked[consumer] - history.compacted(channel)
        )
        if history.max_deliver:  # check_deliveries looks at what came; a fault may swallow all deliveries of a message
            since = {sequence: history.publishes[value].asked_at for sequence, value in history.final[channel]}
            missing = [
                sequence
                for sequence in missing
                if (consumer, sequence) not in sent
                and not history.explained(since[sequence] - NOTICED, FOREVER, history.members[consumer])
            ]
        if missing:
            yield f"{consumer}: {len(missing)} never acked, the first is {missing[0]}"
    for sub in {event.sub: None for event in history.events if isinstance(event, Joined)}:
        if sub.ended_at or sub.shared:
            continue
        missing = [
            sequence
            for sequence, value in history.final[sub.channel]
            if sequence not in got[sub]
            and sequence not in acked[sub.consumer]
            and sequence not in history.compacted(sub.channel)
            and (sub.channel, sequence, sub.member) not in history.dead_letters  # faults have swallowed its deliveries
            and not (
                history.max_deliver and history.explained(history.publishes[value].asked_at, FOREVER, (sub.member,))
            )
            and (sub.start == "first" or history.publishes[value].asked_at > sub.joined_at)
        ]
        if missing and sub.kind == "plain":
            yield f"{sub}: {len(missing)} never delivered, the first is {missing[0]}"


def check_deliveries(history):
    """C14: no message is delivered more often than the policy allows, its deliveries are counted on, also by the next leader but
    for what no entry told, and what was never acked was delivered as often as that. After a failure comes the pause."""
    if not history.max_deliver:
        return
    counts, last, failed, left, acked = defaultdict(list), {}, {}, defaultdict(int), set()
    newest, crossed = (
        {},
        {},
    )  # failures: each message's newest, and those that may count for a delivery which they have crossed
    for event in history.events:
        if isinstance(event, Ended):
            left[event.sub.consumer] = event.at
        elif isinstance(event, Acked):
            acked.add((event.sub.consumer, event.sequence))
        elif isinstance(event, Failed):
            newest[event.sub.consumer, event.sequence] = event
            before = last.get((event.sub.consumer, event.sequence))
            if before is not None and before.sub is event.sub and event.at < before.at + before.sub.ack_wait - SLACK:
                failed.setdefault((event.sub.consumer, event.sequence), event)  # a pause is not begun anew
        elif isinstance(event, Delivered):
            key = consumer, sequence = event.sub.consumer, event.sequence
            before, failure = last.get(key), failed.pop(key, None)
            if event.count >= history.max_deliver:
                yield f"{consumer}: {sequence} delivered with count {event.count}, allowed are {history.max_deliver}"
            if before is not None and event.count <= before.count and not history.held_back(before.at, event.at):
                told = min(event.at, before.at + KEPT_AFTER)  # by then the log tells of it
                if not history.explained_after(before.at, told, history.members[consumer]):
                    yield f"{consumer}: {sequence} counted {event.count} after {before.count}"
            if before is not None and not history.explained_after(before.at, event.at, history.members[consumer]):
                early = failure is not None and event.at < failure.at + failure.pause - SLACK
                early = early and not (key in crossed and event.at >= crossed[key].at + crossed[key].pause - SLACK)
                if early and left[consumer] < failure.at - SLACK:
                    yield f"{consumer}: {sequence} came {(event.at - failure.at) / 1e9:.3f}s after it had failed"
            last[key] = event
            crossed.pop(key, None)
            if key in newest and event.at - newest[key].at < CROSSING:
                crossed[key] = newest[key]
            counts[key].append(event.count)
    came = {}
    for event in history.deliveries:
        came.setdefault((event.sub.consumer, event.sequence), event.at)
    for key in counts.keys() - acked:
        consumer, sequence = key
        if consumer not in history.must_finish or sequence not in dict(history.final[history.must_finish[consumer]]):
            continue
        first = came[key]
        # Earlier deliveries may have gone to a member that was dead, and not given up yet.
        peace = left[consumer] < first - (SLACK if counts[key][0] <= 1 else UNNOTICED)
        # A fault may swallow later ones, as may a member that has died before, and is not known to be dead yet.
        peace = peace and not history.explained_after(first - UNNOTICED, FOREVER, history.members[consumer])
        # One that may have been sent before counts as sent; and who was dead already has got the first ones.
        begun = counts[key][0] if left[consumer] else min(counts[key][0], 1)
        if peace and counts[key] != list(range(begun, history.max_deliver)):
            yield f"{consumer}: {sequence} was given up after deliveries {counts[key]}"


def check_working(history):
    """C15: who works on a message and says so in time keeps it. No entry tells of that: over a fault the ack wait counts."""
    until = {}
    for event in history.events:
        if isinstance(event, Working):
            key = event.sub.consumer, event.sequence
            sub, end, _ = until.get(key, (None, 0, False))
            in_time = sub is event.sub and event.at < end - SLACK
            if in_time and not history.explained_after(end - sub.ack_wait, event.at, history.members[sub.consumer]):
                until[key] = sub, event.at + sub.ack_wait, True
            else:
                until.pop(key, None)
        elif isinstance(event, (Failed, Acked)):
            until.pop((event.sub.consumer, event.sequence), None)
        elif isinstance(event, Ended):
            for key in [key for key, (sub, *_) in until.items() if sub is event.sub]:
                del until[key]
        elif isinstance(event, Delivered):
            key = consumer, sequence = event.sub.consumer, event.sequence
            sub, end, worked = until.pop(key, (event.sub, 0, False))
            since = end - sub.ack_wait
            if (
                worked
                and event.at < end - SLACK
                and not history.explained_after(since, event.at, history.members[consumer])
            ):
                yield f"{consumer}: {sequence} came again to {event.sub.member} while {sub.member} worked on it"
            until[key] = event.sub, event.at + event.sub.ack_wait, False


def check_failover(history):
    """C16: a failover group has one active member: nobody else gets anything before that one has ended."""
    if not history.failover:
        return
    active, last, ended = {}, {}, set()
    for event in history.events:
        if isinstance(event, Ended):
            ended.add(event.sub)
        elif isinstance(event, Delivered) and event.sub.shared and event.sub not in ended:
            consumer = event.sub.consumer
            before = active.get(consumer)
            two = before is not None and before is not event.sub and before not in ended
            if two and not history.held_back(last[consumer], event.at):
                yield f"{consumer}: {event.sub.member} got {event.sequence} while {before.member} was active"
            active[consumer], last[consumer] = event.sub, event.at


def check_key_order(history):
    """C17: in a key-ordered group no message comes before all earlier ones of its key are acked, and no two members have messages
    of one key at once."""
    if history.key_of is None:
        return
    acked, ended, held = defaultdict(set), set(), defaultdict(dict)  # consumer -> key -> what is in flight
    of_key = {channel: sequences_by_key(history, channel) for channel in history.final}
    for event in history.events:
        if isinstance(event, Ended):
            ended.add(event.sub)
        elif isinstance(event, (Acked, Failed)):
            if isinstance(event, Acked):
                acked[event.sub.consumer].add(event.sequence)
            by_key = held[event.sub.consumer]
            for key in [key for key, before in by_key.items() if before.sequence == event.sequence]:
                del by_key[key]
        elif isinstance(event, Delivered) and event.sub.shared and (key := history.key_of(event.value)):
            consumer, channel = event.sub.consumer, event.sub.channel
            if (
                consumer not in history.must_finish
            ):  # who shares a position that ends with its members is not always known
                continue
            earlier = [s for s in of_key[channel][key] if s < event.sequence and s not in acked[consumer]]
            earlier = [s for s in earlier if not history.gone(channel, s, event.at)]
            if earlier and event.sequence not in acked[consumer] and channel not in history.limits:
                yield f"{consumer}: {event.sequence} came to {event.sub.member} before {earlier[0]} of {key} was acked"
            before = held[consumer].get(key)
            two = before is not None and before.sub not in (event.sub, *ended) and before.sequence != event.sequence
            two = two and event.at < before.at + before.sub.ack_wait - SLACK
            if two and not history.explained_after(before.at, event.at, history.members[consumer]):
                yield f"{consumer}: {event.sequence} came to {event.sub.member} while {before.sub.member} had {before.sequence}"
            if event.sub not in ended and event.sequence not in acked[consumer]:
                held[consumer][key] = event


def contents(history, channel):
    """(sequence, value) of what is or was in a channel, in order."""
    return sorted({**dict(history.final[channel]), **history.stored.get(channel, {})}.items())


def sequences_by_key(history, channel):
    """The stored sequences of each key, in order."""
    found = defaultdict(list)
    for sequence, value in contents(history, channel):
        found[history.key_of(value)].append(sequence)
    return found


def check_idle(history):
    """C18: in peace, and while windows are open, the next message of a key comes when the one before is acked."""
    if history.key_of is None or not history.wide:
        return
    came, ended = defaultdict(dict), defaultdict(list)  # when a message came first; when members have ended
    for event in history.events:
        if isinstance(event, Delivered) and event.sub.shared:
            came[event.sub.consumer].setdefault(event.sequence, event.at)
        elif isinstance(event, Ended):
            ended[event.sub.consumer].append(event.at)
    values = {channel: dict(contents(history, channel)) for channel in history.final}
    of_key = {channel: sequences_by_key(history, channel) for channel in history.final}
    for event in history.events:
        if not isinstance(event, Acked) or not event.sub.shared or event.sub.consumer not in history.must_finish:
            continue
        channel, consumer = event.sub.channel, event.sub.consumer
        key = history.key_of(values[channel].get(event.sequence, ""))
        after = [s for s in of_key[channel][key] if s > event.sequence] if key else []
        if not after or came[consumer].get(after[0], FOREVER) <= event.at + IDLE:
            continue
        stored_at = history.publishes[values[channel][after[0]]].ok_at
        peace = not history.explained(event.at - IDLE, event.at + IDLE, history.members[consumer])
        peace = peace and not any(event.at - 10 * IDLE <= at <= event.at + IDLE for at in ended[consumer])
        if peace and 0 < stored_at < event.at and after[0] >= history.first[channel]:
            yield f"{consumer}: {after[0]} of {key} did not come within a second after {event.sequence} was acked"


def accounts(history):
    """A function that tells what the log says of a cursor's message, from what all nodes together have applied: [(what, cause,
    at, until, client, count)], in the run's time."""
    of_group, of_message, known = defaultdict(list), defaultdict(list), {}
    for (group, index), (changes, zero) in sorted(history.changes.items()):
        for change in changes:
            mine = {progress.cursor_id for progress in change.progress}
            if change.WhichOneof("change"):
                for place in [(group, cursor_id) for cursor_id in mine] or [group]:
                    of_group[place].append((index, change, zero))
                continue
            for cursor_id in mine:
                for sequence in mentioned(change, cursor_id):
                    of_message[group, cursor_id, sequence].append((index, change, zero))

    def account(group, cursor_id, sequence):
        key = group, cursor_id, sequence
        if key not in known:
            told, steps, seen = Account(history.cursors[group, cursor_id], sequence), [], 0
            entries = of_group[group] + of_group[group, cursor_id] + of_message[key]
            for index, change, zero in sorted(entries, key=itemgetter(0)):
                told.take(index, 0, change)
                steps += [(step, zero) for step in told.steps[seen:]]
                seen = len(told.steps)
            known[key] = [
                (s.what, s.cause, s.at - zero, s.until - zero, s.client_id.decode(), s.count) for s, zero in steps
            ]
        return known[key]

    return account


def mentioned(change, cursor_id):
    """The sequences that the progress of a cursor tells of: to the account of another one the change is nothing."""
    progress = [one for one in change.progress if one.cursor_id == cursor_id]
    runs = [part.runs for one in progress for part in (*one.sent, *one.held)] + [one.acked for one in progress]
    return {sequence for flat in runs for first, last in pairs(flat) for sequence in range(first, last + 1)}


def recorded_repeats(history):
    """What progress entries tell of messages sent again: (client, sequence, count) -> [(at, until, group, cursor id,
    how far off the times may be)]."""
    found = defaultdict(list)
    for (group, _), (changes, zero) in sorted(history.changes.items()):
        for progress in [progress for change in changes for progress in change.progress]:
            at = next(change.at for change in changes if change.at) - zero if progress.sent else 0
            for sent in progress.sent if (group, progress.cursor_id) in history.cursors else ():
                times = at - sent.first_ago * MICROSECOND, at - sent.last_ago * MICROSECOND
                for first, last in zip(sent.runs[::2], sent.runs[1::2], strict=True) if sent.count else ():
                    for sequence in range(first, last + 1):
                        key = sent.client_id.decode(), sequence, sent.count
                        found[key].append((*times, group, progress.cursor_id, CLOCKS + (at - times[0]) // DRIFT))
    return found


def latest(record):
    """When a message came at the latest of which a record tells that it was sent, unless a fault held it back."""
    _, until, *_, off = record
    return until + off + ON_THE_WAY + CROSSING


def check_causes(history):
    """C19: each repeat has exactly one cause in the log, and it is the true one. Unless its leader fails before it can tell: then
    the next one says that it may have been sent."""
    if not history.tells_causes:
        return
    account, records = accounts(history), recorded_repeats(history)
    ended, failed, before, resets = {}, defaultdict(int), {}, []
    for event in history.events:
        if isinstance(event, Ended):
            ended[event.sub.member] = event.at
        elif isinstance(event, Failed) or (history.gives_up and isinstance(event, Acked)):
            failed[event.sub.consumer, event.sequence] = event.at
        elif isinstance(event, Reset):
            resets.append(event)
        elif isinstance(event, Delivered):
            consumer, previous = event.sub.consumer, before.get((event.sub.consumer, event.sequence))
            before[consumer, event.sequence] = event
            if not event.redelivered:
                continue
            open_records = records[event.sub.member, event.sequence, event.count]
            matching = [one for one in open_records if one[0] - one[-1] <= event.at]
            if not matching:
                told_by = event.at + KEPT_AFTER
                fell = history.channel_led_again(event.sub.channel, event.at, told_by)
                if not fell and not history.explained_after(event.at, told_by, ()):
                    yield f"{consumer}: {event.sequence} came to {event.sub.member}, count {event.count}: no cause is recorded"
                continue
            # Clocks may be off, but seldom are; and what came long after one record is told by another one.
            record = max(matching, key=lambda one: (event.at <= latest(one), one[0] <= event.at, one))
            open_records.remove(record)
            at, until, group, cursor_id, off = record
            if event.at > latest(record) and not history.explained(until, event.at, (event.sub.member,)):
                yield f"{consumer}: {event.sequence} came {(event.at - until) / 1e9:.3f}s after what is recorded"
            steps = [step for step in account(group, cursor_id, event.sequence) if step[0] == "delivered"]
            mine = [
                step
                for step in steps
                if step[4:] == (event.sub.member, event.count) and abs(step[2] - at) <= MICROSECOND
            ]
            if len(mine) != 1:
                yield f"{consumer}: {event.sequence} with count {event.count} has the causes {[step[1] for step in mine]}"
                continue
            sent_before = [  # a record tells when the first and the last of its messages were sent: both may be others
                step for step in steps if step[2] < mine[0][2] and (step[3] <= mine[0][2] or step[5] < event.count)
            ]
            since = sent_before[-1][2] - off if sent_before else previous.at if previous else event.sub.since
            holder = sent_before[-1][4] if sent_before else previous.sub.member if previous else ""
            cause = mine[0][1]
            faulty = history.explained_after(since, event.at, ())
            late = bool(holder) and history.explained_after(since, event.at, (holder,))
            members = [holder] if holder else history.members[consumer]
            gone = any(since - NOTICED <= ended.get(member, -FOREVER) <= event.at for member in members)
            published = history.publishes[event.value].asked_at
            led_anew = any(published <= reset.at <= event.at and reset.group in (None, group) for reset in resets)
            true = {
                "ack wait over": event.at - since >= event.sub.ack_wait - SLACK or faulty,
                # Who leads next hears once more what clients said to the leader before; a member's link may keep what it says.
                "negative ack": failed[consumer, event.sequence] >= (1 if faulty or late else since - CROSSING),
                "member gone": gone,
                # A client may die before it hears that it has subscribed: then nobody here knows of a subscription that ended.
                "resumed": gone or since < event.sub.joined_at,
                "leader changed": led_anew,
                "server changed": led_anew or any(published <= at <= event.at for at in history.taken_back[group]),
                "moved": history.operated(consumer, 0, event.at),
                "not sent": faulty,
                "owed": event.sub.channel in history.moved,  # what was before is in the log of another group
            }
            if not true.get(cause, False):
                yield f"{consumer}: {event.sequence} came to {event.sub.member}, count {event.count}, because of: {cause}"


def check_replicas(history):
    """C11: all nodes of a group hold the same."""
    yield from history.told
    for group, by_node in history.replicas.items():
        if len(set(by_node.values())) > 1:
            yield f"group {group} differs: {by_node}"


CHECKS = (
    check_lost,
    check_phantom,
    check_one_order,
    check_dense,
    check_removed,
    check_tables,
    check_expired,
    check_real_time,
    check_honest,
    check_repeats,
    check_windows,
    check_first_order,
    check_position,
    check_at_least_once,
    check_deliveries,
    check_working,
    check_failover,
    check_key_order,
    check_idle,
    check_causes,
    check_replicas,
)


def complaints(history):
    """All of them, with the name of the check."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(history)]
