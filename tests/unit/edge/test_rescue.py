"""Rescue of a cluster: the plan, and what is written into a survivor's directory, with the power cut at each write."""

import json
from dataclasses import replace

import pytest
from stan_protocol.scalars import GroupId

from stan.edge.cluster import rescue
from stan.edge.cluster.membership import epoch_number
from stan.edge.cluster.rescue_plan import FoundCopy, RescueError, RescuePlan, SurvivorFindings, losses, plan
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.groupfiles import groups_on_disk
from stan.edge.storage.manifest import RecordedNodes, read_manifest
from stan.edge.storage.storage import Storage
from stan.errors import Damage, StartError
from stan.log.types import Entry
from stan.protocol.entries import Kind
from stan.protocol.proto import entries_pb2 as pb
from stan.raft.configuration import decode, encode
from stan.testing.loop import run_now
from tests.kit.batches import batch, entry
from tests.kit.files import PowerCut
from tests.kit.storage import StorageNode, on_the_spot

ABC, ABCDE = ["a", "b", "c"], ["a", "b", "c", "d", "e"]
RUNS = 44


# --- the plan -------------------------------------------------------------------------------------------------------------


def copy(last=10, last_term=3, **facts):
    """What a survivor holds of a group of a, b and c; all of it in one term unless told otherwise."""
    facts = {
        "term": last_term,
        "committed": 1,
        "committed_term": 1,
        "terms": [[1, 1], [2, last_term]],
        "configured": 0,
        "voters": ABC,
        "changes": [],
        "votes": True,
        "whole": True,
        "channels": {},
        "uids": {},
        **facts,
    }
    return FoundCopy(last_index=last, last_term=last_term, **facts)


def findings(node, copies=None, **facts):
    facts = {
        "cluster_id": "town",
        "identity": "X",
        "raft_groups": 1,
        "replicas": 3,
        "names": ABC,
        "founders": ABC,
        "version": 0,
        "nodes_version": 0,
        "next_uid": 1,
        "names_taken": [],
        "epoch": 0,
        **facts,
    }
    copies = {0: copy(), 1: copy()} if copies is None else copies
    return SurvivorFindings(node=node, copies=copies, **facts)


def of_five(node, *copies, **facts):
    """A node of a cluster of five whose groups have five voters."""
    made = {number: replace(one, voters=ABCDE) for number, one in enumerate(copies)}
    return findings(node, made, names=ABCDE, founders=ABCDE, replicas=5, **facts)


def test_the_only_survivor_goes_on_with_its_copies():
    made = plan([findings("a")])
    assert (made.survivors, made.lost, epoch_number(made.epoch)) == (["a"], ["b", "c"], 1)
    assert [(group.chosen, group.index, group.term, group.gone) for group in made.groups] == [
        ("a", 11, 4, ["b", "c"])
    ] * 2


def test_a_group_that_has_its_majority_is_not_touched():
    with pytest.raises(RescueError, match="every group has its majority in a, b"):
        plan([findings("a"), findings("b")])
    four = [*"abcd"]
    a = findings("a", {0: copy(), 1: copy(voters=["a", "c", "d"])}, names=four, founders=four)
    b = findings("b", {0: copy()}, names=four, founders=four)
    made = plan([a, b])
    assert [group.group for group in made.groups] == [1]
    assert made.lost == ["c", "d"]


def test_who_has_forgotten_its_votes_is_no_part_of_a_majority():
    forgetful = copy(votes=False, last=4)
    made = plan([findings("a"), findings("b", {0: forgetful, 1: forgetful})])
    assert [group.chosen for group in made.groups] == ["a", "a"]


def test_groups_that_came_since_the_founding_are_rescued_too():
    """What one survivor knows of them counts; of a group of which nobody has a copy nothing is left."""
    grown = [findings("a", {0: copy(), 1: copy(), 2: copy(voters=["a", "b"])}, pool=3), findings("b")]
    made = plan(grown)
    assert made.pool == 3
    assert [(group.group, group.chosen, group.nothing_left) for group in made.groups] == [
        (2, "a", False),
        (3, made.groups[1].chosen, True),
    ]
    assert RescuePlan.of(json.loads(json.dumps(made.document()))) == made


