"""A rescue: the survivors of a cluster whose majority is gone for good become a cluster again, by their data directories alone.

    find out, of each stopped survivor ─► plan ─► begin: the plan is in the manifest ─► each group ─► end: the epoch is in force

Works on the directories of nodes that do not run, so no network message can begin it, and a broken
connection never counts as a loss. It needs write access to the directories alone. docs/decisions/0018 explains why.

Promises: a crash at any point leaves the old directory, one that refuses to start until the rescue is finished there, or one
that is rescued; doing it again finishes it. A forced entry has a term above every term that a survivor knows. From `begin` on, a
node has another epoch than nodes without a part: neither accepts the other's frames (stan.raft.transport.link), and one of them
refuses to run once it gets the other's hello (stan.edge.cluster.membership, R4). Blocking but for `find_out`; raises OSError,
StanError.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from google.protobuf.message import DecodeError, Message
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import ChannelUid, GroupId, MiB, RaftIndex, Term

from stan.core.metadata.meta import MetaMachine
from stan.core.services.node import META_GROUP
from stan.edge.cluster.rescue_plan import ForcedGroup, FoundCopy, RescueError, RescuePlan, SurvivorFindings
from stan.edge.storage.data_directory import DataDirectory
from stan.edge.storage.manifest import RecordedNodes, RecordedRescue
from stan.edge.storage.raft_files import Voters
from stan.edge.storage.snapshot_files import SnapshotFiles
from stan.edge.storage.storage import Storage
from stan.errors import Damage
from stan.log.types import Entry, GroupLog
from stan.protocol.entries import DEFERRED_UID, Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.configuration import decode, encode
from stan.raft.placement import place

_LENGTH_BYTES = 4
"""In front of each record of a batch."""
READ_BYTES = 4 * MiB
"""Entries read at once."""


# --- finding out ------------------------------------------------------------------------------------------------------------


async def find_out(storage: Storage, peers: tuple[str, ...] = (), replicas: int = 0) -> SurvivorFindings:
    """Return the findings in a directory that was opened with `Disk.rescuing`.

    *peers*, *replicas*: the nodes of the cluster, this one included, and the copies of each group, for a directory that does not
    record them: of an older version. Raises RescueError without them."""
    directory = _directory_of(storage)
    manifest = directory.manifest
    nodes = manifest.nodes
    names = sorted(nodes.names or {*peers, *([manifest.node_id] if peers else [])})
    replicas = nodes.replicas or replicas
    if not names or not replicas:
        raise RescueError(
            f"{directory.disk.directory} does not record the nodes of its cluster: name them all with --peers, and --replicas"
        )
    founders = sorted(nodes.founders) or names
    meta = await _metadata(storage)
    placed = place(manifest.groups, founders, replicas)
    copies = {}
    for number in storage.logs:
        copies[int(number)] = await _copy(storage, number, list(placed[number].voters), meta)
    rescue = manifest.rescue
    return SurvivorFindings(
        node=manifest.node_id,
        cluster_id=manifest.cluster_id,
        identity=meta.info.nuid.decode(errors="replace") if meta.info is not None else "",
        raft_groups=manifest.raft_groups,
        replicas=replicas,
        names=names,
        founders=founders,
        version=nodes.version,
        nodes_version=max(meta.nodes.version, nodes.version),
        epoch=manifest.epoch,
        next_uid=meta.next_uid,
        names_taken=[_text(name) for name in meta.channels],
        copies=copies,
        unfinished=rescue.plan if rescue is not None else None,
        pool=max(manifest.pool, meta.pool.groups),
    )


def _directory_of(storage: Storage) -> DataDirectory:
    if storage.directory is None or not storage.node_id:
        raise RescueError("only the data directory of a node of a cluster can be rescued")
    return storage.directory


async def _metadata(storage: Storage) -> MetaMachine:
    """Return the metadata as of the end of this node's log, committed or not."""
    machine = MetaMachine()
    log = storage.logs.get(META_GROUP)
    if log is None:
        return machine
    snapshot = await _state(storage, META_GROUP)
    if snapshot is None:
        return machine
    machine.restore(snapshot)
    for entry in _entries(log, RaftIndex(snapshot.applied_index + 1)):
        if entry.kind == Kind.META:
            machine.apply(pb.MetaChange.FromString(entry.body), entry.index)
    return machine


