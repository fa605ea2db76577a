"""One server of a fault tolerance group, without NATS: when it tries for the store, what it says, and what others claim."""

import asyncio

import pytest
from stan_protocol.proto import wire_pb2 as wire
from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, StoreConfig
from stan.edge.standby.standby import ActiveServer, StandbyServer, encode_time
from stan.edge.standby.store_lease import Lease, LeaseFiles, LeaseWatch
from tests.kit.clock import Clock
from tests.kit.fake_broker import eventually

UNABLE = "ft: unable to get store lock at this time, going back to standby"
HEARTBEAT = 3


class Log:
    """Lines by level."""

    def __init__(self):
        self.lines = []

    def info(self, text):
        self.lines.append(("INF", text))

    def error(self, text):
        self.lines.append(("ERR", text))

    def texts(self):
        found, self.lines = [text for _, text in self.lines], []
        return found


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def member(tmp_path, clock):
    config = Config(store=StoreConfig(kind="file", directory=tmp_path / "root"), ft_group="g")
    made = StandbyServer(config, "ME", Log(), lambda _state: None, clock=clock)
    yield made
    made.generations.close()


@pytest.fixture
def files(member):
    made = LeaseFiles(member.generations.leases)
    made.make()
    return made


def heartbeat(server, activated, kind=HEARTBEAT):
    data = encode_time(activated)
    return wire.CtrlMsg(msg_type=kind, server_id=server.encode(), data=data).SerializeToString()


def activate(member, files, at=50 * SECOND):
    lease = Lease.acquire(files, files.newest(), "ME", member._clock)
    member._active = ActiveServer(member._config, "ME", member._log, member.generations, member.link, lease)
    member._active._activated = at


# --- standby ----------------------------------------------------------------------------------------------------------


async def test_standby_waits_for_silence_and_then_takes_the_lease(member, files, clock):
    watch = LeaseWatch(files)
    assert not member._try(files, watch)
    clock.go(1)
    member._on_message(heartbeat("OTHER", 1))
    clock.go(1)
    assert not member._try(files, watch)
    clock.go(1)
    assert member._try(files, watch)
    assert (member.lease.epoch, watch.alone) == (1, False)


async def test_standby_that_hears_nothing_stays_so_while_the_lease_is_renewed(member, files, clock):
    other = Lease.acquire(files, 0, "OTHER", clock)
    watch = LeaseWatch(files)
    for _ in range(100):
        clock.go(1)
        other.renew()
        assert not member._try(files, watch)
    texts = member._log.texts()
    assert set(texts) == {UNABLE}
    assert len(texts) == 7  # after 2, 3, 5, 9, 17, 33 and 65 s


async def test_interval_without_heartbeats_differs_by_server_within_bounds(member, files):
    activate(member, files)
    assert 0.9 * limits.FT_MISSED_INTERVAL <= member._missed <= 1.1 * limits.FT_MISSED_INTERVAL
    assert 0.9 * limits.FT_HEARTBEAT_INTERVAL <= member._active._interval <= 1.1 * limits.FT_HEARTBEAT_INTERVAL


async def test_look_that_took_too_long_takes_nothing(member, files, clock):
    class Slow(LeaseWatch):
        def look(self, now):
            clock.go(30)
            return super().look(now)

    clock.go(5)
    assert not member._try(files, Slow(files))
    assert files.newest() == 0


async def test_error_of_the_store_is_told_and_tried_again(member, clock, monkeypatch):
    monkeypatch.setattr(limits, "FT_LOOK_INTERVAL", SECOND // 1000)
    member.generations.root.parent.mkdir(exist_ok=True)
    member.generations.root.write_text("a file where a directory should be")
    stop = asyncio.Event()
    standing_by = asyncio.ensure_future(member._standby(stop))
    async with asyncio.timeout(20):
        await eventually(lambda: member._log.lines)
        member.generations.root.unlink()
        clock.go(5)
        await standing_by
    assert member.lease is not None
    told = {text for text in member._log.texts() if text != UNABLE}  # two if one look was under way meanwhile
    wanted = "ft: error attempting to get the store lock: ft: fatal error getting the store lock: "
    assert [text for text in told if not text.startswith(wanted)] == []
    assert told


# --- active -------------------------------------------------------------------------------------------------------------


async def test_server_that_was_active_earlier_over_another_store_wins(member, files):
    activate(member, files, at=50 * SECOND)
    member._on_message(heartbeat("OTHER", 40 * SECOND))
    assert not member._active._lost.done()  # one may have been on its way for long
    assert member._log.texts() == ['ft: serverID "OTHER" claims to be active']
    member._on_message(heartbeat("OTHER", 40 * SECOND))
    assert str(member._active._lost.result()) == 'ft: serverID "OTHER" claims to be active, aborting'


async def test_claim_of_a_later_server_is_only_told(member, files):
    activate(member, files, at=50 * SECOND)
    for _ in range(5):
        member._on_message(heartbeat("OTHER", 60 * SECOND))
    assert not member._active._lost.done()
    assert member._log.texts() == ['ft: serverID "OTHER" claims to be active'] * 5


async def test_who_has_lost_the_lease_gives_up_at_the_first_claim(member, files, clock):
    activate(member, files)
    Lease.acquire(files, 1, "OTHER", clock)
    member._on_message(heartbeat("OTHER", 60 * SECOND))
    assert str(member._active._lost.result()) == 'ft: serverID "OTHER" claims to be active, aborting'


@pytest.mark.parametrize(
    "payload", [heartbeat("ME", 1), heartbeat("OTHER", 1, kind=4), b"\xff\xff", b"", heartbeat("", 1, kind=0)]
)
async def test_what_claims_nothing_changes_nothing(member, files, payload):
    activate(member, files)
    for _ in range(5):
        member._on_message(payload)
    assert not member._active._lost.done()
    assert member._log.texts() == []
