"""Clients on every node: their subscriptions are closed when they are gone; the leader of the metadata registers them."""

import contextlib
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import TypeVar

from google.protobuf.message import DecodeError
from stan_protocol import refusals
from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import GroupId, Nanos

from stan import limits
from stan.config import HeartbeatConfig
from stan.core.base.names import text
from stan.core.clients.registration import Identity, Registration, identity_of, is_same
from stan.core.leader.local_group import ChannelGroup
from stan.core.metadata.meta import MetaResult
from stan.core.metadata.registered_clients import Client
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.requests import decode

Key = TypeVar("Key", bytes, tuple[bytes, bytes])


class Clients:
    """Closes the subscriptions of connections that are gone, in the groups that this node leads."""

    def __init__(self, services: Services) -> None:
        self.faults, self.leading = services.faults, services.leading
        self.nats, self.node = services.nats, services.node
        self.proposals, self.reports = services.proposals, services.reports
        self.senders, self.timers = services.senders, services.timers
        self.closing: dict[int, set[tuple[GroupId, int]]] = {}
        """Subscriptions that are being closed, as (group, id), by the incarnation of their connection, which is gone."""
        self.heard: dict[bytes, int] = {}  # client id -> Nanos of its CloseRequest, if another node leads the metadata
        self.gone: dict[Identity, int] = {}  # connections that ended lately -> Nanos when
        subjects = services.nats.subjects
        self.template = wire.ConnectResponse(
            pub_prefix=subjects.pub_prefix.encode(),
            sub_requests=subjects.sub.encode(),
            unsub_requests=subjects.unsub.encode(),
            close_requests=subjects.close.encode(),
            sub_close_requests=subjects.sub_close.encode(),
            protocol=1,
        )

    # --- requests -------------------------------------------------------------------------------------------------------

    @property
    def registration(self) -> Registration | None:
        """The registration of clients, if requests of the metadata concern this node now."""
        return self.leading.part(META_GROUP, Registration) if self.leading.concerns(META_GROUP) else None

    def reconfigure(self, heartbeat: HeartbeatConfig) -> None:
        """Apply changed heartbeat settings."""
        registration = self.leading.part(META_GROUP, Registration)
        if registration is not None:
            registration.reconfigure(heartbeat)

    def connect(self, frame: Frame) -> None:
        """A ConnectRequest."""
        if self.registration is not None:
            self.registration.connect(frame)

    def ping(self, frame: Frame) -> None:
        """A Ping of a client."""
        if self.registration is not None:
            self.registration.ping(frame)

    def close(self, frame: Frame) -> None:
        """A CloseRequest. On a node that does not lead the metadata it shows that everything which the client sent before has
        arrived; the metadata removes the client later, or has done so already."""
        registration = self.registration
        try:
            client_id = decode(wire.CloseRequest, frame.payload).client_id
        except DecodeError:
            if registration is not None:
                registration.refuse_close(frame.reply, refusals.INVALID_CLOSE)
            return
        if registration is not None:
            registration.close(client_id, frame.reply)
        elif not self.node.leads_meta and self.leading.replaying is None and not self.release(client_id):
            _remember(self.heard, client_id, self.node.clock.now)

    def refuse_followed(self, frames: Iterable[Frame]) -> None:
        """Refuse connects that were followed by a newer connect of the same client."""
        if self.registration is not None:
            self.registration.refuse_followed(frames)

    # --- leadership of a channel group ------------------------------------------------------------------------------------

    def lead_group(self, number: GroupId) -> None:
        """This node leads a channel group from now on: close the subscriptions that gone connections still have in it."""
        group = self.node.groups[number]
        known = {client.incarnation for client in self.node.meta.clients.values()}
        for incarnation in sorted(
            set(group.machine.subscriptions.by_incarnation) - known - self.senders.closing.keys()
        ):
            if incarnation <= self.node.meta.applied:  # else this copy of the metadata is behind
                self._note_ghosts(group, incarnation)
                self.close_subscriptions(incarnation, number)
        for client in self.node.meta.clients.values():
            if client.failing:
                group.dispatch.members.set_failed_heartbeat(client.incarnation, failed=True)

    def follow_group(self, number: GroupId) -> None:
        """This node no longer leads a group: the next leader closes the subscriptions that are left."""
        for incarnation, closing in list(self.closing.items()):
            closing -= {key for key in closing if key[0] == number}
            self._close_ended(incarnation)

    def _note_ghosts(self, group: ChannelGroup, incarnation: int) -> None:
        for subscription_id in sorted(group.machine.subscriptions.by_incarnation[incarnation]):
            sub = group.machine.subscriptions.by_id[subscription_id]
            if group.machine.cursors[sub.cursor_id].kind.shared:
                who = go_quote(text(sub.client_id))
                self.reports.note("WRN", f"ghost durable queue subscriber: client {who} is not connected any more")

    def done_before(self, frames: Iterable[Frame]) -> tuple[list[Frame], list[Frame]]:
        """Split replayed *frames*, in order of arrival. First those whose effect the last leader has committed: connects of
        clients that have closed since, closes of clients that have connected again; and connects that were sent again. Then
        unregistered connects that a newer connect of the same client follows: handling them would make the client a duplicate of
        itself."""
        close, discover = self.nats.subjects.close.encode(), self.nats.subjects.discover.encode()
        open_: dict[
            bytes, list[tuple[Frame, bool, Identity]]
        ] = {}  # by client id; True: this connect is the registered one
        closes: dict[bytes, list[Frame]] = {}
        done: list[Frame] = []
        followed: list[Frame] = []
        for frame in frames:
            with contextlib.suppress(DecodeError):
                if frame.subject == close:
                    client_id = decode(wire.CloseRequest, frame.payload).client_id
                    done += [connect for connect, _, _ in open_.pop(client_id, [])]
                    closes.setdefault(client_id, []).append(frame)
                elif frame.subject == discover:
                    request = decode(wire.ConnectRequest, frame.payload)
                    client_id, identity = request.client_id, identity_of(request)
                    done += closes.pop(client_id, [])
                    before = open_.get(client_id, [])
                    done += [connect for connect, _, same in before if same == identity]
                    before = [one for one in before if one[2] != identity]
                    followed += [connect for connect, known, _ in before if not known]
                    there = self.node.meta.clients.get(client_id)
                    mine = there is not None and is_same(there, request)
                    open_[client_id] = [*(one for one in before if one[1]), (frame, mine, identity)]
        return done, followed

    def unregistered(self, frames: Iterable[Frame]) -> list[Frame]:
        """The connects among recent *frames*, in order of arrival, whose client is not registered, has not closed since, and has
        sent no newer one: their client may still wait for an answer."""
        frames = list(frames)
        settled = {id(frame) for frame in chain(*self.done_before(frames))}
        discover, known = self.nats.subjects.discover.encode(), self.node.meta.clients
        connects: list[Frame] = []
        for frame in frames:
            if frame.subject == discover and id(frame) not in settled:
                with contextlib.suppress(DecodeError):
                    request = decode(wire.ConnectRequest, frame.payload)
                    there = known.get(request.client_id)
                    if there is None or not is_same(there, request):
                        connects.append(frame)
        return connects

    # --- close ----------------------------------------------------------------------------------------------------------

    def release(self, client_id: bytes) -> bool:
        """Close the subscriptions of the client's closed connections now, as nothing more can arrive from them. True if there
        were any such connections."""
        gone = [client for client in self.senders.closing.values() if client.client_id == client_id]
        for client in gone:
            self._let_go(client.incarnation)
        return bool(gone)

    def _let_go(self, incarnation: int) -> None:
        if self.senders.closing.pop(incarnation, None) is not None:
            self.close_subscriptions(incarnation)

    def applied(self, result: MetaResult) -> None:
        """A META entry was applied, on any node: close the subscriptions of a gone connection."""
        if result.gone is not None:
            self._gone(result.gone, asked=result.asked)
        registration = self.leading.part(META_GROUP, Registration)
        if registration is not None:
            registration.applied(result)
        if result.beaten is not None:
            beaten = result.beaten
            self.leading.each_dispatch(
                (*self.leading.led, *self.leading.serving.groups),
                lambda dispatch: dispatch.members.set_failed_heartbeat(beaten.incarnation, failed=beaten.failing),
            )

    def _gone(self, client: Client, *, asked: bool) -> None:
        """Close the subscriptions of a gone client. A close is a barrier: what the client sent before its CloseRequest may arrive
        at this node only after the metadata entry. So the client counts as closing until its CloseRequest arrives here, at most
        CLOSE_PATIENCE."""
        _remember(self.gone, identity_of(client), self.node.clock.now)
        heard = self.heard.pop(client.client_id, None)
        if asked and not self.node.leads_meta and heard is None:
            self.senders.closing[client.incarnation] = client
            until = self.node.clock.now + limits.CLOSE_PATIENCE
            self.timers.at(until, lambda _now: self._let_go(client.incarnation), META_GROUP)
        else:
            self.close_subscriptions(client.incarnation)

    def close_subscriptions(self, incarnation: int, only: GroupId | None = None) -> None:
        """Close (not unsubscribe) all subscriptions of a gone connection (STAN-SPEC 3.4) in the groups that this node leads, or
        in the group *only*."""
        leaves = [leave for leave in self.leading.subscriptions_of(incarnation) if only in (None, leave[0])]
        if leaves:
            self.closing.setdefault(incarnation, set()).update(leaves)
        for group, subscription_id in leaves:
            left = partial(self._left, incarnation, group, subscription_id)
            self.faults.within(group, self.proposals.end, group, subscription_id, left)

    def _left(self, incarnation: int, group: GroupId, subscription_id: int) -> None:
        closing = self.closing.get(incarnation)
        if closing is not None:  # else it was closed more than once, or in an earlier leadership of this node
            closing.discard((group, subscription_id))
            self._close_ended(incarnation)

    def _close_ended(self, incarnation: int) -> None:
        if not self.closing[incarnation]:
            del self.closing[incarnation]
            registration = self.leading.part(META_GROUP, Registration)
            if registration is not None:
                registration.closed(incarnation)


def _remember(times: dict[Key, int], key: Key, now: Nanos) -> None:
    """Note that something happened to *key* at *now*; forget what happened before the requests that a leader may replay."""
    times.pop(key, None)
    times[key] = now  # the oldest are in front
    while times[oldest := next(iter(times))] < now - limits.REPLAY_REQUEST_AGE_MAX:
        del times[oldest]