def test_the_majority_has_to_be_one_in_every_configuration_that_is_known():
    changing = copy(changes=[["a", "b", "c", "d"]])
    made = plan([findings("a", {0: copy(), 1: changing}), findings("b")])
    assert [(group.group, group.gone) for group in made.groups] == [(1, ["c", "d"])]


@pytest.mark.parametrize("others", [{"last": 9}, {"last": 30, "last_term": 2}])
def test_the_newest_copy_goes_on(others):
    made = plan([of_five("a", copy(**others), copy()), of_five("b", copy(), copy(**others))])
    assert [group.chosen for group in made.groups] == ["b", "a"]


def test_what_is_known_to_be_committed_beats_a_newer_term():
    """An entry of a leader that never committed it, and one that a later leader has committed behind it."""
    uncommitted = copy(last=5, last_term=2, committed=3, committed_term=1, terms=[[3, 1], [4, 2]])
    committed = copy(last=4, last_term=1, committed=4, committed_term=1, terms=[[4, 1]])
    made = plan([of_five("a", uncommitted, uncommitted), of_five("b", committed, committed)])
    assert [group.chosen for group in made.groups] == ["b", "b"]
    assert all(group.term == 3 for group in made.groups)


def test_the_plan_is_the_same_wherever_and_in_whatever_order_it_is_made():
    a, b = of_five("a", copy(), copy(last=12)), of_five("b", copy(last=11), copy())
    there = [SurvivorFindings.of(json.loads(json.dumps(one.document()))) for one in (b, a)]
    assert there == [b, a]
    assert plan([a, b]) == plan(there)
    assert plan([a, b]).epoch == plan(there).epoch != plan([a]).epoch
    made = plan([a, b])
    assert RescuePlan.of(json.loads(json.dumps(made.document()))) == made


def test_findings_that_were_changed_are_refused():
    document = findings("a").document()
    document["copies"][0]["last_index"] += 1
    for wrong in (document, {}, {"what": "else"}):
        with pytest.raises(RescueError, match="not the findings"):
            SurvivorFindings.of(wrong)


def test_of_a_group_without_a_copy_all_is_lost():
    found = [findings("a", {0: copy()})]
    made = plan(found)
    assert [(group.nothing_left, group.index) for group in made.groups] == [(False, 11), (True, 1)]
    assert any("ALL messages" in line for line in losses(made, found))


def test_a_copy_that_is_not_whole_never_goes_on():
    with pytest.raises(RescueError, match="no survivor has a copy without missing entries: a"):
        plan([findings("a", {0: copy(), 1: copy(whole=False)})])
    made = plan([of_five("a", copy(), copy(whole=False, last=50)), of_five("b", copy(last=2), copy())])
    assert [group.chosen for group in made.groups] == ["a", "b"]


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({"node": "a"}, "two of these directories are of one node"),
        ({"identity": "Y"}, "two clusters"),
        ({"cluster_id": "village"}, "two clusters"),
        ({"epoch": 1 << 32}, "not of the same rescue"),
        ({"node": "z"}, "not one of the nodes that vote"),
    ],
)
def test_survivors_that_do_not_fit_together_are_refused(others, why):
    with pytest.raises(RescueError, match=why):
        plan([findings("a"), findings(**{"node": "b", **others})])


def test_a_cluster_of_which_nothing_is_known_is_not_rescued():
    with pytest.raises(RescueError, match="its metadata is empty"):
        plan([findings("a", identity="")])
    with pytest.raises(RescueError, match="no survivor was named"):
        plan([])


def test_channels_whose_creation_was_lost_keep_their_numbers():
    """Else the next channel that is created would get the messages of another one."""
    copies = {0: copy(), 1: copy(uids={2: "known", 5: "lost", 6: "", 7: "KNOWN"})}
    made = plan([findings("a", copies, next_uid=4, names_taken=["known"])])
    assert made.groups[0].channels == [["", 0], ["lost", 1], ["rescued.6", 1], ["rescued.7", 1]]


def test_each_rescue_has_a_higher_number():
    assert epoch_number(plan([findings("a", epoch=3 << 32 | 77)]).epoch) == 4


