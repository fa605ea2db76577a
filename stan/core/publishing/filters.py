"""Filters of publishes: which messages of a batch are stored, and with which text the others are refused; always in batches.

    read from NATS, or replayed ─► filters, one after the other ─► Publishing.store
                                   ▲     │ unknown publisher, or another schema: until this copy of the metadata is up to date
                                   │     │ missing channel: until it is made
                                   └─────┘ then all filters once more

Refused messages get the original's texts (STAN-SPEC 4) and consume no sequence.
"""

import contextlib
from array import array
from collections.abc import Callable, Collection
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.channels import is_channel_name, publication, whole_of
from stan_protocol.frames import NO_TIMES, Frame, Publishes
from stan_protocol.kernel.wire_py import records_in
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.core.base import payload_limit
from stan.core.base.batch_split import split
from stan.core.base.names import text
from stan.core.base.ready import Replay
from stan.core.leader.publish_replay import SplitBatch
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.deferrals import Deferrals
from stan.core.publishing.expiry_rows import EXPIRY_BYTES
from stan.core.publishing.live_channel import LiveChannel
from stan.core.publishing.publishing import TIMES, Publishing
from stan.core.publishing.refusing import refuse
from stan.core.publishing.waiting_publishes import Attempt, WaitingBatch
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.permissions import Right
from stan.protocol.kernel import server as kernel
from stan.protocol.requests import can_be_answered

Filtered = tuple[Publishes | None, bytes, str]
"""The messages of a batch that stay (None: no message), the prepared acks of those that are refused, and the text for these."""
Filter = Callable[[Publishes, Attempt], Filtered]
NOTHING: Filtered = None, b"", ""
"""No message stays, and none is refused: all wait, or are answered elsewhere."""
NEW, REPLAYED = Attempt(), Attempt(replayed=True)


