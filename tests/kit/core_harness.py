"""The core on a harness: one broker, its log as plain lists, virtual time, and everything it says decoded.

No IO and no asyncio: what the driver does in production is done here in a few lines, at once and in the same order. Proposals
commit at once unless `hold` is set; `restart()` makes a new broker from what was committed, as a crash leaves it.
"""

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from stan_protocol.frames import Frame
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.proto.admin_pb2 import Event
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.config import ClusterConfig, Config, StoreConfig
from stan.core.base.delivery_policy import DeliveryPolicy
from stan.core.base.ready import Delivery, LeafFrames, LeaseAnswer, ReadResult
from stan.core.broker.broker import Broker
from stan.core.broker.parts import FEATURES
from stan.core.features import BrokerFeature
from stan.edge.nats.gateway import Gateway
from stan.edge.nats.outward import delivery_frames
from stan.level import KNOWN
from stan.protocol.compressed_batches import in_clear
from stan.protocol.entries import STAGING_UID, Kind, decode_batches
from stan.protocol.kernel import server as kernel
from stan.protocol.proto import entries_pb2 as pb
from stan.protocol.staged import sealed
from stan.protocol.user_subjects import published, rules
from tests.kit.broker_state import BrokerState, policies_changed
from tests.kit.guids import mixed

START = 1_700_000_000 * SECOND
GUID_TAIL = b" of the same publisher"


class Index:
    """A channel's messages as a list of batches (base, count, timestamp, records)."""

    def __init__(self):
        self.batches = []
        self.first = 0

    @property
    def last_sequence(self):
        return max(self.first - 1, self.batches[-1][0] + self.batches[-1][1] - 1 if self.batches else 0)

    @property
    def first_sequence(self):
        if not self.batches:
            return self.last_sequence + 1 if self.last_sequence else 0
        return min(max(self.first, self.batches[0][0]), self.last_sequence + 1)

    @property
    def bytes(self):
        return sum(self._size(s) for s in range(self.first_sequence or 1, self.last_sequence + 1))

    compression = 0, 0

    def accounted(self, record_bytes, count):
        return record_bytes + (40 - 4) * count

    def _size(self, sequence):
        _, count, _, records = self.find(sequence)
        return self.accounted(len(records), count) // count

    def find(self, sequence):
        at = bisect_left([b[0] for b in self.batches], sequence + 1) - 1
        return self.batches[at]

    @property
    def last_timestamp(self):
        return self.batches[-1][2] if self.batches else 0

    @property
    def first_timestamp(self):
        return self.find(self.first_sequence)[2] if 0 < self.first_sequence <= self.last_sequence else 0

    def timestamp_before(self, sequence):
        return max((at for base, _, at, _ in self.batches if base < sequence), default=0)

    def sequence_at(self, timestamp):
        if not self.batches:
            return 0
        for base, _, at, _ in self.batches:
            if at >= timestamp and base >= 1:
                return max(base, self.first_sequence)
        return self.last_sequence + 1

    def kept_from(self, sequence):
        return min(max(sequence, self.first_sequence), self.last_sequence + 1)

    def first_within_bytes(self, bytes_max):
        total, sequence = 0, self.last_sequence
        while sequence >= self.first_sequence:
            total += self._size(sequence)
            if total > bytes_max:
                return min(sequence + 1, self.last_sequence)
            sequence -= 1
        return self.first_sequence


@dataclass
class Said:
    """One PUB of the broker."""

    subject: str
    reply: str
    payload: bytes

    @property
    def message(self):
        return wire.MsgProto.FromString(self.payload)


