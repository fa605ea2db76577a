"""What a server would find in a data directory: messages by channel, positions by name. Nothing is served."""

import asyncio

from stan.config import Config, LogConfig, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.log import ServerLog
from stan.edge.storage.state_loader import StateLoader
from stan.edge.storage.storage import Storage
from stan.migration.records import ProtoFields


class Opened:
    """What a server would find in a new directory: messages by channel, cursors by name."""

    def __init__(self, directory, raft_groups=1):
        self.config = Config(
            cluster_id="test-cluster", store=StoreConfig(kind="file", directory=directory, raft_groups=raft_groups)
        )
        self.messages, self.cursors, self.last, self.first, self.batches = {}, {}, {}, {}, {}
        asyncio.run(self._read())

    async def _read(self):
        storage = await Storage.open(self.config, ServerLog(LogConfig()))
        broker = Broker(self.config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")
        try:
            await StateLoader(storage, broker).load()
            self.unconfirmed = storage.unconfirmed
            for name, info in broker.services.node.meta.channels.items():
                log, machine = storage.logs[info.group], broker.services.node.groups[info.group].machine
                index = log.channel(info.uid)
                refs = index.refs(index.first_sequence, index.last_sequence, 1 << 40, 1 << 40)
                self.batches[name] = refs
                self.messages[name] = [fields for ref in refs for fields in unpack(log.read(ref))]
                self.first[name], self.last[name] = index.first_sequence, index.last_sequence
                for cursor in machine.channel(info.uid).cursors.values():
                    self.cursors[cursor.name] = cursor
        finally:
            await storage.close(clean=True)


def unpack(records):
    at, found = 0, []
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "little")
        found.append(ProtoFields(records[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
