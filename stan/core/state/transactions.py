"""Transactions of one group: which parts are staged, which commit is under way in which channel, what was committed last.

A component of the group's machine (see components.py), fed by committed entries alone. The rows of a staged part are a message of
the group's hidden channel (STAGING_UID). A commit is decided by one entry; what follows only carries it out: steps put its rows
into the channel, the last one makes them visible. One entry may decide the commits of several channels (a joint commit): they
end together, with the last step of the last of them.

Promises: at most one commit is under way in a channel; a part that it needs stays until the commit is complete; a version of an
app is committed at most once in a channel, and never after a later one; the rows of a joint commit are visible in all of its
channels or in none; where users are known, an app belongs to the user who began it; where writers are told, a version that one
has written is not taken for another's.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from stan_protocol.refusals import ANOTHER_WRITER, APP_OF_ANOTHER, BUSY, STAGED_GONE, STAGED_OTHERWISE, TOO_MANY_APPS
from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence, WallNanos

from stan import limits
from stan.core.base.ready import Index
from stan.core.base.shares import Shares, share_left
from stan.protocol.proto import entries_pb2 as pb

STAGED, UNDER_WAY, COMMITTED, FINISHED = b"s", b"w", b"c", b"f"
"""First bytes of the keys of rows."""


PartName = tuple[bytes, bytes, int]
"""User, txn, number of the part."""


class TransactionRefused(NamedTuple):
    """The result of a change that was refused."""

    error: str


class Ended(NamedTuple):
    """The result of a change that ended commits: those that are complete, and those that were given up."""

    committed: list[pb.Committed]
    given_up: list[pb.Committed]


@dataclass(slots=True)
class Transactions:
    """The component for transactions of a group's replicated state."""

    KIND: ClassVar[str] = "transactions"
    CHANGES: ClassVar[tuple[str, ...]] = ("staged", "commit", "joint_commit", "commit_step", "drop_staged", "finished")
    dirty: set[bytes] = field(default_factory=set)
    staged: dict[int, pb.StagedPart] = field(default_factory=dict)  # by sequence of the hidden channel, ascending
    parts: dict[int, dict[PartName, int]] = field(default_factory=dict)  # uid -> name -> sequence
    # (uid, app) -> user -> number of staged parts
    beginners: dict[tuple[int, bytes], dict[bytes, int]] = field(default_factory=dict)
    under_way: dict[int, pb.Commit] = field(default_factory=dict)  # by uid
    unfinished: dict[int, set[int]] = field(default_factory=dict)  # joint commit -> uids that lack rows
    committed: dict[tuple[int, bytes], pb.Committed] = field(default_factory=dict)  # by uid and app
    finished: dict[bytes, pb.Finished] = field(default_factory=dict)  # by app
    staged_shares: Shares = field(default_factory=Shares)  # parts, by user
    byte_shares: Shares = field(default_factory=Shares)  # their bytes
    ended_by_drop: Ended | None = None  # of the channel that was dropped last
    emptied: int = 0  # newest sequence of the hidden channel when its last staged part was forgotten

    # --- what readers ask -------------------------------------------------------------------------------------------

    @property
    def floor(self) -> Sequence:
        """The first sequence of the hidden channel that is still needed; messages below may be removed."""
        return Sequence(next(iter(self.staged), self.emptied + 1))

    def is_done(self, uid: int, app: bytes, version: int) -> bool:
        """True if this version of an app, or a later one, is committed in a channel."""
        last = self.committed.get((uid, app))
        return last is not None and version <= last.version

    def has_begun(self, part: pb.StagedPart) -> bool:
        """True if something is staged of the version of an app to which *part* belongs."""
        return any(_owner(self.staged[one]) == _owner(part) for one in self.parts.get(part.uid, {}).values())

    def find(self, uid: int, user: bytes, txn: bytes, part: int) -> pb.StagedPart | None:
        """The staged part with that name; None if there is none."""
        sequence = self.parts.get(uid, {}).get((user, txn, part))
        return None if sequence is None else self.staged[sequence]

    def is_anothers(self, uid: int, app: bytes, user: bytes) -> bool:
        """True if an app in a channel belongs to another user: that user made the last commit, or, if there was none, has
        staged parts and *user* has not. Always False without users (*user* is b"")."""
        if not user:
            return False
        last = self.committed.get((uid, app))
        if last is not None:
            return last.user not in (b"", user)
        begun = self.beginners.get((uid, app), {})
        return user not in begun and any(begun)

    def is_finished_by_another(self, app: bytes, user: bytes) -> bool:
        """True if another user finished the app's last version; always False if *user* is b""."""
        last = self.finished.get(app)
        return bool(user) and last is not None and last.user not in (b"", user)

    def has_staging_room(self, user: bytes) -> bool:
        """True if a user may stage one part more."""
        return (
            self.staged_shares.left(user, limits.STAGED_PARTS_MAX) > 0
            and self.byte_shares.left(user, limits.STAGED_BYTES_MAX) > 0
        )

    def commits_refusal(self, keys: Iterable[tuple[int, bytes]], user: bytes, now: int) -> str:
        """Why the last commits of a user by these uids and apps cannot be remembered; "" if they can."""
        return _apps_refusal(self.committed, keys, user, now)

    def finish_refusal(self, app: bytes, user: bytes, now: int) -> str:
        """Why the last finished version of a user's app cannot be remembered; "" if it can."""
        return _apps_refusal(self.finished, [app], user, now)

    def staged_before(self, at: int) -> list[int]:
        """Sequences of parts that are older than *at* (Unix ns) and not needed by a commit under way."""
        old = [sequence for sequence, part in self.staged.items() if part.at < at]
        kept = {sequence for commit in self.under_way.values() for sequence in commit.sequences} if old else set()
        return [sequence for sequence in old if sequence not in kept]

    def visible(self, uid: ChannelUid, index: Index) -> Index:
        """The visible part of a channel's *index*: without the messages of a commit under way."""
        commit = self.under_way.get(uid)
        return index if commit is None or not commit.done else VisibleIndex(index, commit)

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, name: str, change: object, index: RaftIndex) -> object:  # noqa: ARG002 - as StateComponent has it
        """Apply one committed change. Returns Ended, TransactionRefused, or None: the change was applied, or had no effect."""
        newest = next(reversed(self.staged), 0)  # from rows on disk: the same before and after a restart
        result = self._apply(change, index)
        if not self.staged:
            self.emptied = max(self.emptied, newest, change.sequence if isinstance(change, pb.StagedPart) else 0)
        return result

    def _apply(self, change: object, index: RaftIndex) -> object:
        match change:
            case pb.StagedPart():
                return self._stage(change)
            case pb.Commit():
                return self._decide([change], 0)
            case pb.JointCommit():
                return self._decide(change.commits, index)
            case pb.CommitStep():
                return self._step(change)
            case pb.DropStaged():
                self._drop(change)
            case pb.Finished():
                return self._finish(change)
        return None

    def _stage(self, part: pb.StagedPart) -> object:
        if self.is_anothers(part.uid, part.app, part.user):
            return TransactionRefused(APP_OF_ANOTHER)
        if self.is_done(part.uid, part.app, part.version):
            return None  # of a task that came too late: nobody will ask for it
        known = self.find(part.uid, part.user, part.txn, part.part)
        if known is not None:
            return None if is_same(known, part) else TransactionRefused(STAGED_OTHERWISE)
        self._add(part)
        self.dirty.add(_key(STAGED, part.sequence))
        return None

    def _decide(self, commits: Seq[pb.Commit], joint: int) -> object:
        """Take a decision about a channel or, as the *joint* commit of that name, about several: all of it, or nothing. Channels
        that have the version already are left as they are."""
        wanted, known = [], []
        for commit in commits:
            if refused := self._refusal(commit):
                return TransactionRefused(refused)
            if self.is_done(commit.uid, commit.app, commit.version):
                known.append(self.committed[commit.uid, commit.app])
            else:
                wanted.append(commit)
        new = sum((commit.uid, commit.app) not in self.committed for commit in wanted)
        if new and not self._has_room(wanted[0].at, new):
            return TransactionRefused(TOO_MANY_APPS)
        for last in known:
            self._forget_versions(last.uid, last.app, last.version)
        return self._begin(wanted, joint if len(wanted) > 1 else 0) if wanted else Ended(known, [])

    def _refusal(self, commit: pb.Commit) -> str:
        """Why a commit cannot be decided now; "" if it can, or if the version is committed already."""
        uid, app = commit.uid, commit.app
        if refused := self.claim_refusal(uid, app, commit.version, commit.user, commit.writer):
            return refused
        if self.is_done(uid, app, commit.version):
            return ""
        if uid in self.under_way:
            return BUSY
        parts = [self.staged.get(sequence) for sequence in commit.sequences]
        wanted = commit.user, uid, app, commit.version
        return STAGED_GONE if any(part is None or _owner(part) != wanted for part in parts) else ""

    def claim_refusal(self, uid: int, app: bytes, version: int, user: bytes, writer: bytes) -> str:
        """Why a user's writer may not commit a version of an app in a channel; "" if it may."""
        if self.is_anothers(uid, app, user):
            return APP_OF_ANOTHER
        return writer_refusal(self.committed.get((uid, app)), version, writer)

    def _begin(self, commits: list[pb.Commit], joint: int) -> object:
        for commit in commits:
            commit.count = sum(self.staged[sequence].count for sequence in commit.sequences)
            commit.done, commit.joint = 0, joint
            self.under_way[commit.uid] = commit
            self.dirty.add(_key(UNDER_WAY, commit.uid))
        unfinished = {commit.uid for commit in commits if commit.count}
        if not unfinished:
            return self._end(commits)
        if joint:
            self.unfinished[joint] = unfinished
        return None

    def _step(self, step: pb.CommitStep) -> object:
        commit = self.under_way.get(step.uid)
        if commit is None:
            return None
        self.dirty.add(_key(UNDER_WAY, step.uid))
        if step.given_up:
            return self._give_up(commit)
        if not commit.done:
            commit.first_sequence = step.first_sequence
            commit.timestamp_before = step.timestamp_before
        commit.done += step.count
        if commit.done < commit.count:
            return None
        if not commit.joint:
            return self._end([commit])
        self.unfinished[commit.joint].discard(step.uid)
        return self._end_joint(commit.joint)

    def _joint(self, joint: int) -> list[pb.Commit]:
        """The commits under way that are of a joint commit."""
        return [commit for commit in self.under_way.values() if commit.joint == joint]

    def _end_joint(self, joint: int) -> Ended | None:
        """End a joint commit if none of its channels lacks rows any more."""
        if self.unfinished[joint]:
            return None
        del self.unfinished[joint]
        return self._end(self._joint(joint))

    def _give_up(self, commit: pb.Commit) -> Ended:
        """Rows of a commit cannot be read. Channels of a joint commit that have all of theirs keep them, so that a repetition
        does not add them again."""
        together = self._joint(commit.joint) if commit.joint else [commit]
        lacking = self.unfinished.pop(commit.joint, {commit.uid})
        ended = self._end([one for one in together if one.uid not in lacking])
        for one in together:
            if one.uid in lacking:
                del self.under_way[one.uid]
                self.dirty.add(_key(UNDER_WAY, one.uid))
                self._forget_versions(one.uid, one.app, one.version)
                ended.given_up.append(
                    pb.Committed(uid=one.uid, app=one.app, version=one.version, user=one.user, writer=one.writer)
                )
        return ended

    def _end(self, commits: list[pb.Commit]) -> Ended:
        return Ended([self._end_one(commit) for commit in commits], [])

    def _end_one(self, commit: pb.Commit) -> pb.Committed:
        uid, app = commit.uid, commit.app
        committed = pb.Committed(
            uid=uid, app=app, version=commit.version, at=commit.at, user=commit.user, writer=commit.writer
        )
        last = self.committed.get((uid, app))
        if last is not None and not committed.user:  # committed without a user: the app stays the last user's
            committed.user = last.user
        if commit.count:
            committed.first_sequence = commit.first_sequence
            committed.last_sequence = commit.first_sequence + commit.count - 1
        self.committed[uid, app] = committed
        del self.under_way[uid]
        self.dirty.update((_key(UNDER_WAY, uid), _key(COMMITTED, uid, app)))
        self._forget_versions(uid, app, commit.version)
        return committed

    def _drop(self, change: pb.DropStaged) -> None:
        txns = set(change.txns)
        kept = {sequence for commit in self.under_way.values() for sequence in commit.sequences}
        named = [
            at for (user, txn, _), at in self.parts.get(change.uid, {}).items() if txn in txns and user == change.user
        ]
        for sequence in {*named} - kept | {*self.staged_before(change.before)}:
            self._forget(sequence)

    def _finish(self, change: pb.Finished) -> object:
        if self.is_finished_by_another(change.app, change.user):
            return TransactionRefused(APP_OF_ANOTHER)
        known = self.finished.get(change.app)
        if refused := writer_refusal(known, change.version, change.writer):
            return TransactionRefused(refused)
        if known is None and len(self.finished) >= limits.APPS_MAX:
            old = [app for app, last in self.finished.items() if last.at < change.at - limits.APP_MEMORY]
            for app in old:
                del self.finished[app]
                self.dirty.add(FINISHED + app)
            if not old:
                return TransactionRefused(TOO_MANY_APPS)
        if known is None or change.version >= known.version:
            if known is not None and not change.user:
                change.user = known.user
            self.finished[change.app] = change
            self.dirty.add(FINISHED + change.app)
        return None

    def _has_room(self, at: int, more: int) -> bool:
        """True if *more* apps can be remembered; when full, apps without a commit for APP_MEMORY are forgotten first."""
        if len(self.committed) + more <= limits.APPS_MAX:
            return True
        old = [key for key, last in self.committed.items() if last.at < at - limits.APP_MEMORY]
        for uid, app in old:
            del self.committed[uid, app]
            self.dirty.add(_key(COMMITTED, uid, app))
        return len(self.committed) + more <= limits.APPS_MAX

    # --- parts that come and go ---------------------------------------------------------------------------------------

    def _add(self, part: pb.StagedPart) -> None:
        self.staged[part.sequence] = part
        self.parts.setdefault(part.uid, {})[part.user, part.txn, part.part] = part.sequence
        begun = self.beginners.setdefault((part.uid, part.app), {})
        begun[part.user] = begun.get(part.user, 0) + 1
        self.staged_shares.add(part.user, 1)
        self.byte_shares.add(part.user, part.bytes)

    def _forget(self, sequence: int) -> None:
        part = self.staged.pop(sequence)
        of_channel = self.parts[part.uid]
        del of_channel[part.user, part.txn, part.part]
        begun = self.beginners[part.uid, part.app]
        begun[part.user] -= 1
        if not begun[part.user]:
            del begun[part.user]
        if not begun:
            del self.beginners[part.uid, part.app]
        if not of_channel:
            del self.parts[part.uid]
        self.staged_shares.add(part.user, -1)
        self.byte_shares.add(part.user, -part.bytes)
        self.dirty.add(_key(STAGED, sequence))

    def _forget_versions(self, uid: int, app: bytes, version: int) -> None:
        """Forget the parts that an app has staged for a channel, up to *version*."""
        of_channel = [self.staged[sequence] for sequence in self.parts.get(uid, {}).values()]
        for part in of_channel:
            if part.app == app and part.version <= version:
                self._forget(part.sequence)

    def drop_channel(self, uid: ChannelUid) -> None:
        """Forget the staged parts, the commit under way and the last commits of a channel that is gone. `ended_by_drop` tells
        what that ends in others."""
        for sequence in list(self.parts.get(uid, {}).values()):
            self._forget(sequence)
        self.ended_by_drop = None
        commit = self.under_way.pop(uid, None)
        if commit is not None:
            self.dirty.add(_key(UNDER_WAY, uid))
        if commit is not None and commit.joint:
            self.unfinished[commit.joint].discard(uid)
            self.ended_by_drop = self._end_joint(commit.joint)
        for key in [key for key in self.committed if key[0] == uid]:
            del self.committed[key]
            self.dirty.add(_key(COMMITTED, *key))

    # --- rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows: staged parts, commits under way, last commits by channel and app, finished versions by app."""
        yield from (_key(STAGED, sequence) for sequence in self.staged)
        yield from (_key(UNDER_WAY, uid) for uid in self.under_way)
        yield from (_key(COMMITTED, uid, app) for uid, app in self.committed)
        yield from (FINISHED + app for app in self.finished)

    def row(self, key: bytes) -> bytes | None:
        """The row with that key; None if it is gone."""
        kind, number, app = key[:1], int.from_bytes(key[1:9]), key[9:]
        row: pb.StagedPart | pb.Commit | pb.Committed | pb.Finished | None
        if kind == STAGED:
            row = self.staged.get(number)
        elif kind == UNDER_WAY:
            row = self.under_way.get(number)
        elif kind == COMMITTED:
            row = self.committed.get((number, app))
        else:
            row = self.finished.get(key[1:])
        return None if row is None else row.SerializeToString()

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first `apply`. Staged parts are kept in the order of their sequences, in whichever
        order their rows come."""
        kind = key[:1]
        if kind == STAGED:
            part = pb.StagedPart.FromString(state)
            out_of_order = part.sequence < next(reversed(self.staged), 0)
            self._add(part)
            if out_of_order:
                self.staged = dict(sorted(self.staged.items()))
        elif kind == UNDER_WAY:
            commit = pb.Commit.FromString(state)
            self.under_way[commit.uid] = commit
            if commit.joint:
                unfinished = self.unfinished.setdefault(commit.joint, set())
                if commit.done < commit.count:
                    unfinished.add(commit.uid)
        elif kind == COMMITTED:
            committed = pb.Committed.FromString(state)
            self.committed[committed.uid, committed.app] = committed
        else:
            finished = pb.Finished.FromString(state)
            self.finished[finished.app] = finished


class VisibleIndex:
    """A channel's index without the messages of the commit under way; only `bytes` and `accounted` include them."""

    __slots__ = ("_commit", "_index", "_last")

    def __init__(self, index: Index, commit: pb.Commit) -> None:
        self._index = index
        self._commit = commit
        self._last = commit.first_sequence - 1

    @property
    def first_sequence(self) -> Sequence:
        """Oldest kept; at most the one behind the last visible message. 0 if there is no message before the commit."""
        return Sequence(min(self._index.first_sequence, self._last + 1) if self._last else 0)

    @property
    def last_sequence(self) -> Sequence:
        """Newest visible message: the last one before the commit; 0 if there is none."""
        return Sequence(min(self._index.last_sequence, self._last))

    @property
    def bytes(self) -> int:
        """Bytes kept, those of the commit included."""
        return self._index.bytes

    @property
    def compression(self) -> tuple[int, int]:
        """Bytes of their records in clear, and as the log has them, those of the commit included, if some are compressed."""
        return self._index.compression

    def accounted(self, record_bytes: int, count: int) -> int:
        """Bytes that *count* messages in *record_bytes* of records add to `bytes`."""
        return self._index.accounted(record_bytes, count)

    @property
    def last_timestamp(self) -> WallNanos:
        """Timestamp of the newest message before the commit, which the commit's first step has recorded."""
        return WallNanos(self._commit.timestamp_before)

    @property
    def first_timestamp(self) -> WallNanos:
        """Timestamp of the oldest kept message; 0 if no visible message is kept."""
        return WallNanos(self._index.first_timestamp if self.first_sequence <= self._last else 0)

    def sequence_at(self, timestamp: WallNanos) -> Sequence:
        """First kept sequence at or after *timestamp*, at most the one behind the last visible message; 0 if there is no message
        before the commit."""
        return Sequence(min(self._index.sequence_at(timestamp), self._last + 1) if self._last else 0)

    def first_within_bytes(self, bytes_max: int) -> Sequence:
        """Smallest first sequence with which the kept bytes are within *bytes_max*, at most the last visible one."""
        return Sequence(min(self._index.first_within_bytes(bytes_max), self._last))