def test_a_rescue_that_was_begun_goes_on_as_it_was_planned():
    a, b = of_five("a", copy(), copy()), of_five("b", copy(), copy(last=30))
    made = plan([a, b])
    begun = replace(a, unfinished=made.document())
    assert plan([begun]) == plan([begun, replace(b, copies={})]) == made
    with pytest.raises(RescueError, match="two different rescues"):
        plan([begun, replace(b, unfinished=plan([b]).document())])
    with pytest.raises(RescueError, match="knows of a, b, not of c"):
        plan([begun, of_five("c", copy(), copy())])


def test_the_operator_is_told_what_may_be_lost():
    found = [findings("a", {0: copy(), 1: copy(channels={"orders": 7})})]
    text = "\n".join(losses(plan(found), found))
    assert "acknowledged messages behind entry 10 of group 1 may be lost if only the lost nodes held them" in text
    assert "a: last entry 10 (term 3), known as committed 1; last sequences: orders: 7" in text


# --- the directory --------------------------------------------------------------------------------------------------------


class Survivor(StorageNode):
    """Node a of a, b and c, whose directory is opened as a rescue does it."""

    def __init__(self):
        super().__init__("a")
        self.boot()
        meta = self.storage.logs[GroupId(0)]
        info = pb.MetaChange(cluster_info=pb.ClusterInfo(cluster_id=b"c", raft_groups=2, nuid=b"X"))
        meta.append([Entry(1, 1, Kind.META, info.SerializeToString())])
        meta.sync()
        for _ in range(3):
            base = self.log.channel(7).last_sequence + 1
            self.write([entry(self.log.last_index + 1, batch(7, base, 2), term=2)])
        for number in (0, 1, 2):
            self.storage.members[number].hard_state.save(2, "b")
            self.storage.members[number].hard_state.mark_readmitted()
        self.flush()
        self.close()

    def open(self):
        disk = Disk(directory="/a", files=self.files, boot="", tail_cache_bytes_max=0, rescuing=True)
        self.storage = Storage.recover(
            disk,
            "c",
            2,
            groups=groups_on_disk("/a", self.files),
            node_id="a",
            note=lambda level, text: self.notes.append(f"{level} {text}"),
            offload=on_the_spot,
        )
        self.storage.rows.database = self.medium.open()
        return self.storage

    def found(self):
        return run_now(rescue.find_out(self.storage, tuple(ABC), 3))

    def rescue(self, made=None):
        """All of it; returns the plan."""
        self.open()
        made = made or plan([self.found()])
        rescue.begin(self.storage, made)
        run_now(rescue.carry_out(self.storage, made))
        self.close(clean=False)
        return made

    def facts(self):
        """What is on the disk of each group: the voters, the last entry, the term."""
        self.open()
        logs, members = self.storage.logs, self.storage.members
        facts = {
            int(number): (members[number].voters, log.last_index, log.last_term, members[number].hard_state.term)
            for number, log in logs.items()
        }
        self.close(clean=False)
        return facts


@pytest.fixture
def survivor():
    made = Survivor()
    yield made
    made.medium.close()


def test_findings_tell_what_the_directory_holds(survivor):
    survivor.open()
    found = survivor.found()
    assert (found.node, found.identity, found.names, found.nodes_version) == ("a", "X", ABC, 0)
    assert (found.copies[1].last_index, found.copies[1].last_term, found.copies[1].committed) == (3, 2, 3)
    assert found.copies[1].uids.keys() == {7}


def test_a_directory_that_does_not_record_the_nodes_needs_them_named(survivor):
    survivor.open()
    with pytest.raises(RescueError, match="--peers"):
        run_now(rescue.find_out(survivor.storage))
    survivor.storage.directory.note_nodes(RecordedNodes(ABC, 0, [], 3, belongs=True))
    assert run_now(rescue.find_out(survivor.storage)).names == ABC


def test_a_rescue_makes_the_node_the_only_voter_in_a_new_term(survivor):
    made = survivor.rescue()
    assert survivor.facts() == {
        0: (survivor.storage.members[0].voters, 2 + 7, 3, 3),  # and the channels whose creation nobody knows
        1: (survivor.storage.members[1].voters, 4, 3, 3),
        2: (survivor.storage.members[2].voters, 1, 3, 3),
    }
    assert all(member.voters.names == ["a"] for member in survivor.storage.members.values())
    manifest = read_manifest("/a", survivor.files)
    assert (manifest.epoch, manifest.rescue.plan) == (made.epoch, None)
    assert (manifest.nodes.names, manifest.nodes.version, manifest.nodes.founders) == (["a"], 1, ABC)
    survivor.open()
    forced = survivor.storage.logs[1].entries(4, 4, 1000)[0]
    assert (forced.kind, decode(forced.body)) == (Kind.CONFIG, ("a",))
    assert len(survivor.storage.logs[1].entries(1, 3, 10**6)) == 3


