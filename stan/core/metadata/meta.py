"""The metadata group's replicated state: the registered clients, the channels and pins, the cluster's identity and nodes.

A deterministic state machine: the same committed entries give the same state on every node (P2). It never looks at a clock and
never sends; the outcome of a change is the return value of `apply`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stan_protocol import refusals
from stan_protocol.channels import folded, part_name
from stan_protocol.refusals import (
    CHANNELS_CHANGED,
    CLIENT_REGISTERED,
    DOUBLED_ALREADY,
    HAS_NO_PARTS,
    MOVE_UNDER_WAY,
    MOVED_BACK,
    NOT_FOUNDED,
    PINNED_TOO_LATE,
    POOL_CHANGED,
    TOO_MANY_CHANNELS,
    go_quote,
)
from stan_protocol.scalars import ChannelUid, GroupId, RaftIndex

from stan.core.metadata.cluster_info import NODES_CHANGED, pins_of, with_level, with_moves_paused, with_nodes, with_pin
from stan.core.metadata.consumer_groups import ConsumerGroups
from stan.core.metadata.parted import PartedChannels, doubling_refusal
from stan.core.metadata.parted import refusal as parted_refusal
from stan.core.metadata.policies import with_policy
from stan.core.metadata.pool import commit_of, with_growth, with_open_pool
from stan.core.metadata.registered_clients import Client, RegisteredClients
from stan.core.metadata.schemas import Schemas
from stan.core.metadata.streams import Stream, Streams
from stan.limits import MOVE_CHANNELS_MAX, MOVES_MAX
from stan.policies import EPHEMERAL, SYNCED
from stan.protocol.proto import entries_pb2 as pb

TOO_MANY_MOVES = refusals.TOO_MANY_MOVES.format(MOVES_MAX)
TOO_MANY_MOVED = refusals.TOO_MANY_MOVED.format(MOVE_CHANNELS_MAX)


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """One channel of the registry."""

    name: bytes
    uid: ChannelUid
    group: GroupId
    moving_to: GroupId = GroupId(0)  # noqa: RUF009 - the group to which it is being moved; 0: it is not
    move: int = 0  # RaftIndex of the entry that has begun the move
    left: tuple[GroupId, ...] = ()  # groups that it was moved from
    commit: int = SYNCED  # EPHEMERAL: its messages are its leader's; else its acks mean what those of its group do

    @property
    def is_ephemeral(self) -> bool:
        """True if its messages are in the memory of its group's leader alone."""
        return self.commit == EPHEMERAL

    def row(self) -> pb.Channel:
        """The channel as a row."""
        row = pb.Channel(name=self.name, uid=self.uid, group=self.group, commit=self.commit)
        row.moving_to, row.move = self.moving_to, self.move
        row.left.extend(self.left)
        return row


class MovedChannels(NamedTuple):
    """Channels whose move between groups has begun, or ended."""

    infos: list[ChannelInfo]  # as they are from now on
    left: GroupId = GroupId(0)  # the group in which they were before; 0: they are where they were


@dataclass(slots=True)
class ClusterChanges:
    """What an applied entry has changed about the cluster as a whole."""

    raised: int = 0  # the cluster's level, if it is higher now
    policies_changed: bool = False
    pins_changed: bool = False
    schemas_changed: bool = False
    pool_changed: bool = False  # names of channels are hashed over more groups now
    pause_changed: bool = False  # channels no longer move by themselves, or do again
    parted: bytes = b""  # a channel that has got parts, or whose parts are to be deleted
    stream: str = ""  # a stream that came, changed or went
    stream_before: Stream | None = None  # as it was before that; None: it came


@dataclass(slots=True)
class MetaResult(ClusterChanges):
    """The outcome of one applied entry."""

    error: str = ""
    connected: Client | None = None
    gone: Client | None = None  # the client that was closed, or whose earlier connection `connected` has replaced
    asked: bool = False  # the gone client closed its connection itself
    beaten: Client | None = None  # the client whose heartbeats fail now, or work again
    created: list[ChannelInfo] = field(default_factory=list)
    deleted: ChannelInfo | None = None
    deleted_from: bytes = b""  # the channel with parts of which the deleted one was a part
    moved: MovedChannels | None = None


class MetaRows(NamedTuple):
    """Changed rows of the metadata. None instead of the row of a client or channel: the row is gone."""

    info: pb.ClusterInfo | None  # None: unchanged
    clients: list[tuple[bytes, pb.Client | None]]
    channels: list[tuple[int, pb.Channel | None]]
    next_uid: int
    parts: list[tuple[str, bytes, bytes | None]]  # rows of consumer groups, schemas, streams: kind, key, row


