"""From PubMsgs to committed record batches to PubAcks (STAN-SPEC 4), always in batches.

A message is acknowledged (P1) only once its entry is committed, which means: on stable storage. Messages that cannot be
accepted are refused with the original's texts and consume no sequence. Row batches (stan.core.publishing.row_batch) are sealed
together with the publishes.
"""

import contextlib
from array import array
from collections import Counter
from collections.abc import Collection
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.channels import is_channel_name, publication, whole_of
from stan_protocol.frames import NO_TIMES, Frame, Publishes
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import NO_METADATA, TOO_MUCH_WAITING
from stan_protocol.scalars import ChannelUid, GroupId, MiB, Nanos, RaftIndex

from stan import limits
from stan.core.base import payload_limit as oversize
from stan.core.base.batch_split import split
from stan.core.base.names import text
from stan.core.base.ready import Proposal, ReadResult, Replay
from stan.core.leader.publish_replay import SplitBatch, encode
from stan.core.publishing.channels import LiveChannel, LiveChannels, Reservation
from stan.core.publishing.compressing import Compressing, apart, frame_of
from stan.core.publishing.deferrals import Deferrals, deferred_change
from stan.core.publishing.ephemeral import BODIES_OF, COUNT_OF, EphemeralChannels
from stan.core.publishing.expiry_rows import (
    EXPIRY_BYTES,
    TAG,
    expiring_change,
    expiry,
    restamped,
    runs_of,
    stamped,
    times_of,
)
from stan.core.publishing.held_publishes import HeldBatch, HeldPublishes
from stan.core.publishing.row_batch import RowBatch, StoreResult
from stan.core.publishing.schema_checks import SchemaChecks
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.node import META_GROUP
from stan.core.services.proposals import InDoubt, nobody_waits
from stan.core.services.services import Services
from stan.core.state.deferred import Deferred
from stan.core.state.expiries import Expiries
from stan.permissions import Right
from stan.protocol.entries import (
    DEFERRED_UID,
    STAGING_UID,
    Kind,
    RecordBatch,
    encode_batch,
    encode_change,
    encode_fingerprints,
)
from stan.protocol.kernel import server as kernel
from stan.protocol.requests import can_be_answered

PASSING = (refusals.TOO_MANY_DELAYED, refusals.TOO_MANY_EXPIRING)
"""Why rows are refused for now."""
TIMES, REFERENCES = "messages with a time", "messages that are stored together with a change"
"""What an ephemeral channel does not have."""
UNBOUNDED = 1 << 63
"""What is to be stored all the same, as the rows of a commit."""
ENTRY_BYTES_TARGET = 1 * MiB
"""An entry is closed once it holds this many bytes (RAFT.md: larger entries only hurt the latency of others)."""


class Sealed:
    """One RECORDS entry on its way: the acks to send when it is committed, the sequences to take back when it is not. No
    dataclass: each publish that comes alone makes one."""

    __slots__ = ("acked", "acks", "channels", "fingerprinted", "group", "parts", "rows", "size")

    def __init__(self, group: GroupId) -> None:
        self.group = group
        self.parts: list[bytes] = []
        self.size = 0
        self.acks: list[bytes] = []
        self.acked = 0  # messages whose publishers want an ack
        self.channels: list[tuple[LiveChannel, int, int, int]] = []  # channel, base, count, bytes
        self.fingerprinted: list[Publishes] = []
        self.rows: list[tuple[RowBatch, int]] = []  # and their first sequence