class PublishFilters:
    """Admits publishes to the channels that this node leads."""

    def __init__(self, services: Services, channels: LiveChannels, publishing: Publishing) -> None:
        self._services = services
        self.faults, self.leading, self.nats = services.faults, services.leading, services.nats
        self.node, self.outgoing, self.placement = services.node, services.outgoing, services.placement
        self.reports, self.senders = services.reports, services.senders
        self.channels = channels
        self.publishing = publishing
        self.schemas = publishing.schemas
        self.waiting = publishing.unqueued
        self.filters: tuple[Filter, ...] = (
            self._registered,
            self._not_emptied,
            self._named,
            self._permitted,
            self._deliverable,
            self._open,
            self._taken_by_stream,
            self._fits_schema,
            self._lasting,
            self._due_in_time,
            self._delayable,
            self._living,
            self._deliverable_with_expiry,
            self._within_share,
        )
        """In their order. Publishes that have waited pass them all once more."""
        self.few = self.filters[:1] if services.senders.authorizer is None else (self._registered, self._permitted)
        """Those for most batches: without times, to a channel that is there, while no channel has a schema, delay or ttl."""

    def publishes(self, batch: Publishes) -> None:
        """Take the publishes of one channel in one read, if this node leads it. Messages that the log has already are recognised
        here and not by a filter, as that happens once: `ReplayFilter.split` forgets publishers that have caught up."""
        partition, faulty = self.placement.partition, self.faults.faulty
        if partition is not None and not partition[batch.channel]:
            return  # the channel is another server's
        totals = self.reports.totals
        totals.in_messages += batch.count
        totals.in_bytes += batch.payload_bytes
        if batch.replied:
            totals.unanswered_messages += batch.replied.count(0)
        if self.node.config.cluster is not None:
            info = self.node.meta.channels.get(batch.channel)
            group = self.node.groups.get(self.placement.group_number(batch.channel) if info is None else info.group)
            if group is None or group.leadership is None:
                return
            if group.replay_filter.lagging:
                if info is None or not group.is_held(
                    info.uid
                ):  # else the next leader of the channel has received them, too
                    self.admit_replayed(group.replay_filter.split(batch, self.node.clock.now))
                return
        elif faulty and (number := self.placement.group_number(batch.channel)) in faulty:
            refuse(self._services, batch.acks, refusals.GROUP_FROZEN.format(number, faulty[number]), batch.channel)
            return
        self.admit(batch)

    def admit_replayed(self, parts: SplitBatch) -> None:
        """Take the publishes that are new, and acknowledge those that are in the log already."""
        if parts.acks:
            self.outgoing.pub_acks.append(parts.acks)
        for batch in parts.new:
            self.admit(batch)

    def admit(self, batch: Publishes, attempt: Attempt | None = None) -> None:
        """Pass publishes that are not in the log yet through the filters, and store those that stay."""
        channels, policies, requests = self.channels, self.channels.policies, self.node.config.requests
        if batch.channel not in channels.by_name and self.placement.is_held(batch.channel):
            return  # the next leader of the channel has buffered them
        if attempt is None:
            attempt = NEW if self.leading.replaying is None else REPLAYED
        channel = channels.by_name.get(batch.channel)
        most = (
            min(requests.payload_bytes, self.nats.payload_bytes_max) - payload_limit.MESSAGE_ROOM - len(batch.channel)
        )
        is_special = (
            (channel is None or channel.deleting or channel.restoring)
            or (attempt is not NEW or batch.times is not NO_TIMES)
            or (policies.schemas or policies.delayed or policies.ttls or policies.keeping)
            or (len(batch.bodies) > most or requests.message_bytes)
        )
        for narrow in self.filters if is_special else self.few:
            staying, refused, error = narrow(batch, attempt)
            if refused:
                refuse(self._services, refused, error, batch.channel)
            if staying is None:
                return
            batch = staying
        self.publishing.store(channels.by_name[batch.channel], batch)

    # --- filters of publishers and messages ------------------------------------------------------------------------------

    def _registered(self, batch: Publishes, attempt: Attempt) -> Filtered:
        """Publishes of registered clients. Others wait, as a client that the metadata's leader has just registered may publish
        sooner than this copy of the metadata is brought up to it; and so do later publishes of the same clients."""
        client_of, user, admitted = self.senders.sender, batch.user, attempt.admitted
        waiting = self.waiting.publishers if attempt.newest is None else ()
        stay = []
        for client_id, conn_id in batch.publishers:
            sender = (user, client_id, conn_id)
            stay.append(sender not in waiting and (admitted or client_of(sender) is not None))
        if all(stay):
            return batch, b"", ""
        staying, others = kernel.select(batch, stay)
        if attempt.newest is not None:
            return staying, others, refusals.INVALID_PUBLISH if attempt.newest else refusals.NO_METADATA
        strangers, _ = kernel.select(batch, [not stays for stays in stay])
        assert strangers is not None  # noqa: S101 - for mypy
        # No client can be registered with so long a name.
        sane = [max(map(len, publisher)) <= limits.NAME_BYTES_MAX for publisher in strangers.publishers]
        possible, refused = kernel.select(strangers, sane)
        if possible is not None:
            self._wait_for_metadata(possible, attempt)
        return staying, refused, refusals.INVALID_PUBLISH

    def _not_emptied(self, batch: Publishes, attempt: Attempt) -> Filtered:
        """No publishes to an ephemeral channel that its last leader may have taken."""
        channel = self.channels.by_name.get(batch.channel)
        if not attempt.replayed or channel is None or not channel.info.is_ephemeral:
            return batch, b"", ""
        return None, batch.acks, refusals.EPHEMERAL_EMPTIED

    def _named(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """No publishes to a channel with a name that is too long."""
        too_long = len(batch.channel) > limits.CHANNEL_NAME_BYTES_MAX
        return (None, batch.acks, refusals.INVALID_PUBLISH) if too_long else (batch, b"", "")

    def _permitted(self, batch: Publishes, attempt: Attempt) -> Filtered:
        """Publishes of clients that may publish to the channel. The refusal does not say to which part a key belongs."""
        authorizer = self.senders.authorizer
        if authorizer is None or attempt.admitted or all(verdicts := authorizer.may_publish(batch)):
            return batch, b"", ""
        error = refusals.not_permitted(Right.PUBLISH.value, text(whole_of(batch.channel)))
        return *kernel.select(batch, verdicts), error

    def _deliverable(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages that subscribers can get."""
        return *payload_limit.split_too_large(
            batch, self.nats.message_payload_max(batch.channel)
        ), refusals.MESSAGE_TOO_LARGE

    # --- filters by the channel ------------------------------------------------------------------------------------------

    def _open(self, batch: Publishes, attempt: Attempt) -> Filtered:
        """No publishes to a channel that is not there: they wait until it is made."""
        name = batch.channel
        channel = self.channels.by_name.get(name)
        if channel is not None and not channel.deleting and not channel.restoring:
            return batch, b"", ""
        if not is_channel_name(name):
            return None, batch.acks, refusals.INVALID_PUBLISH
        if self.channels.openings.is_left_to_another(name):
            return NOTHING
        if self.node.clustered and self.publishing.is_too_much():
            return None, batch.acks, refusals.TOO_MUCH_WAITING
        waiting = WaitingBatch(self.placement.group_number(name), batch, Attempt(attempt.replayed, admitted=True))
        self.channels.openings.open(name, partial(self._opened, self.waiting.add(self.waiting.for_channel, waiting)))
        return NOTHING

    def _taken_by_stream(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """No publishes to a channel whose stream is sealed, or is full and keeps what it has."""
        channel, policies = self.channels.by_name[batch.channel], self.channels.policies
        keeping = policies.keeping.get(channel.info.uid)
        if keeping is not None and keeping.sealed:
            return None, batch.acks, refusals.STREAM_SEALED
        if policies.stream_takes(channel, batch.count, len(batch.bodies)):
            return batch, b"", ""
        ends = enumerate((end for _, end in records_in(batch.bodies)), 1)
        return *split(batch, [policies.stream_takes(channel, count, end) for count, end in ends]), refusals.STREAM_FULL

    def _fits_schema(self, batch: Publishes, attempt: Attempt) -> Filtered:
        """Messages that fit the channel's schema. If some do not, all wait once until this copy of the metadata is known to have
        the newest schemas."""
        info = self.channels.by_name[batch.channel].info
        objections = self.schemas.objections(info.uid, batch.bodies, batch.count)
        if not objections:
            return batch, b"", ""
        if attempt.newest is None and self.node.clustered:
            self._wait_for_metadata(batch, attempt)
            return NOTHING
        if attempt.newest is False:
            return *split(batch, [not objection for objection in objections]), refusals.NO_METADATA
        staying, answers, unjudged = self.schemas.part(batch, objections)
        for answer in answers:
            self.outgoing.answer_as_leader(info.group, answer)
        refuse(self._services, unjudged, next(filter(None, objections)), batch.channel, passing=True)
        return staying, b"", ""

    def _lasting(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """No messages with a time in an ephemeral channel."""
        if batch.times is NO_TIMES or not self.channels.by_name[batch.channel].info.is_ephemeral:
            return batch, b"", ""
        return None, batch.acks, refusals.NOT_OF_EPHEMERAL.format(refusals.go_quote(text(batch.channel)), TIMES)

    def _due_in_time(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages that are due soon enough; none while the parts of the channel are doubled."""
        if batch.times.dues and self.channels.by_name[batch.channel].unsealed.halted:
            return None, batch.acks, refusals.PARTS_DOUBLING
        latest = self.node.clock.wall + limits.DELAY_MAX
        return *split(batch, [due <= latest for due in array("q", batch.times.dues)]), refusals.DELAYED_TOO_LONG

    def _delayable(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages for which a channel with a delay has room, and a target."""
        channel = self.channels.by_name[batch.channel]
        error = "" if batch.times.dues else self.channels.policies.delay_refusal(channel, batch.count)
        return (None, batch.acks, error) if error else (batch, b"", "")

    def _living(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages with a valid time to live."""
        return *split(batch, [0 <= ttl <= limits.TTL_MAX for ttl in array("q", batch.times.ttls)]), refusals.INVALID_TTL

    def _deliverable_with_expiry(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages that subscribers can get with the time at which they expire: by their publisher, or by the channel's policy
        unless they are due later."""
        times, uid = batch.times, self.channels.by_name[batch.channel].info.uid
        if not times.ttls and (times.dues or uid not in self.channels.policies.ttls):
            return batch, b"", ""
        most = min(self.nats.message_payload_max(batch.channel), self.nats.delivered_bytes_max - EXPIRY_BYTES)
        return *payload_limit.split_too_large(batch, most), refusals.MESSAGE_TOO_LARGE

    def _within_share(self, batch: Publishes, _attempt: Attempt) -> Filtered:
        """Messages due later, as long as their user has not too many that wait."""
        info = self.channels.by_name[batch.channel].info
        if not batch.times.dues:
            return batch, b"", ""
        left = self.node.group_of(info).machine.deferred.shares.left(batch.user, limits.DEFERRED_MAX)
        if self.leading.leadership(info.group).part(Deferrals).hidden.unsealed.count + batch.count > left:
            return None, batch.acks, refusals.TOO_MANY_DELAYED
        return batch, b"", ""

    # --- waiting ---------------------------------------------------------------------------------------------------------

    def _wait_for_metadata(self, batch: Publishes, attempt: Attempt) -> None:
        if self.node.clustered and self.publishing.is_too_much():
            refuse(self._services, batch.acks, refusals.TOO_MUCH_WAITING, batch.channel)
            return
        group = self.placement.group_number(batch.channel)
        number = self.waiting.add(self.waiting.for_metadata, WaitingBatch(group, batch, attempt))
        self.schemas.read_index.wait(partial(self._metadata_asked, number), group, batch.senders())

    def _metadata_asked(self, number: int, newest: bool) -> None:  # noqa: FBT001 - the answer of read_index
        """The answer for a batch is there: the batch goes on if it is the first, and with it later ones that need no answer."""
        queue = self.waiting.for_metadata
        if number != next(iter(queue), 0):
            return  # it went on with an earlier one, or this node no longer leads its group
        while (first := self.waiting.remove(queue, number)) is not None:
            self.admit(first.batch, first.attempt._replace(newest=newest))
            number, newest = next(iter(queue), 0), True
            if number and self._needs_answer(queue[number]):
                return

    def _needs_answer(self, waiting: WaitingBatch) -> bool:
        """True if newer metadata might have a publisher that this copy has not, or another schema."""
        batch, channel = waiting.batch, self.channels.by_name.get(waiting.batch.channel)
        if not waiting.attempt.admitted and any(self.senders.sender(sender) is None for sender in batch.senders()):
            return True
        return channel is not None and bool(self.schemas.objections(channel.info.uid, batch.bodies, batch.count))

    def _opened(self, number: int, channel: LiveChannel | None, error: str) -> None:
        """The channel for which publishes have waited is there, or is not made."""
        waiting = self.waiting.remove(self.waiting.for_channel, number)
        if waiting is None:
            return  # they came once more, in a replay
        batch = waiting.batch
        if channel is not None:
            self.admit(batch, waiting.attempt)
        elif error != LED_ELSEWHERE:  # leaders of parts that it has got meanwhile may have taken it
            passing = batch.channel in self.node.meta.channels.parted.by_name
            refuse(self._services, batch.acks, error, batch.channel, passing=passing)

    # --- leadership ---------------------------------------------------------------------------------------------------

    def split_replayed(
        self, group: GroupId, received: list[Publishes], since: Nanos, channels: frozenset[bytes] | None = None
    ) -> list[SplitBatch]:
        """This node leads the group from now on, or some *channels* of it: split each of the *received* batches, buffered since
        *since*, into publishes to admit and publishes that are in the log already. Empty for the metadata group."""
        if group == META_GROUP:
            return []
        # They contain publishes that have waited since their channels belonged to other groups.
        names = {batch.channel for batch in received}
        self.waiting.forget(lambda one: one.group != group and one.batch.channel in names)
        now, replay_filter = self.node.clock.now, self.node.groups[group].replay_filter
        if channels is None:
            return replay_filter.begin(received, now, since)
        return replay_filter.begin_channels(channels, received, now, since)

    def registered(self, name: bytes, group: GroupId) -> None:
        """A channel was added to the registry, as this copy of the metadata learns now. If some publishes that wait for it came
        while it belonged to another group, its log may have them, as another node has made it: all are replayed beside it."""
        waiting = self.waiting
        if self.node.clustered and self.node.leads(group):
            queues = (*waiting.for_metadata.values(), *waiting.for_channel.values())
            if any(one.batch.channel == name and one.group != group for one in queues):
                waiting.forget(lambda one: one.batch.channel == name)
                self.outgoing.replays.append(Replay(group, frozenset((name,))))

    def forget_waiting(self, channels: Collection[bytes]) -> None:
        """Publishes to these parts of a channel that wait for the metadata may belong to others now: they are as if they came
        while the parts are doubled."""
        for one in self.waiting.forget(lambda one: one.batch.channel in channels, channels=False):
            refuse(self._services, one.batch.acks, refusals.PARTS_DOUBLING, one.batch.channel)

    # --- malformed payloads -----------------------------------------------------------------------------------------------

    def malformed(self, frame: Frame) -> None:
        """Refuse a payload on the publish subject that is no PubMsg, has no guid, or names another channel than its subject.
        Control messages of old servers (STAN-SPEC 4.1) are ignored: their first field is a number, that of a PubMsg a text."""
        guid = b""
        if not self.node.leads(self.placement.group_number(frame.subject[len(self.nats.subjects.pub_prefix) + 1 :])):
            return
        with contextlib.suppress(DecodeError):
            if wire.CtrlMsg.FromString(frame.payload).msg_type:
                return
        with contextlib.suppress(DecodeError):
            guid = wire.PubMsg.FromString(frame.payload).guid
            self.reports.totals.in_messages += 1
            self.reports.totals.in_bytes += len(frame.payload)
        if (
            frame.reply
            and can_be_answered(frame)
            and len(guid) <= self.nats.payload_bytes_max - payload_limit.ERROR_ROOM
        ):
            payload = wire.PubAck(guid=guid, error=refusals.INVALID_PUBLISH.encode()).SerializeToString()
            self.outgoing.pub_acks.append(publication(frame.reply, payload))
