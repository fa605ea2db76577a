"""Raft messages as bytes: fixed little-endian fields, and no format that can carry code (as a pickle does).

    message   length u32 | group u16 | type u8 | fields, and for AppendEntries its entries
    entry     term u64 | kind u8 | length u32 | body        (indexes are consecutive, the first is prev_index + 1)

Groups at rest send only heartbeats and answers to them, all groups at the same time. Those have a short form: many of them, of
different groups, are the fields of one message of type 7 or 8, whose header has group 0:

    heartbeats  (group u16 | term u64 | commit u64 | prev_term u64 | seq u64)*     AppendEntries: no entries, prev_index = commit
    answers     (group u16 | term u64 | seq u64 | next_index u64 | flags u8)*      AppendAnswer

Promises: `decode` returns `encode`'s messages or raises FrameError; it never reads beyond an announced length, and never
allocates more than its input holds. Frequent messages are made by `tuple.__new__`, which the constructor of a NamedTuple,
a Python function, would call. The names of messages are Raft's (Ongaro, "Consensus: Bridging Theory and Practice", 2014).
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan import limits
from stan.errors import StanError
from stan.invariant import InvariantError
from stan.log.types import Entry
from stan.protocol.entries import Kind


class FrameError(StanError):
    """A peer has sent bytes that are no frame or message of this protocol; the link to it is reset."""


class AppendEntries(NamedTuple):
    """Leader to follower: entries that follow the entry *prev_index* of term *prev_term*; a heartbeat if there are none."""

    term: Term
    commit: RaftIndex
    prev_index: RaftIndex
    prev_term: Term
    seq: int  # number of this message among those of this leadership to this follower
    entries: list[Entry]


class AppendAnswer(NamedTuple):
    """Follower to leader: the entries that the follower has durably, or the entry from which the leader has to send again."""

    term: Term
    seq: int  # of the newest AppendEntries that the follower has handled
    next_index: RaftIndex
    success: bool  # the follower's entries below next_index equal the leader's and are durable
    reset: bool  # the leader has to send the entries from next_index on (again)
    counts: bool = True  # False from an amnesiac member, whose answers are part of no majority


class VoteRequest(NamedTuple):
    """Candidate to voters: a request for a vote, or with *pre* the pre-vote before it."""

    term: Term
    last_index: RaftIndex
    last_term: Term
    pre: bool  # only a question: would you vote for me in this term?
    transfer: bool  # the leader itself asked for this election


class VoteAnswer(NamedTuple):
    """Voter to candidate: a vote, the answer to a pre-vote, or a refusal."""

    term: Term  # of the request; the voter's own if it refuses
    pre: bool  # the answer is to a pre-vote
    granted: bool
    partial: bool = False  # of a voter that may have lost acknowledged entries: it elects only with all others


class TimeoutNow(NamedTuple):
    """Leader to its successor: begin an election at once."""

    term: Term


class Readmit(NamedTuple):
    """Leader to an amnesiac member: it is readmitted if its log equals the leader's, durably, up to this entry of this term."""

    term: Term
    index: RaftIndex  # type: ignore[assignment] # hides tuple.index, which nobody calls on a message


Message = AppendEntries | AppendAnswer | VoteRequest | VoteAnswer | TimeoutNow | Readmit

_HEADER = Struct("<IHB")
_APPEND = Struct("<QQQQQI")
_ENTRY = Struct("<QBI")
_ANSWER = Struct("<QQQB")
_VOTE = Struct("<QQQB")
_VOTED = Struct("<QB")
_NOW = Struct("<Q")
_VOUCH = Struct("<QQ")
_HEARTBEAT = Struct("<HQQQQ")
_SHORT_ANSWER = Struct("<HQQQB")

_APPEND_ENTRIES, _APPEND_ANSWER, _VOTE_REQUEST, _VOTE_ANSWER, _TIMEOUT_NOW, _VOUCHED = 1, 2, 3, 4, 5, 6
HEARTBEATS, ANSWERS = 7, 8
BUNDLES = (HEARTBEATS, ANSWERS)
_FLAGS_OF_VOTE, _FLAGS_OF_ANSWER = 3, 7
_KINDS = frozenset(int(kind) for kind in Kind)


