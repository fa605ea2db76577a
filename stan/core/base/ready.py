"""What goes into the broker and what comes out of it.

`Ready` names every output once. The driver handles its fields in the order in which they stand here, so that "durable
before visible" is a matter of where the code stands (model: etcd-io/raft's Ready).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from stan_protocol.scalars import ChannelUid, GroupId, Nanos, RaftIndex, Sequence, WallNanos

from stan import limits

Done = Callable[[object, str], None]
"""Called once with the result of the entry (MetaResult, GroupResult, True) and "", or with None and why it was refused."""

InDoubt = Callable[[], None]
"""Called instead if the fate of the entry is unknown, or another leader has to take it: the request must not be answered."""


class LeaderState:
    """A leadership, as its proposals and its waiting answers know it."""

    __slots__ = ("ended", "written")

    def __init__(self) -> None:
        self.ended = False
        """True once this node no longer leads the group: callbacks that come then have nothing to do."""
        self.written: dict[RaftIndex, Done] = {}
        """Callbacks of its proposals that are in the log and not committed yet."""


class Proposal(NamedTuple):
    """An entry that should be committed, with the callbacks for its outcome."""

    group: GroupId
    kind: int
    body: bytes
    urgent: bool  # a request waits for its commit; progress entries may wait for the next sync
    leader: LeaderState  # once it has ended, neither callback is called
    done: Done
    in_doubt: InDoubt


class LeafPiece(NamedTuple):
    """Messages one behind the other that go to one subject by the leafnode connection."""

    to: bytes
    first: int
    last: int
    consumer_sequence: int  # of the first
    pending: int  # how many messages the consumer will get behind the first


class Weighing(NamedTuple):
    """Numbers by which the size of a delivery is counted."""

    delivered: int  # how often the message is delivered with it
    newest: int  # the last message of the stream


class LeafParcel(NamedTuple):
    """How the messages of a Delivery leave by the leafnode connection: as deliveries of a consumer of JetStream."""

    ack_prefix: bytes  # of the ack subjects: `$JS.ACK.<stream>.<consumer>.`
    pieces: tuple[LeafPiece, ...]
    subject: bytes  # of all messages; b"": a message's key is its subject
    queue: bytes = b""  # one of its members gets each message; b"": all that listen
    headers_only: bool = False
    user: bytes = b""  # by whose leafnode connection; b"": there are no users


class Delivery(NamedTuple):
    """Messages [first, last] of one record batch, for one inbox; or single messages, `picked`: *records* are theirs alone, and
    count from 1."""

    inbox: bytes
    records: bytes | memoryview
    base_sequence: int
    first: int
    last: int
    redelivery_count: int  # 0 = first delivery, not flagged
    group: GroupId  # the group whose log records the delivery
    subscription_id: int  # in the group; several subscriptions may have one inbox
    picked: tuple[int, ...] = ()  # sequences of single messages, as runs: first, last, first, last, ...
    leaf: LeafParcel | None = None  # None: it leaves as messages of STAN

    def runs(self) -> list[tuple[int, int]]:
        """The sequences of its messages, as (first, last)."""
        return list(zip(self.picked[::2], self.picked[1::2], strict=True)) or [(self.first, self.last)]


class LeaseAnswer(NamedTuple):
    """A prepared publication that is right only as long as no other node can lead these groups."""

    data: bytes
    groups: tuple[GroupId, ...]


class LeafFrames(NamedTuple):
    """Prepared frames for the leafnode connection that are right only as long as no other node can lead these groups; behind
    that nobody misses them."""

    data: bytes
    groups: tuple[GroupId, ...]
    user: bytes = b""  # as of LeafParcel


class WaitingAnswers:
    """Answers of a leader that could not leave because its lease had lapsed, in the order in which they were made.

    They wait until it holds again, or the leadership ends: a publisher of this protocol does not ask again, and as long as the
    leader stays nobody else answers. At most `limits.WAITING_ANSWERS_BYTES_MAX`."""

    __slots__ = ("bytes", "queue")

    def __init__(self) -> None:
        self.queue: list[tuple[LeaseAnswer, list[LeaderState]]] = []  # each with the leaders of its groups
        self.bytes = 0

    def add(self, answers: Iterable[tuple[LeaseAnswer, list[LeaderState]]]) -> int:
        """Keep answers, each with the leaders of its groups; returns how many found no room."""
        refused = 0
        for one in answers:
            size = len(one[0].data)
            if self.bytes + size > limits.WAITING_ANSWERS_BYTES_MAX:
                refused += 1
            else:
                self.queue.append(one)
                self.bytes += size
        return refused

    def release(self, holds: Callable[[tuple[GroupId, ...]], bool]) -> list[LeaseAnswer]:
        """Remove and return those that may leave now: of groups of which *holds* says that no other node can lead them. Those of
        a leadership that has ended are dropped."""
        waiting = [one for one in self.queue if not any(leader.ended for leader in one[1])]
        self.queue = [one for one in waiting if not holds(one[0].groups)]
        self.bytes = sum(len(answer.data) for answer, _ in self.queue)
        return [answer for answer, _ in waiting if holds(answer.groups)]


Send = bytes | Delivery | LeaseAnswer | LeafFrames
"""What leaves to NATS: prepared bytes that stay right, deliveries, answers and frames that are right only under a lease."""


class ReportMoment(NamedTuple):
    """When and where a progress entry is made."""

    now: Nanos
    wall: WallNanos
    node: bytes


class Fetch(NamedTuple):
    """A read of records; answered by `FetchedMessages.step_fetched` or `step_fetch_failed`."""

    group: GroupId
    uid: ChannelUid
    cursor_id: int  # 0: not for a cursor
    runs: tuple[tuple[int, int], ...]  # [first, last] each
    bytes_max: int
    number: int  # of this Fetch in its group


class ReadResult(NamedTuple):
    """One record batch of an answer to a Fetch."""

    base_sequence: int
    count: int  # type: ignore[assignment]
    records: bytes | memoryview
    kept: bool = False  # `records` are what the log keeps of a compressed batch


class Replay(NamedTuple):
    """What was heard for channels of a group that this node leads, and is to be handled once more or for the first time."""

    group: GroupId
    channels: frozenset[bytes]
    publishes_since: Nanos | None = None  # nothing but publishes that came later; None: everything


class Ready:
    """One turn's output. No dataclass: each turn makes one or two, in half the time."""

    __slots__ = ("deadline", "drops", "faults", "fetches", "notes", "proposals", "replays", "sends", "trims")

    def __init__(self) -> None:
        self.trims: list[tuple[GroupId, ChannelUid, Sequence]] = []
        """Committed decisions: messages below the sequence are gone. The log trims by itself what a batch says is gone."""
        self.drops: list[tuple[GroupId, ChannelUid]] = []
        """Committed decisions: the channel is gone."""
        self.proposals: list[Proposal] = []
        """To be written before anything of `sends` leaves: these entries record what is sent now."""
        self.sends: list[Send] = []
        """To NATS, in this order: prepared protocol bytes, and deliveries to be rendered by the kernel."""
        self.fetches: list[Fetch] = []
        """Reads, at any time; each one has to be answered."""
        self.notes: list[tuple[str, str]] = []
        """(level, text) for the log."""
        self.faults: list[tuple[GroupId, Exception]] = []
        """The program failed in these groups: they are frozen until a restart."""
        self.replays: list[Replay] = []
        """Of channels that this node has taken over in a group that it leads, or that take messages again."""
        self.deadline: Nanos | None = None
        """Call again no later than this, even if nothing happens."""