@dataclass(slots=True)
class DirtyMeta:
    """Keys of rows that have changed since they were last taken to be written; clients and components keep their own."""

    channels: set[int] = field(default_factory=set)  # by uid
    info: bool = False


class ChannelsByName(dict[bytes, ChannelInfo]):
    """Channels by name; the names of channels by their lower case; and which channels have parts."""

    def __init__(self) -> None:
        super().__init__()
        self.by_lower: dict[bytes, bytes] = {}
        self.parted = PartedChannels()


class ChannelsByUid(dict[ChannelUid, ChannelInfo]):
    """Channels by uid, and those of them that are being moved between groups."""

    def __init__(self) -> None:
        super().__init__()
        self.moving: set[ChannelUid] = set()


INFO_CHANGES: Final[dict[str, tuple[Callable[[pb.ClusterInfo, Any], pb.ClusterInfo | str], str, str]]] = {
    "cluster_info": (lambda known, _founding: known, "", ""),
    "nodes": (with_nodes, NODES_CHANGED, ""),
    "raise_level": (with_level, "", "raised"),
    "set_policy": (with_policy, NOT_FOUNDED, "policies_changed"),
    "pin_channel": (with_pin, NOT_FOUNDED, "pins_changed"),
    "grow_pool": (with_growth, POOL_CHANGED, ""),
    "open_pool": (with_open_pool, POOL_CHANGED, "pool_changed"),
    "pause_moves": (with_moves_paused, NOT_FOUNDED, "pause_changed"),
}
"""Changes of what is known of the cluster as a whole: what makes it another object, why it is refused before the cluster is
founded, and the field of ClusterChanges that says so."""


