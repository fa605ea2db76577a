"""Transactions of one group: staged parts, commits under way, and the last commit of each app.

A component of the group's machine (see components.py), fed by committed entries alone. One request stages parts of many
channels; the rows of a part are a message of the group's hidden channel (STAGING_UID). A commit, of one channel or of several, is
decided by one entry, and is under way until another one has the references that put its rows into all of these channels.

Promises: the parts of one request are staged together or not at all; a part that a commit needs stays until the commit is
complete; a version of an app is committed at most once in a channel, and never after a later one; the rows of a commit are
visible in all of its channels or in none; where users are known, an app belongs to the user who began it; where writers are
named, the version of one is not taken for another's.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

from stan_protocol.refusals import (
    ANOTHER_WRITER,
    APP_OF_ANOTHER,
    BUSY,
    STAGED_GONE,
    STAGED_OTHERWISE,
    STAGED_TOO_MUCH,
    STAGED_UNNAMED,
    TOO_MANY_APPS,
)
from stan_protocol.scalars import ChannelUid, RaftIndex, Sequence

from stan import limits
from stan.core.base.runs import pairs
from stan.core.base.shares import Shares, share_left
from stan.protocol.proto import entries_pb2 as pb

STAGED, UNDER_WAY, COMMITTED, FINISHED = b"s", b"w", b"c", b"f"
"""First bytes of the keys of rows."""


PartName = tuple[bytes, bytes, int]
"""User, txn, number of the part."""
Last = TypeVar("Last", pb.Committed, pb.Finished)
Key = TypeVar("Key")


class TransactionRefused(NamedTuple):
    """The result of a change that was refused."""

    error: str


@dataclass(slots=True)
class StagedRequest:
    """A request that has staged parts, of which some are left."""

    user: bytes
    app: bytes
    version: int
    txn: bytes
    at: int  # Unix ns
    key: int  # of its row: sequence of its first part
    sequences: list[int]  # of its parts, ascending

    @property
    def work(self) -> tuple[bytes, bytes, int]:
        """Whose rows they are: user, app and version."""
        return self.user, self.app, self.version


class StagedPart(NamedTuple):
    """Rows of one channel, staged by a request."""

    request: StagedRequest
    uid: int  # of the channel
    sequence: int  # of the message of the hidden channel that holds the rows
    part: int  # number among those of its txn in the channel
    count: int  # type: ignore[assignment]  # of rows
    bytes: int  # of rows


class Decided(NamedTuple):
    """The result of a commit that was not refused."""

    decision: int  # raft index by which it is under way; 0: it was complete at once
    already: set[int]  # uids of the channels that had the version before


@dataclass(slots=True)
class Transactions:
    """The component for transactions of a group's replicated state."""

    KIND: ClassVar[str] = "transactions"
    CHANGES: ClassVar[tuple[str, ...]] = ("staged", "commit", "commit_done", "drop_staged", "finished")
    dirty: set[bytes] = field(default_factory=set)
    requests: dict[int, StagedRequest] = field(default_factory=dict)  # by the key of their rows, ascending
    staged: dict[int, StagedPart] = field(default_factory=dict)  # by sequence of the hidden channel, ascending
    parts: dict[int, dict[PartName, int]] = field(default_factory=dict)  # uid -> name -> sequence
    # (uid, app) -> user -> number of staged parts
    beginners: dict[tuple[int, bytes], dict[bytes, int]] = field(default_factory=dict)
    under_way: dict[int, pb.Commit] = field(default_factory=dict)  # by raft index of the decision
    committed: dict[tuple[int, bytes], pb.Committed] = field(default_factory=dict)  # by uid and app
    finished: dict[bytes, pb.Finished] = field(default_factory=dict)  # by app
    staged_shares: Shares = field(default_factory=Shares)  # parts, by user
    byte_shares: Shares = field(default_factory=Shares)  # their bytes
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

    def has_begun(self, uid: int, change: pb.Staged) -> bool:
        """True if something is staged in a channel of the version of an app to which *change* belongs."""
        work = _work(change)
        return any(self.staged[one].request.work == work for one in self.parts.get(uid, {}).values())

    def find(self, uid: int, user: bytes, txn: bytes, part: int) -> StagedPart | None:
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

    def staging_refusal(self, user: bytes, parts: int) -> str:
        """Why a user may not stage so many *parts* more; "" if that is possible."""
        rooms = (
            ("parts", self.staged_shares, limits.STAGED_PARTS_MAX, parts),
            ("bytes", self.byte_shares, limits.STAGED_BYTES_MAX, 1),
        )
        for what, shares, most, more in rooms:
            left, own = shares.left(user, most), shares.of(user)
            if left < more:
                return STAGED_TOO_MUCH.format(own, what, own + left)
        return ""

    def is_all_of(self, change: pb.Staged) -> bool:
        """True if everything that is staged is of the same work as *change*: then no room comes by waiting."""
        work = _work(change)
        return all(one.work == work for one in self.requests.values())

    def staged_before(self, at: int) -> set[int]:
        """Sequences of parts that are older than *at* (Unix ns) and not needed by a commit under way."""
        old = {sequence for one in self.requests.values() if one.at < at for sequence in one.sequences}
        return old - self._needed() if old else old

    def _needed(self) -> set[int]:
        """Sequences of the parts that the commits under way need."""
        return {
            sequence for commit in self.under_way.values() for share in commit.channels for sequence in share.sequences
        }

    # --- changes ----------------------------------------------------------------------------------------------------

    def apply(self, name: str, change: object, index: RaftIndex) -> object:  # noqa: ARG002 - as StateComponent has it
        """Apply one committed change. Returns Decided, TransactionRefused, or None: the change was applied, or had no effect."""
        newest = next(reversed(self.staged), 0)  # from rows on disk: the same before and after a restart
        result = self._apply(change, index)
        if not self.staged:
            here = change.parts[-1].sequence if isinstance(change, pb.Staged) else 0
            self.emptied = max(self.emptied, newest, here)
        return result

    def _apply(self, change: object, index: RaftIndex) -> object:
        match change:
            case pb.Staged():
                return self._stage(change)
            case pb.Commit():
                return self._decide_commit(change, index)
            case pb.CommitDone():
                self._complete(change)
            case pb.DropStaged():
                self._drop(change)
            case pb.Finished():
                return self._finish(change)
        return None

    def _stage(self, change: pb.Staged) -> object:
        """Take in all parts of a request that are not known yet, or refuse it. None are of a task that came too late: nobody will
        ask for them."""
        app, user, fresh = change.app, change.user, []
        for part in change.parts:
            if self.is_anothers(part.uid, app, user):
                return TransactionRefused(APP_OF_ANOTHER)
            if self.is_done(part.uid, app, change.version):
                continue
            known = self.find(part.uid, user, change.txn, part.part)
            if known is None:
                fresh.append(part)
            elif not is_same(known, change, part):
                return TransactionRefused(STAGED_OTHERWISE)
        if fresh:
            self.dirty.add(_key(STAGED, self._add(change, fresh).key))
        return None

    def _decide_commit(self, commit: pb.Commit, decision: RaftIndex) -> TransactionRefused | Decided:
        """Take a decision about all channels of a commit, or refuse all of it. Channels that have the version already are left as
        they are, those without rows have it now."""
        uids = {share.uid for share in commit.channels}
        already = {uid for uid in uids if self.is_done(uid, commit.app, commit.version)}
        for share in commit.channels:
            if refused := self._commit_refusal(commit, share):
                return TransactionRefused(refused)
        forgotten = _make_room(self.committed, [(uid, commit.app) for uid in uids - already], commit.user, commit.at)
        if forgotten is None:
            return TransactionRefused(TOO_MANY_APPS)
        self.dirty.update(_key(COMMITTED, *key) for key in forgotten)
        shares = [share for share in commit.channels if share.uid not in already]
        for uid in already:
            self._forget_versions(uid, commit.app, commit.version)
        for share in shares:
            if not share.sequences:
                self._end(commit, share.uid, 0, 0)
        with_rows = [pb.CommitShare(uid=share.uid, sequences=share.sequences) for share in shares if share.sequences]
        if not with_rows:
            return Decided(0, already)
        del commit.channels[:], commit.txns[:]
        commit.channels.extend(with_rows)
        self.under_way[decision] = commit
        self.dirty.add(_key(UNDER_WAY, decision))
        return Decided(decision, already)

    def _commit_refusal(self, commit: pb.Commit, share: pb.CommitShare) -> str:
        """Why a channel cannot be committed now; "" if it can, or if it has the version."""
        uid, app, version = share.uid, commit.app, commit.version
        if self.is_anothers(uid, app, commit.user):
            return APP_OF_ANOTHER
        if refused := writer_refusal(self.committed.get((uid, app)), version, commit.writer):
            return refused
        if self.is_done(uid, app, version):
            return ""
        if any(other.app == app and uid in (one.uid for one in other.channels) for other in self.under_way.values()):
            return BUSY
        return self._take_parts(commit, share)

    def _take_parts(self, commit: pb.Commit, share: pb.CommitShare) -> str:
        """Tell *share* the sequences of its parts. Returns the error: a part is missing, or a transaction has more parts than
        it says, whose rows would be dropped silently."""
        of_channel, names = self.parts.get(share.uid, {}), commit.txns
        for txn, parts in pairs(share.parts):
            name = names[txn]
            for number in range(parts):
                part = self.staged.get(of_channel.get((commit.user, name, number), 0))
                if part is None or part.request.work != (commit.user, commit.app, commit.version):
                    return STAGED_GONE
                share.sequences.append(part.sequence)
            if (commit.user, name, parts) in of_channel:
                return STAGED_UNNAMED
        return ""

    def _complete(self, done: pb.CommitDone) -> None:
        commit = self.under_way.pop(done.decision, None)
        if commit is not None:
            self.dirty.add(_key(UNDER_WAY, done.decision))
            for rows in done.rows:
                self._end(commit, rows.uid, rows.first_sequence, rows.last_sequence)

    def _end(self, commit: pb.Commit, uid: int, first: int, last_sequence: int) -> None:
        """A commit is complete in a channel, with the sequences of its rows; 0 if it has none."""
        app = commit.app
        committed = pb.Committed(
            uid=uid,
            app=app,
            version=commit.version,
            first_sequence=first,
            last_sequence=last_sequence,
            at=commit.at,
            user=commit.user,
            writer=commit.writer,
        )
        last = self.committed.get((uid, app))
        if last is not None and not committed.user:  # committed without a user: the app stays the last user's
            committed.user = last.user
        self.committed[uid, app] = committed
        self.dirty.add(_key(COMMITTED, uid, app))
        self._forget_versions(uid, app, commit.version)

    def _drop(self, change: pb.DropStaged) -> None:
        txns = set(change.txns)
        named = {
            at for (user, txn, _), at in self.parts.get(change.uid, {}).items() if txn in txns and user == change.user
        }
        for sequence in named - self._needed() | self.staged_before(change.before):
            self._forget(sequence)

    def _finish(self, change: pb.Finished) -> object:
        if self.is_finished_by_another(change.app, change.user):
            return TransactionRefused(APP_OF_ANOTHER)
        known = self.finished.get(change.app)
        if refused := writer_refusal(known, change.version, change.writer):
            return TransactionRefused(refused)
        forgotten = _make_room(self.finished, [change.app], change.user, change.at)
        if forgotten is None:
            return TransactionRefused(TOO_MANY_APPS)
        self.dirty.update(FINISHED + app for app in forgotten)
        if known is None or change.version >= known.version:
            if known is not None and not change.user:
                change.user = known.user
            self.finished[change.app] = change
            self.dirty.add(FINISHED + change.app)
        return None

    # --- parts that come and go ---------------------------------------------------------------------------------------

    def _add(self, change: pb.Staged, parts: Seq[pb.StagedPart], key: int = 0) -> StagedRequest:
        """Take in *parts* of a request, at least one. *key*: of its row; 0: it has none yet."""
        user, app, txn = change.user, change.app, change.txn
        sequences = [part.sequence for part in parts]
        request = StagedRequest(user, app, change.version, txn, change.at, key or sequences[0], sequences)
        self.requests[request.key] = request
        for part in parts:
            uid = part.uid
            self.staged[part.sequence] = StagedPart(request, uid, part.sequence, part.part, part.count, part.bytes)
            self.parts.setdefault(uid, {})[user, txn, part.part] = part.sequence
            begun = self.beginners.setdefault((uid, app), {})
            begun[user] = begun.get(user, 0) + 1
            self.byte_shares.add(user, part.bytes)
        self.staged_shares.add(user, len(parts))
        return request

    def _forget(self, sequence: int) -> None:
        part = self.staged.pop(sequence)
        request, of_channel = part.request, self.parts[part.uid]
        user, app = request.user, request.app
        del of_channel[user, request.txn, part.part]
        begun = self.beginners[part.uid, app]
        begun[user] -= 1
        if not begun[user]:
            del begun[user]
        if not begun:
            del self.beginners[part.uid, app]
        if not of_channel:
            del self.parts[part.uid]
        self.staged_shares.add(user, -1)
        self.byte_shares.add(user, -part.bytes)
        request.sequences.remove(sequence)
        if not request.sequences:
            del self.requests[request.key]
        self.dirty.add(_key(STAGED, request.key))

    def _forget_versions(self, uid: int, app: bytes, version: int) -> None:
        """Forget the parts that an app has staged for a channel, up to *version*."""
        of_channel = [self.staged[sequence] for sequence in self.parts.get(uid, {}).values()]
        for part in of_channel:
            if part.request.app == app and part.request.version <= version:
                self._forget(part.sequence)

    def drop_channel(self, uid: ChannelUid) -> None:
        """Forget the staged parts of a channel that is gone, its last commits, and its share in those under way."""
        for sequence in list(self.parts.get(uid, {}).values()):
            self._forget(sequence)
        for decision, commit in [*self.under_way.items()]:
            rest = [share for share in commit.channels if share.uid != uid]
            if len(rest) < len(commit.channels):
                self.dirty.add(_key(UNDER_WAY, decision))
                del commit.channels[:]
                commit.channels.extend(rest)
            if not rest:
                del self.under_way[decision]
        for key in [key for key in self.committed if key[0] == uid]:
            del self.committed[key]
            self.dirty.add(_key(COMMITTED, *key))

    # --- rows -------------------------------------------------------------------------------------------------------

    def keys(self) -> Iterable[bytes]:
        """The keys of all rows: requests with staged parts, commits under way, last commits by channel and app, finished versions
        by app."""
        yield from (_key(STAGED, number) for number in self.requests)
        yield from (_key(UNDER_WAY, decision) for decision in self.under_way)
        yield from (_key(COMMITTED, uid, app) for uid, app in self.committed)
        yield from (FINISHED + app for app in self.finished)

    def row(self, key: bytes) -> bytes | None:
        """The row with that key; None if it is gone."""
        kind, number, app = key[:1], int.from_bytes(key[1:9]), key[9:]
        row: pb.Staged | pb.Commit | pb.Committed | pb.Finished | None
        if kind == STAGED:
            row = self._staged_row(number)
        elif kind == UNDER_WAY:
            row = self.under_way.get(number)
        elif kind == COMMITTED:
            row = self.committed.get((number, app))
        else:
            row = self.finished.get(key[1:])
        return None if row is None else row.SerializeToString()

    def _staged_row(self, number: int) -> pb.Staged | None:
        request = self.requests.get(number)
        if request is None:
            return None
        row = pb.Staged(app=request.app, version=request.version, txn=request.txn, at=request.at, user=request.user)
        for sequence in request.sequences:
            part = self.staged[sequence]
            row.parts.add(uid=part.uid, part=part.part, sequence=sequence, count=part.count, bytes=part.bytes)
        return row

    def load(self, key: bytes, state: bytes) -> None:
        """Take in one row; only before the first `apply`. Staged parts are kept in the order of their sequences, in whichever
        order their rows come."""
        kind = key[:1]
        if kind == STAGED:
            row = pb.Staged.FromString(state)
            out_of_order = row.parts[0].sequence < next(reversed(self.staged), 0)
            self._add(row, row.parts, int.from_bytes(key[1:9]))
            if out_of_order:
                self.requests = dict(sorted(self.requests.items()))
                self.staged = dict(sorted(self.staged.items()))
        elif kind == UNDER_WAY:
            self.under_way[int.from_bytes(key[1:9])] = pb.Commit.FromString(state)
        elif kind == COMMITTED:
            committed = pb.Committed.FromString(state)
            self.committed[committed.uid, committed.app] = committed
        else:
            finished = pb.Finished.FromString(state)
            self.finished[finished.app] = finished


