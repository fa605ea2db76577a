"""Lists for operators: channels, the cursors in them, clients (docs/admin-api.md).

    channels, subscriptions: each leader answers for the groups that it leads
    clients: the leader of the metadata answers

Promises: an answer reports what was committed while no other node could lead; lists are sorted, so that a page continues where
the last one ended. All answers together take a bounded share of each turn, however long the lists are. The channels are those
of the newest metadata; if these cannot be had in time, those of this node's copy.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from stan_protocol.ack_levels import AckLevel
from stan_protocol.patterns import ChannelLimits, valid_name
from stan_protocol.proto import admin_pb2 as pb
from stan_protocol.refusals import INVALID_ADMIN
from stan_protocol.scalars import Nanos

from stan import limits
from stan.core.base.names import text
from stan.core.base.ready import Index
from stan.core.base.runs import Run, Runs, counted_of
from stan.core.leader.cursors import LiveCursor, LiveMember
from stan.core.metadata.meta import ChannelInfo
from stan.core.publishing.channel_policies import DelayFaults
from stan.core.publishing.channels import LiveChannels
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM, ChannelLookup, matcher
from stan.core.requests.request import AcceptedRequest
from stan.core.requests.router import Handler
from stan.core.requests.table import ALL
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.core.state.cursors import Cursor, CursorKind, Subscription
from stan.core.state.limit_overrides import EDITED
from stan.core.state.tombstones import deleted_from

"""Of a channel, a CompactionState: up to where there is one message of each key, the newest tombstone up to there, passes, bytes
saved, and when the last pass ended."""
Steps = Iterator[int]
"""The work on one answer, in steps; yields the cost of each step (limits.REPORT_STEPS)."""


class _Report(NamedTuple):
    accepted: AcceptedRequest
    steps: Steps


class AdminListing:
    """Handles operators' requests for lists of channels, cursors and clients."""

    def __init__(self, services: Services, channels: LiveChannels, lookup: ChannelLookup) -> None:
        self.faults, self.leading = services.faults, services.leading
        self.nats, self.node = services.nats, services.node
        self.placement, self.stored = services.placement, services.stored
        self.timers = services.timers
        self.channels = channels
        self.lookup = lookup
        self._reports: deque[_Report] = deque()

    # --- questions ----------------------------------------------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """The handler of each request, by name."""
        return {
            "admin.channels": lambda accepted: self._about_channels(accepted, self._channels(accepted)),
            "admin.subscriptions": lambda accepted: self._about_channels(accepted, self._subscriptions(accepted)),
            "admin.clients": self._list_clients,
        }

    def _list_clients(self, accepted: AcceptedRequest) -> None:
        request: pb.ClientsRequest = accepted.request
        clients = self.node.meta.clients
        if request.client_id:
            left = [request.client_id] if request.client_id in clients and request.client_id > request.after else []
        else:
            left = sorted(client_id for client_id in clients if client_id > request.after)
        response = pb.ClientsResponse(total=len(clients))
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for client_id in islice(left, _page(request.max)):
            client = clients[client_id]
            shown = pb.ClientStatus(
                client_id=client.client_id,
                heartbeat_inbox=client.heartbeat_inbox,
                protocol=client.protocol,
                ping_interval_s=client.ping_interval,
                ping_max_out=client.ping_max_out,
                failing=client.failing,
            )
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.clients:
                break
            response.clients.append(shown)
        response.more = len(response.clients) < len(left)
        accepted.answer_with(response)

    # --- turns --------------------------------------------------------------------------------------------------------

    def _about_channels(self, accepted: AcceptedRequest, steps: Steps) -> None:
        pattern = accepted.request.pattern
        if pattern and not valid_name(text(pattern), wildcards=True):
            accepted.refuse(INVALID_ADMIN)
            return
        begun = False

        def begin(_known: object) -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._begin(_Report(accepted, steps))

        self.lookup.catch_up(accepted, begin)
        if not begun:
            self.timers.at(self.node.clock.now + limits.REPORT_PATIENCE, begin, META_GROUP)

    def _begin(self, report: _Report) -> None:
        if len(self._reports) >= limits.REPORTS_MAX:
            report.accepted.busy()
            return
        self._reports.append(report)
        if len(self._reports) == 1:
            self.timers.at(self.node.clock.now, self._go_on, META_GROUP)

    def _go_on(self, now: Nanos) -> None:
        """Continue the answers under way, for this turn's share of steps."""
        left = limits.REPORT_STEPS
        while self._reports and left > 0:
            report = self._reports.popleft()
            if not self.leading.holds(report.accepted.groups):
                report.accepted.busy()
                continue
            for cost in report.steps:
                left -= cost
                if left <= 0:
                    self._reports.append(report)
                    break
        if self._reports:
            self.timers.at(now + 1, self._go_on, META_GROUP)

    def _chosen(self, accepted: AcceptedRequest, after: bytes, *, again: bool) -> Iterator[ChannelInfo | None]:
        """The channels asked for, sorted by name, after the channel *after*, with it if *again*. None for each channel that was
        looked at and is not one of them, so that looking costs a step, too."""
        pattern = accepted.request.pattern or ALL
        names = self.lookup.sorted_names() if not valid_name(text(pattern), wildcards=False) else [pattern]
        covers = matcher(pattern)
        at = (bisect_left if again else bisect_right)(names, after) if after else 0
        meta = self.node.meta
        for name in islice(names, at, None):
            info = meta.channels.get(name)
            if info is None or info.group not in accepted.groups or not (pattern == ALL or covers(name)):
                yield None
            else:
                yield info if self.faults.within(info.group, self.lookup.is_dropped, info) is False else None

    # --- channels -----------------------------------------------------------------------------------------------------

    def _channels(self, accepted: AcceptedRequest) -> Steps:
        request: pb.ChannelsRequest = accepted.request
        response: pb.ChannelsResponse = accepted.begin_answer()
        room = self.nats.payload_bytes_max - HEAD_ROOM
        page = _page(request.max)
        for info in self._chosen(accepted, request.after, again=False):
            yield 1
            if info is None:
                continue
            if len(response.channels) >= page:
                response.more = True
                break
            shown = self.faults.within(info.group, self._channel, info)
            if shown is None:
                return  # the answer would not leave without the group
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0 and response.channels:
                response.more = True
                break
            response.channels.append(shown)
            yield limits.REPORT_ITEM_STEPS
        accepted.answer_with(response)

    def _channel(self, info: ChannelInfo) -> pb.ChannelStatus:
        index = self.stored.indexes(info.group, info.uid)
        known = self.node.group_of(info).machine.channels.get(info.uid)
        cursors = known.cursors.values() if known is not None else ()
        channel = self.channels.by_uid.get(info.uid)
        delay = self.channels.policies.delayed.get(info.uid)
        if delay is not None:
            in_force = delay.room
        else:
            in_force = self.node.config.limits.for_channel(text(info.name)) if channel is None else channel.limits
        span = index.last_sequence - index.first_sequence + 1 if index.last_sequence else 0
        gone = deleted_from(self.stored.deleted(info.group, info.uid), index.first_sequence, index.last_sequence)
        waiting = self.node.group_of(info).machine.deferred.counts.get(info.uid, 0)
        compaction = self.node.group_of(info).machine.compactions.of(info.uid)
        tier = self.channels.policies.tiers.by_channel.get(info.uid)
        policy = self.placement.policies.of(info.name, b"")
        faults = self.leading.part(info.group, DelayFaults)
        shown = pb.ChannelStatus(
            name=info.name,
            uid=info.uid,
            group=info.group,
            first_sequence=index.first_sequence,
            last_sequence=index.last_sequence,
            messages=span - gone,
            bytes=index.bytes,
            first_timestamp=index.first_timestamp,
            last_timestamp=index.last_timestamp,
            subscriptions=sum(len(cursor.members) for cursor in cursors),
            offline=sum(not cursor.members for cursor in cursors),
            limits=shown_limits(in_force),
            deleted=gone,
            delayed=waiting,
            delay_fault=faults.by_channel.get(info.uid, "").encode()
            if faults is not None and (waiting or delay is not None)
            else b"",
            edited=self._edited(info),
            pinned=info.name in self.node.meta.pins,
            ttl=self.channels.policies.ttls.get(info.uid, 0),
            compacted_until=compaction.until,
            tombstones_until=compaction.tombstones_until,
            compact=policy.compact,
            compress=policy.compress,
            commit=self.node.meta.commit_of_channel(info),
            ack_level=AckLevel.MEMORY if info.is_ephemeral else self.placement.ack_level(info.group),
            part_of=self.node.meta.channels.parted.part_of(info.name),
        )
        shown.clear_bytes, shown.kept_bytes = index.compression
        epoch = self.node.group_of(info).machine.epochs.of(info.uid)
        shown.epoch, shown.epoch_began = epoch.number, epoch.began
        done = self.node.group_of(info).compacted.get(info.uid)
        if done is not None:
            until, tombstone, shown.compaction_passes, shown.compaction_saved_bytes, shown.compaction_ended = done
            shown.compacted_here = min(until, compaction.until)
            slowest = self.node.group_of(info).machine.slowest(info.uid)
            newest = 0 if compaction.keep_first else min(tombstone, compaction.until)
            if slowest is not None and newest > max(slowest[0], compaction.tombstones_until):
                shown.tombstone_held, shown.held_by = newest, slowest[1]
        if tier is not None and channel is not None:
            shown.tier, shown.tier_next = tier.name, self.channels.policies.tiers.position(info, tier)
            shown.tier_kept, shown.tier_lost = self.channels.retention.kept_for_tier(channel), tier.lost
        return shown

    def _edited(self, info: ChannelInfo) -> pb.Limits | None:
        """The limits of a channel that operators have edited; None without edits."""
        edit = self.node.group_of(info).machine.limit_overrides.by_channel.get(info.uid)
        return (
            None if edit is None else pb.Limits(**{f.name: value for f, value in edit.ListFields() if f.name in EDITED})
        )

    # --- positions ----------------------------------------------------------------------------------------------------

    def _subscriptions(self, accepted: AcceptedRequest) -> Steps:
        request: pb.SubscriptionsRequest = accepted.request
        response: pb.SubscriptionsResponse = accepted.begin_answer()
        room = self.nats.payload_bytes_max - HEAD_ROOM
        page = _page(request.max)
        for info in self._chosen(accepted, request.after_channel, again=True):
            yield 1 if info is None else 3
            if info is None:
                continue
            after = request.after_cursor if info.name == request.after_channel else 0
            for cursor in self.faults.within(info.group, self._wanted, info, request, after) or ():
                if len(response.cursors) >= page:
                    response.more = True
                    break
                shown = self.faults.within(info.group, self.cursor, info, cursor)
                if shown is None:
                    return
                size = shown.ByteSize() + ITEM_ROOM
                if size > room and response.cursors:
                    response.more = True
                    break
                if size > room:
                    shown.runs_cut = True
                    del shown.owed_runs[:], shown.pending_runs[:], shown.counted_runs[:], shown.counts[:]
                room -= size
                response.cursors.append(shown)
                yield limits.REPORT_ITEM_STEPS * (1 + len(shown.members)) + len(shown.pending_runs) // 8
            if response.more:
                break
        accepted.answer_with(response)

    def _wanted(self, info: ChannelInfo, request: pb.SubscriptionsRequest, after: int) -> list[Cursor]:
        """The cursors of a channel that are asked for, after the cursor with the id *after*, sorted by id."""
        known = self.node.group_of(info).machine.channels.get(info.uid)
        if known is None:
            return []
        name, client_id = request.name, request.client_id
        found = [
            cursor
            for cursor in known.cursors.values()
            if cursor.cursor_id > after
            and (not name or name in (cursor.name, *names(cursor)))
            and (not request.durable_only or cursor.kind.durable)
            and (not client_id or _is_of(cursor, client_id))
        ]
        return sorted(found, key=lambda cursor: cursor.cursor_id)

    def cursor(self, info: ChannelInfo, cursor: Cursor) -> pb.CursorStatus:
        """The status of one cursor, in a group that this node leads; of one that another node serves, as that has reported it."""
        group = self.node.group_of(info)
        index = self.stored.indexes(info.group, info.uid)
        live = group.dispatch.cursors.by_id.get(cursor.cursor_id)
        last_sent, owed = (
            (cursor.last_sent, cursor.to_redeliver) if live is None else (live.last_sent, live.pending.owed)
        )
        windows = (
            [sub.pending for sub in cursor.members] if live is None else [member.window for member in live.members]
        )
        lowest = min((runs.first for runs in (owed, *windows) if runs), default=last_sent + 1)
        durable_name, queue_group = names(cursor)
        held_back = 0 if live is None else live.pending.held_back
        settings = cursor.settings
        shown = pb.CursorStatus(
            channel=info.name,
            cursor_id=cursor.cursor_id,
            group=info.group,
            kind=pb.Kind.Name(cursor.kind),
            durable_name=durable_name,
            queue_group=queue_group,
            client_id=cursor.client_id,
            paused=cursor.paused,
            last_sent=last_sent,
            acked_up_to=max(lowest, index.first_sequence) - 1,
            pending=len(owed) - held_back + sum(map(len, windows)),
            owed=len(owed) - held_back,
            held_back=held_back,
            waiting=held_back
            + waiting(index, last_sent)
            - deleted_from(
                self.stored.deleted(info.group, info.uid),
                max(last_sent + 1, index.first_sequence),
                index.last_sequence,
            ),
            max_in_flight=settings.max_in_flight,
            ack_wait_s=settings.ack_wait_s,
            first_sequence=index.first_sequence,
            last_sequence=index.last_sequence,
            inbox=settings.inbox,
            user=cursor.user,
            policy=self.placement.policies.shown(info.name, cursor.name),
            served_by=cursor.server or (self.node.name.encode() if cursor.members else b""),
            part_of=self.node.meta.channels.parted.part_of(info.name),
            last_ack=cursor.past.acked_at,
        )
        override, policy = cursor.override, self.placement.policies.of(info.name, cursor.name)
        shown.dead_letter_channel = policy.dead_letters_of(info.name)
        shown.pause_reason = override.pause_reason if override is not None else b""
        self._add_runs(shown, owed, windows)
        if live is not None:
            self._add_live(shown, live)
        elif cursor.server:
            shown.members.append(_served(cursor))
        return shown

    def _add_live(self, shown: pb.CursorStatus, live: LiveCursor) -> None:
        table, shown.last_ack = live.pending, live.past.acked_at
        shown.redelivered, shown.rejected = table.redelivered, table.rejections
        shown.exhausted, shown.delayed = len(table.given_up), len(table.paused)
        shown.given_up_rejected = sum(run.size for run in table.rejected)
        moves = table.moves
        if moves is not None:
            shown.dead_letters, shown.dead_letter_fault = moves.total, moves.fault.encode()
        members = {member.sub.subscription_id: member for member in live.members}
        furthest = max(live.members, key=lambda member: member.window.last)
        active = live.takers[0] if live.policy.failover and live.cursor.kind.shared else None
        for sub in live.cursor.members:  # in the order in which they subscribed
            member = members.get(sub.subscription_id)
            if member is not None:
                reached = live.last_sent if member is furthest else max(sub.last_sent, member.window.last)
                shown.members.append(self._member(member, reached))
                shown.members[-1].active = member is active
        pending = [one.oldest_pending for one in shown.members if one.oldest_pending]
        if pending and live.past.unacked_since:
            pending.append(live.past.unacked_since)
        shown.oldest_pending = min(pending, default=0)

    def _member(self, member: LiveMember, reached: int) -> pb.MemberStatus:
        sub: Subscription = member.sub
        now, wall = self.node.clock.now, self.node.clock.wall
        return pb.MemberStatus(
            client_id=sub.client_id,
            subscription_id=sub.subscription_id,
            inbox=sub.settings.inbox,
            max_in_flight=sub.settings.max_in_flight,
            window_now=member.window_now,
            ack_wait_s=sub.settings.ack_wait_s,
            pending=len(member.window),
            last_sent=reached,
            stalled=member.is_full,
            failing=member.failed_heartbeat,
            oldest_pending=wall - (now - member.oldest) if member.window else 0,
        )

    @staticmethod
    def _add_runs(shown: pb.CursorStatus, owed: Runs, windows: list[Runs]) -> None:
        together = windows[0] if len(windows) == 1 else Runs()
        if len(windows) > 1:
            for run in sorted(run for window in windows for run in window):
                together.add(Run(run.first, run.last))
        room = 2 * limits.REPORT_RUNS_MAX
        for told, runs in ((shown.owed_runs, owed), (shown.pending_runs, together)):
            flat = runs.flat()
            told.extend(flat[:room])
            shown.runs_cut |= len(flat) > room
        again = sorted(run for held in (owed, *windows) for run in held if run.count > 0)
        flat, counts = counted_of(again)
        shown.counted_runs.extend(flat[:room])
        shown.counts.extend(counts[: room // 2])


def _served(cursor: Cursor) -> pb.MemberStatus:
    """The member of a cursor that another node serves."""
    sub = cursor.members[0]
    return pb.MemberStatus(
        client_id=sub.client_id,
        subscription_id=sub.subscription_id,
        inbox=sub.settings.inbox,
        max_in_flight=sub.settings.max_in_flight,
        window_now=sub.settings.max_in_flight,
        ack_wait_s=sub.settings.ack_wait_s,
        pending=len(sub.pending),
        last_sent=cursor.last_sent,
        stalled=len(sub.pending) >= sub.settings.max_in_flight,
    )


def shown_limits(in_force: ChannelLimits) -> pb.Limits:
    """Limits as an answer has them."""
    return pb.Limits(
        max_msgs=in_force.msgs,
        max_bytes=in_force.bytes,
        max_age=in_force.age_ns,
        max_subs=in_force.subscriptions,
        max_inactivity=in_force.inactivity_ns,
    )


def names(cursor: Cursor) -> tuple[bytes, bytes]:
    """Of the durable and of the queue group."""
    match cursor.kind:
        case CursorKind.DURABLE_QUEUE:
            durable_name, _, queue_group = cursor.name.partition(b":")
            return durable_name, queue_group
        case CursorKind.QUEUE:
            return b"", cursor.name
    return cursor.name, b""


def waiting(index: Index, last_sent: int) -> int:
    """Messages of a channel behind *last_sent*."""
    return max(0, index.last_sequence - max(last_sent, index.first_sequence - 1))


def _page(wanted: int) -> int:
    return min(wanted or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)


def _is_of(cursor: Cursor, client_id: bytes) -> bool:
    """Whether a client is online in it, or owns it."""
    return any(sub.client_id == client_id for sub in cursor.members) or (
        cursor.kind.durable and not cursor.kind.shared and cursor.client_id == client_id
    )
