"""Consumer groups on the leader of the metadata: members tell that they are alive, and are told which channels are theirs.

A request of a member renews its lease, and waits here until the member's channels are not those that it knows. Who is silent for
its lease counts as gone. When members or channels come or go, the channels are divided anew (stan.core.base.assignor). A channel
whose owner lives changes hands only once that member has released it; the others are not disturbed. Leases are not replicated:
who leads next gives each member a full one. The same holds after an outage of NATS, and for the time in which this node did not
run.
"""

from collections.abc import Callable, Iterable
from functools import partial

from stan_protocol import refusals
from stan_protocol.patterns import literal, valid_name
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.proto import extension_pb2 as pb
from stan_protocol.scalars import MILLISECOND, ChannelUid, Nanos
from stan_protocol.units import go_duration

from stan import limits
from stan.core.base.names import text
from stan.core.base.shares import of_user, of_whom, share_left
from stan.core.features.consumer_groups.live import LiveConsumerGroup, MemberPoll
from stan.core.leader.local_group import LeaderParts
from stan.core.metadata.consumer_groups import ConsumerGroup
from stan.core.metadata.meta import MetaResult
from stan.core.requests.channel_lookup import HEAD_ROOM, ITEM_ROOM
from stan.core.requests.request import AcceptedRequest
from stan.core.services.leader_part import MetaPart
from stan.core.services.node import META_GROUP
from stan.core.services.services import Services
from stan.protocol.proto import entries_pb2 as entries

EMPTY = ConsumerGroup()
"""The metadata of a group without members. It never changes."""