class Publishing:
    """The publish path of the channels that this node leads."""

    def __init__(self, services: Services, channels: LiveChannels, schemas: SchemaChecks) -> None:
        self.faults, self.leading, self.nats, self.node = (
            services.faults,
            services.leading,
            services.nats,
            services.node,
        )
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.reports, self.senders, self.stored = services.reports, services.senders, services.stored
        self.channels = channels
        self.schemas = schemas
        self.compressing = Compressing(services, channels)
        self.read_index = schemas.read_index
        self.waiting: dict[GroupId, dict[ChannelUid, LiveChannel]] = {}  # channels with unsealed messages
        self.held = HeldPublishes()
        self.unsealed: Counter[GroupId] = Counter()  # bytes of messages that wait in their channels to be sealed
        self.uncommitted: Counter[GroupId] = Counter()  # bytes of sealed messages that are on their way into the log

    # --- publishes -----------------------------------------------------------------------------------------------------

    def publishes(self, batch: Publishes) -> None:
        """Take the publishes of one channel in one read."""
        partition, faulty = self.placement.partition, self.leading.faulty
        if partition is not None and not partition[batch.channel]:
            return  # the channel is another server's
        totals = self.reports.totals
        totals.in_messages += batch.count
        totals.in_bytes += batch.payload_bytes
        if batch.replied:
            totals.unanswered_messages += batch.replied.count(0)
        if self.node.config.cluster is not None:
            if batch.channel in self.placement.held.by_name:
                return  # whoever takes the channel over has heard them
            info = self.node.meta.channels.get(batch.channel)
            group = self.node.groups.get(self.placement.group_number(batch.channel) if info is None else info.group)
            if group is None or group.leadership is None:
                return
            if group.replay_filter.lagging:
                self.take_replayed(group.replay_filter.split(batch, self.node.clock.now))
                return
        elif faulty and (number := self.placement.group_number(batch.channel)) in faulty:
            self._refuse(batch.acks, refusals.GROUP_FROZEN.format(number, faulty[number]), batch.channel)
            return
        self.take(batch)

    def take_replayed(self, parts: SplitBatch) -> None:
        """Take the publishes that are new, and acknowledge those that are in the log already."""
        if parts.acks:
            self.outgoing.pub_acks.append(parts.acks)
        for batch in parts.new:
            self.take(batch)

    def take(self, batch: Publishes) -> None:
        """Take publishes that are not in the log yet. Those of unknown clients wait until this copy of the metadata is known to
        be as new as the leader's."""
        client_of, waiting, user = self.senders.sender, self.held.publishers, batch.user
        keep = []
        for client_id, conn_id in batch.publishers:
            sender = (user, client_id, conn_id)
            keep.append(sender not in waiting and client_of(sender) is not None)
        if all(keep):
            self._take_known(batch)
        else:
            self._take_some(batch, keep)

    def _take_some(self, batch: Publishes, keep: list[bool]) -> None:
        """Take the publishes of known clients and hold the others. *keep*: for each publisher, True if it is known."""
        sane = [max(map(len, publisher)) <= limits.NAME_BYTES_MAX for publisher in batch.publishers]
        if not all(sane):  # no client can be registered with so long a name
            permitted, acks = kernel.select(batch, sane)
            self._refuse(acks, refusals.INVALID_PUBLISH, batch.channel)
            if permitted is not None:
                self.take(permitted)
            return
        unknown, _ = kernel.select(batch, [not stays for stays in keep])
        kept, _ = kernel.select(batch, keep)
        if unknown is not None:
            self._hold(unknown)
        if kept is not None:
            self._take_known(kept)

    def _hold(self, batch: Publishes) -> None:
        if self.node.clustered and self._is_too_much():
            self._refuse_for_now(batch.acks, TOO_MUCH_WAITING)
            return
        group = self.placement.group_number(batch.channel)
        self.held.wait_for_metadata(HeldBatch(group, batch, self.leading.replaying is not None))
        self.read_index.wait(partial(self._take_waiting_batch, batch), group, batch.senders())

    def _take_waiting_batch(self, batch: Publishes, new: bool) -> None:  # noqa: FBT001 - the answer of read_index
        waiting = self.held.for_metadata
        if not waiting or waiting[0].batch is not batch:
            return  # taken with an earlier batch, or this node no longer leads the group
        known = self.senders.sender
        held = self.held.let_go()
        kept, refused = kernel.select(held.batch, [known(sender) is not None for sender in batch.senders()])
        if new:
            self._refuse(refused, refusals.INVALID_PUBLISH, batch.channel)
        else:
            self._refuse_for_now(refused, NO_METADATA)
        if kept is not None:
            self._take_known(kept, new, replayed=held.replayed)
        while self.held.for_metadata:
            ahead = self.held.for_metadata[0].batch
            if self._is_objected(ahead) or not all(known(sender) is not None for sender in ahead.senders()):
                return
            held = self.held.let_go()
            self._take_known(held.batch, replayed=held.replayed)

    def _is_objected(self, batch: Publishes) -> bool:
        """True if a message of a batch does not fit its schema, as far as this copy of the metadata knows."""
        channel = self.channels.by_name.get(batch.channel)
        return channel is not None and bool(self.schemas.objections(channel.info.uid, batch.bodies, batch.count))

    def _take_known(self, batch: Publishes, known: bool | None = None, *, replayed: bool = False) -> None:  # noqa: FBT001
        """Take publishes of known clients. *known*: this copy of the metadata is as new as the leader's, or could not be brought
        up to it; None: nobody has asked. *replayed*: the leader before may have taken them."""
        replayed = replayed or self.leading.replaying is not None
        if batch.channel in self.placement.held.by_name or (replayed and self._refuses_emptied(batch)):
            return
        if len(batch.channel) > limits.CHANNEL_NAME_BYTES_MAX:
            self._refuse(batch.acks, refusals.INVALID_PUBLISH, batch.channel)
            return
        authorizer = self.senders.authorizer
        if authorizer is not None and not all(verdicts := authorizer.may_publish(batch)):
            permitted, acks = kernel.select(batch, verdicts)
            error = refusals.not_permitted(
                Right.PUBLISH.value, text(whole_of(batch.channel))
            )  # not to which part a key belongs
            self._refuse(acks, error, batch.channel)
            if permitted is None:
                return
            batch = permitted
        room = self.node.config.requests.payload_bytes - oversize.MESSAGE_ROOM - len(batch.channel)
        room = min(room, self.nats.payload_bytes_max - oversize.MESSAGE_ROOM - len(batch.channel))
        if len(batch.bodies) > room or self.node.config.requests.message_bytes:  # else all messages fit
            fitting, refused = oversize.part(batch, self.nats.message_payload_max(batch.channel))
            self._refuse(refused, refusals.MESSAGE_TOO_LARGE, batch.channel)
            if fitting is None:
                return
            batch = fitting
        channel = self.channels.by_name.get(batch.channel)
        if channel is not None and not channel.deleting and not channel.restoring:
            channels = self.channels
            special = batch.times is not NO_TIMES or channels.delayed or channels.ttls or channels.schemas
            if special or not self._queue(channel, batch):  # mostly neither: a call less for each publish
                self._take_into(channel, batch, known)
        elif not is_channel_name(batch.channel):
            self._refuse(batch.acks, refusals.INVALID_PUBLISH, batch.channel)
        else:
            self._open(batch, replayed=replayed)

    def _refuses_emptied(self, batch: Publishes) -> bool:
        """Refuse publishes to an ephemeral channel that its last leader may have taken; False if it is another channel."""
        channel = self.channels.by_name.get(batch.channel)
        if channel is None or not channel.info.is_ephemeral:
            return False
        self._refuse(batch.acks, refusals.EPHEMERAL_EMPTIED, batch.channel)
        return True

    def _take_into(self, channel: LiveChannel, batch: Publishes, known: bool | None = None) -> None:  # noqa: FBT001
        if channel.info.uid in self.channels.schemas:
            fitting = self._fitting(channel, batch, known)
            if fitting is None:
                return
            batch = fitting
        if batch.times is not NO_TIMES and channel.info.is_ephemeral:
            error = refusals.NOT_OF_EPHEMERAL.format(refusals.go_quote(text(batch.channel)), TIMES)
            self._refuse(batch.acks, error, batch.channel)
        elif batch.times.dues:
            self._defer(channel, batch)
        elif self.channels.delayed and (error := self.channels.delay_refusal(channel, batch.count)):
            if error == refusals.TOO_MANY_DELAYED:
                self._refuse_for_now(batch.acks, error)
            else:
                self._refuse(batch.acks, error, batch.channel)
        elif batch.times.ttls or channel.info.uid in self.channels.ttls:
            self._take_expiring(channel, batch)
        elif not self._queue(channel, batch):
            # Refused, as reading must not pause: it brings the majority's answers.
            self._refuse_for_now(batch.acks, TOO_MUCH_WAITING)

    def _fitting(self, channel: LiveChannel, batch: Publishes, known: bool | None) -> Publishes | None:  # noqa: FBT001
        """What of a batch fits the channel's schema (None if nothing does); the rest is refused, or all waits until it is known
        whether this copy of the metadata has the newest schemas."""
        objections = self.schemas.objections(channel.info.uid, batch.bodies, batch.count)
        if not objections:
            return batch
        if known is None and self.node.clustered:
            self._hold(batch)
            return None
        if known is False:
            kept, acks = split(batch, [not objection for objection in objections])
            self._refuse_for_now(acks, NO_METADATA)
            return kept
        kept, refusals, unjudged = self.schemas.part(batch, objections)
        for one in refusals:
            self.outgoing.answer_as_leader(channel.info.group, one)
        self._refuse_for_now(unjudged, next(why for why in objections if why))
        return kept

    def _defer(self, channel: LiveChannel, batch: Publishes) -> None:
        """Take publishes that are due later: they wait in the group's hidden channel."""
        info = channel.info
        if channel.unsealed.halted:
            self._wait_for_parts(batch.acks)
            return
        latest = self.node.clock.wall + limits.DELAY_MAX
        fitting, refused = split(batch, [due <= latest for due in array("q", batch.times.dues)])
        self._refuse(refused, refusals.DELAYED_TOO_LONG, batch.channel)
        if fitting is not None and fitting.times.ttls:
            fitting = self._with_ttls(fitting)
        if fitting is None:
            return
        bodies = fitting.bodies
        if fitting.times.ttls:  # from when it is due
            dues, ttls = array("q", fitting.times.dues), array("q", fitting.times.ttls)
            times = [expiry(due, ttl) if ttl else 0 for due, ttl in zip(dues, ttls, strict=True)]
            bodies = stamped(bodies, array("q", times))
        hidden = self.leading.leadership(info.group).part(Deferrals).hidden
        left = self.node.group_of(info).machine.part(Deferred).shares.left(batch.user, limits.DEFERRED_MAX)
        stored = partial(self._deferred, fitting)
        change = partial(deferred_change, info.uid, fitting)
        rows = RowBatch(bodies, fitting.count, stored, change, source=fitting)
        if hidden.unsealed.count + fitting.count > left:
            self._refuse_for_now(fitting.acks, refusals.TOO_MANY_DELAYED)
        elif not self._queue(hidden, rows):
            self._refuse_for_now(fitting.acks, TOO_MUCH_WAITING)

    def _with_ttls(self, batch: Publishes) -> Publishes | None:
        """What of a batch with times to live can be taken (None if nothing); the rest is refused."""
        fitting, refused = split(batch, [0 <= ttl <= limits.TTL_MAX for ttl in array("q", batch.times.ttls)])
        self._refuse(refused, refusals.INVALID_TTL, batch.channel)
        return None if fitting is None else self._with_room(fitting)

    def _with_room(self, batch: Publishes) -> Publishes | None:
        """What of a batch can be delivered when it tells when it expires (None if nothing can); the rest is refused."""
        most = min(self.nats.message_payload_max(batch.channel), self.nats.delivered_bytes_max - EXPIRY_BYTES)
        fitting, refused = oversize.part(batch, most)
        self._refuse(refused, refusals.MESSAGE_TOO_LARGE, batch.channel)
        return fitting

    def _take_expiring(self, channel: LiveChannel, batch: Publishes) -> None:
        """Take publishes some of which expire."""
        info = channel.info
        fitting = self._with_ttls(batch) if batch.times.ttls else self._with_room(batch)
        if fitting is None:
            return
        times = times_of(fitting.times.ttls, fitting.count, self.node.clock.wall, self.channels.ttls.get(info.uid, 0))
        stored = partial(self._deferred, fitting)
        rows = RowBatch(stamped(fitting.bodies, times), fitting.count, stored, source=fitting)
        if not self._list_expiring(channel, rows, times, limits.EXPIRING_RUNS_MAX):
            self._refuse_for_now(fitting.acks, refusals.TOO_MANY_EXPIRING)
        elif not self._queue(channel, rows):
            self._refuse_for_now(fitting.acks, TOO_MUCH_WAITING)

    def _list_expiring(self, channel: LiveChannel, rows: RowBatch, times: "array[int]", most: int) -> bool:
        """See to it that rows which expire are listed once they are stored; False if more than *most* runs would be."""
        info = channel.info
        runs, found = runs_of(times)
        if not found:
            return True
        machine = self.node.group_of(info).machine
        gone = machine.tombstones.by_channel.get(info.uid)
        known = machine.part(Expiries).pieces(info.uid) + (gone.pieces if gone is not None else 0)
        if known + len(found) > most:
            return False
        rows.expiring = partial(expiring_change, info.uid, runs, found)
        return True

    def _deferred(self, batch: Publishes, stored: StoreResult) -> None:
        if stored.error == refusals.PARTS_DOUBLING:
            self._wait_for_parts(batch.acks)
        elif stored.error:
            self._refuse(batch.acks, stored.error, batch.channel)
        else:
            acks = batch.acks
            if batch.numbered:
                level = self.placement.ack_level(self.placement.group_number(batch.channel))
                acks = kernel.number(acks, batch.replied, stored.first, level)
            self.outgoing.pub_acks.append(acks)

    def _open(self, batch: Publishes, *, replayed: bool) -> None:
        if self.channels.is_left_to_another(batch.channel):
            return
        if self.node.clustered and self._is_too_much():
            self._refuse_for_now(batch.acks, TOO_MUCH_WAITING)
            return
        held = HeldBatch(self.placement.group_number(batch.channel), batch, replayed)
        self.channels.open(batch.channel, partial(self._opened, self.held.wait_for_channel(held)))

    def _opened(self, number: int, channel: LiveChannel | None, error: str) -> None:
        held = self.held.take(number)
        if held is None:
            return  # it was heard once more, in a replay
        _, batch, replayed = held
        if channel is not None:
            if not replayed or not self._refuses_emptied(batch):
                self._take_into(channel, batch)
        elif error == LED_ELSEWHERE:
            return
        elif error == NO_METADATA or batch.channel in self.node.meta.channels.parted.by_name:
            self._refuse_for_now(batch.acks, error)  # it has got parts meanwhile, whose leaders may have taken it
        else:
            self._refuse(batch.acks, error, batch.channel)

    def add(self, channel: LiveChannel, rows: RowBatch) -> None:
        """Queue *rows* for a channel that this node leads; `rows.on_done` is called with the outcome."""
        error = "" if rows.priority else self.channels.delay_refusal(channel, rows.count)
        info, ttls = channel.info, self.channels.ttls
        if channel.info.is_ephemeral:
            what = TIMES if TAG in rows.bodies else REFERENCES if rows.change or rows.priority or rows.expiring else ""
            error = refusals.NOT_OF_EPHEMERAL.format(refusals.go_quote(text(info.name)), what) if what else ""
        # What is put back into the hidden channel of delayed messages expires in its own channel, not there.
        if not error and info.uid != DEFERRED_UID and (info.uid in ttls or TAG in rows.bodies):
            rows.bodies, times = restamped(rows.bodies, self.node.clock.wall, ttls.get(info.uid, 0))
            rows.frame = b""
            most = limits.EXPIRING_RUNS_MAX if not rows.priority else UNBOUNDED
            error = "" if self._list_expiring(channel, rows, times, most) else refusals.TOO_MANY_EXPIRING
        if error:
            rows.on_done(StoreResult(error=error, retry=error in PASSING))
            return
        if rows.frame:
            self.compressing.framed.add(info.uid)
        if not self._queue(channel, rows):
            rows.on_done(StoreResult(error=TOO_MUCH_WAITING, retry=True))

    def reserve(self, channel: LiveChannel) -> None:
        """Reserve a channel for the commit of a transaction: only rows with priority are stored, all other messages wait."""
        channel.reservation = Reservation(channel.next_sequence)

    def release(self, channel: LiveChannel) -> None:
        """End a reservation: messages that waited for its end are stored."""
        channel.reservation = None
        if channel.unsealed.others:
            self.waiting.setdefault(channel.info.group, {})[channel.info.uid] = channel

    def refuse_waiting(self, channel: LiveChannel, error: str) -> None:
        """Refuse messages that wait for a reservation which will last longer than their publishers wait for an answer."""
        waiting, channel.unsealed.others = channel.unsealed.others, []
        self.unsealed[channel.info.group] -= sum(len(batch.bodies) for batch in waiting)
        self._give_up(waiting, error)

    def leave(self, channel: LiveChannel) -> None:
        """A channel goes to another group: what is not sealed is left to whoever takes it over."""
        channel.unsealed.closed = True
        waiting = channel.unsealed.take(others=True)
        self.unsealed[channel.info.group] -= sum(map(len, map(BODIES_OF, waiting)))
        self.waiting.get(channel.info.group, {}).pop(channel.info.uid, None)
        self._give_up([batch for batch in waiting if isinstance(batch, RowBatch)], refusals.CHANNEL_MOVING)

    def _queue(self, channel: LiveChannel, batch: Publishes | RowBatch) -> bool:
        """Queue messages for a channel; returns False, and they are not queued, if too much waits already."""
        info, unsealed = channel.info, channel.unsealed
        if unsealed.closed or unsealed.halted:
            if isinstance(batch, RowBatch):
                error = refusals.PARTS_DOUBLING if unsealed.halted else refusals.CHANNEL_MOVING
                batch.on_done(StoreResult(error=error, retry=True))
            elif unsealed.halted:
                self._wait_for_parts(batch.acks)
            return True  # whoever takes the channel over has heard the publishes
        if isinstance(batch, RowBatch) and batch.priority:
            unsealed.priority.append(batch)
        elif (self.node.config.cluster is not None or channel.reservation is not None) and self._is_too_much():
            return False
        else:
            unsealed.others.append(batch)
        self.unsealed[info.group] += len(batch.bodies)
        self.waiting.setdefault(info.group, {})[info.uid] = channel
        return True

    def _is_too_much(self) -> bool:
        """True if too much waits to take more. Asked in a cluster, and of a reserved channel; else the edge reads less."""
        waiting = sum(self.unsealed.values()) + sum(self.uncommitted.values()) + sum(self.held.bytes.values())
        waiting += self.outgoing.waiting.bytes
        return waiting > limits.UNCOMMITTED_BYTES_MAX

    def _refuse(self, acks: bytes, error: str, channel: bytes) -> None:
        """Refuse publishes to *channel*. Of a node that stood still nothing leaves: another one may have taken them meanwhile."""
        # A server alone leads every group, so it does not have to look the channel's up.
        number = self.placement.group_number(channel) if self.node.clustered else META_GROUP
        self.refuse_as_leader(number, acks, error)

    def refuse_as_leader(self, number: GroupId, acks: bytes, error: str) -> None:
        """Refuse publishes that another leader of the group might take."""
        acks = oversize.answerable(acks, self.nats.payload_bytes_max)
        if acks:
            self.outgoing.answer_as_leader(number, kernel.refuse(acks, error.encode()))

    def _wait_for_parts(self, acks: bytes) -> None:
        """Publishes come while the parts of their channel are doubled: whoever leads their part afterwards has heard them. A node
        alone has no replay buffer, and refuses them."""
        if not self.node.clustered:
            self.refuse_as_leader(META_GROUP, acks, refusals.PARTS_DOUBLING)

    def _refuse_for_now(self, acks: bytes, error: str) -> None:
        """Refuse publishes for a reason that passes. In a cluster they stay unanswered: the next leader replays what it has
        buffered, and may store what this leader could not. A publisher that received an error must not find its message stored
        later."""
        if not self.node.clustered:
            self.refuse_as_leader(META_GROUP, acks, error)  # of a server alone it is no matter which
        elif acks:
            self.reports.complain("WRN", f"publishes are not answered ({error})")

    def malformed(self, frame: Frame) -> None:
        """Refuse a payload on the publish subject that is no PubMsg, has no guid, or names another channel than its subject."""
        channel = frame.subject[len(self.nats.subjects.pub_prefix) + 1 :]
        if _is_control(frame.payload) or not self.node.leads(self.placement.group_number(channel)):
            return
        guid = b""
        with contextlib.suppress(DecodeError):
            guid = wire.PubMsg.FromString(frame.payload).guid
            self.reports.totals.in_messages += 1
            self.reports.totals.in_bytes += len(frame.payload)
        if frame.reply and can_be_answered(frame) and len(guid) <= self.nats.payload_bytes_max - oversize.ERROR_ROOM:
            payload = wire.PubAck(guid=guid, error=refusals.INVALID_PUBLISH.encode()).SerializeToString()
            self.outgoing.pub_acks.append(publication(frame.reply, payload))

    # --- sealing ------------------------------------------------------------------------------------------------------

    def seal(self) -> list[Proposal]:
        """Give all waiting messages their sequences and timestamp. Returns one proposal per group, or several if the entry would
        get larger than ENTRY_BYTES_TARGET. Saturated and write-blocked groups wait."""
        proposals: list[Proposal] = []
        leading = self.leading
        for group in (*self.waiting,):
            if group in leading.saturated or group in leading.write_blocked:
                continue
            try:
                proposals += self._seal_group(group)
            except Exception as error:  # noqa: BLE001 - the border of the group
                self.faults.fail(group, error)
        return proposals

    def _seal_group(self, group: GroupId) -> list[Proposal]:
        proposals: list[Proposal] = []
        entry = Sealed(group)
        for channel in self.waiting.pop(group).values():
            ephemeral = channel.info.is_ephemeral
            if ephemeral and self._ephemeral(channel).waits(channel) and not channel.deleting:
                continue  # `_goes_on` comes back to it
            # While the channel is reserved, only rows with priority are sealed.
            waiting = channel.unsealed.take(others=channel.reservation is None or channel.deleting)
            self.unsealed[group] -= sum(map(len, map(BODIES_OF, waiting)))
            if channel.deleting:
                self._give_up(waiting, refusals.CHANNEL_DELETING)
                continue
            if ephemeral:
                self._keep_in_memory(channel, waiting)
                continue
            framed = self.compressing.framed
            for part in _parts(channel, waiting):
                for alike in (part,) if channel.info.uid not in framed else apart(part):
                    self._seal_channel(channel, alike, entry)
                    if entry.size >= ENTRY_BYTES_TARGET:
                        proposals.append(self._close(entry))
                        entry = Sealed(group)
            if not channel.unsealed.others:
                framed.discard(channel.info.uid)
        if entry.parts:
            proposals.append(self._close(entry))
        return proposals

    def _ephemeral(self, channel: LiveChannel) -> EphemeralChannels:
        return self.leading.leadership(channel.info.group).part(EphemeralChannels)

    def _keep_in_memory(self, channel: LiveChannel, waiting: list[Publishes | RowBatch]) -> None:
        """Seal messages of an ephemeral channel, as far as its epoch has sequences; the others wait for more."""
        if channel.info.uid in self.channels.stores.by_uid:
            parts = _parts(channel, waiting)
            ephemeral = self._ephemeral(channel)
            while parts and ephemeral.seal(channel, parts[0]):
                del parts[0]
            waiting = [batch for part in parts for batch in part]
        if waiting:
            channel.unsealed.others[:0] = waiting
            self.unsealed[channel.info.group] += sum(map(len, map(BODIES_OF, waiting)))
            self._ephemeral(channel).wait(channel, partial(self._goes_on, channel))

    def _goes_on(self, channel: LiveChannel, error: str) -> None:
        """An ephemeral channel takes messages again, or cannot."""
        if error:
            self.refuse_waiting(channel, error)
        elif channel.unsealed.others:
            self.waiting.setdefault(channel.info.group, {})[channel.info.uid] = channel

    def _give_up(self, waiting: list[Publishes | RowBatch], error: str) -> None:
        for batch in waiting:
            if isinstance(batch, RowBatch):
                batch.on_done(StoreResult(error=error, retry=True))
            else:
                self._refuse(batch.acks, error, batch.channel)

    @property
    def can_seal(self) -> bool:
        """True if `seal` would find something to do."""
        leading = self.leading
        for group in self.waiting:  # noqa: SIM110 - no generator, as each turn asks
            if group not in leading.saturated and group not in leading.write_blocked:
                return True
        return False

    def _seal_channel(self, channel: LiveChannel, batches: list[Publishes | RowBatch], entry: Sealed) -> None:
        info = channel.info
        count = sum(map(COUNT_OF, batches))
        base = channel.next_sequence
        timestamp = max(self.node.clock.wall, channel.last_timestamp)
        bodies = [*map(BODIES_OF, batches)]
        records = kernel.seal(info.name, base, timestamp, bodies)
        index = self.stored.written(info.group, info.uid)
        size = index.accounted(len(records), count)
        first = self.channels.first_after(channel, index, count, size)
        kept, told = records, 0
        if info.uid in self.channels.compressed or info.uid in self.compressing.framed:
            kept, told = self.compressing.kept(info, base, bodies, frame_of(batches), records)
        entry.parts += encode_batch(info.uid, base, count, timestamp, first, kept, told)
        entry.size += len(records)
        entry.channels.append((channel, base, count, size))
        channel.next_sequence = base + count
        channel.last_timestamp = timestamp
        channel.idle_since = self.node.clock.now
        channel.uncommitted_bytes += size
        self.uncommitted[info.group] += size
        fingerprinted = self.node.config.cluster is not None
        for batch in batches:
            if isinstance(batch, RowBatch):
                entry.rows.append((batch, base))
                if fingerprinted and batch.source is not None:
                    entry.fingerprinted.append(batch.source)
            else:
                acks = batch.acks
                if batch.numbered:
                    acks = kernel.number(acks, batch.replied, base, self.placement.ack_level(info.group))
                entry.acks.append(acks)
                entry.acked += batch.count - (batch.replied.count(0) if batch.replied else 0)
                if fingerprinted:
                    entry.fingerprinted.append(batch)
            base += batch.count

    def _close(self, entry: Sealed, in_doubt: InDoubt = nobody_waits) -> Proposal:
        if entry.fingerprinted:
            entry.parts += encode_fingerprints(encode(entry.fingerprinted))
        for rows, first in entry.rows:
            if rows.change is not None:
                entry.parts += encode_change(rows.change(first))
            if rows.expiring is not None:
                entry.parts += encode_change(rows.expiring(first))
        ticket = self.proposals.ticket(partial(self._done, entry), in_doubt)
        return Proposal(entry.group, Kind.RECORDS, b"".join(entry.parts), urgent=True, ticket=ticket)

    def propose(self, entry: Sealed, in_doubt: InDoubt = nobody_waits) -> None:
        """Propose an *entry* that was made elsewhere, see `add_to`."""
        self.proposals.changes.append(self._close(entry, in_doubt))

    def add_to(self, entry: Sealed, channel: LiveChannel, next_sequence: int, size: int) -> None:
        """Note what an *entry* that is made elsewhere has of a channel: *size* accounted bytes; it continues with
        *next_sequence*."""
        base, channel.next_sequence = channel.next_sequence, next_sequence
        entry.channels.append((channel, base, next_sequence - base, size))
        channel.uncommitted_bytes += size
        self.uncommitted[entry.group] += size

    # --- leadership ---------------------------------------------------------------------------------------------------

    def split_replayed(
        self, group: GroupId, heard: list[Publishes], since: Nanos, channels: frozenset[bytes] | None = None
    ) -> list[SplitBatch]:
        """This node leads the group from now on, or some *channels* of it: split each of the *heard* batches, buffered since
        *since*, into publishes to take and publishes that are in the log already. Empty for the metadata group."""
        if group == META_GROUP:
            return []
        replay_filter = self.node.groups[group].replay_filter
        if channels is None:
            return replay_filter.begin(heard, self.node.clock.now, since)
        return replay_filter.begin_channels(channels, heard, self.node.clock.now, since)

    def follow(self, group: GroupId) -> None:
        """This node no longer leads the group: forget its waiting publishes, the next leader has buffered them, too."""
        self.compressing.forget(group)
        self.waiting.pop(group, None)
        for bytes_of in (self.unsealed, self.uncommitted):
            bytes_of.pop(group, None)
        self.held.follow(group)

    def registered(self, name: bytes, group: GroupId) -> None:
        """A channel was added to the registry, as this copy of the metadata learns now. What waits for it, and was heard as for
        another group, may be in its log already, if another node has made it: it is heard once more, beside what the log has."""
        if self.node.clustered and self.node.leads(group) and self.held.forget_foreign(name, group):
            self.outgoing.replays.append(Replay(group, frozenset((name,))))

    def forget_held(self, channels: Collection[bytes]) -> None:
        """Publishes to these parts of a channel that wait for the metadata may belong to others now: they are as if they came
        while the parts are doubled."""
        for held in self.held.forget_unknown(channels):
            self._wait_for_parts(held.batch.acks)

    # --- outcome ------------------------------------------------------------------------------------------------------

    def _done(self, entry: Sealed, result: object, error: str) -> None:
        for channel, base, _count, size in entry.channels:
            channel.uncommitted_bytes -= size
            self.uncommitted[entry.group] -= size
            if result is None:  # not written: the entry's sequences are free again
                channel.next_sequence = min(channel.next_sequence, base)
                self.compressing.forget(entry.group, channel.info.uid, base)
        if result is None:
            for acks in entry.acks:
                self.refuse_as_leader(entry.group, acks, error)
        else:
            self.outgoing.pub_acks += entry.acks
            if entry.acked:
                acked = self.reports.totals.acked
                acked[entry.group] = acked.get(entry.group, 0) + entry.acked
        for rows, first in entry.rows:
            taken = StoreResult(first, first + rows.count - 1)
            rows.on_done(taken if result is not None else StoreResult(error=error, retry=True))

    def committed(
        self, number: GroupId, index: RaftIndex, batches: list[RecordBatch], fingerprints: memoryview | None
    ) -> None:
        """A RECORDS entry is committed and indexed: its messages are visible (on every node, own entry or not)."""
        group, outgoing = self.node.groups[number], self.outgoing
        if fingerprints is not None and self.node.config.cluster is not None:
            since = self.leading.heard_since
            group.replay_filter.apply(fingerprints, self.node.clock.now, since, old=index <= group.loaded)
        machine, cursors = group.machine, group.dispatch.cursors.by_channel
        for batch in batches:
            uid, base, count, _, first, *_ = batch
            channel = machine.channels.get(uid)
            if channel is None or first > channel.first_sequence:
                machine.trim(uid, first)  # the log has trimmed its index by itself, when it indexed the batch
            if uid in outgoing.watched:
                outgoing.news.add(uid)
            # While a commit is under way the messages are not visible yet.
            if uid not in machine.transactions.under_way and cursors.get(uid):
                records = batch.records if not batch.size else self.compressing.records(number, batch)
                group.dispatch.committed(uid, ReadResult(base, count, records))
            elif batch.size and not batch.staged:
                self.compressing.forget(number, uid, base)


def _parts(channel: LiveChannel, batches: list[Publishes | RowBatch]) -> list[list[Publishes | RowBatch]]:
    """Divide *batches* into parts of about ENTRY_BYTES_TARGET, so that no entry gets much larger; staged ones are each alone, as
    commits refer to them one by one."""
    if channel.info.uid == STAGING_UID:
        return [[batch] for batch in batches]
    room = oversize.MESSAGE_ROOM + len(channel.info.name)  # as in `sealed_size`
    parts: list[list[Publishes | RowBatch]] = []
    size = ENTRY_BYTES_TARGET
    for batch in batches:
        if size >= ENTRY_BYTES_TARGET:
            parts.append([])
            size = 0
        parts[-1].append(batch)
        size += len(batch.bodies) + room * batch.count
    return parts


def _is_control(payload: bytes) -> bool:
    """True if an old server sent one of its own control messages on the publish subject (STAN-SPEC 4.1): the first field of a
    CtrlMsg is a number, that of a PubMsg is a text."""
    try:
        return wire.CtrlMsg.FromString(payload).msg_type != 0
    except DecodeError:
        return False
