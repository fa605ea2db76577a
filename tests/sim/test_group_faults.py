"""The program fails in one group of one node: that group freezes there, the node and its other groups go on, others lead it, and
nothing that was acknowledged is lost."""

from dataclasses import replace

import pytest

from stan.core.base.ready import Delivery
from stan.core.services.node import META_GROUP
from stan.errors import FAULT
from stan.invariant import InvariantError
from tests.kit.injected_faults import answer_to, break_delivery
from tests.sim.test_cluster_faults import group_with_messages, peaceful


def broken(*_arguments, **_more):
    raise InvariantError("what never happens has happened")


def half(call, number):
    """Does its work for the group, and fails behind it."""

    def half_done(group, *arguments):
        result = call(group, *arguments)
        if group == number:
            broken()
        return result

    return half_done


def of_group(call, number):
    def perhaps(group, *arguments, **more):
        return broken() if group == number else call(group, *arguments, **more)

    return perhaps


def of_named(call, number):
    """Of a call with something that names its group."""

    def perhaps(named, *arguments):
        return broken() if named.group == number else call(named, *arguments)

    return perhaps


class Unreadable:
    """Records that no kernel takes."""

    def __len__(self):
        return 1


def of_deliveries(call, number):
    def send(sends, silent):
        garbled = [
            one._replace(records=Unreadable()) if isinstance(one, Delivery) and one.group == number else one
            for one in sends
        ]
        return call(garbled, silent)

    return send


def break_attribute(find, name):
    def break_it(node, number):
        setattr(find(node, number), name, broken)

    return break_it


def wrap(find, name, wrapper):
    def break_it(node, number):
        owner = find(node, number)
        setattr(owner, name, wrapper(getattr(owner, name), number))

    return break_it


def break_publishes(node, number):
    filters, view = node.broker.parts.filters, node.broker.view
    admit = filters.admit
    filters.admit = lambda batch, *more: broken() if view.group_number(batch.channel) == number else admit(batch, *more)


def entries(node, _number):
    return node.broker.entries


def storage(node, _number):
    return node.storage


def raft(node, number):
    return node.cluster_node.groups[number]


def break_rows(node, number):
    storage = node.storage
    changes = storage.rows.changes
    storage.rows.changes = lambda made, group, mark: broken() if group == number else changes(made, group, mark)


def break_requests(node, number):
    """Of clients, for channels of the group, or for the metadata."""
    broker = node.broker
    for subject, handle in list(broker.frames.original.items()):
        broker.frames.original[subject] = lambda frame, handle=handle: (
            broken() if broker.frames.original_requests._group_of(frame) == number else handle(frame)
        )


def break_answers(node, number):
    """Of other nodes, to what it asks them."""
    answer_to(node.broker, number, broken)


def break_timers(node, number):
    node.broker.step_alarm(0, broken, number)


BORDERS = {
    "an entry is applied": wrap(entries, "step_committed", of_group),
    "an entry is applied in part": wrap(entries, "step_committed", half),
    "entries are handed out": break_attribute(lambda node, number: raft(node, number)._raft.journal, "entries"),
    "entries become visible": break_attribute(lambda node, number: node.storage.logs[number], "commit"),
    "messages are delivered": lambda node, number: break_delivery(node.broker, number, "pump", broken),
    "acks arrive": lambda node, number: break_delivery(node.broker, number, "ack", broken),
    "progress is told": lambda node, number: break_delivery(node.broker, number, "take", broken),
    "publishes arrive": break_publishes,
    "publishes are sealed": wrap(lambda node, _number: node.broker.parts.publishing, "_seal_group", of_group),
    "a proposal is written": break_attribute(lambda node, number: raft(node, number)._raft.as_leader, "append"),
    "a message of a node arrives": break_attribute(lambda node, number: raft(node, number)._raft, "receive"),
    "a turn": break_attribute(lambda node, number: raft(node, number)._raft, "turn"),
    "the state is written": break_rows,
    "a proposal is noted": wrap(entries, "step_written", of_named),
    "deliveries are made frames": wrap(lambda node, _number: node.cluster_node.gateway, "send", of_deliveries),
    "the log is let go": break_attribute(lambda node, number: node.storage.logs[number], "release"),
    "a sync is done": break_attribute(lambda node, number: raft(node, number)._raft, "synced"),
}


@pytest.fixture
def world():
    world = peaceful(lambda world: len(world.names) == 3 and world.raft_groups == 2)
    world.program_fails = True
    return world


@pytest.fixture
def number(world):
    return group_with_messages(world)