class ConsumerGroupsLeader(MetaPart):
    """Divides channels among the members of consumer groups, and answers members and operators, while this node leads the
    metadata."""

    def __init__(self, services: Services, leadership: LeaderParts) -> None:
        super().__init__(services, leadership)
        self.placement, self.senders = services.placement, services.senders
        self.live: dict[bytes, LiveConsumerGroup] = {}  # by name
        self._patrol_at = 0  # Nanos when the leases are looked at next; 0: there is no group
        for name in self.node.meta.consumer_groups.by_name:  # each member gets a full lease before it counts as gone
            self._group(name)
        self.restart_all()

    def restart_all(self) -> None:
        """Members could not be heard until now: each gets a full lease."""
        now = self.node.clock.now
        for name, live in self.live.items():
            for member, row in (self._known(name).members | live.joining).items():
                live.deadlines[member] = now + row.lease_ms * MILLISECOND
            self._soon(name)

    def _group(self, name: bytes) -> LiveConsumerGroup:
        """The live view of a group; it is made if there is none."""
        group = self.live.get(name)
        if group is None:
            group = self.live[name] = LiveConsumerGroup(name)
            if not self._patrol_at:
                self._patrol_next(self.node.clock.now)
        return group

    def _known(self, name: bytes) -> ConsumerGroup:
        """The metadata of a group."""
        return self.node.meta.consumer_groups.by_name.get(name, EMPTY)

    # --- members ------------------------------------------------------------------------------------------------------

    def poll(self, accepted: AcceptedRequest) -> None:
        """A ConsumerGroupRequest: a member joins, is alive, releases channels or leaves."""
        request: pb.ConsumerGroupRequest = accepted.request
        refusal = self._refusal(request, accepted.user, self._named(accepted))
        if refusal:
            accepted.refuse(refusal)
            return
        name, member, now = self._named(accepted), request.member, self.node.clock.now
        known = self._known(name)
        row = entries.ConsumerMember(
            member=member,
            user=accepted.user,
            pattern=request.pattern,
            lease_ms=request.lease_ms,
            name=request.name,
        )
        changes = not request.leave and known.members.get(member) != row
        if changes and not self.senders.rate_limiter.admit(now, accepted.user):
            accepted.refuse(refusals.TOO_MANY_REQUESTS, retry=True)
            return
        live = self._group(name)
        earlier = live.polls.pop(member, None)
        if earlier is not None:
            self._tell(live, member, earlier)
        if request.leave:
            live.leave(member)
            accepted.answer(unchanged=True, assignment=request.known, cluster=self.node.cluster)
            self._divide(name)
            return
        live.deadlines[member] = now + request.lease_ms * MILLISECOND
        live.polls[member] = MemberPoll(accepted, now + request.wait_ms * MILLISECOND)
        news = live.release(member, known, request.released)
        if changes:
            live.joining[member], news = row, True
        if news:
            self._divide(name)
        self._tell_news(live, [member])

    def _named(self, accepted: AcceptedRequest) -> bytes:
        """The group that a member means: each user has groups of its own."""
        return of_user(self.senders.user_of(accepted.reply), accepted.request.group)

    def _refusal(self, request: pb.ConsumerGroupRequest, user: bytes, name: bytes) -> str:
        """Return why a request of a member is not taken; "" if it is."""
        if wrong := _wrong(request):
            return f"{refusals.INVALID_CONSUMER}: {wrong}"
        if self.placement.partition is not None:
            return refusals.NO_CONSUMER_GROUPS
        return self._refusal_of_state(request, user, name)

    def _refusal_of_state(self, request: pb.ConsumerGroupRequest, user: bytes, name: bytes) -> str:
        live = self.live.get(name)
        if live is None:
            owner = of_whom(name)[0]
            own = sum(of_whom(one)[0] == owner for one in self.live)
            full = share_left(owner, limits.CONSUMER_GROUPS_MAX, len(self.live), own) <= 0
            return refusals.TOO_MANY_CONSUMER_GROUPS if full else ""
        members = self._known(name).members
        patterns = {row.pattern for row in (members | live.joining).values()}
        if request.pattern not in patterns and len(patterns) >= limits.CONSUMER_PATTERNS_MAX and not request.leave:
            return refusals.TOO_MANY_CONSUMER_PATTERNS
        row = live.joining.get(request.member) or members.get(request.member)
        if row is None:
            full = len(members.keys() | live.joining.keys()) >= limits.CONSUMERS_MAX
            return refusals.TOO_MANY_CONSUMERS if full else ""
        return refusals.MEMBER_OF_ANOTHER if row.user != user else ""

    # --- channels -----------------------------------------------------------------------------------------------------

    def channels_changed(self, applied: MetaResult) -> None:
        """Channels came or went."""
        for name, live in self.live.items():
            changed = applied.deleted is not None
            for info in applied.created:
                changed = live.channel_created(info, self._is_for(info.name)) or changed
            if applied.deleted is not None:
                live.channel_deleted(applied.deleted.uid)
            if changed:
                self._soon(name)

    def policies_changed(self) -> None:
        """The policies may tell anew which channels are for consumers."""
        for name, live in self.live.items():
            live.matching.clear()
            self._soon(name)

    def _is_for(self, channel: bytes) -> Callable[[bytes], bool]:
        """Return a function that tells if a member with a pattern may be given the channel, should the pattern match. Dead
        letters and messages that wait for their time are only for who names their channel."""
        policies = self.placement.policies
        info = self.node.meta.channels.get(channel)
        kept = info is None or not info.is_ephemeral  # the positions of members outlive leaders
        hidden = bool(policies.rules) and (
            policies.is_dead_letter_channel(channel) or bool(policies.of(channel, b"").delay)
        )
        fits = kept and len(channel) <= limits.CONSUMER_CHANNEL_BYTES_MAX
        return lambda pattern: fits and not (hidden and not literal(text(pattern)))

    def _matching(self, live: LiveConsumerGroup, pattern: bytes) -> set[ChannelUid]:
        """The channels that a member with *pattern* may be given; remembered, and kept up to date."""
        found = live.matching.get(pattern)
        if found is None:
            found = live.matching[pattern] = set()
            for info in self.node.meta.channels.values():
                live.consider(pattern, info, self._is_for(info.name))
        return found

    # --- dividing the channels ----------------------------------------------------------------------------------------

    def _soon(self, name: bytes) -> None:
        """Divide the channels of a group at the end of this turn, however much changes in it."""
        live = self.live[name]
        if not live.due:
            live.due = True
            self.at(self.node.clock.now, lambda _now: self._divide(name))

    def _divide(self, name: bytes) -> None:
        """Divide the channels of a group among its members, and tell those who wait what is theirs now."""
        live = self.live.get(name)
        if live is None:
            return
        live.due = False
        if live.proposed_at:
            return  # its outcome comes here
        known = self._known(name)
        staying = live.staying(known, self.node.clock.now)
        matching = {row.pattern: self._matching(live, row.pattern) for row in staying.values()}
        live.forget_patterns(matching)
        change = live.divide(known, staying)
        if change is not None:
            live.proposed_at = self.node.clock.now
            change.group = name
            self.proposals.change_meta(partial(self._divided, name), consumer_group=change)
        elif not known.members and not live.joining:
            del self.live[name]
        self._tell_news(live, list(live.polls))

    def _divided(self, name: bytes, result: object, error: str) -> None:
        live = self.live.get(name)
        if live is None:
            return
        live.proposed_at, live.views = 0, None
        if isinstance(result, MetaResult) and not result.error:
            live.taken_in(self._known(name))
            self._divide(name)
            return
        self.reports.note("WRN", f"the channels of a consumer group could not be divided: {error or result.error}")  # type: ignore[attr-defined]
        self.at(self.node.clock.now + limits.CONSUMER_RETRY, lambda _now: self._divide(name))

    # --- answers ------------------------------------------------------------------------------------------------------

    def _tell_news(self, live: LiveConsumerGroup, members: Iterable[bytes]) -> None:
        """Answer those of *members* whose channels are not those that they know."""
        views = live.view(self._known(live.name), self.node.meta.by_uid)
        for member in members:
            poll = live.polls.get(member)
            if poll is None or member in live.joining:
                continue
            if views.digest(member) != poll.accepted.request.known:
                del live.polls[member]
                self._tell(live, member, poll)

    def _tell(self, live: LiveConsumerGroup, member: bytes, poll: MemberPoll) -> None:
        """Answer a request of a member with what is its own now."""
        views = live.view(self._known(live.name), self.node.meta.by_uid)
        digest = views.digest(member)
        if member in live.joining or digest == poll.accepted.request.known:
            known = poll.accepted.request.known
            poll.accepted.answer(unchanged=True, assignment=known, cluster=self.node.cluster)
            return
        response = pb.ConsumerGroupResponse(assignment=digest, cluster=self.node.cluster)
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for shown in views.channels(member):
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0:
                self.reports.complain("ERR", "NATS takes no payload that tells all channels of a consumer: max_payload")
                break
            response.channels.append(shown)
        poll.accepted.answer_with(response)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _patrol_next(self, now: int) -> None:
        self._patrol_at = now + limits.CONSUMER_PATROL
        self.at(self._patrol_at, self._patrol)

    def _patrol(self, now: Nanos) -> None:
        """Look for leases that are over and for requests that have waited long enough."""
        late, self._patrol_at = now - self._patrol_at, 0
        if not self.live:
            return
        self._patrol_next(now)
        if not self.nats.connected or not self.leading.holds((META_GROUP,)) or META_GROUP in self.leading.write_blocked:
            late += limits.CONSUMER_PATROL
        for live in list(self.live.values()):
            if late >= limits.CONSUMER_PATROL:  # what members have said meanwhile is not read yet
                live.put_off(late)
            over = [member for member, poll in live.polls.items() if poll.until <= now]
            for member in over:
                self._tell(live, member, live.polls.pop(member))
            if live.proposed_at and now - live.proposed_at > limits.CONSUMER_PATIENCE:
                live.proposed_at = 0  # its fate is unknown; of two such changes only one is taken
                self._divide(live.name)
            elif any(deadline <= now for deadline in live.deadlines.values()):
                self._divide(live.name)

    # --- operators ----------------------------------------------------------------------------------------------------

    def list(self, accepted: AcceptedRequest) -> None:
        """A ConsumerGroupsRequest."""
        request: admin.ConsumerGroupsRequest = accepted.request
        if request.group:
            named = sorted(name for name in self.live if of_whom(name)[1] == request.group)
            named = [name for name in named if request.user in (b"", of_whom(name)[0])]
            if not named:
                accepted.refuse(refusals.UNKNOWN_CONSUMER_GROUP)
                return
            accepted.answer(groups=[self._details(named[0])])
            return
        response = admin.ConsumerGroupsResponse()
        page = min(request.max or limits.REPORT_ITEMS_MAX, limits.REPORT_ITEMS_MAX)
        after = request.after, request.after_user
        left = sorted(told for name in self.live if (told := of_whom(name)[::-1]) > after)
        room = self.nats.payload_bytes_max - HEAD_ROOM
        for name in [of_user(user, own) for own, user in left[:page]]:
            status = self._status(name)
            room -= status.ByteSize() + ITEM_ROOM
            if room < 0 and response.groups:
                break
            response.groups.append(status)
        response.more = len(response.groups) < len(left)
        accepted.answer_with(response)

    def _status(self, name: bytes) -> admin.ConsumerGroupStatus:
        known, live = self._known(name), self.live[name]
        channels = set().union(*(self._matching(live, row.pattern) for row in known.members.values()))
        user, group = of_whom(name)
        return admin.ConsumerGroupStatus(
            group=group,
            user=user,
            members=len(known.members),
            channels=len(channels),
            unowned=len(channels - known.owners.keys()),
            releasing=len(live.releasing),
        )

    def _details(self, name: bytes) -> admin.ConsumerGroupStatus:
        known, live, now = self._known(name), self.live[name], self.node.clock.now
        status, by_uid = self._status(name), self.node.meta.by_uid
        places = {member: at for at, member in enumerate(sorted(known.members), 1)}
        for member in places:
            row = known.members[member]
            left = max(0, live.deadlines.get(member, now) - now) // MILLISECOND
            owned = sum(owner.member == member for owner in known.owners.values())
            status.member_list.add(
                name=row.name, user=row.user, pattern=row.pattern, lease_ms=row.lease_ms, left_ms=left, channels=owned
            )
        room = self.nats.payload_bytes_max - HEAD_ROOM - status.ByteSize()
        channels = set().union(*(live.matching.get(row.pattern, ()) for row in known.members.values()))
        for uid in sorted(channels, key=lambda uid: by_uid[uid].name):
            owner = known.owners.get(uid)
            shown = admin.ConsumerChannelStatus(channel=by_uid[uid].name, releasing=uid in live.releasing)
            if owner is not None:
                shown.member, shown.generation = places[owner.member], owner.generation
            room -= shown.ByteSize() + ITEM_ROOM
            if room < 0:
                break
            status.channel_list.append(shown)
        return status


