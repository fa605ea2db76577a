"""The file of a SQL store, damaged in every way: it is as it was, or one sentence ends the start."""

import pytest
from stan_protocol.scalars import GroupId

from stan.config import Config, StoreConfig
from stan.core.broker.broker import Broker
from stan.edge.storage.sqlstorage import SqlStorage
from stan.edge.storage.state_loader import StateLoader
from stan.errors import StanError
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from tests.kit.batches import batch, entry

ONE = GroupId(1)


async def opened(source):
    config = Config(cluster_id="c", store=StoreConfig(kind="sql", source=source, raft_groups=1))
    storage = await SqlStorage.open_file(config, None)
    broker = Broker(config, lambda group, uid: storage.logs[group].channel(uid), b"_INBOX.x.")
    try:
        await StateLoader(storage, broker).load()
    except BaseException:
        await storage.close(clean=False)
        raise
    return storage, broker


async def filled(source):
    storage, broker = await opened(source)
    body = pb.MetaChange(create_channels=pb.CreateChannels(channels=[pb.Channel(name=b"foo", group=1)]))
    StateLoader(storage, broker).append(GroupId(0), Kind.META, body.SerializeToString())
    for at in range(40):
        storage.logs[ONE].append([entry(1 + at, batch(1, 1 + at, 1, size=200), term=1)])
    storage.logs[ONE].sync()
    StateLoader(storage, broker).replay(ONE, 0)
    await storage.flush(broker)
    await storage.release(broker)
    kept = messages(storage)
    await storage.close(clean=True)
    return kept


def messages(storage):
    log = storage.logs[ONE]
    return [log.read(ref) for ref in log.channel(1).refs(1, 99, 1 << 20, 99)]


HARMS = {
    "garbage": lambda content: b"\xa5garbage" * (len(content) // 8),
    "half of it": lambda content: content[: len(content) // 2],
    "without its last page": lambda content: content[:-4096],
    "without its end": lambda content: content[:-100],
    **{f"a bit at {at}/48": (lambda content, at=at: flipped(content, at / 48)) for at in range(48)},
}


def flipped(content, share):
    changed = bytearray(content)
    changed[int(len(content) * share)] ^= 4
    return bytes(changed)


@pytest.mark.parametrize("how", HARMS)
async def test_damaged_file_is_told(tmp_path, how):
    source = tmp_path / "stan.db"
    kept = await filled(source)
    assert len(kept) == 40
    source.write_bytes(HARMS[how](source.read_bytes()))
    told, found = "", kept
    try:
        storage, _ = await opened(source)
        try:
            found = messages(storage)  # one that is damaged is not served
        finally:
            await storage.close(clean=False)
    except StanError as error:
        told = str(error)
    assert found == kept
    assert not told or (str(source) in told and "\n" not in told)