@dataclass
class CoreHarness:
    config: Config = field(default_factory=Config)
    now: int = 10 * SECOND
    wall: int = START
    hold: bool = False  # do not commit
    full: bool = False  # the disk takes nothing
    in_doubt: bool = False  # the disk fails while it writes
    slow: bool = False  # what is read of the disk waits for `answer_reads`
    power_lost: bool = False  # at the next restart
    alive: set = field(default_factory=set)  # heartbeat inboxes that answer
    user: str = ""  # as whom it speaks, as NATS tells
    policy: DeliveryPolicy | None = None  # of all positions; None: those that the broker has for them
    # By group: the first error in it, which has frozen the group, as the driver does; None: it ends the test.
    faults: dict[int, Exception] | None = None
    features: tuple[type[BrokerFeature], ...] = FEATURES

    def __post_init__(self):
        self.logs = defaultdict(list)  # group -> [(index, kind, body)]
        self.indexes = defaultdict(Index)
        self.said: list[Said] = []
        self.leaf_said: list[bytes] = []  # by the leafnode connections
        self.leaf_users: list[bytes] = []  # whose these were; b"": there are no users
        self.lapsed = set()  # groups whose lease is over when something is about to leave
        self.leased = []  # of what was said, what may leave only under a lease
        self.events: list[Event] = []
        self.notes = []
        self.reads = []  # that were asked and are not answered
        self.uncommitted = []
        self.inboxes = 0
        self.guids = mixed(Random(0))
        self._boot()

    # --- the driver ---------------------------------------------------------------------------------------------------

    def within(self, group, call, *args):
        """Call for a group; what fails there ends there."""
        try:
            call(*args)
        except Exception as error:  # noqa: BLE001 - the border of the group
            self._freeze(group, error)

    def _freeze(self, group, error):
        if self.faults is None:
            raise error
        self.faults.setdefault(group, error)
        self.broker.stops.step_failed(group, str(error))

    def _boot(self):
        self.broker = self._make_broker()
        self._heed_policy()
        if not self.logs[0]:
            info = pb.ClusterInfo(cluster_id=b"test-cluster", raft_groups=1, nuid=b"NUID", level=KNOWN)
            self.logs[0].append((1, Kind.META, pb.MetaChange(cluster_info=info).SerializeToString()))
        for group in sorted(self.logs):
            for index, kind, body in self.logs[group]:
                self.broker.states.replay_entry(group, index, kind, body)
        self.broker.lead(self.now, self.wall, unconfirmed=self.power_lost)
        self.turn()

    def _make_broker(self):
        return Broker(self.config, lambda group, uid: self.indexes[group, uid], b"_INBOX.node.", features=self.features)

    @property
    def state(self):
        """What can be asked of the broker's state."""
        return BrokerState(self.broker)

    def follower(self, group=1):
        """The machine of a node that has applied what is committed in the log of a group; its state is that of the broker."""
        node = Broker(self.config, lambda _group, _uid: None, b"_INBOX.other.")
        on_their_way = {(number, index) for number, index, _, _ in self.uncommitted}
        for index, kind, body in self.logs[group]:
            if (group, index) not in on_their_way:
                node.states.replay_entry(group, index, kind, body)
        assert BrokerState(node).snapshot(group) == self.state.snapshot(group)
        return node.services.node.groups[group].machine if group else node.services.node.meta

    def _heed_policy(self):
        if self.policy is None:
            return
        for group in self.broker.services.node.groups.values():
            group.dispatch.members.policy_of = lambda _cursor: self.policy

    def set_policy(self, policy=None, **options):
        """Another policy is in force for all positions: *policy*, or the one with these options."""
        self.policy = policy or DeliveryPolicy(**options)
        self._heed_policy()
        policies_changed(self.broker)
        self.turn()

    def restart(self):
        """Crash and start again: what was committed is there, nothing else."""
        self.uncommitted.clear()
        self.reads.clear()
        self._boot()

    def feed(self, group, kind, body):
        """An entry is committed that this broker has not proposed: of another leader, or of an earlier life."""
        index = len(self.logs[group]) + 1
        self.logs[group].append((index, kind, body))
        self._commit_entry(group, index, kind, body)

    def feed_meta(self, **change):
        self.feed(0, Kind.META, pb.MetaChange(**change).SerializeToString())

    def feed_group(self, group=1, **change):
        self.feed(group, Kind.CHANGE, pb.GroupChange(**change).SerializeToString())

    def fail_heartbeats(self, client_id="me"):
        """The metadata tells that a client does not answer."""
        name = client_id.encode()
        beat = pb.Heartbeat(client_id=name, incarnation=self.state.clients[name].incarnation, failing=True)
        self.feed_meta(heartbeat=beat)

    def hold_channel(self, name):
        """Nobody leads a channel from now on, as while it is moved."""
        self._stops_of(name).departing |= {self.broker.view.meta.channels[name].uid}

    def release_channel(self, name):
        """The channel is led again."""
        self._stops_of(name).departing -= {self.broker.view.meta.channels[name].uid}

    def _stops_of(self, name):
        return self.broker.services.node.groups[self.broker.view.meta.channels[name].group].dispatch.stops

    def forget_progress(self, group):
        """Take the entries that tell only of sent and acked messages out of a group's log, as a loss of power may."""
        kept = []
        for index, kind, body in self.logs[group]:
            told = kind == Kind.CHANGE and pb.GroupChange.FromString(body).WhichOneof("change") is None
            kept.append((index, kind, b"" if told else body))
        self.logs[group] = kept

    def turn(self):
        broker = self.broker
        broker.tick(self.now, self.wall)
        for _ in range(100):
            ready = broker.ready(self.now, self.wall, 8 << 20)
            self.notes += ready.notes
            for group, error in ready.faults:
                self._freeze(group, error)
            frozen = self.faults or {}
            for group, uid, first in ready.trims:
                self.indexes[group, uid].first = max(self.indexes[group, uid].first, first)
            for key in ready.drops:
                self.indexes.pop(key, None)
            for proposal in ready.proposals:
                if self.in_doubt or proposal.group in frozen:
                    broker.entries.step_in_doubt(proposal)
                    continue
                if self.full:
                    broker.entries.step_refused(proposal, "disk full")
                    if not proposal.urgent:
                        broker.stops.step_no_room(proposal.group)
                    continue
                log = self.logs[proposal.group]
                index = len(log) + 1
                log.append((index, proposal.kind, proposal.body))
                self.within(proposal.group, broker.entries.step_written, proposal, index)
                self.uncommitted.append((proposal.group, index, proposal.kind, proposal.body))
            lost = [send for send in ready.sends if self._is_silent(send)]
            for group in self.lapsed:
                broker.stops.step_lease(group, holds=False)
            broker.not_sent(lost)
            for send in ready.sends:
                if send not in lost:
                    self._say(send)
            self.reads += ready.fetches
            if not self.slow:
                self.answer_reads()
            for one in ready.replays:
                self.within(one.group, self.replay_heard, one)
            if not self.hold:
                self.commit()
            services = broker.services
            if broker.has_work or services.outgoing.trims or services.outgoing.drops or services.reports.notes:
                continue
            if self.hold or not self.uncommitted:
                break

    def answer_reads(self):
        """What was asked of the log comes."""
        asked, self.reads = self.reads, []
        for fetch in asked:
            index = self.indexes[fetch.group, fetch.uid]
            found = [
                ReadResult(base, count, records)
                for base, count, _, records in index.batches
                if records
                and base + count > index.first
                and any(base <= last and base + count > first for first, last in fetch.runs)
            ]
            self.within(fetch.group, self.broker.reads.step_fetched, fetch, found)

    def _is_silent(self, send):
        """Whether a send must not leave now."""
        if isinstance(send, Delivery):
            return send.group in {*self.broker.stops.without_room, *self.lapsed, *(self.faults or ())}
        return isinstance(send, LeaseAnswer) and not self.lapsed.isdisjoint(send.groups)

    def leader_part(self, kind, group=1):
        """The part of that class of the group's leader, to be driven by itself."""
        return self.broker.services.leading.part(group, kind)

    def replay_heard(self, one):
        """Something heard is to be handled: without a gateway nothing was."""

    def commit(self):
        taken, self.uncommitted = self.uncommitted, []
        for entry in taken:
            if self.faults is None or entry[0] not in self.faults:
                self.within(entry[0], self._commit_entry, *entry)

    def _commit_entry(self, group, index, kind, body):
        if kind == Kind.RECORDS:
            for batch in decode_batches(body):
                if batch.staged:
                    *_, hidden = self.indexes[group, STAGING_UID].find(batch.staged)
                    records = sealed(hidden, batch.base_sequence, batch.timestamp, batch.expiry)
                    assert len(records) == batch.size
                else:
                    records = bytes(in_clear(batch))
                entry = (batch.base_sequence, batch.count, batch.timestamp, records)
                channel = self.indexes[group, batch.uid]
                channel.batches.append(entry)
                channel.first = max(channel.first, batch.first_sequence)  # as the log does
        self.broker.entries.step_committed(group, index, kind, body)

    def pass_time(self, seconds):
        """Let time go by, stopping at every deadline."""
        end = self.now + round(seconds * SECOND)
        while True:
            due = self.state.next_timer
            step = min(end, max(due, self.now + MILLISECOND)) if due is not None else end
            self.wall += step - self.now
            self.now = step
            self.turn()
            if self.now >= end:
                return

    def _say(self, send):
        if isinstance(send, LeafFrames):
            self.leaf_said.append(send.data)
            self.leaf_users.append(send.user)
            return
        if isinstance(send, Delivery) and send.leaf is not None:
            self.leaf_said += delivery_frames(send)
            self.leaf_users.append(send.leaf.user)
            return
        if isinstance(send, Delivery):
            send = kernel.frames(
                send.records, send.base_sequence, send.first, send.last, send.inbox, send.redelivery_count
            )
        elif isinstance(send, LeaseAnswer):
            self.leased.append(send)
            send = send.data
        for said in _split(send):
            if said.reply and said.subject in self.alive:
                self.broker.frames.step_frame(Frame(3, said.reply.encode(), b"", b"", b""))
            elif said.subject.startswith("_STAN.x.test-cluster.events."):
                self.events.append(Event.FromString(said.payload))
            else:
                self.said.append(said)

    # --- the clients ----------------------------------------------------------------------------------------------------

    def hear(self, subject=None):
        """What was said to a subject (to all) since the last call for it."""
        heard = [s for s in self.said if subject is None or s.subject == subject]
        self.said = [s for s in self.said if s not in heard]
        return heard

    def ask(self, subject, payload, answer):
        self.inboxes += 1
        reply = f"reply.{self.inboxes}"
        self.asks(subject, payload, reply)
        self.turn()
        heard = self.hear(reply)
        return answer.FromString(heard[0].payload) if heard else None

    def asks(self, subject, payload, reply):
        """A request comes; what is said to it shows after the next turn."""
        raw = payload if isinstance(payload, bytes) else payload.SerializeToString()
        handle = self.broker.frames.routes.get(subject, self.broker.frames.step_frame)
        handle(Frame(10, subject.encode(), reply.encode(), b"", raw))

    def accepted(self, name, request):
        """A request that the edge handles comes; returns it if it is to be handled, as a list."""
        taken = []
        frame = Frame(10, f"_STAN.x.test-cluster.{name}".encode(), b"reply.edge", b"", request.SerializeToString())
        self.broker.frames.receiver(name, taken.append)(frame)
        return taken

    def connect(self, client_id="me", *, conn_id=None, alive=True, protocol=1):
        inbox = f"hb.{client_id}.{self.inboxes}"
        if alive:
            self.alive.add(inbox)
        request = wire.ConnectRequest(
            client_id=client_id.encode(),
            heartbeat_inbox=inbox.encode(),
            protocol=protocol,
            conn_id=(conn_id or f"conn-{client_id}-{self.inboxes}").encode() if protocol else b"",
            ping_interval=5,
            ping_max_out=3,
        )
        return self.ask("_STAN.discover.test-cluster", request, wire.ConnectResponse)

    def close(self, client_id="me"):
        request = wire.CloseRequest(client_id=client_id.encode())
        return self.ask("_STAN.close.test-cluster", request, wire.CloseResponse)

    def publish(self, channel, *payloads, client_id="me", conn_id="", key_of=lambda _payload: b""):
        """Publish in one read; returns the errors of the acks, in order ("" = acked). *key_of*: gives the key of a payload."""
        frames = []
        for payload in payloads:
            message = wire.PubMsg(
                client_id=client_id.encode(),
                guid=next(self.guids),
                subject=channel.encode(),
                data=payload,
                conn_id=conn_id.encode(),
                key=key_of(payload),
            ).SerializeToString()
            subject = self._told(b"_STAN.pub.test-cluster." + channel.encode())
            frames.append(b"MSG %b 1 _INBOX.acks %d\r\n%b\r\n" % (subject, len(message), message))
        scan = self._scan(frames)
        self.broker.frames.step_publishes(scan.publishes)
        self.broker.frames.step_malformed([published(frame, rules(self.config)) for frame in scan.malformed], 1)
        self.turn()
        acks = self.hear(f"_STAN.to.{self.user}._INBOX.acks" if self.user else "_INBOX.acks")
        return [wire.PubAck.FromString(s.payload).error.decode() for s in acks]

    def _told(self, subject):
        """A subject as NATS hands it over."""
        return b"_STAN.from.%b.%b" % (self.user.encode(), subject) if self.user else subject

    def _scan(self, frames):
        return kernel.scan(b"".join(frames), 0, 1, 2, b"_STAN.pub.test-cluster.", rules=rules(self.config))

    def subscribe(
        self,
        channel,
        inbox="inbox",
        *,
        client_id="me",
        queue="",
        durable="",
        in_flight=10,
        wait=30,
        start=4,
        seq=0,
        delta=0,
    ):
        request = wire.SubscriptionRequest(
            client_id=client_id.encode(),
            subject=channel.encode(),
            queue_group=queue.encode(),
            inbox=inbox.encode(),
            max_in_flight=in_flight,
            ack_wait_s=wait,
            durable_name=durable.encode(),
            start_position=start,
            start_sequence=seq,
            start_time_delta=delta,
        )
        return self.ask("_STAN.sub.test-cluster", request, wire.SubscriptionResponse)

    def leave(self, channel, ack_inbox, *, client_id="me", unsubscribe=False):
        request = wire.UnsubscribeRequest(client_id=client_id.encode(), subject=channel.encode(), inbox=ack_inbox)
        subject = "_STAN.unsub.test-cluster" if unsubscribe else "_STAN.subclose.test-cluster"
        return self.ask(subject, request, wire.SubscriptionResponse)

    def ack(self, ack_inbox, *sequences, channel=b"foo"):
        self.read_acks(ack_inbox, *sequences, channel=channel)
        self.turn()

    def read_acks(self, ack_inbox, *sequences, channel=b"foo"):
        """Acks arrive; more does in the same turn."""
        frames = []
        for sequence in sequences:
            payload = wire.Ack(subject=channel, sequence=sequence).SerializeToString()
            frames.append(b"MSG %b 2 %d\r\n%b\r\n" % (self._told(ack_inbox), len(payload), payload))
        self.broker.frames.step_acks(self._scan(frames).acks)

    def say(self, ack_inbox, sequence, kind, *, channel=b"foo", **more):
        """A client says something else about a message than that it is done; *more*: fields of the Ack."""
        payload = wire.Ack(subject=channel, sequence=sequence, kind=kind, **more).SerializeToString()
        frame = b"MSG %b 2 %d\r\n%b\r\n" % (self._told(ack_inbox), len(payload), payload)
        self.broker.frames.step_verdicts(self._scan([frame]).verdicts)
        self.turn()

    def received(self, inbox="inbox"):
        """(sequence, redelivered count) of the messages an inbox got since the last call."""
        return [(m.sequence, m.redelivery_count) for m in (s.message for s in self.hear(inbox))]

    def stored(self, name="foo", group=1):
        """Data of every message of a channel, in order."""
        uid = self.state.channels[name.encode()].uid
        out = []
        for base, count, _, records in self.indexes[group, uid].batches:
            frames = kernel.frames(records, base, base, base + count - 1, b"x", 0)
            out += [said.message.data for said in _split(frames)]
        return out


