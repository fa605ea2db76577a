"""The lease of a shared store: who may take it and when, and what a holder finds that was frozen, with clocks of our own."""

import os
from dataclasses import replace

import pytest
from stan_protocol.scalars import SECOND

from stan import limits
from stan.edge.standby import store_lease as module
from stan.edge.standby.store_lease import Holder, Keeper, Lease, LeaseFiles, LeaseWatch
from stan.errors import LostLock
from tests.kit.clock import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def files(tmp_path):
    made = LeaseFiles(tmp_path / "ft")
    made.make()
    return made


def take(files, clock, server_id="A", after=0):
    return Lease.acquire(files, after, server_id, clock)


def elsewhere(lease):
    """As if the holder ran on another machine: its lock tells nothing."""
    lease.holder.host = "another"
    lease.renew()
    return lease


def test_first_server_takes_the_lease_at_once(files, clock):
    assert LeaseWatch(files).look(clock()) == 0
    lease = take(files, clock)
    assert (lease.epoch, files.newest(), files.holder(1).server_id) == (1, 1, "A")
    lease.check()
    lease.close(release=True)


def test_one_of_two_takers_gets_the_lease(files, clock):
    lease = take(files, clock, "A")
    assert take(files, clock, "B") is None
    assert lease.holds()


def test_lease_that_is_renewed_is_never_taken(files, clock):
    lease, watch = elsewhere(take(files, clock)), LeaseWatch(files)
    for _ in range(20):
        assert watch.look(clock()) is None
        clock.go(1)
        lease.renew()


def test_lease_is_taken_after_it_was_seen_unchanged_for_long_enough(files, clock):
    elsewhere(take(files, clock))
    watch = LeaseWatch(files)
    assert watch.look(clock()) is None
    clock.go(limits.LEASE_TAKEN / SECOND - 0.001)
    assert watch.look(clock()) is None
    clock.go(0.001)
    assert watch.look(clock()) == 1
    assert not watch.alone


def test_frozen_standby_does_not_count_the_time_it_has_not_seen(files, clock):
    lease, watch = elsewhere(take(files, clock)), LeaseWatch(files)
    assert watch.look(clock()) is None
    clock.go(3600)
    lease._until = clock() + SECOND
    lease.renew()
    assert watch.look(clock()) is None


def test_frozen_holder_finds_itself_superseded_and_stays_so(files, clock):
    old = elsewhere(take(files, clock, "A"))
    clock.go(6)
    new = take(files, clock, "B", after=1)
    for call in (old.check, old.renew, old.fence):
        with pytest.raises(LostLock, match='ft: serverID "B" claims to be active, aborting'):
            call()
    assert not old.holds()
    new.check()


def test_holder_is_superseded_although_its_clock_stood_still(files, clock):
    old = elsewhere(take(files, clock, "A"))
    take(files, clock, "B", after=1)
    with pytest.raises(LostLock):
        old.check()


def test_holder_that_was_late_and_not_superseded_takes_the_next_epoch(files, clock):
    lease, watch = elsewhere(take(files, clock)), LeaseWatch(files)
    watch.look(clock())
    clock.go(60)
    lease.check()
    assert (lease.epoch, files.newest(), files.read(1)) == (2, 2, b"")
    assert watch.look(clock()) is None
    assert Lease.acquire(files, 1, "B", clock) is None


def test_late_holder_and_standby_cannot_both_get_the_next_epoch(files, clock, monkeypatch):
    lease = elsewhere(take(files, clock))
    clock.go(60)
    asked = files.newest

    def newest():
        found = asked()
        monkeypatch.undo()
        assert take(files, clock, "B", after=1) is not None  # between the holder's look and its attempt
        return found

    monkeypatch.setattr(files, "newest", newest)
    with pytest.raises(LostLock, match='"B"'):
        lease.renew()


def test_standby_that_was_frozen_before_it_took_does_not_get_an_old_epoch(files, clock):
    take(files, clock, "A")
    third = None
    for epoch, name in ((1, "B"), (2, "C")):
        third = take(files, clock, name, after=epoch)
    files.forget_before(3)
    assert take(files, clock, "slow", after=1) is None
    assert files.newest() == 3
    third.check()


def test_released_lease_is_taken_at_once(files, clock):
    take(files, clock).close(release=True)
    watch = LeaseWatch(files)
    assert (watch.look(clock()), watch.alone) == (1, True)


def test_lease_of_a_process_of_this_machine_that_is_gone_is_taken_at_once(files, clock):
    lease, watch = take(files, clock), LeaseWatch(files)
    assert watch.look(clock()) is None
    os.close(lease._handle)  # as the end of the process does
    assert (watch.look(clock()), watch.alone) == (1, True)


@pytest.mark.parametrize("told", [{"host": "another"}, {"boot": "earlier"}, {"boot": ""}, {"locked": False}])
def test_free_lock_tells_nothing_unless_it_was_held_on_this_machine(files, clock, told):
    lease = take(files, clock)
    module.write_record(lease._handle, replace(lease.holder, **told))
    os.close(lease._handle)
    assert LeaseWatch(files).look(clock()) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"server_id": 1, "more": 2}', b"\xff" * 9000])
def test_lease_that_says_nothing_is_taken_in_the_end(files, clock, content):
    files.path(4).write_bytes(content)
    watch = LeaseWatch(files)
    assert watch.look(clock()) is None
    clock.go(5)
    assert watch.look(clock()) == 4
    assert take(files, clock, "B", after=4).epoch == 5


def test_holder_whose_files_are_gone_does_nothing_more(files, clock):
    lease = take(files, clock)
    files.path(1).unlink()
    with pytest.raises(LostLock, match="lost store lock, aborting"):
        lease.fence()


def test_store_that_cannot_be_asked_fences(files, clock):
    lease = take(files, clock)
    files.path(1).unlink()
    files.place.rmdir()
    with pytest.raises(LostLock, match="lost store lock, aborting: "):
        lease.fence()


def test_lease_that_is_closed_holds_no_more(files, clock):
    lease = take(files, clock)
    lease.close(release=False)
    lease.close(release=True)
    assert not lease.holds()
    assert not files.holder(1).released


def test_holder_reads_what_it_has_written():
    holder = Holder.here("A")
    assert holder.is_of_this_machine
    assert Holder.read(b"") is None


def test_keeper_renews_and_tells_of_the_loss(files, clock, monkeypatch):
    monkeypatch.setattr(limits, "LEASE_RENEWAL", SECOND // 1000)
    lease = take(files, clock)
    lost = []
    keeper = Keeper(lease, lost.append, lambda _text: None)
    seen = lease.holder.renewals + 3
    while lease.holder.renewals < seen:
        pass
    take(files, clock, "B", after=1)
    keeper._thread.join(20)
    keeper.stop()
    (error,) = lost
    taken = {'ft: serverID "B" claims to be active, aborting', "lost store lock, aborting"}
    assert str(error) in taken, "who has taken it may not have written its name yet"
