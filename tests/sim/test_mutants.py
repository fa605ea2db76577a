"""The simulation has teeth: a broker that breaks a promise is found out within a few seeds."""

import inspect
from array import array
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import FunctionType
from typing import Any, NamedTuple

import pytest
from stan_protocol import dead_letters as letters
from stan_protocol.channels import publication
from stan_protocol.frames import Times
from stan_protocol.scalars import SECOND

from stan import limits
from stan.core.base.causes import Cause
from stan.core.base.runs import Run, Runs
from stan.core.boundary.view import ScopeView
from stan.core.broker.broker import Broker
from stan.core.clients.serving_leader import ServingLeader
from stan.core.clients.serving_node import ServingNode
from stan.core.features.consumer_groups.live import LiveConsumerGroup
from stan.core.features.dead_letters.moving import DeadLetters
from stan.core.features.dead_letters.redriving import Redriving
from stan.core.features.delays import channel_delays as delaying
from stan.core.features.delays.publish_times import Deferring
from stan.core.features.jetstream.consumers.after_commit import AfterCommit
from stan.core.features.jetstream.consumers.delivering import ConsumerDeliveries
from stan.core.features.jetstream.streams.judging import InFlight
from stan.core.features.jetstream.streams.markers import DeleteMarkers
from stan.core.features.jetstream.streams.reading import StreamReading
from stan.core.features.jetstream.streams.scheduling import Scheduling
from stan.core.features.jetstream.streams.storing import StreamStoring
from stan.core.features.jetstream.streams.subjects import SubjectIndex
from stan.core.features.moves.spreading import Spreading
from stan.core.features.parts.doubling import PartDoubling
from stan.core.features.transactions.committing import Committing
from stan.core.features.ttl.expiring import Expiring, ExpiryClock
from stan.core.leader import acks, cursor_override_live
from stan.core.leader.cursors import LiveCursor, LiveMember, MessagesAhead, Unreported
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.key_order import KeyOrder
from stan.core.leader.live_consumer import LiveConsumer
from stan.core.leader.membership import LiveMembership
from stan.core.leader.pending import Pending
from stan.core.leader.publish_replay import ReplayFilter
from stan.core.leader.redelivery import Redelivery
from stan.core.metadata.meta import MetaMachine
from stan.core.publishing import publishing
from stan.core.publishing.batching import Batching
from stan.core.publishing.channel_policies import ChannelPolicies
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.filters import PublishFilters
from stan.core.publishing.part_routing import PartRouting
from stan.core.services.placement import ChannelPlacement
from stan.core.state import operator_changes, progress
from stan.core.state.bookmarks import Bookmarks, NotedPlace
from stan.core.state.cursors import Cursor
from stan.core.state.dedup import ProducerDedup
from stan.core.state.deferred import Deferred
from stan.core.state.ephemeral import BLOCK_BITS, Epoch
from stan.core.state.expiries import Expiries
from stan.core.state.group import GroupMachine
from stan.core.state.schedules import Schedules
from stan.core.state.tombstones import Tombstones
from stan.core.state.transactions import Transactions
from stan.edge.cluster import copies
from stan.edge.cluster.growth import PoolGrowth
from stan.edge.cluster.node import ClusterNode
from stan.edge.storage.storage import Storage
from stan.log.compaction import KeyMap
from stan.log.files.durable import DurableMark
from stan.log.files.segment_writer import SegmentWriter
from stan.protocol import compressed_batches
from stan.protocol.kernel import server as kernel
from stan.protocol.kernel import server_py
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.backoff import Backoff
from stan.raft.pysyncobj.election import Election, Votes
from stan.raft.pysyncobj.hard_state import HardState
from stan.raft.solo import Solo
from tests.sim.commit_worlds import SAFE
from tests.sim.worlds import make

pytestmark = pytest.mark.timeout(600)