@dataclass(slots=True)
class MetaMachine:
    """Clients by id, channels by name and by uid. Invariants: lower-cased channel names are unique (STAN-SPEC 4.2), and a uid is
    never used twice."""

    info: pb.ClusterInfo | None = None
    clients: RegisteredClients = field(default_factory=RegisteredClients)
    channels: ChannelsByName = field(default_factory=ChannelsByName)
    by_uid: ChannelsByUid = field(default_factory=ChannelsByUid)
    pins: dict[bytes, GroupId] = field(default_factory=dict)  # as `info` has them: the group of channels by name
    next_uid: int = 1
    applied: int = 0  # RaftIndex of the newest applied entry, of any kind: the same on all nodes, also after a restart
    dirty: DirtyMeta = field(default_factory=DirtyMeta)
    consumer_groups: ConsumerGroups = field(default_factory=ConsumerGroups)
    schemas: Schemas = field(default_factory=Schemas)
    streams: Streams = field(default_factory=Streams)

    def apply(self, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply one committed META entry."""
        self.applied = index
        match change.WhichOneof("change"):
            case "connect" | "disconnect" | "heartbeat" as name:
                result = self._change_client(name, change, index)
            case "consumer_group" | "schema" as name:
                result = self._change_rows(name, change, index)
            case "stream":
                result = self._change_stream(change.stream, index)
            case "create_channels":
                result = self._create(change.create_channels)
            case "delete_channel":
                result = self._delete(ChannelUid(change.delete_channel.uid))
            case "begin_move":
                result = self._begin_move(change.begin_move, index)
            case "end_move":
                result = self._end_move(change.end_move)
            case str(name) if name in INFO_CHANGES:
                error = self._pin_refusal(change.pin_channel) if name == "pin_channel" else ""
                result = MetaResult(error=error) if error else self._change_info(name, getattr(change, name))
            case name:
                result = self._change_parted(name, change, index)
        return result

    # --- the cluster as a whole -------------------------------------------------------------------------------------

    def _change_info(self, name: str, value: Any) -> MetaResult:
        """Apply a change of what is known of the cluster as a whole."""
        change, without_info, outcome = INFO_CHANGES[name]
        if self.info is None and name == "cluster_info":
            self.info, self.dirty.info = value, True
            return MetaResult()
        if self.info is None:
            return MetaResult(error=without_info)
        changed = change(self.info, value)
        if isinstance(changed, str):
            return MetaResult(error=changed)
        if changed is self.info:
            return MetaResult()
        self.info, self.dirty.info = changed, True
        if outcome == "pins_changed":
            self.pins = pins_of(changed)
        result = MetaResult(raised=changed.level if outcome == "raised" else 0)
        if outcome not in ("", "raised"):
            setattr(result, outcome, True)
        return result

    def _pin_refusal(self, pin: pb.Pin) -> str:
        """Why a channel cannot be pinned; "" if it can."""
        there = self.channels.get(pin.channel) if self.info is not None else None
        if pin.group and there is not None and there.group != pin.group:
            return PINNED_TOO_LATE.format(there.group)
        return MOVE_UNDER_WAY if there is not None and there.move else ""

    @property
    def nodes(self) -> pb.Nodes:
        """The nodes that keep groups; version 0 and no names while the settings' nodes are in force."""
        return pb.Nodes() if self.info is None else self.info.nodes

    @property
    def pool(self) -> pb.GrownPool:
        """How the pool of groups has grown; empty while it has not, or the cluster is not founded."""
        return pb.GrownPool() if self.info is None else self.info.pool

    def commit_of(self, group: GroupId) -> int:
        """What an ack of the channels in a group means: SYNCED or REPLICATED (stan.policies)."""
        return commit_of(self.pool, group)

    def commit_of_channel(self, info: ChannelInfo) -> int:
        """What an ack of a publish to a channel means: SYNCED, REPLICATED or EPHEMERAL."""
        return EPHEMERAL if info.is_ephemeral else self.commit_of(info.group)

    @property
    def level(self) -> int:
        """The cluster's level (stan.level): what may be written; 0 while the cluster has no identity."""
        return 0 if self.info is None else self.info.level

    @property
    def moves_paused(self) -> bool:
        """True if no channel moves by itself to the group where it belongs."""
        return self.info is not None and self.info.moves_paused

    # --- moves ------------------------------------------------------------------------------------------------------

    def moves(self) -> dict[int, list[ChannelInfo]]:
        """The moves under way, by name, and the channels that each is of, by uid."""
        found: dict[int, list[ChannelInfo]] = {}
        for uid in sorted(self.by_uid.moving):
            found.setdefault(self.by_uid[uid].move, []).append(self.by_uid[uid])
        return found

    def _begin_move(self, begin: pb.BeginMove, index: RaftIndex) -> MetaResult:
        infos = [info for uid in begin.uids if (info := self.by_uid.get(ChannelUid(uid))) is not None]
        to = GroupId(begin.to)
        error = self._move_refusal(begin, infos)
        if error:
            return MetaResult(error=error)
        result = self._change_info("pin_channel", begin.pin) if begin.HasField("pin") else MetaResult()
        if to != infos[0].group and not result.error:
            result.moved = MovedChannels([self._replace(info, info.group, to, index) for info in infos])
        return result

    def _move_refusal(self, begin: pb.BeginMove, infos: list[ChannelInfo]) -> str:
        """Why a move of these channels, which are known, cannot begin; "" if it can."""
        if self.info is None:
            return NOT_FOUNDED
        together = len({info.group for info in infos}) == 1 and len(infos) == len(begin.uids)
        by_part = self.channels.parted.by_part
        checks = (
            (not together or not 0 < begin.to <= (self.info.pool.open or self.info.raft_groups), CHANNELS_CHANGED),
            (len(infos) > MOVE_CHANNELS_MAX, TOO_MANY_MOVED),
            (any(info.move for info in infos), MOVE_UNDER_WAY),
            (any(found[0].row.doubling for info in infos if (found := by_part.get(info.name))), DOUBLED_ALREADY),
            (any(begin.to in info.left for info in infos), MOVED_BACK.format(begin.to)),
            (len(self.moves()) >= MOVES_MAX, TOO_MANY_MOVES),
        )
        return next((error for wrong, error in checks if wrong), "")

    def _end_move(self, end: pb.EndMove) -> MetaResult:
        infos = [self.by_uid[uid] for uid in sorted(self.by_uid.moving) if self.by_uid[uid].move == end.move]
        if not infos:
            return MetaResult()
        before = infos[0].group
        if not end.done:
            stay = [self._replace(info, info.group, GroupId(0), 0) for info in infos]
            return MetaResult(moved=MovedChannels(stay))
        moved = [self._replace(info, info.moving_to, GroupId(0), 0) for info in infos]
        return MetaResult(moved=MovedChannels(moved, before))

    def _replace(self, info: ChannelInfo, group: GroupId, to: GroupId, move: int) -> ChannelInfo:
        """Another object for a channel: who keeps the one of before goes on with the group that it had then."""
        left = info.left if group == info.group else (*info.left, info.group)
        made = ChannelInfo(info.name, info.uid, group, to, move, left, info.commit)
        self.channels[info.name] = self.by_uid[info.uid] = made
        (self.by_uid.moving.add if move else self.by_uid.moving.discard)(info.uid)
        self.dirty.channels.add(info.uid)
        return made

    def _change_rows(self, kind: str, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of what has rows of its own."""
        if kind == "consumer_group":
            return MetaResult(error=self.consumer_groups.apply(change.consumer_group, index, self.by_uid))
        before = self.schemas.changes
        error = self.schemas.apply(change.schema, index)
        return MetaResult(error=error, schemas_changed=self.schemas.changes != before)

    def _change_client(self, kind: str, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of registered clients."""
        match kind:
            case "connect":
                old = self.clients.get(change.connect.client.client_id)
                made = self.clients.connect(change.connect, index)
                return MetaResult(connected=made, gone=old) if made is not None else MetaResult(error=CLIENT_REGISTERED)
            case "disconnect":
                gone = self.clients.disconnect(change.disconnect)
                return MetaResult(gone=gone, asked=change.disconnect.asked and gone is not None)
        return MetaResult(beaten=self.clients.heartbeat(change.heartbeat))

    def _change_parted(self, kind: str | None, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of channels with parts."""
        match kind:
            case "create_parted":
                return self._create_parted(change.create_parted)
            case "drop_parted":
                return self._drop_parted(change.drop_parted.name)
            case "double_parted":
                error = doubling_refusal(change.double_parted, self.channels.parted, self.channels)
                if not error:
                    self.channels.parted.begin_doubling(change.double_parted, index)
                return MetaResult(error=error, parted=b"" if error else change.double_parted.name)
            case "part_closed":
                return self._close_part(change.part_closed)
            case "doubling_ended" if self.channels.parted.end_doubling(change.doubling_ended):
                return MetaResult(parted=change.doubling_ended.name)
        return MetaResult()

    def _create(self, create: pb.CreateChannels) -> MetaResult:
        result = MetaResult()
        for row in create.channels:
            if row.name in self.channels or folded(row.name) in self.channels.by_lower:
                continue
            if self.channels.parted.reserves(row.name):
                continue
            if create.channels_max and len(self.channels) >= create.channels_max:
                result.error = TOO_MANY_CHANNELS
                continue
            row.uid, row.moving_to, row.move = self.next_uid, 0, 0
            del row.left[:]
            if row.commit != EPHEMERAL:
                row.commit = SYNCED
            if not create.exact:  # a node that has not heard of the pin asks for the group of the hash
                row.group = self.pins.get(row.name, row.group)
            result.created.append(self.load_channel(row, dirty=True))
        return result

    def _change_stream(self, change: pb.StreamChange, index: RaftIndex) -> MetaResult:
        """Make a stream, with its channel if that is not there, or change or forget one."""
        name, known = change.name.decode(), self.streams.by_name.get(change.name.decode())
        error = self.streams.refusal(change)
        there = self.channels.get(change.channel)
        result = MetaResult(error=error, stream="" if error else name, stream_before=known)
        if not error and change.config and there is None:
            row = pb.Channel(name=change.channel, group=change.group)
            made = self._create(pb.CreateChannels(channels=[row]))
            if not made.created:
                return MetaResult(error=made.error or CHANNELS_CHANGED)
            result.created = made.created
        if not error and (change.config or known is not None):
            uid = known.uid if known is not None else self.channels[change.channel].uid
            self.streams.apply(change, uid, index, adopted=there is not None)
        return result

    def _create_parted(self, create: pb.CreateParted) -> MetaResult:
        """Make a channel with its parts, or nothing of it."""
        error = parted_refusal(create, self.channels.parted, self.channels.by_lower)
        if error:
            return MetaResult(error=error)
        self.channels.parted.take(pb.PartedChannel(name=create.name, parts=len(create.groups), key=create.key))
        return self._make_parts(create.name, 0, create.groups)

    def _make_parts(self, whole: bytes, first: int, groups: Iterable[int]) -> MetaResult:
        """Make parts of a channel, numbered from *first* on."""
        result = MetaResult(parted=whole)
        for number, group in enumerate(groups, first):
            name = part_name(whole, number)
            row = pb.Channel(name=name, uid=self.next_uid, group=self.pins.get(name, group))
            result.created.append(self.load_channel(row, dirty=True))
        return result

    def _drop_parted(self, name: bytes) -> MetaResult:
        known = self.channels.parted.by_name.get(name)
        if known is None:
            return MetaResult(error=HAS_NO_PARTS.format(go_quote(name.decode("utf-8", "surrogateescape"))))
        if known.row.doubling:
            return MetaResult(error=DOUBLED_ALREADY)
        self.channels.parted.drop(name)
        return MetaResult(parted=name)

    def _close_part(self, change: pb.PartClosed) -> MetaResult:
        known = self.channels.parted.by_name.get(change.name)
        if known is None or not self.channels.parted.close_part(change):
            return MetaResult()
        return self._make_parts(change.name, known.parts, known.row.new_groups)

    def deleted_uids(self) -> Iterator[tuple[int, int]]:
        """The uids of channels that were deleted, as runs in increasing order."""
        begin = 1
        for uid in sorted((*self.by_uid, self.next_uid)):
            if begin < uid:
                yield begin, uid - 1
            begin = uid + 1

    def _delete(self, uid: ChannelUid) -> MetaResult:
        info = self.by_uid.pop(uid, None)
        if info is None:
            return MetaResult()
        del self.channels[info.name]
        del self.channels.by_lower[folded(info.name)]
        self.dirty.channels.add(uid)
        self.by_uid.moving.discard(uid)
        self.consumer_groups.drop_channel(uid)
        before = self.streams.by_uid.get(uid)
        stream = self.streams.drop_channel(uid)
        part = self.channels.parted.by_part.get(info.name)
        self.channels.parted.lose(info.name, self.channels)
        of = b"" if part is None else part[0].name
        return MetaResult(deleted=info, deleted_from=of, stream=stream, stream_before=before)

    # --- rows -----------------------------------------------------------------------------------------------------

    def load_channel(self, row: pb.Channel, *, dirty: bool = False) -> ChannelInfo:
        """Take in one row of the state."""
        left = tuple(map(GroupId, row.left)) if row.left else ()
        to = GroupId(row.moving_to)
        info = ChannelInfo(row.name, ChannelUid(row.uid), GroupId(row.group), to, row.move, left, row.commit)
        if info.move:
            self.by_uid.moving.add(info.uid)
        self.channels[info.name] = info
        self.by_uid[info.uid] = info
        self.channels.by_lower[folded(info.name)] = info.name
        self.next_uid = max(self.next_uid, info.uid + 1)
        if dirty:
            self.dirty.channels.add(info.uid)
        return info

    def take_changed_rows(self) -> MetaRows:
        """Return the rows that have changed since the last call; the caller writes them."""
        rows = MetaRows(
            self.info if self.dirty.info else None,
            # A restart finds clients in the order in which they are written: the same whatever the process.
            [(client_id, self.clients.row(client_id)) for client_id in sorted(self.clients.dirty)],
            [(uid, info.row() if (info := self.by_uid.get(ChannelUid(uid))) else None) for uid in self.dirty.channels],
            self.next_uid,
            [
                *self.consumer_groups.take_changed_rows(),
                *self.schemas.take_changed_rows(),
                *self.streams.take_changed_rows(),
                *self.channels.parted.take_changed_rows(),
            ],
        )
        self.dirty, self.clients.dirty = DirtyMeta(), set()
        return rows

    def touch_all(self) -> None:
        """Mark everything as changed, so that all rows are written again: the stored rows are lost."""
        self.dirty.info = self.info is not None
        self.clients.dirty.update(self.clients)
        self.dirty.channels.update(self.by_uid)
        self.consumer_groups.dirty.update(self.consumer_groups.by_name)
        self.schemas.touch_all()
        self.streams.dirty.update(self.streams.by_name)
        self.channels.parted.touch_all()

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write the whole state into *snapshot*, in an order that depends on the state alone."""
        if self.info is not None:
            snapshot.cluster_info.CopyFrom(self.info)
        snapshot.clients.extend(client for key in sorted(self.clients) if (client := self.clients.row(key)))
        snapshot.channels.extend(self.by_uid[uid].row() for uid in sorted(self.by_uid))
        snapshot.next_id = self.next_uid
        self.consumer_groups.snapshot(snapshot)
        self.schemas.snapshot(snapshot)
        self.streams.snapshot(snapshot)
        self.channels.parted.snapshot(snapshot)

    def restore(self, snapshot: pb.Snapshot) -> None:
        """Load the state of *snapshot*; call on a new machine."""
        self.info = snapshot.cluster_info if snapshot.HasField("cluster_info") else None
        self.pins = pins_of(self.info)
        for client in snapshot.clients:
            self.clients.load(client)
        for channel in snapshot.channels:
            self.load_channel(channel)
        self.next_uid = max(self.next_uid, snapshot.next_id)
        for row in snapshot.parts:
            if row.kind == ConsumerGroups.KIND:
                self.consumer_groups.load(row.key, row.state)
            elif row.kind == Schemas.KIND:
                self.schemas.load(row.key, row.state)
            elif row.kind == Streams.KIND:
                self.streams.load(row.key, row.state)
            elif row.kind == PartedChannels.KIND:
                self.channels.parted.load(row.state)
        self.applied = snapshot.applied_index