def encode(group: GroupId, message: Message) -> list[bytes]:
    """The message's bytes as a list of buffers; bodies of entries are not copied."""
    parts: list[bytes]
    match message:
        case AppendEntries(term, commit, prev_index, prev_term, seq, entries):
            kind = _APPEND_ENTRIES
            parts = [_APPEND.pack(term, commit, prev_index, prev_term, seq, len(entries))]
            for entry in entries:
                parts += (_ENTRY.pack(entry.term, entry.kind, len(entry.body)), entry.body)
        case AppendAnswer(term, seq, next_index, success, reset, counts):
            kind, parts = _APPEND_ANSWER, [_ANSWER.pack(term, seq, next_index, success | reset << 1 | counts << 2)]
        case VoteRequest(term, last_index, last_term, pre, transfer):
            kind, parts = _VOTE_REQUEST, [_VOTE.pack(term, last_index, last_term, pre | transfer << 1)]
        case VoteAnswer(term, pre, granted, partial):
            kind, parts = _VOTE_ANSWER, [_VOTED.pack(term, pre | granted << 1 | partial << 2)]
        case TimeoutNow(term):
            kind, parts = _TIMEOUT_NOW, [_NOW.pack(term)]
        case Readmit(term, index):
            kind, parts = _VOUCHED, [_VOUCH.pack(term, index)]
    length = sum(map(len, parts))
    if length > limits.RAFT_MESSAGE_BYTES_MAX:
        raise InvariantError(f"a message is bounded (length={length})")
    return [_HEADER.pack(length, group, kind), *parts]


def short(group: GroupId, message: Message) -> tuple[int, bytes] | None:
    """HEARTBEATS or ANSWERS, and the fields of *message* in its short form; None if this message has no short form."""
    if isinstance(message, AppendAnswer):
        term, seq, next_index, success, reset, counts = message
        return ANSWERS, _SHORT_ANSWER.pack(group, term, seq, next_index, success | reset << 1 | counts << 2)
    if isinstance(message, AppendEntries) and not message.entries and message.prev_index == message.commit:
        return HEARTBEATS, _HEARTBEAT.pack(group, message.term, message.commit, message.prev_term, message.seq)
    return None


def bundle(kind: int, parts: list[bytes]) -> list[bytes]:
    """Return a message of type *kind* (HEARTBEATS or ANSWERS) made of many short forms, as a list of buffers."""
    return [_HEADER.pack(sum(map(len, parts)), 0, kind), *parts]


def heartbeats(view: memoryview) -> Iterator[tuple[GroupId, Term, RaftIndex, Term, int]]:
    """Group, term, commit, prev_term and seq of each heartbeat in the fields of a HEARTBEATS message; raises FrameError."""
    if len(view) % _HEARTBEAT.size:
        raise FrameError("heartbeats are cut off")
    return _HEARTBEAT.iter_unpack(view)


def answers(view: memoryview) -> tuple[list[tuple[GroupId, AppendAnswer]], FrameError | None]:
    """Return group and answer of each answer in the fields of an ANSWERS message, and the error after them, if there is one."""
    decoded: list[tuple[GroupId, AppendAnswer]] = []
    if len(view) % _SHORT_ANSWER.size:
        return decoded, FrameError("answers are cut off")
    for group, term, seq, next_index, flags in _SHORT_ANSWER.iter_unpack(view):
        if flags > _FLAGS_OF_ANSWER:
            return decoded, FrameError(f"flags {flags} are unknown")
        fields = term, seq, next_index, flags & 1 > 0, flags & 2 > 0, flags & 4 > 0
        decoded.append((group, tuple.__new__(AppendAnswer, fields)))
    return decoded, None


def decode(batch: bytes | memoryview) -> Iterator[tuple[GroupId, Message]]:
    """Group and message of each message in *batch*, those in short form included; raises FrameError."""
    messages, fault = split(batch)
    for kind, group, view in messages:
        if kind == HEARTBEATS:
            for number, term, commit, prev_term, seq in heartbeats(view):
                yield number, heartbeat(term, commit, prev_term, seq)
        elif kind == ANSWERS:
            decoded, error = answers(view)
            yield from decoded
            if error is not None:
                raise error
        else:
            yield group, decode_one(kind, view)
    if fault is not None:
        raise fault


def heartbeat(term: Term, commit: RaftIndex, prev_term: Term, seq: int) -> AppendEntries:
    """The AppendEntries of a heartbeat in short form; raises FrameError."""
    if prev_term > term:
        raise FrameError(f"an entry of term {prev_term} before a leader of term {term}")
    return AppendEntries(term, commit, commit, prev_term, seq, [])