class Mutant(NamedTuple):
    """A broken part, and who finds it: one of the *seeds* of a world complains of one of the words, or of anything."""

    name: str
    world: str
    seeds: Iterable[int]
    says: tuple[str, ...]
    patches: tuple[tuple[Any, str, Any], ...]
    """What `monkeypatch.setattr` gets: of what, which name, what stands there instead."""
    stops: bool
    """A broker that stops itself is found out as well: the exception is a complaint."""
    calm: bool
    """No node fails."""

    def is_found(self, seed: int) -> bool:
        """Whether the run of a seed complains as it is to."""
        try:
            found = make(self.world, seed, **({"calm": True} if self.calm else {})).run()
        except Exception as error:
            if not self.stops:
                raise
            found = [repr(error)]
        return any(word in text for text in found for word in self.says)


MUTANTS: list[Mutant] = []


def mutant(name, world, seeds, says, *patches, stops=None, calm=False):
    """Adds one; *seeds*: which, or how many; *stops*: where it may complain of anything, unless it is told."""
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    words = (says,) if isinstance(says, str) else says
    MUTANTS.append(Mutant(name, world, seeds, words, patches, says == "" if stops is None else stops, calm))


def breaks(of, name, world, seeds, says="", *patches, **more):
    """Adds one that does something around what it replaces: it gets that first."""

    def add(broken: Callable[..., Any]) -> None:
        original = getattr(of, name)
        if isinstance(original, FunctionType):
            assert fits(original, broken), f"{broken.__name__} takes other arguments than {original.__qualname__}"
        patch = of, name, lambda *args, **named: broken(original, *args, **named)
        mutant(broken.__name__, world, seeds, says, patch, *patches, **more)

    return add


