"""A cluster node's storage on a simulated disk, and a broker whose groups are filled by hand."""

from stan_protocol.scalars import GroupId

from stan.config import ClusterConfig, Config, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.errors import StanError
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.testing.loop import run_now
from tests.kit.batches import batch, entry
from tests.kit.files import CrashingFiles
from tests.sim.database import SimDatabase

STORE_IDS = {"a": "a" * 32, "b": "b" * 32, "c": "c" * 32, "d": "d" * 32}


async def on_the_spot(call):
    return call()


class StorageNode:
    """One node; `boot` begins its next life. Messages of uid 7 in group 1, all committed as soon as they are written."""

    def __init__(self, name="a", files=None, groups=2, segment_bytes=600, directory="", cipher=None):
        self.name = name
        self.directory = directory or f"/{name}"
        self.files = files or CrashingFiles()
        self.medium = SimDatabase()
        self.group_count = groups
        self.segment_bytes = segment_bytes
        self.cipher = cipher
        self.machine_boot = ""  # "": every start may be one after a loss of power
        self.alone = False
        self.accepts_loss = False
        self.notes = []
        self.storage = None

    @property
    def log(self):
        return self.storage.logs[GroupId(1)]

    def boot(self, *, groups=None, load=True):
        disk = Disk(
            directory=self.directory,
            files=self.files,
            boot=self.machine_boot,
            store_id=STORE_IDS[self.name],
            segment_bytes_max=self.segment_bytes,
            tail_cache_bytes_max=0,
            cipher=self.cipher,
            accepts_loss=self.accepts_loss,
        )
        self.storage = Storage.recover(
            disk,
            "c",
            self.group_count,
            groups=groups,
            node_id="" if self.alone else self.name,
            note=lambda level, text: self.notes.append(f"{level} {text}"),
            offload=on_the_spot,
        )
        self.storage.rows.database = self.medium.open()
        if load:
            self.load()
        return self

    def load(self):
        self.make_broker()
        run_now(StateLoader(self.storage, self.broker, replicated=not self.alone).load())

    def make_broker(self):
        storage = self.storage
        cluster = None if self.alone else ClusterConfig(node_id=self.name)
        config = Config(store=StoreConfig(kind="file", raft_groups=self.group_count), cluster=cluster)
        self.broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")

    def write(self, entries):
        """Append, sync, commit and apply entries of group 1."""
        for one in entries:
            self.log.append([one])
        self.log.sync()
        self.apply(self.log.last_index)

    def apply(self, index):
        """Commit and apply what is in the log of group 1 up to an index."""
        log = self.log
        applied = self.storage.applied[1][0]
        log.commit(index)
        for one in log.entries(applied + 1, index, 10**9):
            self.broker.states.replay_entry(GroupId(1), one.index, one.kind, one.body)
            self.storage.applied[1] = (one.index, one.term)
        machine = self.broker.services.node.groups[1].machine
        for uid, channel in machine.channels.items():
            log.trim(uid, channel.first_sequence)

    def publish(self, count, *, term=1, size=60):
        """Entries of two messages each."""
        for _ in range(count):
            base = self.log.channel(7).last_sequence + 1
            self.write([entry(self.log.last_index + 1, batch(7, base, 2, size=size), term=term)])

    def change(self, *, term=1, **change):
        """An entry that changes the state."""
        body = pb.GroupChange(**change).SerializeToString()
        self.write([entry(self.log.last_index + 1, term=term)._replace(kind=Kind.CHANGE, body=body)])

    def subscribe(self, name, **more):
        """A durable of that name."""
        request = pb.Subscribe(
            uid=7,
            client_id=name.encode(),
            inbox=b"in",
            durable_name=name.encode(),
            max_in_flight=9,
            ack_wait_s=30,
            start_sequence=1,
            incarnation=1,
        )
        self.change(subscribe=request, **more)

    def trim(self, first, **more):
        """Messages below are gone."""
        self.change(trim=pb.Trim(first_sequences=[7, first]), **more)

    def flush(self):
        run_now(self.storage.flush(self.broker))

    def release(self):
        run_now(self.storage.release(self.broker))

    def state(self):
        """The state of group 1."""
        return state_of(self.storage, self.broker, 1)

    def messages(self):
        """What a reader of the channel sees."""
        refs = self.log.channel(7).refs(0, 10**9, 10**9, 10**9)
        return [(ref.base_sequence, ref.count, ref.timestamp, self.log.read(ref)) for ref in refs]

    def entries(self):
        """Everything in the log of group 1, with its holes."""
        return self.log.entries(1, self.log.last_index, 10**9)

    def sender(self, now=lambda: 0):
        return ReadySender(self, self.storage.sender(now))

    def receive(self, sender, session=1, wire=None):
        """Get group 1 and let it take its place."""
        receiver = self.storage.receiver(GroupId(1))
        carry(receiver, sender, session, wire)
        receiver.finish()
        self.install()
        return receiver

    def install(self):
        """What was received becomes the group; the state begins anew with it."""
        self.storage.install(GroupId(1))
        self.load_again()

    def load_again(self):
        """A new machine, as the owner of the broker makes one."""
        group = self.broker.services.node.groups[1]
        group.machine = type(group.machine)(GroupId(1))
        run_now(StateLoader(self.storage, self.broker, replicated=True).load_group(GroupId(1)))

    def close(self, *, clean=True):
        run_now(self.storage.close(clean=clean))
        assert self.files.open_files == {}

    def power_cut(self, seed):
        """The next life begins on what the disk kept."""
        self.files = self.files.crash(seed)
        return self


class ReadySender:
    """Answers requests at once: a state that is to be read first is flushed and read."""

    def __init__(self, node, sender):
        self.node, self.sender = node, sender
        self.expire, self.close = sender.expire, sender.close

    def handle(self, request):
        """See Sender.handle."""
        number, state = self.sender.opens(request), None
        if number is not None:
            self.node.flush()
            try:
                state = self.sender.read(number)
            except StanError as error:
                state = error
        return self.sender.handle(request, state)


def state_of(storage, broker, number):
    """The whole state of a group as it is in memory, as of its newest applied entry."""
    index, term = storage.applied[number]
    snapshot = pb.Snapshot(applied_index=index, applied_term=term)
    if number in storage.members:
        voters = storage.members[number].voters
        if voters.index:
            snapshot.voters[:], snapshot.voters_index = voters.names, voters.index
    if number == 0:
        broker.services.node.meta.snapshot(snapshot)
    else:
        broker.services.node.groups[number].machine.snapshot(snapshot)
    return snapshot


def carry(receiver, sender, session=1, wire=None):
    """Hand requests and answers over until the receiver is done; *wire* may lose, repeat, reorder or spoil answers.

    Returns the bytes that travelled."""
    wire = wire or (lambda answers: answers)
    waiting = receiver.begin(session)
    travelled = 0
    for _ in range(100_000):
        answers = [sender.handle(request) for request in waiting]
        travelled += sum(map(len, answers))
        waiting, done = [], False
        for answer in wire(answers):
            step = receiver.accept(answer)
            if step.failed:
                raise TransferError(step.failed)
            waiting += step.requests
            done = done or step.done
        if done:
            for request in waiting:
                sender.handle(request)
            return travelled
        waiting = waiting or receiver.repeat()
    raise AssertionError("a transfer that goes on for ever")


class TransferError(Exception):
    """The receiver gave up."""