def writer_refusal(last: pb.Committed | pb.Finished | None, version: int, writer: bytes) -> str:
    """Why *writer* may not take *version* of an app for its own work that is done already: another writer did the *last* one.
    "" if that is the same, if one of them is not told, or if the version is newer."""
    if last is None or version > last.version or not writer or last.writer in (b"", writer):
        return ""
    app, other = (text.decode("utf-8", "replace") for text in (last.app, last.writer))
    return ANOTHER_WRITER.format(version, app, other)


def _apps_refusal(known: Mapping[Any, pb.Committed | pb.Finished], keys: Iterable[Any], user: bytes, now: int) -> str:
    """Why apps that are not *known* yet are beyond a user's share; "" if they are not. Those older than APP_MEMORY at *now* (Unix
    ns) do not count, as they are forgotten when the room is full."""
    more = sum(key not in known for key in keys)
    if not more or not user:
        return ""
    users = [one.user for one in known.values() if one.at >= now - limits.APP_MEMORY]
    return TOO_MANY_APPS if more > share_left(user, limits.APPS_MAX, len(users), users.count(user)) else ""


def is_same(one: pb.StagedPart, other: pb.StagedPart) -> bool:
    """True if two parts of one name come from the same request."""
    return (_owner(one), one.count, one.bytes) == (_owner(other), other.count, other.bytes)


def _owner(part: pb.StagedPart) -> tuple[bytes, int, bytes, int]:
    return part.user, part.uid, part.app, part.version


def _key(kind: bytes, number: int, app: bytes = b"") -> bytes:
    return kind + number.to_bytes(8) + app
