"""`raft/` of a cluster node's data directory: the files that the node's Raft member of each group must not lose.

    raft/<n>/hard_state    term and vote (stan.raft.pysyncobj.hard_state)
    raft/<n>/voters.json   the voters of the group, once a voter was added or removed
    raft/<n>/unsynced      entries were answered before they were synced, so that a loss of power may have taken them
    raft/<n>/damaged       the log of the group has lost entries, and has not got them back since

No transfer of a group touches it. Blocking; raises OSError, Damage, StartError.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from stan_protocol.scalars import GroupId

from stan.edge.storage.lost_found import LostFound
from stan.edge.storage.manifest import RESTORE, read_document, write_document
from stan.errors import Damage
from stan.log.files.disk import Files, write_durably
from stan.raft.pysyncobj.hard_state import HARD_STATE, HardState

_DAMAGED = "damaged"
_VOTERS = "voters.json"
_UNSYNCED = "unsynced"


@dataclass(slots=True)
class Voters:
    """The voters of a group."""

    names: list[str] = field(default_factory=list)
    index: int = 0  # of the entry with them; 0: the group was begun with them


class RaftFiles:
    """The directory; each method is about one group, whose part of it is made if necessary."""

    def __init__(self, files: Files, directory: str, lost_found: LostFound) -> None:
        """*directory*: the data directory."""
        self._files = files
        self._raft = f"{directory}/raft"
        self._lost_found = lost_found

    def _path(self, number: GroupId) -> str:
        return f"{self._raft}/{number}"

    # --- whether the log is intact ----------------------------------------------------------------------------------------

    def is_intact(self, number: GroupId) -> bool:
        """True if the log has lost no entry since it was begun or received."""
        self._files.makedirs(self._path(number))
        return _DAMAGED not in self._files.listdir(self._path(number))

    def mark_damaged(self, number: GroupId) -> None:
        """Note durably that the log has lost entries: before any evidence of it is moved."""
        if self.is_intact(number):
            write_durably(self._files, f"{self._path(number)}/{_DAMAGED}", b"entries of the log were lost\n")

    def mark_intact(self, number: GroupId) -> None:
        """Note durably that the log has all its entries again."""
        if not self.is_intact(number):
            self._files.unlink(f"{self._path(number)}/{_DAMAGED}")
            self._files.sync_directory(self._path(number))

    def answers_unsynced(self, number: GroupId) -> bool:
        """True if entries of the group may have been answered before they were synced."""
        self._files.makedirs(self._path(number))
        return _UNSYNCED in self._files.listdir(self._path(number))

    def mark_unsynced(self, number: GroupId) -> None:
        """Note durably that entries of the group are answered before they are synced: before the first one is."""
        if not self.answers_unsynced(number):
            text = b"entries are answered before they are synced\n"
            write_durably(self._files, f"{self._path(number)}/{_UNSYNCED}", text)

    # --- members ----------------------------------------------------------------------------------------------------------

    def open(self, number: GroupId, note: Callable[[str, str], None]) -> "StoredMember":
        """Open this node's member of a group, made if necessary; *note* gets level and text of a line if a file is damaged.

        Without a valid slot of its hard state the member is one that has forgotten its votes, as if the file were missing.
        """
        path = self._path(number)
        try:
            hard_state = HardState.open(self._files, path)
        except Damage as error:
            aside = self._lost_found.put(f"{path}/{HARD_STATE}", f"raft-{number}-{HARD_STATE}")
            note("ERR", f"{error}; moved to {aside}, this node has no vote in group {number} until others vouch for it")
            hard_state = HardState.open(self._files, path)
        return StoredMember(self, number, hard_state, self._read_voters(number))

    def _read_voters(self, number: GroupId) -> Voters:
        """Read the voters of a group; no names, and index 0, if none were noted yet. Raises Damage."""
        self._files.makedirs(self._path(number))
        if _VOTERS not in self._files.listdir(self._path(number)):
            return Voters()
        path = f"{self._path(number)}/{_VOTERS}"
        try:
            return Voters(**read_document(self._files, path))
        except (ValueError, TypeError) as error:
            raise Damage(f"{path}: {error}; {RESTORE}") from error

    def write_voters(self, number: GroupId, voters: Voters) -> None:
        """Note durably the voters of a group from now on."""
        write_document(self._files, f"{self._path(number)}/{_VOTERS}", asdict(voters))

    def bootstrap(self, number: GroupId, voters: Voters, *, votes: bool) -> None:
        """Make this node's member of a group that is new in the cluster; after a crash it is completed.

        *votes*: no promise can be forgotten. Otherwise it has no vote until others vouch for it."""
        hard_state = HardState.open(self._files, self._path(number))
        try:
            if votes:
                hard_state.mark_readmitted()
        finally:
            hard_state.close()
        self.write_voters(number, voters)

    def retire(self, number: GroupId) -> None:
        """Move all files of a group here to lost+found."""
        self._lost_found.put(self._path(number), f"raft-{number}")


class StoredMember:
    """This node's Raft member of a group, as far as on the disk; made by `RaftFiles.open`."""

    def __init__(self, raft: RaftFiles, number: GroupId, hard_state: HardState, voters: Voters) -> None:
        self.hard_state = hard_state  # closed with the storage
        self.voters = voters
        self.intact = True  # False: the group's log has lost entries, until another log is installed
        self._raft = raft
        self._number = number

    def set_voters(self, voters: Voters) -> None:
        """Remember the voters of the group, if they are new. Durable when it returns: before the entry counts as applied."""
        if voters.index > self.voters.index or not self.voters.names:
            self._raft.write_voters(self._number, voters)
            self.voters = voters

    def mark_damaged(self) -> None:
        """Note durably that the log has lost entries."""
        self._raft.mark_damaged(self._number)
        self.intact = False

    def mark_unsynced(self) -> None:
        """Note durably that entries of the group are answered before they are synced."""
        self._raft.mark_unsynced(self._number)

    @property
    def answers_unsynced(self) -> bool:
        """True if entries of the group may have been answered before they were synced."""
        return self._raft.answers_unsynced(self._number)

    def read_mark(self) -> None:
        """Read again whether the log is marked as damaged."""
        self.intact = self._raft.is_intact(self._number)
