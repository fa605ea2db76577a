"""The metadata group's replicated state: the registered clients, the channels and pins, the cluster's identity and nodes.

A deterministic state machine: the same committed entries give the same state on every node (P2). It never looks at a clock and
never sends; the outcome of a change is the return value of `apply`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

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

from stan.core.state.consumer_groups import ConsumerGroups
from stan.core.state.parted import PartedChannels, doubling_refusal
from stan.core.state.parted import refusal as parted_refusal
from stan.core.state.policies import TOO_MANY, with_policy
from stan.core.state.pool import commit_of, home, with_growth, with_open_pool
from stan.core.state.schemas import Schemas
from stan.limits import MOVE_CHANNELS_MAX, MOVES_MAX, PINS_MAX
from stan.policies import EPHEMERAL, SYNCED
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.user_subjects import user_of

NODES_CHANGED = "the nodes were changed meanwhile"
TOO_MANY_PINS = refusals.TOO_MANY_PINS.format(PINS_MAX)
TOO_MANY_MOVES = refusals.TOO_MANY_MOVES.format(MOVES_MAX)
TOO_MANY_MOVED = refusals.TOO_MANY_MOVED.format(MOVE_CHANNELS_MAX)


@dataclass(slots=True)
class Client:
    """One registered connection of a client id (STAN-SPEC 2.3, 3)."""

    client_id: bytes
    conn_id: bytes  # b"" for protocol 0
    heartbeat_inbox: bytes
    protocol: int
    ping_interval: int
    ping_max_out: int
    incarnation: int  # raft index of its connect
    failing: bool = False  # its newest heartbeat was not answered

    @property
    def connection(self) -> tuple[bytes, bytes]:
        """Its user, b"" without users, and its connection id: a user may connect with an id of another user's connection."""
        return user_of(self.heartbeat_inbox).encode(), self.conn_id


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
    parts: list[tuple[str, bytes, bytes | None]]  # rows of consumer groups and schemas: kind, key, row


@dataclass(slots=True)
class DirtyMeta:
    """Keys of rows of the metadata that have changed since they were last taken to be written."""

    clients: set[bytes] = field(default_factory=set)  # by id
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


