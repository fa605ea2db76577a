"""Subscribe, unsubscribe and subscription close on the leader of the channel's group (STAN-SPEC 5)."""

import contextlib
from collections.abc import Iterable
from functools import partial

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.channels import is_channel_name
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import GroupId, WallNanos

from stan import limits
from stan.core.base.names import shown, text
from stan.core.clients.clients import Clients
from stan.core.clients.serving import Serving
from stan.core.leader.cursors import LiveMember
from stan.core.leader.local_group import ChannelGroup
from stan.core.publishing.channels import LiveChannels
from stan.core.publishing.ephemeral import EphemeralChannels
from stan.core.publishing.live_channel import LiveChannel
from stan.core.requests.metadata_read_index import MetadataReadIndex
from stan.core.requests.request_order import ArrivalOrder
from stan.core.services.leading import LED_ELSEWHERE
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.cursors import Subscription
from stan.core.state.group_state import GroupResult
from stan.core.state.subscribing import cursor_for
from stan.core.state.tombstones import below_newest
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.requests import TooLong, because, decode

NEW_ONLY, LAST_RECEIVED, TIME_DELTA, SEQUENCE, FIRST = range(5)


class SubscriptionRequests:
    """Handles subscribe, unsubscribe and close requests in the groups that this node leads."""

    def __init__(
        self,
        services: Services,
        channels: LiveChannels,
        clients: Clients,
        read_index: MetadataReadIndex,
        arrival_order: ArrivalOrder,
        serving: Serving,
    ) -> None:
        self.leading, self.nats, self.node = services.leading, services.nats, services.node
        self.outgoing, self.placement, self.proposals = services.outgoing, services.placement, services.proposals
        self.reports, self.senders, self.stored = services.reports, services.senders, services.stored
        self.channels = channels
        self.clients = clients
        self.read_index = read_index
        self.arrival_order = arrival_order
        self.serving = serving

    # --- subscribe ----------------------------------------------------------------------------------------------------

    def subscribe(self, frame: Frame) -> None:
        """A SubscriptionRequest, checked in the original's order (STAN-SPEC 5.1)."""
        try:
            request = decode(wire.SubscriptionRequest, frame.payload)
        except DecodeError as problem:
            if self.leading.concerns(META_GROUP):  # its channel is unknown, so the metadata's leader answers
                about_channel = isinstance(problem, TooLong) and problem.field == "subject"
                error = refusals.INVALID_SUBJECT if about_channel else because(refusals.INVALID_SUBSCRIBE, problem)
                self._refuse(frame.reply, error)
            return
        if not self._is_mine(request.subject):
            return
        if len(frame.payload) > limits.REQUEST_BYTES_MAX:
            self._refuse(frame.reply, refusals.INVALID_SUBSCRIBE)
            return
        if self.leading.replaying is None and not self.senders.rate_limiter.admit(
            self.node.clock.now, request.client_id
        ):
            self._refuse(frame.reply, refusals.TOO_MANY_REQUESTS)
            return
        group = self.node.groups[self.placement.group_number(request.subject)]
        if self.leading.replaying is None or not self._was_made(group, request, frame.reply):
            check = partial(self._check, request, frame.reply, group, group.leadership_epoch)
            self.read_index.wait(
                check, group.machine.group, ((self.senders.user_of(frame.reply), request.client_id, b""),)
            )

    def refuse_overtaken(self, frames: Iterable[Frame]) -> list[Frame]:
        """Refuse those of the replayed *frames*, in order of arrival, that ask for a durable for which the same client has asked
        once more since: one subscription has a durable, and the client has given up waiting for the others. So it is if the
        previous leader has executed the newest one, which may have ended since; what it has executed is not refused. Returns the
        refused ones."""
        subject, newest = self.nats.subjects.sub.encode(), dict[tuple[bytes, ...], Frame]()
        overtaken: list[Frame] = []
        for frame in frames:
            if frame.subject != subject:
                continue
            with contextlib.suppress(DecodeError):
                request = decode(wire.SubscriptionRequest, frame.payload)
                group = self.node.groups.get(self.placement.group_number(request.subject))
                made = group is not None and group.joined.get((request.client_id, request.inbox))
                if not request.durable_name or request.queue_group or not self._is_mine(request.subject):
                    continue
                name = self.senders.user_of(frame.reply), request.client_id, request.subject, request.durable_name
                if name in newest:
                    overtaken.append(newest.pop(name))
                if not made:
                    newest[name] = frame
        for frame in overtaken:
            self._refuse(frame.reply, refusals.DUPLICATE_DURABLE)
        return overtaken

    def _is_mine(self, channel: bytes) -> bool:
        return self.leading.concerns(self.placement.group_number(channel))

    def _was_made(self, group: ChannelGroup, request: wire.SubscriptionRequest, reply: bytes) -> bool:
        """True if the previous leader has executed this very request. The response is sent again if the subscription still
        exists."""
        _, made = group.joined.get((request.client_id, request.inbox), (0, 0))
        sub = group.machine.subscriptions.by_id.get(made)
        if sub is not None and (sub.client_id, sub.settings.inbox) == (request.client_id, request.inbox):
            self.outgoing.respond(
                reply, wire.SubscriptionResponse(ack_inbox=sub.settings.ack_inbox).SerializeToString()
            )
        return made != 0

    def _check(
        self,
        request: wire.SubscriptionRequest,
        reply: bytes,
        group: ChannelGroup,
        epoch: int,
        new: bool,  # noqa: FBT001
    ) -> None:
        if not group.leads or group.leadership_epoch != epoch:
            return  # the next leader handles it
        error = self._refusal(request) if new else refusals.NO_METADATA
        if self.senders.authorizer is not None and not error:
            error = self.senders.authorizer.subscription_refusal(request, reply)
        if error := error or self.channels.openings.parts_refusal(request.subject):
            self._refuse(reply, error)
        else:
            self.channels.openings.open(request.subject, partial(self._opened, request, reply))

    @property
    def _unknown_client(self) -> str:
        return refusals.UNKNOWN_CLIENT if self.placement.partition is None else refusals.INVALID_SUBSCRIBE

    def _refusal(self, request: wire.SubscriptionRequest) -> str:
        checks = (
            (not request.client_id, refusals.CLIENT_ID_MISSING),
            (request.ack_wait_s <= 0, refusals.INVALID_ACK_WAIT),
            (request.max_in_flight <= 0, refusals.INVALID_MAX_IN_FLIGHT),
            (not NEW_ONLY <= request.start_position <= FIRST, refusals.INVALID_START),
            (not is_channel_name(request.subject), refusals.INVALID_SUBJECT),
            (request.client_id not in self.node.meta.clients, self._unknown_client),
            (not self.senders.may_send_to(request.inbox), refusals.INVALID_SUBSCRIBE),
        )
        return next((error for wrong, error in checks if wrong), "")

    def _opened(self, request: wire.SubscriptionRequest, reply: bytes, channel: LiveChannel | None, error: str) -> None:
        if channel is None:
            if error != LED_ELSEWHERE:
                self._refuse(reply, error)
            return
        if request.queue_group and b":" in request.durable_name:
            self._refuse(reply, refusals.DURABLE_NAME_COLON)
            return
        if not channel.info.is_ephemeral:
            self._subscribe(request, reply, channel, "")
        elif request.durable_name:
            self._refuse(reply, refusals.NOT_OF_EPHEMERAL.format(go_quote(text(request.subject)), "durables"))
        else:
            ephemeral = self.leading.leadership(channel.info.group).part(EphemeralChannels)
            ephemeral.open(channel, partial(self._subscribe, request, reply, channel))

    def _subscribe(self, request: wire.SubscriptionRequest, reply: bytes, channel: LiveChannel, error: str) -> None:
        """Propose the subscription. *error*: why the channel cannot be used."""
        if error:
            self._refuse(reply, error)
            return
        client = self.node.meta.clients.get(request.client_id)
        authorizer = self.senders.authorizer
        if authorizer is not None and client is not None and not authorizer.owns(reply, client):
            client = None  # the client id belongs to another user since
        earlier = client is not None and self.arrival_order.is_of_earlier(reply, client)
        if earlier is None:
            return  # no answer: the next leader may know, and would make a subscription whose client was refused
        if client is None or earlier:  # closed or replaced since
            self._refuse(reply, refusals.UNKNOWN_CLIENT)
            return
        self.clients.release(request.client_id)  # a durable of its previous connection is free again
        channel.pending_subscribes += 1  # keeps the idle channel although it has no subscription yet
        start = self.start_sequence(channel, request)
        subscribe = pb.Subscribe(
            uid=channel.info.uid,
            client_id=client.client_id,
            incarnation=client.incarnation,
            inbox=request.inbox,
            queue_group=request.queue_group,
            durable_name=request.durable_name,
            max_in_flight=request.max_in_flight,
            ack_wait_s=request.ack_wait_s,
            start_sequence=start,
            subscriptions_max=channel.limits.subscriptions,
            replace_durable=self.node.config.replace_durable,
            nuid=self.node.nuid,
            reply=reply if self.node.clustered else b"",
            ack_prefix=authorizer.ack_prefix(client) if authorizer is not None else b"",
            replica=b"" if channel.info.is_ephemeral else self.serving.wish(request),
        )
        if authorizer is not None and (owner := self.senders.user_of(reply)):
            subscribe.user = owner
            meant = cursor_for(self.node.group_of(channel.info).machine, subscribe)
            if meant is not None and not authorizer.is_user(meant.user):
                subscribe.former_user = meant.user
        done = partial(self._subscribed, request, reply, channel, start)
        self.proposals.change_group(channel.info.group, done, subscribe=subscribe)

    def start_sequence(self, channel: LiveChannel, request: wire.SubscriptionRequest) -> int:
        """First candidate message of a new cursor (STAN-SPEC 5.3); never an error: a position outside the channel is moved to its
        nearest end."""
        index = self.stored.indexes(channel.info.group, channel.info.uid)
        last = channel.next_sequence - 1 + channel.unsealed.count  # what was received before this request
        first = index.first_sequence or 1
        match request.start_position:
            case 1:  # last received; the last one may have expired
                deleted = self.stored.deleted(channel.info.group, channel.info.uid)
                return max(below_newest(deleted, last, 1) + 1, first) if last else 1
            case 2:
                if request.start_time_delta < 0:
                    return last + 1
                found = index.sequence_at(WallNanos(self.node.clock.wall - request.start_time_delta))
                return found or 1
            case 3:
                return min(max(request.start_sequence, first), last + 1)
            case 4:
                return first
        return last + 1

    def _subscribed(
        self,
        request: wire.SubscriptionRequest,
        reply: bytes,
        channel: LiveChannel,
        start: int,
        result: object,
        error: str,
    ) -> None:
        channel.pending_subscribes -= 1
        if not isinstance(result, GroupResult) or result.joined is None:
            self._refuse(reply, result.error if isinstance(result, GroupResult) else error)
            self.channels.removal.watch_idle(channel)
            return
        sub = result.joined
        client = self.node.meta.clients.get(sub.client_id)
        if client is None or client.incarnation != sub.incarnation:
            self._refuse(reply, refusals.UNKNOWN_CLIENT)
            self.proposals.end(channel.info.group, sub.subscription_id)  # the client was closed meanwhile
            return
        self.outgoing.respond(reply, wire.SubscriptionResponse(ack_inbox=sub.settings.ack_inbox).SerializeToString())
        self.reports.note("DBG", _describe(request, sub, start))
        if sub.served.wish:
            self.serving.joined(channel.info.group, sub)

    def _refuse(self, reply: bytes, error: str) -> None:
        self.outgoing.respond(reply, wire.SubscriptionResponse(error=error.encode()).SerializeToString())

    # --- unsubscribe, close -----------------------------------------------------------------------------------------------

    def leave(self, frame: Frame, *, unsubscribe: bool) -> None:
        """An UnsubscribeRequest on the unsubscribe or on the close subject (STAN-SPEC 5.7)."""
        try:
            request = decode(wire.UnsubscribeRequest, frame.payload)
        except DecodeError as problem:
            if self.leading.concerns(META_GROUP):
                self._refuse(frame.reply, because(refusals.INVALID_UNSUBSCRIBE, problem))
            return
        if not self._is_mine(request.subject):
            return
        group = self.node.groups[self.placement.group_number(request.subject)]
        again = self.leading.replaying is not None
        leave = partial(
            self._leave, request, frame.reply, group, group.leadership_epoch, unsubscribe=unsubscribe, again=again
        )
        if request.subject in self.channels.by_name:
            leave(new=True)
        else:
            self.read_index.wait(lambda new: leave(new=new), group.machine.group)

    def _leave(
        self,
        request: wire.UnsubscribeRequest,
        reply: bytes,
        group: ChannelGroup,
        epoch: int,
        *,
        unsubscribe: bool,
        again: bool,
        new: bool,
    ) -> None:
        if not group.leads or group.leadership_epoch != epoch:
            return
        channel = self.channels.by_name.get(request.subject)
        if channel is None:
            self._refuse(reply, refusals.UNKNOWN_CHANNEL if new else refusals.NO_METADATA)
            return
        member = self._find(channel, request.inbox)
        if member is None:  # the previous leader may have executed a replayed request and died before it answered
            self._refuse(reply, "" if again else refusals.INVALID_SUBSCRIPTION)
        elif member.sub.client_id != request.client_id or not self.senders.known(request.client_id):
            self._refuse(reply, refusals.UNKNOWN_CLIENT)
        elif error := self._leave_refusal(group, member, reply, request, unsubscribe=unsubscribe):
            self._refuse(reply, error)
        else:
            done = partial(self._left, channel, member, reply)
            self.proposals.leave(channel.info.group, member.sub.subscription_id, done, unsubscribe=unsubscribe)

    def _leave_refusal(
        self,
        group: ChannelGroup,
        member: LiveMember,
        reply: bytes,
        request: wire.UnsubscribeRequest,
        *,
        unsubscribe: bool,
    ) -> str:
        authorizer = self.senders.authorizer
        if authorizer is None:
            return ""
        ends_durable = unsubscribe and group.machine.cursors[member.sub.cursor_id].kind.durable
        return authorizer.leave_refusal(member.sub, reply, request.subject, ends_durable=ends_durable)

    def lead_group(self, number: GroupId) -> None:
        """This node leads a group from now on: end the subscriptions that the current permissions forbid."""
        authorizer, machine = self.senders.authorizer, self.node.groups[number].machine
        if authorizer is None:
            return
        known = {client.incarnation: client for client in self.node.meta.clients.values()}
        for sub in list(machine.subscriptions.by_id.values()):
            cursor, client = machine.cursors[sub.cursor_id], known.get(sub.incarnation)
            info = self.node.meta.by_uid.get(cursor.uid)
            if client is None or info is None or authorizer.may_keep(client, info.name, durable=cursor.kind.durable):
                continue
            self.reports.note(
                "WRN", f"client {shown(sub.client_id)} has no permission any more to read {shown(info.name)}"
            )
            self.proposals.end(number, sub.subscription_id)

    def _find(self, channel: LiveChannel, inbox: bytes) -> LiveMember | None:
        """Find a member by its ack inbox, else by its message inbox; members that leave already are passed over."""
        live = self.node.group_of(channel.info).dispatch.cursors.by_channel.get(channel.info.uid, {})
        members = [member for cursor in live.values() for member in cursor.members if not member.leaving]
        known = self.node.group_of(channel.info).machine.channels.get(channel.info.uid)
        if known is not None:  # those that other nodes serve
            members += [LiveMember(cursor.members[0]) for cursor in known.cursors.values() if cursor.server]
        by_ack = next((m for m in members if m.sub.settings.ack_inbox == inbox), None)
        return by_ack or next((m for m in members if m.sub.settings.inbox == inbox), None)

    def _left(self, channel: LiveChannel, member: LiveMember, reply: bytes, result: object, error: str) -> None:
        if not isinstance(result, GroupResult):
            member.leaving = False
            self._refuse(reply, error)
            return
        self._refuse(reply, result.error)  # an empty error is the answer to a success
        self.channels.removal.watch_idle(channel)

    # --- applied ------------------------------------------------------------------------------------------------------

    def applied(self, group: GroupId, result: GroupResult) -> None:
        """A CHANGE entry was applied: the live view follows the replicated state."""
        part = self.node.groups[group]
        if result.joined is not None and self.node.clustered:
            self.remember(part, result.joined)
        if not part.leads:
            if result.left is not None and part.dispatch.cursors.by_id:
                part.dispatch.members.leave(result.left, gone=True)
                self.leading.serving_changed()
            return
        self._tell(group, result)
        dispatch = part.dispatch
        if result.replaced is not None:
            dispatch.members.leave(result.replaced, gone=True)
        if result.joined is not None and result.cursor is not None:
            dispatch.members.join(result.cursor, result.joined)
        if result.left is not None and result.cursor is not None:
            dispatch.members.leave(result.left, gone=not result.cursor.members)
            channel = self.channels.by_uid.get(result.cursor.uid)
            if channel is not None:
                self.channels.removal.watch_idle(channel)
        if result.joined is not None and result.joined.served.wish:
            self.leading.serving_changed()

    def _tell(self, group: GroupId, result: GroupResult) -> None:
        """Publish the admin event that a subscription has begun or ended."""
        sub, cursor = result.joined or result.left, result.cursor
        if sub is None or cursor is None or result.again:
            return
        info = self.node.meta.by_uid.get(cursor.uid)
        channel = b"" if info is None else info.name
        name = f" as {go_quote(text(cursor.name))}" if cursor.name else ""
        kind, verb = ("subscribed", "subscribed to") if result.joined is not None else ("unsubscribed", "left")
        said = f"client {go_quote(text(sub.client_id))} {verb} channel {go_quote(text(channel))}{name}"
        self.reports.emit(kind, said, channel=channel, client_id=sub.client_id, group=group, cursor_id=cursor.cursor_id)

    def remember(self, group: ChannelGroup, sub: Subscription) -> None:
        """Remember a subscription's request, so that the next leader, which may replay the request after the subscription has
        ended, does not execute it twice."""
        now = self.node.clock.now
        joined = group.joined
        joined.pop((sub.client_id, sub.settings.inbox), None)
        joined[sub.client_id, sub.settings.inbox] = now, sub.subscription_id
        while joined[oldest := next(iter(joined))][0] < now - 2 * limits.REPLAY_REQUEST_AGE_MAX:
            del joined[oldest]


def _describe(request: wire.SubscriptionRequest, sub: Subscription, start: int) -> str:
    """The original's debug line (STAN-SPEC 12.6); test harnesses look for it."""
    from_text = {
        NEW_ONLY: f"new-only, seq={start}",
        LAST_RECEIVED: f"last message, seq={start}",
        TIME_DELTA: f"from time, seq={start}",
        SEQUENCE: f"from sequence, asked_seq={request.start_sequence} actual_seq={start}",
        FIRST: f"from beginning, seq={start}",
    }[request.start_position]
    kind = ("durable " if request.durable_name else "") + ("queue " if request.queue_group else "")
    names = (f" queue={shown(request.queue_group)}," if request.queue_group else "") + (
        f" durable={shown(request.durable_name)}," if request.durable_name else ""
    )
    return (
        f"[Client:{shown(request.client_id)}] Started new {kind}subscription, subject={shown(request.subject)}, "
        f"inbox={shown(request.inbox)},{names} subid={sub.subscription_id}, sending {from_text}"
    )