@pytest.mark.parametrize("border", BORDERS)
def test_group_of_channels(world, number, border):
    node = world.leader(number)
    life, others = node.lives, [other for other in node.cluster_node.groups if other != number]

    BORDERS[border](node, number)
    world.history.cause(world.loop.now, world.loop.now, "a group freezes")
    world.run_for(6)

    assert node.alive
    assert node.lives == life
    assert node.cluster_node.groups[number].failed.startswith(FAULT), "it froze"
    assert node.driver.faults.frozen.keys() == {number}
    assert world.leader(number) is not node, "another one leads"
    assert not [other for other in others if node.cluster_node.groups[other].failed]
    assert all(world.leader(other) is not None for other in others)
    assert world.finish() == []


def test_what_an_entry_left_half_done_is_neither_written_down_nor_sent_to_others(world, number):
    node = world.leader(number)
    BORDERS["an entry is applied in part"](node, number)
    world.run_for(1)
    flushed = node.storage.rows.flushed.get(number)
    world.run_for(3)
    assert number not in node.storage.applied
    assert node.storage.rows.flushed.get(number) == flushed
    assert world.finish() == []


def test_the_same_fault_after_a_restart_freezes_the_group_again(world, number):
    node = world.leader(number)
    for _ in range(2):
        BORDERS["an entry is applied"](node, number)
        world.run_for(5)
        assert node.cluster_node.groups[number].failed.startswith(FAULT)
        node.crash(power=False, length=1000)
        world.run_for(0.001)
        assert node.alive
    assert world.finish() == []


def test_a_request_for_a_channel_freezes_its_group(world, number):
    node = world.leader(number)
    break_requests(node, number)
    for client in list(world.clients.values()):
        world.kill_client(client)  # it subscribes again
    world.run_for(12)
    assert node.alive
    assert node.driver.faults.frozen.keys() == {number}
    assert world.finish() == []


@pytest.mark.parametrize(
    "break_it",
    [BORDERS["an entry is applied"], BORDERS["the state is written"], break_requests, break_answers, break_timers],
)
def test_a_node_without_the_metadata_leads_nothing_and_the_others_go_on(world, break_it):
    node = world.leader(META_GROUP)
    life = node.lives
    break_it(node, META_GROUP)
    world.kill_client(next(iter(world.clients.values())))  # it registers again
    world.run_for(12)

    assert node.alive
    assert node.lives == life
    assert node.driver.faults.frozen.keys() == {META_GROUP}
    assert node.cluster_node.leaderships.led == {}
    assert all(world.leader(number) is not None for number in range(3))
    assert world.finish() == []


def test_a_role_that_cannot_begin_freezes_the_group(world, number):
    old = world.leader(number)
    node = next(node for node in world.nodes.values() if node is not old)
    wrap(lambda node, _number: node.broker.roles, "lead_group", of_group)(node, number)
    old.run(old.cluster_node.handovers.hand_over, number, node.name)
    world.run_for(5)
    assert node.alive
    assert node.cluster_node.groups[number].failed.startswith(FAULT)
    assert world.leader(number) is not None
    assert world.finish() == []


def break_disk(node, number):
    """It refuses to put what was received in the place of the old copy."""

    def refused(*_arguments, **_more):
        raise OSError(5, "Input/output error")

    take_place = node.storage.files.take_place
    node.storage.files.take_place = lambda of, **more: refused() if of == number else take_place(of, **more)


def break_loading(node, number):
    read = node.storage.rows.read

    async def perhaps(of):
        if of == number:
            broken()
        return await read(of)

    node.storage.rows.read = perhaps


def break_new_member(node, number):
    make = node.cluster_node.copies._make
    node.cluster_node.copies._make = lambda of: broken() if of == number else make(of)


def follower_of(world, number):
    leader = world.leader(number)
    return next(node for node in world.nodes.values() if node is not leader)


def test_a_node_has_its_old_metadata_until_the_new_ones_are_read(world):
    """It may lead groups of channels meanwhile: without any metadata it would not know where publishes belong."""
    node, leader = follower_of(world, META_GROUP), world.leader(META_GROUP)
    known, seen, read = set(node.broker.view.meta.by_uid), [], node.storage.rows.read

    async def watched(number):
        found = await read(number)
        seen.append((number, set(node.broker.view.meta.by_uid)))
        return found

    node.storage.rows.read = watched
    node.run(node.cluster_node.group_sync._receive, META_GROUP, leader.name)
    world.run_for(6)
    assert known
    assert seen == [(META_GROUP, known)]
    assert world.finish() == []