class Link:
    """A connection that is up and takes nothing."""

    up = True
    unsent = 0

    def __init__(self):
        self.subscriptions = {}

    def write(self, _data):
        return True


class RecordingLink(Link):
    """A connection that is up and remembers what was written."""

    def __init__(self):
        super().__init__()
        self.written = b""

    def write(self, data):
        self.written += data
        return True


def harness_with_channels():
    """A server with three channels: `foo` with three messages, the newest a second later, `foo.bar` and `baz` with one."""
    harness = CoreHarness()
    harness.connect()
    harness.publish("foo", b"1", b"2")
    harness.pass_time(1)
    harness.publish("foo", b"3")
    harness.publish("foo.bar", b"1")
    harness.publish("baz", b"1")
    return harness


CLUSTERED = Config(cluster=ClusterConfig(node_id="n1", peers=("n2", "n3")), store=StoreConfig(raft_groups=1))


@dataclass
class Node(CoreHarness):
    """A harness that is one node of a cluster: it leads what `lead` says, hears raw NATS frames through the real gateway, and is
    `fed` the entries that other leaders commit. What it commits itself is also kept in `committed`, to feed others with."""

    config: Config = CLUSTERED

    def _boot(self):
        self.committed = []
        self.broker = self._make_broker()
        self._heed_policy()
        self.gateway = Gateway(self.broker, "_INBOX.NUID.>", lambda *note: self.notes.append(note))
        self.gateway.read_buffer.wake = lambda: None
        self.gateway.connection = Link()
        self.sids = {subject: sid for sid, subject in self.gateway.subscriptions.subjects.items()}
        self.broker.start(self.now, self.wall)
        info = pb.ClusterInfo(
            cluster_id=b"test-cluster", raft_groups=self.config.store.raft_groups, nuid=b"NUID", level=KNOWN
        )
        self.feed_meta(cluster_info=info)

    # --- roles --------------------------------------------------------------------------------------------------------

    def lead(self, *groups, replay=True):
        """Begin to lead, as edge.leadership does it."""
        for group in groups or (1,):
            self.within(group, self._begin, group, replay)
        self.turn()

    def _begin(self, group, replay):
        if group == 0:
            self.broker.roles.lead_meta(b"NUID")
        else:
            self.broker.roles.lead_group(group, unconfirmed=True)
        self.gateway.scope.roles_changed()
        if replay:
            self.gateway.replay(group)

    def follow(self, *groups):
        """Lead no more; what was proposed and not committed is cut from the log."""
        for group in groups or (1,):
            cut = [entry for entry in self.uncommitted if entry[0] == group]
            del self.logs[group][len(self.logs[group]) - len(cut) :]
            self.uncommitted = [entry for entry in self.uncommitted if entry[0] != group]
            if group == 0:
                self.broker.roles.follow_meta()
            else:
                self.within(group, self.broker.roles.follow_group, group)
            self.gateway.scope.roles_changed()
        self.turn()

    def replay_heard(self, one):
        self.gateway.replay_channels(one)

    # --- entries ------------------------------------------------------------------------------------------------------

    def commit(self):
        self.committed += [(group, kind, body) for group, _, kind, body in self.uncommitted]
        super().commit()

    def feed_client(self, client_id="me", conn_id=None, *, replaces=0):
        """The metadata tells of a connection; returns its incarnation."""
        inbox = f"hb.{client_id}.{len(self.logs[0])}"
        self.alive.add(inbox)
        conn = f"conn-{client_id}" if conn_id is None else conn_id
        client = pb.Client(client_id=client_id.encode(), conn_id=conn.encode(), heartbeat_inbox=inbox.encode())
        self.feed_meta(connect=pb.Connect(client=client, replaces=replaces))
        return len(self.logs[0])

    def feed_close(self, client_id="me", *, asked=True):
        """The metadata tells that a connection is gone."""
        incarnation = self.state.clients[client_id.encode()].incarnation
        self.feed_meta(disconnect=pb.Disconnect(client_id=client_id.encode(), incarnation=incarnation, asked=asked))

    def feed_channel(self, name="foo", group=1):
        self.feed_meta(create_channels=pb.CreateChannels(channels=[pb.Channel(name=name.encode(), group=group)]))

    def entries(self, group=1):
        """Bodies of the CHANGE entries in a group's log, progress as "progress"."""
        changes = [pb.GroupChange.FromString(body) for _, kind, body in self.logs[group] if kind == Kind.CHANGE]
        return [change.WhichOneof("change") or "progress" for change in changes]

    # --- frames -------------------------------------------------------------------------------------------------------

    def hears(self, *frames):
        """Raw frames in one read."""
        self.broker.tick(self.now, self.wall)
        self.gateway.read_buffer.on_data(b"".join(frames))
        self.gateway.take_in()
        self.turn()

    def request(self, subject, payload, reply):
        """The raw frame of a request."""
        raw = payload if isinstance(payload, bytes) else payload.SerializeToString()
        line = f"MSG {subject} {self.sids[subject]} {reply}".rstrip()
        return b"%b %d\r\n%b\r\n" % (line.encode(), len(raw), raw)

    def ask(self, subject, payload, answer):
        self.inboxes += 1
        reply = f"reply.{self.inboxes}"
        self.hears(self.request(subject, payload, reply))
        return self.answer(reply, answer)

    def answer(self, reply, answer):
        """What came on a reply subject; None if nothing did."""
        heard = self.hear(reply)
        return answer.FromString(heard[0].payload) if heard else None

    def publish(self, channel, *payloads, client_id="me", conn_id=None):
        """Publish in one read; returns the errors of the acks that came since the last call, in order ("" = acked)."""
        conn = f"conn-{client_id}" if conn_id is None else conn_id
        self.hears(*(pub_frame(channel, data + GUID_TAIL, data, client_id, conn) for data in payloads))
        return self.pub_acks()

    def pub_acks(self):
        return [wire.PubAck.FromString(said.payload).error.decode() for said in self.hear("_INBOX.acks")]

    def ack(self, ack_inbox, *sequences, channel=b"foo"):
        frames = []
        for sequence in sequences:
            payload = wire.Ack(subject=channel, sequence=sequence).SerializeToString()
            frames.append(b"MSG %b 2 %d\r\n%b\r\n" % (ack_inbox, len(payload), payload))
        self.hears(*frames)

    def say(self, ack_inbox, sequence, kind, *, channel=b"foo", **more):
        payload = wire.Ack(subject=channel, sequence=sequence, kind=kind, **more).SerializeToString()
        self.hears(b"MSG %b 2 %d\r\n%b\r\n" % (ack_inbox, len(payload), payload))

    def meta_says(self, applied):
        """Answer the question of this node how far the metadata is; False if it does not ask."""
        replies = [said.reply for said in self.hear("_STAN.node.test-cluster.read_index")]
        for reply in replies:
            self.hears(b"MSG %b 3 %d\r\n%d\r\n" % (reply.encode(), len(b"%d" % applied), applied))
        return bool(replies)

    def forwarded(self):
        """Changes of the metadata that were asked of its leader since the last call."""
        asked = self.hear("_STAN.node.test-cluster.meta")
        return [pb.MetaChange.FromString(said.payload).WhichOneof("change") for said in asked]


def pub_frame(channel, guid, data=b"", client_id="me", conn_id="conn-me", reply="_INBOX.acks", **more):
    """The raw frame of one publish, as a node hears it."""
    message = wire.PubMsg(
        client_id=client_id.encode(),
        guid=guid if isinstance(guid, bytes) else guid.encode(),
        subject=channel.encode(),
        data=data,
        conn_id=conn_id.encode(),
        **more,
    ).SerializeToString()
    line = b"MSG _STAN.pub.test-cluster.%b 1 %b%d" % (
        channel.encode(),
        f"{reply} ".encode() if reply else b"",
        len(message),
    )
    return b"%b\r\n%b\r\n" % (line, message)


def _split(frames):
    while frames:
        line, rest = frames.split(b"\r\n", 1)
        parts = line.decode("utf-8", "surrogateescape").split(" ")
        size = int(parts[-1])
        with_header = parts[0] == "HPUB"  # its payload is then that of both
        yield Said(parts[1], parts[2] if len(parts) == 4 + with_header else "", rest[:size])
        frames = rest[size + 2 :]
