"""Fault tolerance groups of real servers over one store: one is active, and nothing acknowledged is lost, whatever happens."""

import asyncio
import signal
import subprocess

import pytest

from stan.edge.standby.standby import decode_time, encode_time
from tests.chaos.load import LASTING_KINDS, Load, Pace
from tests.chaos.seeds import chaos_dice
from tests.kit.ft_pair import STANDBY, Member, Pair
from tests.kit.server import COMMAND, ROOT, until

ACTIVE = "Server is active"


@pytest.fixture
def pair(tmp_path):
    made = Pair(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.end()


PACE = Pace(writers=2, kinds=LASTING_KINDS)


async def test_active_killed_under_load_loses_nothing(pair):
    first, second = pair.members
    async with Load(pair, pace=PACE) as load:
        await load.acknowledged(200)
        await pair.replace(load, first, second, signal.SIGKILL)
        await load.acknowledged(200)
        await asyncio.to_thread(first.wait_for_end)
        first.launch()
        await asyncio.to_thread(until, lambda: STANDBY in first.log_since_start())
        await pair.replace(load, second, first, signal.SIGKILL)
        await load.acknowledged(200)
        await load.finish()
    assert not load.violations()


async def test_frozen_active_is_replaced_and_gives_up_when_it_wakes(pair):
    first, second = pair.members
    async with Load(pair, pace=PACE) as load:
        await load.acknowledged(200)
        await pair.replace(load, first, second, signal.SIGSTOP)
        await load.acknowledged(200)
        first.signal(signal.SIGCONT)
        assert await asyncio.to_thread(first.wait_for_end) == 1
        load.crashed()
        await load.acknowledged(200)
        await load.finish()
    assert not load.violations()
    assert "claims to be active, aborting" in first.log()
    assert second.running
    assert "aborting" not in second.log()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_servers_frozen_in_turn_at_random_moments_lose_nothing(pair):
    dice = chaos_dice()
    active, standby = pair.members
    async with Load(pair, pace=PACE) as load:
        for _ in range(4):
            await load.acknowledged(dice.randrange(1, 400))
            await pair.replace(load, active, standby, signal.SIGSTOP)
            active.signal(signal.SIGCONT)
            assert await asyncio.to_thread(active.wait_for_end) == 1
            active.launch()
            await asyncio.to_thread(until, lambda at=active: STANDBY in at.log_since_start())
            active, standby = standby, active
        await load.acknowledged(100)
        await load.finish()
    assert not load.violations()


def test_pages_tell_active_from_standby(pair):
    first, second = pair.members
    assert (first.status("/streaming/isFTActive"), second.status("/streaming/isFTActive")) == (200, 204)
    assert '"state": "FT_ACTIVE"' in first.text("/streaming/serverz")
    assert '"state": "FT_STANDBY"' in second.text("/streaming/serverz")
    assert (first.status("/healthz/ready"), second.status("/healthz/ready")) == (200, 503)
    assert (second.status("/healthz/startup"), second.status("/healthz/live")) == (200, 200)
    assert not second.serves
    assert second.terminate() == 143
    assert first.terminate() == 143
    assert first.log().count(ACTIVE) == 1


def test_standbys_race_and_one_of_them_wins(pair, tmp_path):
    first, second = pair.members
    third = Member(tmp_path / "c", pair.store, pair.nats, "FILE")
    pair.members.append(third)
    third.launch()
    until(lambda: STANDBY in third.log_since_start(), why=pair.log)
    first.kill9()
    until(lambda: second.serves or third.serves, why=pair.log)
    winner, other = (second, third) if second.serves else (third, second)
    until(lambda: "unable to get store lock" in other.log() or winner.status("/streaming/isFTActive") == 200)
    assert ACTIVE not in other.log()
    assert winner.terminate() == 143
    pair.await_takeover(other)


def test_active_that_stops_in_order_is_followed_at_once(pair):
    first, second = pair.members
    assert first.terminate() == 143
    pair.await_takeover(second)
    assert '"released": true' not in (max((pair.store / "ft").iterdir())).read_text()


def test_wrong_cluster_id_fails_the_activation(pair):
    first, second = pair.members
    second.terminate()
    first.terminate()
    command = [*COMMAND, "-cid", "another", "-ns", pair.url, "-st", "FILE", "-dir", str(pair.store), "-ft_group", "g"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert ended.returncode == 1
    assert 'cluster ID "another" does not match recovered value of "test-cluster"' in ended.stderr
    second.launch()
    pair.await_takeover(second)


def test_lone_server_on_a_shared_store_is_refused(pair):
    command = [*COMMAND, "-ns", pair.url, "-st", "FILE", "-dir", str(pair.store)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)
    assert ended.returncode == 1
    assert "start it with -ft_group" in ended.stderr


def test_memory_store_cannot_be_shared():
    ended = subprocess.run(
        [*COMMAND, "-ft_group", "g"], capture_output=True, text=True, timeout=60, cwd=ROOT, check=False
    )
    assert ended.returncode == 1
    assert "ft: only FILE or SQL stores supported in FT mode" in ended.stderr


def test_activation_times_are_those_of_go():
    at = 1_700_000_000_123_456_789
    assert encode_time(at).hex() == "01" + f"{62_135_596_800 + 1_700_000_000:016x}" + f"{123_456_789:08x}" + "ffff"
    assert decode_time(encode_time(at)) == at
    assert decode_time(b"") is None
    assert decode_time(b"\x02" + encode_time(at)[1:]) is None