def writer_refusal(last: pb.Committed | pb.Finished | None, version: int, writer: bytes) -> str:
    """Why *writer* may not take *version* of an app for its own work that is done already: another writer did the *last* one.
    "" if that is the same, if one of them is not told, or if the version is newer."""
    if last is None or version > last.version or not writer or last.writer in (b"", writer):
        return ""
    app, other = (text.decode("utf-8", "replace") for text in (last.app, last.writer))
    return ANOTHER_WRITER.format(version, app, other)


def _make_room(known: dict[Key, Last], keys: Iterable[Key], user: bytes, now: int) -> list[Key] | None:
    """Make room among the *known* apps for those by other *keys*: if it is full, apps without a version in the APP_MEMORY before
    *now* (Unix ns) are forgotten. Returns their keys; None if there is no room, or a user has no more of it."""
    more = sum(key not in known for key in keys)
    if not more:
        return []
    old = [key for key, last in known.items() if last.at < now - limits.APP_MEMORY]
    own = sum(last.user == user and last.at >= now - limits.APP_MEMORY for last in known.values())
    if more > share_left(user, limits.APPS_MAX, len(known) - len(old), own):
        return None
    if len(known) + more <= limits.APPS_MAX:
        return []
    for key in old:
        del known[key]
    return old


def is_same(known: StagedPart, change: pb.Staged, part: pb.StagedPart) -> bool:
    """True if a part that is staged comes from the same rows as the *part* of that name of another request."""
    return (known.request.work, known.count, known.bytes) == (_work(change), part.count, part.bytes)


def _work(change: pb.Staged) -> tuple[bytes, bytes, int]:
    return change.user, change.app, change.version


def _key(kind: bytes, number: int, app: bytes = b"") -> bytes:
    return kind + number.to_bytes(8) + app