@pytest.mark.parametrize("break_it", [break_disk, break_loading, break_new_member])
def test_a_copy_that_cannot_be_replaced_freezes_its_group_and_the_node_goes_on(world, number, break_it):
    node, leader = follower_of(world, number), world.leader(number)
    life, others = node.lives, [other for other in node.cluster_node.groups if other != number]

    break_it(node, number)
    node.run(node.cluster_node.group_sync._receive, number, leader.name)
    world.run_for(6)

    assert node.alive
    assert node.lives == life
    assert "could not take its place" in node.cluster_node.groups[number].failed
    assert node.driver.faults.frozen.keys() == {number}
    assert not [other for other in others if node.cluster_node.groups[other].failed]
    assert not node.cluster_node.group_sync._busy, "other groups may be received"
    assert all(world.leader(other) is not None for other in [number, *others])
    if break_it is not break_disk:
        node.crash(power=False, length=1000)  # a new start takes it into use
        world.run_for(3)
        assert not node.cluster_node.groups[number].failed
    assert world.finish() == []


def test_the_metadata_that_cannot_be_replaced_takes_the_leaderships_and_not_the_node(world):
    node = follower_of(world, META_GROUP)
    life = node.lives
    break_disk(node, META_GROUP)
    node.run(node.cluster_node.group_sync._receive, META_GROUP, world.leader(META_GROUP).name)
    world.run_for(12)
    assert node.alive
    assert node.lives == life
    assert node.driver.faults.frozen.keys() == {META_GROUP}
    assert node.cluster_node.leaderships.led == {}
    assert world.finish() == []


def test_a_copy_whose_newest_entries_find_no_room_in_the_received_one_goes_on_as_it_was(world, number):
    node, leader = follower_of(world, number), world.leader(number)
    install = node.storage.install

    def with_more(of):
        """As if the log had got further than what was received."""
        receiver = node.storage._receivers[of]
        index = node.storage.logs[of].last_index - 1
        receiver.offer = replace(receiver.offer, index=index, term=node.storage.logs[of].term_at(index))
        return install(of)

    def refused(*_arguments):
        raise OSError(28, "No space left on device")

    node.storage.install, node.storage.files.carry_over = with_more, refused
    said, note = [], world.note
    world.note = lambda node, level, text: (said.append(text), note(node, level, text))
    node.run(node.cluster_node.group_sync._receive, number, leader.name)
    world.run_for(4)
    assert any("could not be added to them" in text for text in said), said
    assert not node.cluster_node.groups[number].failed
    assert not node.cluster_node.group_sync._busy
    assert world.finish() == []


def test_a_copy_that_cannot_be_told_to_others_freezes_its_group_and_not_the_node(world, number):
    node, leader = follower_of(world, number), world.leader(number)
    life = leader.lives
    wrap(storage, "read_state", of_group)(leader, number)
    node.run(node.cluster_node.group_sync._receive, number, leader.name)
    world.run_for(6)
    assert leader.alive
    assert leader.lives == life
    assert leader.driver.faults.frozen.keys() == {number}
    assert world.leader(number) is not None
    assert world.finish() == []


@pytest.mark.parametrize("step", ["followers_needing_snapshot", "lag"])
def test_what_a_node_does_for_a_group_at_each_tick_freezes_that_group_alone(world, number, step):
    node = world.leader(number)
    setattr(raft(node, number), step, broken)
    world.run_for(5)

    assert node.alive
    assert node.driver.faults.frozen.keys() == {number}
    assert world.leader(number) is not node
    assert world.finish() == []


@pytest.mark.parametrize(
    "find",
    [
        lambda node: (node.copies, "note_incomplete"),
        lambda node: (node.copies.agreement, "hashes"),
        lambda node: (node.copies.agreement, "compare"),
        lambda node: (node.reconfiguration, "tick"),
        lambda node: (node.group_sync, "tick"),
    ],
)
def test_a_tick_that_fails_is_told_once_and_the_node_leads_nothing(world, find):
    node = world.leader(META_GROUP)
    owner, name = find(node.cluster_node)
    said, note = [], world.note
    world.note = lambda of, level, text: (
        said.append((of.name, text)) if level == "ERR" else None,
        note(of, level, text),
    )
    setattr(owner, name, broken)
    world.run_for(12)

    assert node.alive
    assert node.driver.faults.frozen.keys() == {META_GROUP}
    assert node.cluster_node.leaderships.led == {}
    assert all(world.leader(number) is not None for number in range(3))
    assert [text.split(":")[0] for of, text in said if of == node.name] == [
        "group 0",  # by the consensus, and by the driver
        "group 0",
        "without the metadata this node leads nothing",
    ]
