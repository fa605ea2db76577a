"""Nodes of a cluster at rest as one store: the state of the node that would be elected, and the messages of all of them.

The original elects a node whose log is at least as new as those of a majority, by the term and then the index of its last entry,
and all that this log has stays. Each acknowledged operation is on a majority of the nodes, so the newest log of a majority has
all of them; entries that it has beyond that are kept, as an elected node keeps them. Messages that the store of that node lacks,
because it lagged or is damaged, come from its log and from the other stores.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stan.errors import StartError
from stan.migration.cluster.copies import LoggedMessages, MessageCopy, merged
from stan.migration.cluster.raft_directory import LOG, RaftDirectory
from stan.migration.cluster.state import ReplicatedChannel, ReplicatedState, same_channel
from stan.migration.crypto import ENCRYPTED, WRONG_KEY, Opener, log_opener, looks_encrypted
from stan.migration.old_store import OldChannel, OldStore
from stan.migration.report import MigrationReport
from stan.migration.source import MessageRun, Watch
from stan.migration.subscriptions import OldPosition

STATE_OF = "the state is that of node {node}: entry {index} of term {term} of its Raft log"
ALL = "{given} of {voters} nodes that vote are given, so this is everything that the cluster has acknowledged"
SOME = (
    "only {given} of {voters} nodes that vote are given: what the others have acknowledged without {node} is not here. "
    "Give the directories of a majority to be sure"
)
UNSURE = "the last {count} entries are on too few of the nodes given to be known as acknowledged; they are moved all the same"
NO_LOG = "the Raft log of node {node} is not found in or beside {store}"
SEVERAL_LOGS = "several logs may be the Raft log of node {node}: {logs}. Name that of each node with --raft"
NO_BEGINNING = (
    "the Raft log of node {node} cannot be used: there is neither a valid snapshot nor the first entry. Give other nodes, or "
    "move the messages alone with --without-durables"
)
NOT_ONE_CLUSTER = "the directories are not those of different nodes of one cluster"


@dataclass(slots=True)
class OldNode:
    """A node: its store and its Raft directory."""

    store: OldStore
    raft: RaftDirectory

    @property
    def name(self) -> str:
        """Its id in the cluster."""
        return self.store.node_id.decode(errors="replace")

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        """The higher, the rather its state is taken."""
        return not self.raft.headless, self.raft.term, self.raft.index, -self.store.report.problem_count

    def channel(self, name: bytes, channel_id: int) -> OldChannel | None:
        """Its store of a channel, None if it has none, or one that was deleted."""
        if not same_channel(self.raft.channel_ids.get(name, 0), channel_id):
            return None
        return next((channel for channel in self.store.channels if channel.name == name), None)


def find_raft(store: OldStore, given: Path | None) -> Path:
    """Return the Raft directory of a node: where it is *given*, in the store, beside it, or in `CLUSTER/NODE` of this directory.

    Raises:
        StartError: there is none, or more than one.
    """
    cluster, node = (part.decode(errors="replace") for part in (store.cluster_id, store.node_id))
    usual, beside = Path(cluster, node), store.directory.absolute().parent
    several = ""
    places = [(store.directory, 3), (beside / usual, 1), (beside, 2), (usual, 1)]
    for place, depth in [(given, 3)] if given is not None else places:
        logs = [log for below in range(depth + 1) for log in sorted(place.glob("*/" * below + LOG))]
        if len(logs) == 1:
            return logs[0].parent
        if logs:
            several = SEVERAL_LOGS.format(node=node, logs=", ".join(map(str, logs)))
    raise StartError(several or NO_LOG.format(node=node, store=given or store.directory))


class ClusterStore:
    """The nodes as one store, like `OldStore`.

    Raises:
        StartError: they are not of one cluster, one is in use, the key is missing or wrong, or no log tells the state.
    """

    node_id = b""  # the state has the durables, whichever node it is of

    def __init__(
        self, stores: Sequence[OldStore], raft_logs: Sequence[Path], watch: Watch, key: bytes, *, plain: bool
    ) -> None:
        names = [store.node_id for store in stores]
        if len({store.cluster_id for store in stores}) > 1 or len(set(names)) < len(names):
            raise StartError(NOT_ONE_CLUSTER)
        nodes = [
            OldNode(store, RaftDirectory(directory, store.report.note, store.report.hint))
            for store, directory in zip(stores, raft_logs, strict=True)
        ]
        first = max(nodes, key=lambda node: node.rank)
        if first.raft.headless:
            raise StartError(NO_BEGINNING.format(node=first.name))
        self.report = MigrationReport(", ".join(str(store.directory) for store in stores))
        self.watch = watch
        self._first = first
        self._others = [node for node in nodes if node is not first]
        self._open_entry: Opener = bytes if plain else log_opener(key) if key else _no_key
        self.cluster_id = first.store.cluster_id
        try:
            self._state = self._replay()
        except OSError as error:
            raise StartError(f"{first.raft.path}: {error.strerror}") from error
        self.settle(harmless=False)
        self.report.notes += self._remarks()
        self.channels = list(self._channels())

    @property
    def directory(self) -> Path:
        """The store of the node whose state is taken."""
        return self._first.store.directory

    @property
    def size(self) -> int:
        """Size of all messages in bytes."""
        return self._first.store.size

    def has_problems(self) -> bool:
        """Return True if the store that is read has damage that was not settled."""
        return self._first.store.report.problem_count > 0

    def settle(self, *, harmless: bool) -> None:
        """Report the damage that the stores had since the last call, as hints if it cost nothing."""
        self.report.include(self._first.store.report, harmless=harmless)
        for node in self._others:
            self.report.include(node.store.report, harmless=True)

    def clients(self) -> list[bytes]:
        """Ids of the clients that were registered."""
        return list(self._state.clients)

    def samples(self) -> Iterator[tuple[bytes, bytes]]:
        """Payloads of some messages, as those of a store."""
        return self._first.store.samples()

    def close(self) -> None:
        """Nothing stays open."""

    def _replay(self) -> ReplicatedState:
        raft, path = self._first.raft, str(self._first.raft.path)
        opened = 0
        try:
            state = ReplicatedState(raft.snapshot.state if raft.snapshot else b"")
        except ValueError as error:
            raise StartError(f"{raft.snapshot.path if raft.snapshot else path}: {error}") from error
        for command in raft.commands():
            data = command.data
            try:
                if looks_encrypted(data):
                    self.report.decrypted = True
                    data = self._open_entry(data)
                    opened += 1
                state.apply(command, data)
            except ValueError as error:
                self._first.store.report.note(path, command.offset, f"entry {command.index} is left out: {error}")
        if self.report.decrypted and not opened:
            raise StartError(WRONG_KEY)
        return state

    def logged(self, offset: int, size: int) -> bytes:
        """The data of an entry of the log, by its place, in clear. Raises OSError, ValueError."""
        data = self._first.raft.data(offset, size)
        return self._open_entry(data) if looks_encrypted(data) else data

    def _remarks(self) -> list[str]:
        raft, node = self._first.raft, self._first.name
        nodes = [self._first, *self._others]
        voters = raft.voters or {node.store.node_id for node in nodes}
        ends = sorted(
            (min(node.raft.index, raft.index) for node in nodes if node.store.node_id in voters), reverse=True
        )
        enough = len(voters) // 2 + 1
        remarks = [STATE_OF.format(node=node, index=raft.index, term=raft.term)]
        if len(ends) < enough:
            return [*remarks, SOME.format(given=len(ends), voters=len(voters), node=node)]
        unsure = raft.index - ends[enough - 1]
        remarks.append(ALL.format(given=len(ends), voters=len(voters)))
        return [*remarks, UNSURE.format(count=unsure)] if unsure else remarks

    def _channels(self) -> Iterator["ClusterChannel"]:
        """Channels of the state, and those of the store that no entry tells of or has deleted."""
        replicated = dict(self._state.channels)
        for stored in self._first.store.channels:
            channel_id = self._first.raft.channel_ids.get(stored.name, 0)
            gone = self._state.deleted.get(stored.name)
            if stored.name not in replicated and (gone is None or not same_channel(gone, channel_id)):
                replicated[stored.name] = ReplicatedChannel(channel_id)
        for name in sorted(replicated):
            channel = replicated[name]
            stores = [node.channel(name, channel.channel_id) for node in (self._first, *self._others)]
            yield ClusterChannel(name, channel, stores, self)


class ClusterChannel:
    """A channel of the nodes, like `OldChannel`."""

    may_be_empty = False

    def __init__(
        self, name: bytes, channel: ReplicatedChannel, stores: list[OldChannel | None], cluster: ClusterStore
    ) -> None:
        self.name = name
        self._directory = cluster.directory / name.decode(errors="surrogateescape")
        self._channel = channel
        self.lost = 0  # messages that are missing at its beginning
        self._stores = stores  # of the node whose state is taken, then of the others
        self._cluster = cluster

    def positions(self) -> tuple[list[OldPosition], int]:
        """Positions of the state, and the number of subscriptions that end."""
        return self._channel.positions()

    def runs(self, open_payload: Opener | None) -> Iterator[MessageRun]:
        """Yield the messages; damage to the store that costs none of them becomes a hint."""
        stores = [store if store is not None and self._is_near(store) else None for store in self._stores]
        copies = [MessageCopy(store.runs(open_payload) if store else iter(())) for store in stores]
        copies.insert(1, LoggedMessages(self.name, self._channel.batches, self._cluster.logged))
        begin, first, newest = copies[0].begin(), max(self._channel.first, 1), self.newest()
        knows_beginning = stores[0] is not None and not self._cluster.has_problems()
        is_intact, last = True, 0
        for run in merged(copies, begin if begin and knows_beginning else first, newest):
            if not last and not knows_beginning and run.base > first:
                self.lost = run.base - first
                self.report(f"messages {first} to {run.base - 1} are missing")
            is_intact &= not run.gap
            last = run.base + run.count - 1
            yield run
        self._cluster.settle(harmless=is_intact and not self.lost and last >= newest)

    def newest(self) -> int:
        """The newest sequence that the state or an index tells."""
        return max(self._channel.last, *(store.newest() for store in self._stores if store), 0)

    def report(self, fault: str) -> None:
        """Report a fault of the whole channel."""
        self._cluster.report.note(str(self._directory), 0, fault)

    def _is_near(self, store: OldChannel) -> bool:
        """Return False if limits had removed all that *store* has, and what follows it, when the state was written."""
        newest = store.newest()
        return not 0 < newest < self._channel.first - 1


def _no_key(_data: bytes) -> bytes:
    raise StartError(ENCRYPTED)