async def _state(storage: Storage, number: GroupId) -> pb.Snapshot | None:
    """Return the state from which a start would continue with a log; None if none fits."""
    log = storage.logs[number]
    snapshot, _ = await storage.rows.read(number)
    disk = _directory_of(storage).disk
    files = SnapshotFiles(disk.files, f"{disk.directory}/groups")
    newest = files.find(number)
    if snapshot.applied_index < newest <= log.last_index:
        try:
            snapshot = files.read(number, newest)
        except Damage:
            return None
    return snapshot if log.first_index - 1 <= snapshot.applied_index <= log.last_index else None


async def _copy(storage: Storage, number: GroupId, placed: list[str], meta: MetaMachine) -> FoundCopy:
    log, member = storage.logs[number], storage.members[number]
    snapshot = await _state(storage, number)
    applied = snapshot.applied_index if snapshot is not None else 0
    hard = member.hard_state
    committed = RaftIndex(min(log.last_index, max(hard.commit_hint, applied)))
    terms: list[list[int]] = [[committed, log.term_at(committed)]] if log.first_index <= committed else []
    changes, seen = [], _known_uids(snapshot)
    begins = applied if snapshot is not None else committed  # voters of an applied entry are in the member's file
    for entry in _entries(log, RaftIndex(max(log.first_index, begins + 1))):
        if entry.index > committed and (not terms or entry.term != terms[-1][1]):
            terms.append([entry.index, entry.term])
        if entry.kind == Kind.CONFIG and entry.index > member.voters.index:
            changes.append(list(decode(entry.body)))
        if entry.kind == Kind.CHANGE and entry.index > applied:
            seen |= _uids(pb.GroupChange.FromString(entry.body))
    log.commit(log.last_index)  # in memory: so that its channels have their indexes
    last = {int(uid): int(log.channel(uid).last_sequence) for uid in log.channels() if uid < DEFERRED_UID}
    seen |= {uid for uid, sequence in last.items() if sequence}
    uids = {uid: _name(log, ChannelUid(uid), meta) for uid in sorted(seen) if 0 < uid < DEFERRED_UID}
    channels = {name: last[uid] for uid, name in uids.items() if name and uid in last}
    return FoundCopy(
        last_index=log.last_index,
        last_term=log.last_term,
        term=hard.term,
        committed=committed,
        committed_term=log.term_at(committed) if log.first_index <= committed else 0,
        terms=terms,
        configured=member.voters.index,
        voters=sorted(member.voters.names or placed),
        changes=changes,
        votes=not hard.amnesiac,
        whole=member.intact and snapshot is not None,
        channels=channels,
        uids=uids,
    )


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")


def _name(log: GroupLog, uid: ChannelUid, meta: MetaMachine) -> str:
    """Name of a channel: from the metadata, else from one of its messages; "" if it is unknown."""
    if uid in meta.by_uid:
        return _text(meta.by_uid[uid].name)
    index = log.channel(uid)
    with suppress(Damage, DecodeError):
        for ref in index.refs(index.first_sequence, index.last_sequence, 1, 1) if index.last_sequence else ():
            records = bytes(log.read(ref))
            size = int.from_bytes(records[:_LENGTH_BYTES], "little")
            return _text(wire.MsgProto.FromString(records[_LENGTH_BYTES : _LENGTH_BYTES + size]).subject)
    return ""


def _known_uids(snapshot: pb.Snapshot | None) -> set[int]:
    """Numbers of channels in a group's state."""
    if snapshot is None:
        return set()
    return {*snapshot.first_sequences[::2], *(cursor.uid for cursor in snapshot.cursors)}