def fits(original, broken):
    """Whether a mutant can be called as what it replaces: else any call of it is found out, whatever it breaks."""
    parameters = inspect.signature(original).parameters.values()
    keywords = {one.name: None for one in parameters if one.kind is one.KEYWORD_ONLY}
    placed = [None for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    try:
        inspect.signature(broken).bind(original, *placed, **keywords)
    except TypeError:
        return False
    return True


def nothing(*_args, **_named):
    """Does nothing, and gives nothing."""


def no(*_args, **_named):
    """Is never so."""
    return False


# --- one node, and clusters ---------------------------------------------------------------------------------------------


WANTS_NO_SYNC = (Solo, "wants_sync", property(no, nothing), False)
"""Is no attribute of the class otherwise."""


@breaks(Solo, "propose", "node", range(8, 28), "check_lost", WANTS_NO_SYNC, stops=True)
def acks_before_the_sync(original, self, bodies, *, urgent):
    first = original(self, bodies, urgent=urgent)
    self.synced(self.log.last_index)
    return first


@breaks(Dispatch, "_send", "node", 20, "check_repeats", stops=True)
def forgets_the_flag(original, *args):
    return original(*args)._replace(redelivery_count=0)


@breaks(LiveCursor, "report", "node", range(3, 23), "check_position", stops=True)
def forgets_acks(original, self, entry, moment=None):
    original(self, entry, moment)
    del entry.acked[:]
    return entry


@breaks(Pending, "owe", "node", 20, "check_causes", stops=True)
def records_another_cause(original, self, run, cause):
    original(self, run, Cause.NEGATIVE_ACK if cause is Cause.ACK_WAIT_OVER else cause)


def one_slot_more(self, slots=LiveMember.open_slots.fget):
    """Has room for a message more than the window."""
    return slots(self) + 1


@breaks(SegmentWriter, "sync", "node", range(3, 23), "Damage", stops=True)
def does_not_sync(_original, self):
    self.durable_index = self._tip
    return self.durable_index


mutant("never sends again", "node", 20, "check_at_least_once", (Redelivery, "arm", nothing), stops=True)
mutant(
    "overfills windows", "node", 20, "check_windows", (LiveMember, "open_slots", property(one_slot_more)), stops=True
)


@breaks(Unreported, "tell", "node", 20, "check_causes", stops=True)
def records_nothing(_original, self, _entry, _moment):
    self.sent.clear()


@breaks(server_py, "_key", "cluster", range(3, 23), "check_lost", (kernel, "scan", server_py.scan), stops=True)
def tells_publishes_by_the_ends_of_their_guids(_original, guid):
    """A new leader takes what it heard for what is in the log: nobody stores it, and it is acknowledged."""
    return guid[-8:].rjust(8, b"\0")


@breaks(DurableMark, "advance", "damage", 30, "does not miss what was damaged", stops=True)
def does_not_know_how_far_its_log_was_durable(*_):
    pass


# --- batches, compression, transactions ---------------------------------------------------------------------------------


@breaks(ProducerDedup, "missing", "batch-node", 26, "check_one_order")
def knows_no_ids(_original, _self, _uid, _producer, ids):
    return b"\1" * (len(ids) // 16)


mutant("forgets ids at a restart", "batch-node", 26, "differs after a restart", (ProducerDedup, "load", nothing))


@breaks(Batching, "_propose", "batch-node", 26, "check_lost")
def answers_batches_too_early(original, self, line, named, taken, windows):
    for found in taken:
        found.asked.answer(duplicates=found.number)
    original(self, line, named, taken, windows)


@breaks(compressed_batches, "rows_of", "compression", 4)
def forgets_a_row(original, frame, bytes_max):
    rows = original(frame, bytes_max)
    return rows[: 4 + int.from_bytes(rows[:4], "little")] * 2 if len(rows) > 100 else rows


@breaks(Committing, "_propose", "cluster-transactions", 6)
def commits_one_channel_after_the_other(original, self, decision, commit, channels):
    for share, channel in zip(commit.channels, channels, strict=True):
        original(self, decision, pb.Commit(channels=[share]), [channel])


mutant("never shows a commit", "transactions", 6, "", (Dispatch, "uncovered", nothing))


@breaks(Committing, "_propose", "transactions", 6)
def carries_a_commit_out_twice(original, self, *about):
    original(self, *about)
    original(self, *about)


mutant("forgets versions", "transactions", 6, "", (Transactions, "is_done", no))


# --- compaction, deletions, times ---------------------------------------------------------------------------------------


mutant("compacts over positions", "compaction", 12, "", (GroupMachine, "slowest", nothing))


@breaks(KeyMap, "learn", "compaction", 12)
def keeps_no_newest(original, self, row, records):
    original(self, row, records)
    for name in list(self.places)[:1]:
        self.places[name] += 1


@breaks(KeyMap, "_removed", "compaction", 12)
def tombstones_go_at_once(original, self, row, target, keys, tombstones):
    gone = original(self, row, target, keys, tombstones)
    return sorted({*gone, *(at for at in tombstones if at < target.until)})


mutant("forgets deletions at a restart", "removals", 12, "differs after a restart", (Tombstones, "load", nothing))


@breaks(Tombstones, "delete", "removals", 12, "check_removed", (LiveMembership, "removed", nothing))
def delivers_what_was_deleted(*_):
    return ""


@breaks(Tombstones, "delete", "removals", 12, "check_lost")
def removes_one_too_many(original, self, change):
    if change.deleted and change.deleted[0] > 1:
        change.deleted[0] -= 1
    return original(self, change)


@breaks(delaying, "_trim", "delays", 4)
def forgets_once_what_it_moved(original, uid, first, forgotten=[]):  # noqa: B006
    if forgotten:
        return original(uid, first)
    forgotten.append(uid)
    return pb.GroupChange()


@breaks(ChannelPolicies, "note", "delays", 4)
def moves_early(original, policies, info, room):
    original(policies, info, room)
    if info.uid in policies.delayed:
        policies.delayed[info.uid] = policies.delayed[info.uid]._replace(delay=1)


@breaks(delaying, "_trim", "delays", 4)
def trims_one_too_many(original, uid, first):
    return original(uid, first + 1)


@breaks(Deferred, "apply", "deferred", 4)
def counts_once_what_is_gone_as_waiting(original, state, name, change, index, forgotten=[]):  # noqa: B006
    if name == "deferred_gone" and not forgotten:
        forgotten.append(name)
        return 0
    return original(state, name, change, index)


@breaks(publishing, "deferred_change", "deferred", 4)
def defers_less(original, uid, batch, first):
    early = array("q", (due - SECOND // 2 for due in array("q", batch.times.dues))).tobytes()
    return original(uid, replace(batch, times=Times(early)), first)


@breaks(Deferring, "_move", "deferred", 4)
def drops_one(original, deferring, uid, places, read, **late):
    return original(deferring, uid, places, dict([*read.items()][1:]), **late)


@breaks(ExpiryClock, "pump", "ttl", 4)
def never_looks_for_what_has_expired(_original, self):
    self.next += 10**9


mutant("settles nothing that expires", "ttl", 4, "", (LiveMembership, "removed", nothing))


@breaks(Expiring, "_remove", "ttl", 4)
def removes_early(original, self, second, held):
    return original(self, second + 2, held)


@breaks(Expiries, "add", "ttl", 4)
def forgets_a_run_once(original, state, change, forgotten=[]):  # noqa: B006
    if not forgotten and change.runs:
        forgotten.append(1)
        del change.runs[:]
        del change.at[:]
    return original(state, change)


@breaks(publishing, "stamped", "ttl", 4)
def tells_another_time(original, bodies, times):
    return original(bodies, array("q", (at and at - 1 for at in times)))


@breaks(Expiring, "_remove", "cluster-ttl", 8, stops=False)
def holds_nothing(original, self, second, held):
    original(self, second, held)
    self.group.dispatch.stops.expiring = frozenset()


# --- schedules of streams -----------------------------------------------------------------------------------------------


@breaks(Scheduling, "_removal", "schedules", 8, "came twice")
def leaves_schedules(original, self, uid, _sequences):
    return original(self, uid, [])


@breaks(Schedules, "add", "schedules", 4, "before its time")
def lists_schedules_early(original, self, change):
    for at, due in enumerate(change.dues):
        change.dues[at] = due and max(1, due - SECOND // 2)
    return original(self, change)


mutant("forgets schedules of the leader before", "cluster-schedules", 8, "", (Scheduling, "take_up", nothing))
mutant("forgets schedules at a start", "schedules", 8, "never came", (Schedules, "load", nothing))
mutant("replaces too late", "schedules", 6, "had taken its place", (StreamStoring, "is_in_flight", nothing))
mutant("carries replaced schedules out", "schedules", 4, "had taken its place", (Schedules, "_forget", nothing))


# --- consumers of JetStream ---------------------------------------------------------------------------------------------


@breaks(AfterCommit, "answer", "consumers", 12, "its ack was answered", stops=True)
def answers_an_ack_before_it_is_stored(_original, self, _live, replies):
    self.outgoing.responses += [publication(reply, b"") for reply in replies]


@breaks(Dispatch, "_send", "consumers", 12, "unflagged", stops=True)
def forgets_the_flag_for_consumers(original, *args):
    return original(*args)._replace(redelivery_count=0)


@breaks(LiveConsumer, "passing", "consumers", 6, "never came", stops=True)
def passes_a_message_over(original, self, batch, first, last, newest):
    passed, until = original(self, batch, first, last, newest)
    return (max(passed, first), max(until, first)) if not first % 7 else (passed, until)


@breaks(ConsumerDeliveries, "acked", "cluster-consumers", 12, "no progress", stops=True)
def does_not_hear_every_ack(original, self, led, sequences, replies):
    original(self, led, [one for one in sequences if one % 5], replies)


# --- positions, verdicts, groups ----------------------------------------------------------------------------------------


@breaks(MessagesAhead, "sent_before", "operator", 6)
def forgets_what_was_sent_before(_original, self, first, last, flagged):
    unknown = first <= self.maybe_sent_until
    return (min(last, self.maybe_sent_until), flagged, 1) if unknown else (last, Cause.NEW, 0)


mutant("sends to the paused", "operator", 6, "", (Cursor, "paused", property(no)))
mutant("keeps what it holds", "operator", 6, "", (cursor_override_live, "_moved", nothing))
mutant("skips nothing", "operator", 6, "", (cursor_override_live, "_skipped", nothing))


@breaks(progress, "counted_runs", "verdicts", 6)
def forgets_counts(_original, flat, _counts):
    return iter(Runs([Run(first, last) for first, last in progress.pairs(flat)]))


@breaks(acks, "pause_after_nak", "verdicts", 6)
def knows_no_pause(_original, _policy, _run, _cursor, _sent, now, _delay):
    return now


mutant("ignores work", "verdicts", 6, "", (Pending, "work", nothing))
mutant("leaves what is settled paused", "verdicts", 6, "check_pending", (Pending, "wake", lambda *_: []))


@breaks(Pending, "give_up_spent", "verdicts", 6, "check_pending")
def gives_up_and_sends_again(original, self, policy):
    spent = original(self, policy)
    for run in spent:
        self.due.add(run)
    return spent


@breaks(Redriving, "_change", "cluster-redrives", 3, stops=False)
def removes_no_dead_letter(original, self, redrive, first):
    """A dead letter that was put back is still there."""
    return pb.GroupChange().SerializeToString() if first % 3 == 0 else original(self, redrive, first)


@breaks(DeadLetters, "_letters", "dead-letters", 4)
def settles_before_it_is_stored(original, self, info, cursor_id, into, moves, runs, batches):
    """A crash in between loses messages."""
    live = self._live(cursor_id, moves)
    for run in runs if live is not None else ():
        live.unreported.mark(*run)
        live.pending.settle(*run)
        self.group.dispatch.reports.mark(live)
    return original(self, info, cursor_id, into, moves, runs, batches)


# the copy is stored, and for whoever leads next the message is pending
mutant("settles no dead letter", "dead-letters", 4, "", (operator_changes, "settle_dead_letters", nothing))
mutant("forgets the reason", "dead-letters", 4, "", (letters, "REJECTED", letters.EXHAUSTED))


def takes_two(live):
    """Is whoever has the least to do."""
    return [min(live.members, key=lambda member: member.window.size)]


mutant("has two active members", "failover", 4, "while", (LiveCursor, "takers", property(takes_two)))
mutant("sends again out of turn", "key-order", 6, "", (KeyOrder, "is_first", lambda *_: True))


@breaks(KeyOrder, "begin", "key-order", 6)
def reads_nothing_first(original, order, _held):
    return original(order, ())


@breaks(KeyOrder, "owed", "key-order", 6)
def forgets_who_waits(original, order, first, last):
    return original(order, first, last) if first % 7 else None


GROUP_SEEDS = (6, 23, *range(30))
"""The first two find that a stale generation is taken, which needs a process that was stopped amid a batch."""


@breaks(Bookmarks, "apply", "consumer-groups", GROUP_SEEDS, stops=False)
def takes_any_generation(original, self, name, change, index):
    known = self.by_channel.get(change.uid, {}).get(change.name)
    if known is not None and change.generation < known.generation:
        change.generation = known.generation
    return original(self, name, change, index)


@breaks(Bookmarks, "apply", "consumer-groups", GROUP_SEEDS, stops=False)
def forgets_the_position(original, self, name, change, index):
    known = self.by_channel.get(change.uid, {}).get(change.name)
    if change.claim and known is not None and change.generation > known.generation:
        self.by_channel[change.uid][change.name] = NotedPlace(max(1, known.sequence - 7), known.generation)
    return original(self, name, change, index)


@breaks(LiveConsumerGroup, "staying", "consumer-groups", GROUP_SEEDS, stops=False)
def never_ends_a_lease(original, self, known, _now):
    return original(self, known, 0)


# --- publishes without an ack, ephemeral channels -----------------------------------------------------------------------


@breaks(PublishFilters, "publishes", "silent", (0,), "check_silent")
def drops_what_wants_no_ack(original, self, batch):
    return None if batch.replied.count(0) else original(self, batch)


@breaks(PublishFilters, "publishes", "silent", 3, "check_real_time")
def stores_later_what_wants_no_ack(original, self, batch, held=[]):  # noqa: B006
    if batch.replied.count(0) == batch.count and not held:
        held.append(batch)
        return
    original(self, batch)
    if held:
        original(self, held.pop())


@breaks(EphemeralChannels, "_begin", "cluster-ephemeral", 12)
def begins_without_an_entry(_original, self, channel):
    """The leader takes the next epoch for its own before the log has it."""
    info = channel.info
    known = self.node.groups[info.group].machine.epochs.of(info.uid)
    block = known.block + 1
    self.channels.stores.begin(info.uid, Epoch(known.number + 1, (block << BLOCK_BITS) + 1, block))
    self.stored.source = self.channels.stores
    channel.next_sequence = (block << BLOCK_BITS) + 1
    for opened in self._epochs.pop(info.uid):
        opened("")


def passes_all(_filters, batch, _attempt):
    """A filter of publishes without effect."""
    return batch, b"", ""


# what the last leader may have acknowledged is stored once more
mutant("takes what was heard before", "cluster-ephemeral", 12, "", (PublishFilters, "_not_emptied", passes_all))
mutant("loses answers with the lease", "ephemeral-stops", (13, 15), "", (Broker, "_keep_answers", nothing))


# --- parts --------------------------------------------------------------------------------------------------------------


@breaks(PartRouting, "parts_of", "partitioned", 2, "check")
def divides_by_chance(original, routing, whole, batch):
    if batch.channel != whole.name:
        return original(routing, whole, batch)
    return [(batch.count + at) % whole.parts for at in range(batch.count)]


@breaks(PartRouting, "parts_of", "cluster-partitioned", 4, "check")
def divides_differently(original, routing, whole, batch):
    """What the leader of one part skips, and that of another one does not take either, is never stored; or it is stored twice."""
    shift = batch.channel == whole.name and routing.node.name in ("n0", "n1")
    return [(number + shift) % whole.parts for number in original(routing, whole, batch)]


@breaks(PartDoubling, "_look", "cluster-doubled", 8, "check_parts")
def takes_on_while_parts_are_doubled(original, doubling, channel, now=0):
    """What the metadata are told as the end of a part is not its end."""
    original(doubling, channel, now)
    channel.unsealed.halted = False


@breaks(ReplayFilter, "adopt", "cluster-doubled", (1, 3, 5), "check_parts", calm=True)
def takes_again_what_is_in_the_old_parts(*_):
    pass


@breaks(PartDoubling, "_take_heard", "cluster-doubled", (1, 3, 5), "check_answers", calm=True)
def forgets_what_came_while_parts_were_doubled(*_):
    pass


@breaks(ReplayFilter, "begin_channels", "cluster-doubled", (1, 3, 5), "check_answers", calm=True)
def waits_for_what_now_comes_to_other_parts(original, known, *args):
    """A publisher's newest message of before may be for another part now: it is not missing."""
    known.divided.clear()
    return original(known, *args)


# --- streams ------------------------------------------------------------------------------------------------------------


@breaks(SubjectIndex, "duplicate", "streams", 4, "was stored again")
def forgets_ids(*_):
    return 0


@breaks(StreamReading, "_last", "cluster-streams", 4, "check_streams")
def takes_an_index_as_it_is(*_):
    """It is never caught up with the log."""
    return 0


@breaks(DeleteMarkers, "_is_last", "cluster-markers", 6, "it had not ended")
def marks_the_end_of_subjects_that_go_on(*_):
    return True


@breaks(DeleteMarkers, "_leave", "cluster-markers", 12, "no marker behind")
def removes_before_it_marks(original, self, channel, expired, markers):
    """By an entry of its own, a little earlier: a leader that dies between leaves no marker."""
    yield from original(self, channel, expired, [])
    yield from self.pause(SECOND // 2)
    if markers:
        yield from self.store(channel, markers, lambda _first: b"")


@breaks(InFlight, "begin", "cluster-streams", 12, "check_streams")
def expects_what_is_committed_alone(*_):
    pass


# --- nodes, groups, where channels are ----------------------------------------------------------------------------------


@breaks(
    PoolGrowth, "waits_for", "growth", (2, 3), ("counts", "has no leader", "no progress: "), (PoolGrowth, "heed", no)
)
def opens_a_pool_before_its_groups_have_leaders(*_):
    """Groups that nobody made have no leaders, and channels on their way to such a group never arrive."""
    return ""


mutant("leaves channels where they are", "growth", (2,), "have still to move", (Spreading, "_go_on", nothing))


@breaks(Storage, "found_groups", "growth", (1,), "has no leader")
def counts_groups_without_their_directories(original, self, _voters, pool, votes):
    """It has no vote in any of them, so none is led."""
    return original(self, {}, pool, votes=votes)


@breaks(ReplayFilter, "told_since", "moves", (4,), "check_one_order")
def tells_a_group_of_no_publishes(_original, self, _channels, _at, _size):
    return b"", self._count, True


mutant("heeds no labels", "labels", 4, "labels are", (ClusterNode, "_labels", lambda _self: {}))


@breaks(MetaMachine, "_create", "pins", 12, "and pinned to", (ChannelPlacement, "home", lambda _self, _channel: 1))
def heeds_no_pins(original, self, change):
    change.exact = True
    return original(self, change)


# --- what other nodes serve ---------------------------------------------------------------------------------------------


@breaks(LiveMembership, "serve", "replica-push", 20, "came again unflagged", stops=True)
def takes_back_and_does_not_flag(original, self, cursor, now, wall, *, unconfirmed):
    original(self, cursor, now, wall, unconfirmed=False)


NO_TIME = ((limits, "SERVING_TAKEN_BACK", 1), (limits, "SERVING_LEASE", 1 << 60))


@breaks(ScopeView, "lapsed", "replica-push", 20, "", *NO_TIME)
def waits_for_no_lease(*_):
    return set()


@breaks(ServingNode, "applied", "replica-push", range(6, 26))
def serves_what_an_earlier_life_was_given(original, self, number, cursors):
    for cursor in cursors:
        member = cursor.members[0]
        member.served = member.served._replace(instance=self.nodes.heard.instance())
    original(self, number, cursors)


@breaks(ServingLeader, "_take_back", "replica-push", 5, ("no progress", "never delivered"), stops=True)
def never_takes_back(*_):
    pass


@breaks(Backoff, "factor", "starved", (3000001, 3000005), "F6")
def forgets_that_cpu_is_short(_original, self, now):
    return 1


# --- replicated channels: each part of the rule taken out ---------------------------------------------------------------


VOTES_ON = (HardState, "mark_entries_forgotten", nothing)
"""Who has lost power votes as if nothing had happened."""
COUNTS_AT_ONCE = (Election, "is_amnesiac", property(no))
"""Votes and answers of who has lost power count."""

mutant("votes on", "raft-replicated", 120, "", VOTES_ON, stops=False)
mutant("counts at once", "raft-replicated", 120, "", COUNTS_AT_ONCE, stops=False)


@breaks(Votes, "whole_majority", "raft-replicated", 120, stops=False)
def takes_all_votes_alike(_original, votes, others, *, partial):
    """A majority of whatever votes elects."""
    return 2 * (votes.count + 1) > others + 1


mutant("votes on", "commit-kinds", (59, 154), "", VOTES_ON)
mutant("counts at once", "commit-kinds", 60, "", COUNTS_AT_ONCE)


@breaks(copies, "RaftGroup", "commit-outage", 12, f"check_lost: {SAFE}:", stops=True)
def acks_a_synced_channel_before_its_disks(original, *arguments, sync, **more):
    """All groups answer what they have written: only the replicated channel may do so."""
    return original(*arguments, sync="interval", **more)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[f"{one.world}: {one.name}".replace("_", " ") for one in MUTANTS])
def test_a_broken_broker_is_found_out(monkeypatch, mutant):
    for patch in mutant.patches:
        monkeypatch.setattr(*patch)
    assert any(mutant.is_found(seed) for seed in mutant.seeds)