def split(batch: bytes | memoryview) -> tuple[list[tuple[int, GroupId, memoryview]], FrameError | None]:
    """Return type, group and fields of each message in *batch*, and the error if the messages do not fill it exactly."""
    view = memoryview(batch)
    messages: list[tuple[int, GroupId, memoryview]] = []
    position, end = 0, len(view)
    while position < end:
        start = position + _HEADER.size
        if start > end:
            return messages, FrameError(f"message at byte {position}: header cut off")
        length, group, kind = _HEADER.unpack_from(view, position)
        position = start + length
        if position > end:
            return messages, FrameError(f"message at byte {start}: {length} bytes announced, {end - start} there")
        if group and kind in BUNDLES:
            return messages, FrameError(f"messages of many groups under the number of group {group}")
        messages.append((kind, group, view[start:position]))
    return messages, None


def decode_one(kind: int, view: memoryview) -> Message:
    """Decode the fields of a message whose type is neither HEARTBEATS nor ANSWERS; raises FrameError."""
    if kind == _APPEND_ENTRIES:
        return _decode_append(view)
    if kind == _APPEND_ANSWER:
        term, seq, next_index, flags = _fields(_ANSWER, view)
        _check_flags(flags, _FLAGS_OF_ANSWER)
        return AppendAnswer(Term(term), seq, RaftIndex(next_index), flags & 1 > 0, flags & 2 > 0, flags & 4 > 0)
    if kind == _VOTE_REQUEST:
        term, last_index, last_term, flags = _fields(_VOTE, view)
        _check_flags(flags)
        return VoteRequest(Term(term), RaftIndex(last_index), Term(last_term), bool(flags & 1), bool(flags & 2))
    if kind == _VOTE_ANSWER:
        term, flags = _fields(_VOTED, view)
        _check_flags(flags, _FLAGS_OF_ANSWER)
        return VoteAnswer(Term(term), bool(flags & 1), bool(flags & 2), bool(flags & 4))
    if kind == _TIMEOUT_NOW:
        return TimeoutNow(Term(_fields(_NOW, view)[0]))
    if kind == _VOUCHED:
        term, index = _fields(_VOUCH, view)
        return Readmit(Term(term), RaftIndex(index))
    raise FrameError(f"messages of type {kind} are unknown")


def _fields(struct: Struct, view: memoryview) -> tuple[int, ...]:
    if len(view) != struct.size:
        raise FrameError(f"a message has {len(view)} bytes instead of {struct.size}")
    return struct.unpack(view)


def _check_flags(flags: int, most: int = _FLAGS_OF_VOTE) -> None:
    if flags > most:
        raise FrameError(f"flags {flags} are unknown")


def _decode_append(view: memoryview) -> AppendEntries:
    if len(view) < _APPEND.size:
        raise FrameError("an append message is cut off")
    term, commit, prev_index, prev_term, seq, count = _APPEND.unpack_from(view)
    if count > limits.RAFT_APPEND_ENTRIES_MAX:
        raise FrameError(f"{count} entries in one message")
    if prev_term > term:
        raise FrameError(f"an entry of term {prev_term} before a leader of term {term}")
    entries: list[Entry] = []
    position, newest = _APPEND.size, prev_term
    for index in range(prev_index + 1, prev_index + 1 + count):
        start = position + _ENTRY.size
        if start > len(view):
            raise FrameError(f"entry {index}: header cut off")
        entry_term, kind, length = _ENTRY.unpack_from(view, position)
        position = start + length
        if position > len(view) or length > limits.RAFT_COMMAND_BYTES_MAX:
            raise FrameError(f"entry {index}: {length} bytes announced, {len(view) - start} there")
        if not newest <= entry_term <= term:
            raise FrameError(f"entry {index}: term {entry_term} after {newest}, from a leader of term {term}")
        if kind not in _KINDS:
            raise FrameError(f"entry {index}: kind {kind} is unknown")
        newest = entry_term
        entries.append(tuple.__new__(Entry, (index, entry_term, kind, bytes(view[start:position]))))
    if position != len(view):
        raise FrameError(f"{len(view) - position} bytes behind the last entry")
    return tuple.__new__(AppendEntries, (term, commit, prev_index, prev_term, seq, entries))
