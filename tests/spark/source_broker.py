"""Channels in memory behind the part of `BlockingClient` that the source uses, for what it does without Spark and network."""

from types import SimpleNamespace

from stan_client import ChannelInfo, ChannelReplacedError, Fetched, ServerError
from stan_protocol.admin_types import PartedStatus, PartSplitStatus
from stan_protocol.channels import whole_of
from stan_protocol.patterns import matches
from stan_protocol.proto.extension_pb2 import FetchResponse
from stan_protocol.proto.wire_pb2 import MsgProto
from stan_protocol.refusals import UNKNOWN_CHANNEL


class Channel:
    """Messages, of which some may have been removed."""

    def __init__(self, uid, messages=()):
        self.uid = uid
        self.first = 1
        self.lost_until = 0
        self.newest = 0  # of those that were removed
        self.messages = {}
        for data in messages:
            self.add(data)

    @property
    def last(self):
        """Newest sequence ever."""
        return max(self.newest, self.first - 1, *self.messages)

    def add(self, data, timestamp=None, reply="", headers=(), key=b""):
        """One more."""
        sequence = self.last + 1
        at = timestamp or sequence * 1_000_000_000
        message = MsgProto(sequence=sequence, data=data, reply=reply.encode(), timestamp=at, key=key)
        for key, value in headers:
            message.headers.add(key=key.encode(), value=value)
        self.messages[sequence] = message

    def forget_before(self, sequence):
        """Retention."""
        self.remove(*range(self.first, sequence))
        self.first, self.lost_until = sequence, sequence - 1

    def remove(self, *sequences):
        """Compaction, expiry, or an operator."""
        last = self.last
        self.messages = {kept: message for kept, message in self.messages.items() if kept not in sequences}
        self.first = min(self.messages, default=last + 1)
        self.newest = max(self.newest, last)


class SourceBroker:
    """See the module's docstring."""

    def __init__(self, **channels):
        self.channels = {name: Channel(uid, data) for uid, (name, data) in enumerate(channels.items(), 1)}
        self.answer_rows = 3
        self.cluster = "aa"
        self.cursors = {}
        self.failures = []  # raised one by one, before anything is answered
        self.fetch_failures = []  # the same, of read_range, after its first answer
        self.reads = []  # what each read_range was asked for beside the range
        self.waited = []  # wait_s of each info
        self.patterns = []  # and its pattern
        self.positions = []  # and its newer_than
        self.parted = {}  # channels with parts: name -> PartedStatus
        self.looked_up = []  # channels whose parts were asked for

    def __getitem__(self, name):
        return self.channels[name]

    def info(self, channels=(), *, pattern="", newer_than=None, wait_s=0):
        self._fail()
        self.waited.append(wait_s)
        self.patterns.append(pattern)
        self.positions.append(dict(newer_than or {}))
        channels = channels or (() if pattern else self.positions[-1])
        names = [name for name in self.channels if name in channels or (pattern and matches(pattern, name))]
        return {name: self._info(name, self.channels[name], self.positions[-1].get(name)) for name in names}

    def _info(self, name, channel, position):
        size = sum(message.ByteSize() for message in channel.messages.values())
        first = channel.first if channel.last else 0
        times = {sequence: message.timestamp for sequence, message in channel.messages.items()}
        at = max((time for sequence, time in times.items() if position is not None and sequence <= position), default=0)
        kept = (sequence for sequence in sorted(times) if position is not None and sequence > position)
        around = at, 0 if position is None else next(kept, channel.last + 1)
        times = next(iter(times.values()), 0), max(times.values(), default=0)
        return ChannelInfo(
            name, channel.uid, first, channel.last, size, *times, self.cluster, channel.lost_until, *around
        )

    def parts(self, channel):
        self._fail()
        self.looked_up.append(channel)
        return [self.parted[channel]] if channel in self.parted else []

    def divide(self, channel, *parts):
        """Make *channel* with so many parts, or double them; each is the data of its messages."""
        before = self.parted.get(channel, PartedStatus(channel=channel))
        splits = before.splits
        if before.parts:
            assert len(parts) == before.parts
            last = tuple(self.channels[f"{channel}.~{number}"].last for number in range(before.parts))
            splits = (*splits, PartSplitStatus(parts=before.parts, last=last))
        for data in parts:
            number = sum(whole_of(name.encode()) == channel.encode() for name in self.channels)
            self.channels[f"{channel}.~{number}"] = Channel(100 + len(self.channels), data)
        self.parted[channel] = PartedStatus(channel=channel, parts=before.parts + len(parts), splits=splits)

    def sequence_at(self, name, time_ns):
        self._fail()
        channel = self.channels[name]
        later = [message.sequence for message in channel.messages.values() if message.timestamp >= time_ns]
        return min(later, default=channel.last + 1)

    def read_range(
        self, name, first, last, *, uid=0, cluster="", max_bytes=0, requests_in_flight=4, from_replica=False
    ):
        self.reads.append({"max_bytes": max_bytes, "from_replica": from_replica})
        while True:
            self._fail()
            channel = self.channels.get(name)
            if channel is None:
                raise ServerError(UNKNOWN_CHANNEL)
            if uid not in (0, channel.uid) or cluster not in ("", self.cluster):
                raise ChannelReplacedError
            found = self._answer(name, channel, first, min(last, channel.last))
            yield found
            if self.fetch_failures:
                raise self.fetch_failures.pop(0)
            first = found.next_sequence
            if first > min(last, channel.last):
                return

    def _answer(self, name, channel, first, last):
        begin = max(first, channel.first)
        wanted = [sequence for sequence in range(begin, last + 1) if sequence in channel.messages][: self.answer_rows]
        response = FetchResponse(
            uid=channel.uid,
            cluster=bytes.fromhex(self.cluster),
            first_sequence=channel.first,
            lost_until=channel.lost_until,
            last_sequence=channel.last,
            next_sequence=wanted[-1] + 1 if wanted else last + 1,
        )
        bodies = [channel.messages[sequence].SerializeToString() for sequence in wanted]
        response.records = b"".join(len(body).to_bytes(4, "little") + body for body in bodies)
        for sequence in wanted:
            response.runs.add(first_sequence=sequence, count=1)
        return Fetched(name, response)

    def set_bookmark(self, name, positions, *, uids, cluster, read_ns):
        self._fail()
        if cluster not in ("", self.cluster) or any(self.channels[each].uid != uid for each, uid in uids.items()):
            raise ServerError(UNKNOWN_CHANNEL)
        assert read_ns.keys() == positions.keys()
        self.cursors[name] = dict(positions)

    def close(self):
        pass

    def _fail(self):
        if self.failures:
            raise self.failures.pop(0)


def use(monkeypatch, broker):
    """Let everything in this process find *broker*; returns a record of connections that were given up."""
    gone = SimpleNamespace(forgotten=0)

    def forget(_connection, _client):
        gone.forgotten += 1

    for module in ("reading.reading", "transport"):  # in this order: the first one imports from the second
        monkeypatch.setattr(f"pyspark_stan.{module}.client_of", lambda _connection: broker)
        monkeypatch.setattr(f"pyspark_stan.{module}.forget", forget)
    return gone