class Index(Protocol):
    """What the core sees of a channel's messages: the log's index, pure memory (stan.log.types.ChannelIndex)."""

    @property
    def first_sequence(self) -> Sequence:
        """Oldest kept; 0 if the channel never held a message, last + 1 if all were removed."""

    @property
    def last_sequence(self) -> Sequence:
        """Newest committed; 0 if none. Never goes back."""

    @property
    def bytes(self) -> int:
        """Bytes kept."""

    @property
    def compression(self) -> tuple[int, int]:
        """Bytes of the records in clear, and those that the log has of them, if some are compressed; 0, 0: none is."""

    def accounted(self, record_bytes: int, count: int) -> int:
        """Bytes that *count* messages in *record_bytes* of records add to `bytes`."""

    @property
    def last_timestamp(self) -> WallNanos:
        """Timestamp of the newest message ever; 0 if there was none."""

    @property
    def first_timestamp(self) -> WallNanos:
        """Timestamp of the oldest kept message; 0 if there is none."""

    def timestamp_before(self, sequence: int) -> WallNanos:
        """Timestamp of the newest kept message below *sequence*; 0 if there is none."""

    def sequence_at(self, timestamp: WallNanos) -> Sequence:
        """First kept sequence at or after *timestamp*; last + 1 if none; 0 if the channel never held a message
        (STAN-SPEC 8.1, GetSequenceFromTimestamp)."""

    def kept_from(self, sequence: Sequence) -> Sequence:
        """First kept sequence at or after *sequence*; last + 1 if there is none. Those that were deleted one by one, or have
        expired, are kept."""

    def first_within_bytes(self, bytes_max: int) -> Sequence:
        """Smallest first sequence with which the kept bytes are within *bytes_max*; the newest message always stays."""


class Indexes(Protocol):
    """Where the core finds the index of a channel."""

    def __call__(self, group: GroupId, uid: ChannelUid) -> Index:
        """The index; an empty one for a channel without messages."""