@dataclass(slots=True)
class MetaMachine:
    """Clients by id and by connection, channels by name and by uid.

    Invariants: a connection id belongs to one client; lower-cased channel names are unique (STAN-SPEC 4.2);
    a uid is never used twice.
    """

    info: pb.ClusterInfo | None = None
    clients: dict[bytes, Client] = field(default_factory=dict)
    by_connection: dict[tuple[bytes, bytes], Client] = field(default_factory=dict)  # those with a connection id
    channels: ChannelsByName = field(default_factory=ChannelsByName)
    by_uid: ChannelsByUid = field(default_factory=ChannelsByUid)
    pins: dict[bytes, GroupId] = field(default_factory=dict)  # as `info` has them: the group of channels by name
    next_uid: int = 1
    applied: int = 0  # RaftIndex of the newest applied entry, of any kind: the same on all nodes, also after a restart
    dirty: DirtyMeta = field(default_factory=DirtyMeta)
    consumer_groups: ConsumerGroups = field(default_factory=ConsumerGroups)
    schemas: Schemas = field(default_factory=Schemas)

    def apply(self, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply one committed META entry."""
        self.applied = index
        result = MetaResult()
        match change.WhichOneof("change"):
            case "connect":
                result = self._connect(change.connect, index)
            case "disconnect":
                result = self._disconnect(change.disconnect)
            case "create_channels":
                result = self._create(change.create_channels)
            case "delete_channel":
                result = self._delete(ChannelUid(change.delete_channel.uid))
            case "heartbeat":
                result = self._heartbeat(change.heartbeat)
            case "consumer_group" | "schema" as kind:
                result = self._change_rows(kind, change, index)
            case "grow_pool" | "open_pool" | "begin_move" | "end_move" | "pause_moves" as kind:
                result = self._place(kind, change, index)
            case "cluster_info" | "nodes" | "raise_level" | "set_policy" | "pin_channel" as kind:
                result = self._change_info(kind, change)
            case str(kind):
                result = self._part(kind, change, index)
        return result

    def _change_info(self, kind: str, change: pb.MetaChange) -> MetaResult:
        """Apply a change of what is known of the cluster as a whole."""
        match kind:
            case "nodes":
                return self._set_nodes(change.nodes)
            case "raise_level":
                return self._raise(change.raise_level)
            case "set_policy":
                return self._set_policy(change.set_policy)
            case "pin_channel":
                return self._pin(change.pin_channel)
        if self.info is None:
            self.info = change.cluster_info
            self.dirty.info = True
        return MetaResult()

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

    def home(self, channel: bytes, commit: int, opened: int) -> GroupId:
        """See `pool.home`."""
        return home(self.pool, opened, commit, channel)

    @property
    def level(self) -> int:
        """The cluster's level (stan.level): what may be written; 0 while the cluster has no identity."""
        return 0 if self.info is None else self.info.level

    def _raise(self, to: int) -> MetaResult:
        if self.info is None or to <= self.level:
            return MetaResult()
        raised = pb.ClusterInfo()
        raised.CopyFrom(self.info)
        raised.level = to
        self.info, self.dirty.info = raised, True  # another object: what depends on it looks again
        return MetaResult(raised=to)

    def _set_policy(self, policy: pb.Policy) -> MetaResult:
        if self.info is None:
            return MetaResult(error=NOT_FOUNDED)
        changed = with_policy(self.info, policy)
        if changed is None:
            return MetaResult(error=TOO_MANY)
        if changed == self.info:
            return MetaResult()
        self.info = changed
        self.dirty.info = True
        return MetaResult(policies_changed=True)

    def _pin(self, pin: pb.Pin) -> MetaResult:
        if self.info is None:
            return MetaResult(error=NOT_FOUNDED)
        there = self.channels.get(pin.channel)
        if pin.group and there is not None and there.group != pin.group:
            return MetaResult(error=PINNED_TOO_LATE.format(there.group))
        if there is not None and there.move:
            return MetaResult(error=MOVE_UNDER_WAY)
        return self._set_pin(pin)

    def _set_pin(self, pin: pb.Pin) -> MetaResult:
        if self.info is None or pin.group == self.pins.get(pin.channel, 0):
            return MetaResult()
        kept = [row for row in self.info.pins if row.channel != pin.channel]
        if pin.group:
            if len(kept) >= PINS_MAX:
                return MetaResult(error=TOO_MANY_PINS)
            kept.append(pin)
        changed = pb.ClusterInfo()
        changed.CopyFrom(self.info)
        del changed.pins[:]
        changed.pins.extend(sorted(kept, key=lambda row: row.channel))
        self.info, self.dirty.info = changed, True
        self._load_pins()
        return MetaResult(pins_changed=True)

    def _place(self, kind: str, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of what groups there are, or of the groups of channels."""
        match kind:
            case "begin_move":
                return self._begin_move(change.begin_move, index)
            case "end_move":
                return self._end_move(change.end_move)
            case "pause_moves":
                return self._pause_moves(paused=change.pause_moves)
        return self._grow(change)

    def _grow(self, change: pb.MetaChange) -> MetaResult:
        """Apply a growth of the pool, or open what has grown."""
        if self.info is None:
            return MetaResult(error=POOL_CHANGED)
        opens = change.HasField("open_pool")
        changed = with_open_pool(self.info, change.open_pool) if opens else with_growth(self.info, change.grow_pool)
        if isinstance(changed, str):
            return MetaResult(error=changed)
        before = self.info
        if changed is not before:
            self.info, self.dirty.info = changed, True
        return MetaResult(pool_changed=opens and changed is not before)

    # --- moves ------------------------------------------------------------------------------------------------------

    @property
    def moves_paused(self) -> bool:
        """True if no channel moves by itself to the group where it belongs."""
        return self.info is not None and self.info.moves_paused

    def _pause_moves(self, *, paused: bool) -> MetaResult:
        if self.info is None:
            return MetaResult(error=NOT_FOUNDED)
        if paused == self.info.moves_paused:
            return MetaResult()
        changed = pb.ClusterInfo()
        changed.CopyFrom(self.info)
        changed.moves_paused = paused
        self.info, self.dirty.info = changed, True
        return MetaResult(pause_changed=True)

    @property
    def moving(self) -> set[ChannelUid]:
        """Channels that are being moved between groups."""
        return self.by_uid.moving

    def moves(self) -> dict[int, list[ChannelInfo]]:
        """The moves under way, by name, and the channels that each is of, by uid."""
        found: dict[int, list[ChannelInfo]] = {}
        for uid in sorted(self.moving):
            found.setdefault(self.by_uid[uid].move, []).append(self.by_uid[uid])
        return found

    def _begin_move(self, begin: pb.BeginMove, index: RaftIndex) -> MetaResult:
        infos = [info for uid in begin.uids if (info := self.by_uid.get(ChannelUid(uid))) is not None]
        to = GroupId(begin.to)
        error = self._move_refusal(begin, infos)
        if error:
            return MetaResult(error=error)
        result = self._set_pin(begin.pin) if begin.HasField("pin") else MetaResult()
        if to != infos[0].group and not result.error:
            result.moved = MovedChannels([self._replace(info, info.group, to, index) for info in infos])
        return result

    def _move_refusal(self, begin: pb.BeginMove, infos: list[ChannelInfo]) -> str:
        """Why a move of these channels, which are known, cannot begin; "" if it can."""
        if self.info is None:
            return NOT_FOUNDED
        together = len({info.group for info in infos}) == 1 and len(infos) == len(begin.uids)
        checks = (
            (not together or not 0 < begin.to <= (self.info.pool.open or self.info.raft_groups), CHANNELS_CHANGED),
            (len(infos) > MOVE_CHANNELS_MAX, TOO_MANY_MOVED),
            (any(info.move for info in infos), MOVE_UNDER_WAY),
            (any(map(self._is_doubled, infos)), DOUBLED_ALREADY),
            (any(begin.to in info.left for info in infos), MOVED_BACK.format(begin.to)),
            (len(self.moves()) >= MOVES_MAX, TOO_MANY_MOVES),
        )
        return next((error for wrong, error in checks if wrong), "")

    def _is_doubled(self, info: ChannelInfo) -> bool:
        """True if a channel is a part of one whose parts are being doubled."""
        found = self.channels.parted.by_part.get(info.name)
        return found is not None and found[0].row.doubling > 0

    def _end_move(self, end: pb.EndMove) -> MetaResult:
        infos = [self.by_uid[uid] for uid in sorted(self.moving) if self.by_uid[uid].move == end.move]
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
        (self.moving.add if move else self.moving.discard)(info.uid)
        self.dirty.channels.add(info.uid)
        return made

    def _load_pins(self) -> None:
        self.pins = {} if self.info is None else {row.channel: GroupId(row.group) for row in self.info.pins}

    def _set_nodes(self, nodes: pb.Nodes) -> MetaResult:
        if self.info is None or nodes.version != self.info.nodes.version + 1 or not nodes.names:
            return MetaResult(error=NODES_CHANGED)
        self.info.nodes.CopyFrom(nodes)
        self.dirty.info = True
        return MetaResult()

    def _change_rows(self, kind: str, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of what has rows of its own."""
        if kind == "consumer_group":
            return MetaResult(error=self.consumer_groups.apply(change.consumer_group, index, self.by_uid))
        before = self.schemas.changes
        error = self.schemas.apply(change.schema, index)
        return MetaResult(error=error, schemas_changed=self.schemas.changes != before)

    def _connect(self, connect: pb.Connect, index: RaftIndex) -> MetaResult:
        row = connect.client
        old = self.clients.get(row.client_id)
        if (old.incarnation if old else 0) != connect.replaces:
            return MetaResult(error=CLIENT_REGISTERED)
        row.incarnation = index
        if old is not None:
            self._forget_conn(old)
        return MetaResult(connected=self.load_client(row, dirty=True), gone=old)

    def _disconnect(self, disconnect: pb.Disconnect) -> MetaResult:
        old = self.clients.get(disconnect.client_id)
        if old is None or old.incarnation != disconnect.incarnation:
            return MetaResult()
        del self.clients[old.client_id]
        self._forget_conn(old)
        self.dirty.clients.add(old.client_id)
        return MetaResult(gone=old, asked=disconnect.asked)

    def _heartbeat(self, heartbeat: pb.Heartbeat) -> MetaResult:
        client = self.clients.get(heartbeat.client_id)
        if client is None or client.incarnation != heartbeat.incarnation:
            return MetaResult()
        client.failing = heartbeat.failing
        self.dirty.clients.add(client.client_id)
        return MetaResult(beaten=client)

    def _forget_conn(self, old: Client) -> None:
        if self.by_connection.get(old.connection) is old:
            del self.by_connection[old.connection]

    def _part(self, kind: str, change: pb.MetaChange, index: RaftIndex) -> MetaResult:
        """Apply a change of channels with parts."""
        match kind:
            case "create_parted":
                return self._create_parted(change.create_parted)
            case "drop_parted":
                return self._drop_parted(change.drop_parted.name)
            case "double_parted":
                return self._double_parted(change.double_parted, index)
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

    def _double_parted(self, change: pb.DoubleParted, index: RaftIndex) -> MetaResult:
        error = doubling_refusal(change, self.channels.parted, self.channels)
        if error:
            return MetaResult(error=error)
        self.channels.parted.begin_doubling(change, index)
        return MetaResult(parted=change.name)

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
        self.moving.discard(uid)
        self.consumer_groups.drop_channel(uid)
        part = self.channels.parted.by_part.get(info.name)
        self.channels.parted.lose(info.name, self.channels)
        return MetaResult(deleted=info, deleted_from=b"" if part is None else part[0].name)

    # --- rows -----------------------------------------------------------------------------------------------------

    def load_client(self, row: pb.Client, *, dirty: bool = False) -> Client:
        """Take in one row of the state."""
        client = Client(
            row.client_id,
            row.conn_id,
            row.heartbeat_inbox,
            row.protocol,
            row.ping_interval,
            row.ping_max_out,
            row.incarnation,
            row.failing,
        )
        self.clients[client.client_id] = client
        if client.conn_id:
            self.by_connection[client.connection] = client
        if dirty:
            self.dirty.clients.add(client.client_id)
        return client

    def load_channel(self, row: pb.Channel, *, dirty: bool = False) -> ChannelInfo:
        """Take in one row of the state."""
        left = tuple(map(GroupId, row.left)) if row.left else ()
        to = GroupId(row.moving_to)
        info = ChannelInfo(row.name, ChannelUid(row.uid), GroupId(row.group), to, row.move, left, row.commit)
        if info.move:
            self.moving.add(info.uid)
        self.channels[info.name] = info
        self.by_uid[info.uid] = info
        self.channels.by_lower[folded(info.name)] = info.name
        self.next_uid = max(self.next_uid, info.uid + 1)
        if dirty:
            self.dirty.channels.add(info.uid)
        return info

    def client_row(self, client_id: bytes) -> pb.Client | None:
        """The row of a client; None if it is gone."""
        client = self.clients.get(client_id)
        if client is None:
            return None
        return pb.Client(
            client_id=client.client_id,
            conn_id=client.conn_id,
            heartbeat_inbox=client.heartbeat_inbox,
            protocol=client.protocol,
            ping_interval=client.ping_interval,
            ping_max_out=client.ping_max_out,
            incarnation=client.incarnation,
            failing=client.failing,
        )

    def channel_row(self, uid: ChannelUid) -> pb.Channel | None:
        """The row of a channel; None if it is gone."""
        info = self.by_uid.get(uid)
        if info is None:
            return None
        row = pb.Channel(name=info.name, uid=info.uid, group=info.group, commit=info.commit)
        row.moving_to, row.move = info.moving_to, info.move
        row.left.extend(info.left)
        return row

    def take_changed_rows(self) -> MetaRows:
        """Return the rows that have changed since the last call; the caller writes them."""
        rows = MetaRows(
            self.info if self.dirty.info else None,
            # A restart finds clients in the order in which they are written: the same whatever the process.
            [(client_id, self.client_row(client_id)) for client_id in sorted(self.dirty.clients)],
            [(uid, self.channel_row(ChannelUid(uid))) for uid in self.dirty.channels],
            self.next_uid,
            [
                *self.consumer_groups.take_changed_rows(),
                *self.schemas.take_changed_rows(),
                *self.channels.parted.take_changed_rows(),
            ],
        )
        self.dirty.info, self.dirty.clients, self.dirty.channels = False, set(), set()
        return rows

    def touch_all(self) -> None:
        """Mark everything as changed, so that all rows are written again: the stored rows are lost."""
        self.dirty.info = self.info is not None
        self.dirty.clients.update(self.clients)
        self.dirty.channels.update(self.by_uid)
        self.consumer_groups.dirty.update(self.consumer_groups.by_name)
        self.schemas.touch_all()
        self.channels.parted.touch_all()

    def snapshot(self, snapshot: pb.Snapshot) -> None:
        """Write the whole state into *snapshot*, in an order that depends on the state alone."""
        if self.info is not None:
            snapshot.cluster_info.CopyFrom(self.info)
        snapshot.clients.extend(client for key in sorted(self.clients) if (client := self.client_row(key)))
        snapshot.channels.extend(channel for uid in sorted(self.by_uid) if (channel := self.channel_row(uid)))
        snapshot.next_id = self.next_uid
        self.consumer_groups.snapshot(snapshot)
        self.schemas.snapshot(snapshot)
        self.channels.parted.snapshot(snapshot)

    def restore(self, snapshot: pb.Snapshot) -> None:
        """Load the state of *snapshot*; call on a new machine."""
        self.info = snapshot.cluster_info if snapshot.HasField("cluster_info") else None
        self._load_pins()
        for client in snapshot.clients:
            self.load_client(client)
        for channel in snapshot.channels:
            self.load_channel(channel)
        self.next_uid = max(self.next_uid, snapshot.next_id)
        for row in snapshot.parts:
            if row.kind == ConsumerGroups.KIND:
                self.consumer_groups.load(row.key, row.state)
            elif row.kind == Schemas.KIND:
                self.schemas.load(row.key, row.state)
            elif row.kind == PartedChannels.KIND:
                self.channels.parted.load(row.state)
        self.applied = snapshot.applied_index