def test_new_groups_that_the_metadata_have_and_the_directory_does_not_count_begin_anew(survivor):
    survivor.open()
    node = pb.FoundingNode(node="b", store=b"b" * 16)
    growth = pb.GrowPool(groups=4, before=2, nodes=[node], voters=[pb.FirstVoters(nodes=[0])] * 2)
    meta = survivor.storage.logs[GroupId(0)]
    changes = pb.MetaChange(raise_level=3), pb.MetaChange(grow_pool=growth)
    meta.append([Entry(2 + at, 1, Kind.META, change.SerializeToString()) for at, change in enumerate(changes)])
    meta.sync()
    survivor.storage.found_groups({GroupId(3): ["a"]}, 2, votes=True)  # cut short: it is not counted
    survivor.close(clean=False)
    made = survivor.rescue()
    assert [(group.group, group.nothing_left) for group in made.groups if group.group > 2] == [(3, True), (4, True)]
    assert read_manifest("/a", survivor.files).groups == 4
    facts = survivor.facts()
    assert [(facts[number][0].names, facts[number][1]) for number in (3, 4)] == [(["a"], 1)] * 2


def test_done_once_more_it_does_nothing(survivor):
    made = survivor.rescue()
    before = survivor.facts()
    survivor.rescue(made)
    assert survivor.facts() == before
    survivor.open()
    with pytest.raises(RescueError, match="every group has its majority in a"):
        plan([survivor.found()])


def test_a_log_that_went_on_since_it_was_looked_at_is_refused(survivor):
    survivor.open()
    made = plan([survivor.found()])
    log = survivor.storage.logs[1]
    log.append([Entry(4, 2, Kind.NOOP, b"")])
    rescue.begin(survivor.storage, made)
    with pytest.raises(Damage, match="ends with entry 4 of term 2, and not with 3"):
        run_now(rescue.carry_out(survivor.storage, made))


def test_a_change_of_voters_that_was_under_way_counts_no_more(survivor):
    survivor.open()
    log = survivor.storage.logs[1]
    log.append([Entry(4, 2, Kind.CONFIG, encode(["a", "b"]))])
    log.sync()
    found = survivor.found()
    assert found.copies[1].changes == [["a", "b"]]
    survivor.close(clean=False)
    survivor.rescue()
    survivor.open()
    assert (survivor.storage.members[1].voters.names, survivor.storage.members[1].voters.index) == (["a"], 5)


@pytest.mark.parametrize("run", range(RUNS))
def test_power_may_be_lost_at_any_write(survivor, run):
    """Before it has begun the node starts as it was, amid of it it refuses, behind it it is rescued; again finishes it."""
    expected = Survivor()
    made = expected.rescue()
    facts = expected.facts()
    expected.medium.close()
    survivor.open()
    survivor.files.cut_power_after(run)
    cut = False
    try:
        rescue.begin(survivor.storage, made)
        run_now(rescue.carry_out(survivor.storage, made))
        survivor.close(clean=False)
    except PowerCut:
        cut = True
        survivor.power_cut(run)
    survivor.files.cut_at = None
    if cut:
        known = read_manifest("/a", survivor.files).rescue
        if known is not None and known.plan is not None:
            with pytest.raises(StartError, match="run stan cluster rescue once more"):
                survivor.boot(load=False)
        survivor.open()
        assert plan([survivor.found()]) == made if known is None or known.plan else True
        survivor.close(clean=False)
    survivor.rescue(made)
    assert survivor.facts() == facts


def test_the_power_is_lost_at_each_write_by_these_runs(survivor):
    survivor.open()
    made = plan([survivor.found()])
    before = survivor.files.calls
    rescue.begin(survivor.storage, made)
    run_now(rescue.carry_out(survivor.storage, made))
    assert survivor.files.calls - before < RUNS