def _uids(message: Message) -> set[int]:
    """Numbers of channels anywhere in a change."""
    uids: set[int] = set()
    for about, value in message.ListFields():
        if about.name == "uid":
            uids.add(value)
        elif about.message_type is not None:
            for part in value if isinstance(value, Iterable) else (value,):
                uids |= _uids(part) if isinstance(part, Message) else set()
    return uids


def _entries(log: GroupLog, first: RaftIndex) -> Iterator[Entry]:
    """The entries from *first* to the end."""
    at = first
    while at <= log.last_index:
        entries = log.entries(at, log.last_index, READ_BYTES)
        if not entries:
            return
        yield from entries
        at = RaftIndex(entries[-1].index + 1)


# --- execution --------------------------------------------------------------------------------------------------------------


def begin(storage: Storage, plan: RescuePlan) -> None:
    """Write the plan into the manifest: from here on the node does not start before `carry_out` has ended."""
    directory = _directory_of(storage)
    if not _is_done(directory, plan):
        rescue = RecordedRescue(plan.epoch, plan.survivors, plan.nodes_version, plan.document())
        directory.change(rescue=rescue)


def _is_done(directory: DataDirectory, plan: RescuePlan) -> bool:
    rescue = directory.manifest.rescue
    return rescue is not None and rescue.epoch == plan.epoch and rescue.plan is None


async def carry_out(storage: Storage, plan: RescuePlan) -> None:
    """Carry out the rescue that was begun in this directory; does nothing if it is done."""
    directory = _directory_of(storage)
    if _is_done(directory, plan):
        return
    for group in plan.groups:
        number = GroupId(group.group)
        if group.chosen == storage.node_id:
            if group.nothing_left and number not in storage.logs:
                await storage.begin_group(number)
            _force(storage, number, group)
        elif number in storage.members:
            storage.members[number].set_voters(Voters([group.chosen], group.index))
    pool = max(plan.pool, directory.manifest.pool)
    nodes = RecordedNodes(plan.survivors, plan.nodes_version + 1, plan.founders, plan.replicas, belongs=True, pool=pool)
    directory.change(nodes=nodes, rescue=RecordedRescue(plan.epoch, plan.survivors, plan.nodes_version))


def _force(storage: Storage, number: GroupId, group: ForcedGroup) -> None:
    """Make this node the only voter of a group: its term first, then the entries, then the member's record of them."""
    member, log = storage.members[number], storage.logs[number]
    term, entries = Term(group.term), _forced_entries(group)
    forced = log.last_term == term and log.last_index >= group.index
    if not forced and (log.last_index, log.last_term) != (group.last_index, group.last_term):
        raise Damage(
            f"group {number}: the log ends with entry {log.last_index} of term {log.last_term}, and not with "
            f"{group.last_index} of {group.last_term} as when the rescue was planned"
        )
    if member.hard_state.term < term:
        member.hard_state.save(term, None)
    member.hard_state.mark_readmitted()
    log.append([entry for entry in entries if entry.index > log.last_index])
    log.sync()
    member.set_voters(Voters([group.chosen], group.index))


def _forced_entries(group: ForcedGroup) -> list[Entry]:
    """The entry that makes the chosen node the only voter; of the metadata, those that bring forgotten channels back, too."""
    bodies = [(Kind.CONFIG, encode([group.chosen]))]
    for number, (name, of_group) in enumerate(group.channels):
        row = pb.Channel(name=name.encode(errors="surrogateescape") or b"passed.over.%d" % number, group=of_group)
        created = pb.MetaChange(create_channels=pb.CreateChannels(channels=[row]))
        bodies.append((Kind.META, created.SerializeToString()))
    term = Term(group.term)
    return [Entry(RaftIndex(group.index + at), term, kind, body) for at, (kind, body) in enumerate(bodies)]