def _wrong(request: pb.ConsumerGroupRequest) -> str:
    """Return which bound a request of a member does not keep; "" if it keeps all of them."""
    lease, least, most = request.lease_ms * MILLISECOND, limits.CONSUMER_LEASE_MIN, limits.CONSUMER_LEASE_MAX
    bytes_max, id_min, id_max = (
        limits.CONSUMER_NAME_BYTES_MAX,
        limits.CONSUMER_ID_BYTES_MIN,
        limits.CONSUMER_ID_BYTES_MAX,
    )
    released_max = limits.CONSUMER_CHANNELS_MAX
    for what, name in (("group", request.group), ("pattern", request.pattern), ("member", request.name)):
        if len(name) > bytes_max:
            return f"the name of the {what} has {len(name)} bytes, and at most {bytes_max} are allowed"
    checks = (
        (not request.group or b"\0" in request.group, "a group has a name, without zero bytes"),
        (not id_min <= len(request.member) <= id_max, f"the id of a member has {id_min} to {id_max} bytes"),
        (not valid_name(text(request.pattern), wildcards=True), "it is no pattern of channels"),
        (
            not least <= lease <= most,
            f"a lease is {go_duration(least)} to {go_duration(most)} long, not {go_duration(lease)}",
        ),
        (request.wait_ms * MILLISECOND > lease, "it waits longer than its lease"),
        (len(request.released) > released_max, f"it releases more than {released_max} channels"),
    )
    return next((told for fails, told in checks if fails), "")
