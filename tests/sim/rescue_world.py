"""A cluster that loses its majority for good, at a random moment and with faults before, and is rescued by its survivors' disks.

Behind the rescue the lost nodes may come back as they were, together; then nodes with empty disks are added. What must be true:
every message that was acknowledged and is on a survivor is there, at its sequence; the cluster goes on; no message is published
to, or stored by, a node that came back; whoever comes back is refused."""

import json
from dataclasses import replace

from stan_protocol.scalars import MILLISECOND, SECOND

from stan.edge.cluster import rescue
from stan.edge.cluster.rescue_plan import RescuePlan, SurvivorFindings, plan
from stan.edge.storage.data_directory import Disk
from stan.edge.storage.groupfiles import groups_on_disk
from stan.edge.storage.manifest import read_manifest
from stan.edge.storage.storage import Storage
from stan.errors import StanError
from tests.kit.files import PowerCut
from tests.sim.clients import Publisher
from tests.sim.cluster_node import SEGMENT_BYTES, SimulatedNode, values_of
from tests.sim.cluster_world import ClusterWorld
from tests.sim.history import History
from tests.sim.member_world import Request
from tests.sim.scene import CHANNELS
from tests.sim.tasks import in_thread

BEHIND = 1_000_000
"""Numbers of messages that are published behind the rescue begin here."""
LIVES_MAX = 1000
"""Connections of one client before the rescue at most."""
ATTEMPTS_MAX = 60
REFUSED = "was rescued without"


class RescueWorld(ClusterWorld):
    """One run."""

    changes_nodes = True

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.crashed_rescues = self.forced = self.refused = self.joined = 0
        self.lost, self.survivors, self.back = [], [], []
        self.rescued_at = 0

    def run(self, safety_s=0):
        """Returns the complaints."""
        draw = self.random
        self.begin()
        end = self.loop.now + (safety_s or draw.choice((2, 3, 4, 5))) * SECOND + draw.randint(0, 999) * MILLISECOND
        self._plan_faults(end)
        self.loop.run_until(end)
        self._lose_majority()
        if not any(groups_on_disk("/data", node.files) for node in self.survivors):
            return self._end()  # it had not begun yet
        made = self._rescue()
        if made is None:
            return self._end()
        self._go_on(made)
        self.loop.run_until(self.loop.now + draw.randint(2, 4) * SECOND)
        self._come_back()
        self.loop.run_until(self.loop.now + 4 * SECOND)
        self._lost_are_refused()
        self._fresh_nodes_join()
        return self.finish()

    def _end(self):
        for node in self.nodes.values():
            node.crash(power=False)
            node.database.close()
        return self.problems

    # --- the loss -----------------------------------------------------------------------------------------------------------

    def _lose_majority(self):
        """All at once, with all clients."""
        draw, names = self.random, list(self.names)
        draw.shuffle(names)
        majority = len(names) // 2 + 1
        count = draw.randint(majority, len(names) - 1)
        self.lost = [self.nodes[name] for name in sorted(names[:count])]
        self.survivors = [self.nodes[name] for name in sorted(names[count:])]
        self.faults.append((self.loop.now, f"{self.lost} are lost"))
        for client in list(self.clients.values()):
            client.die()
            client.alive = True  # so that it does not start again if a fault has planned that
        self.clients.clear()
        self.quiet = True  # nothing is aimed any more
        self.aimed = dict.fromkeys(self.aimed, 0)
        for node in draw.sample(self.lost + self.survivors, len(names)):
            node.kept_down = True
            node.crash(power=draw.random() < 0.5)
        self.loop.run_until(self.loop.now + SECOND // 10)
        self.nats.heal()
        for node in self.nodes.values():
            node.pauses.forget()
            node.disk_slow = False
            node.files.faults.clear()
            node.files.cut_at = None
            node.fill(full=False)

    # --- the rescue ---------------------------------------------------------------------------------------------------------

    def _opened(self, node):
        manifest = read_manifest("/data", node.files)
        disk = Disk(
            directory="/data",
            files=node.files,
            boot=f"boot {node.boots}",
            segment_bytes_max=SEGMENT_BYTES,
            tail_cache_bytes_max=2000,
            rescuing=True,
        )
        storage = Storage.recover(
            disk,
            manifest.cluster_id,
            manifest.raft_groups,
            groups=groups_on_disk("/data", node.files),
            node_id=node.name,
            note=lambda level, text: self.trace(f"{node} rescue {level} {text}"),
            offload=in_thread,
        )
        storage.rows.database = node.database.open()
        return storage

    def _rescue(self):
        """As `stan cluster rescue` does it, with power cuts at any write; returns the plan, None if there is nothing to do."""
        draw, before = self.random, {}
        made = None
        for _ in range(ATTEMPTS_MAX):
            cut = draw.random() < 0.8 and self.crashed_rescues < ATTEMPTS_MAX // 2
            if cut and before:
                draw.choice(self.survivors).files.cut_power_after(draw.randint(0, 30))
            try:
                storages = {node: self._opened(node) for node in self.survivors}
                found = [finished(rescue.find_out(storages[node])) for node in self.survivors]
                for one in found:
                    assert SurvivorFindings.of(json.loads(json.dumps(one.document()))) == one
                if not before:
                    before = {one.node: self._content(storages[self.nodes[one.node]]) for one in found}
                    self._found = found
                if made is None or any(one.unfinished for one in found):
                    try:
                        again = plan(found)
                    except StanError as error:
                        self.trace(f"not rescued: {error}")
                        return None
                    if made is not None and any(one.epoch == made.epoch for one in found) and again != made:
                        self.complain("another plan than the one that was begun")
                    made = RescuePlan.of(json.loads(json.dumps(again.document())))
                for node in self.survivors:
                    rescue.begin(storages[node], made)
                for node in self.survivors:
                    finished(rescue.carry_out(storages[node], made))
                for storage in storages.values():
                    finished(storage.close(clean=False))
                break
            except PowerCut:
                self.crashed_rescues += 1
                for node in self.survivors:
                    node.database.cut()
                    node.files.open_files.clear()
                    node.files = node.files.crash(draw.getrandbits(30))
                    node.files.cut_at = None
                    node.boots += 1
        else:
            self.complain("the rescue never ends")
        for node in self.survivors:
            node.files.cut_at = None
            node.database.cut()
            node.files.open_files.clear()
        self.forced = len(made.groups)
        self.before = before
        return made

    def _content(self, storage):
        """Channel -> sequence -> value, of all groups of a survivor."""
        found = {}
        for number, log in storage.logs.items():
            for uid in log.channels():
                index = log.channel(uid)
                if number and index.last_sequence:
                    for ref in index.refs(index.first_sequence, index.last_sequence, 1 << 40, 1 << 40):
                        for channel, sequence, value in values_of(bytes(log.read(ref))):
                            found.setdefault(channel, {})[sequence] = value
        return found

    # --- behind it ------------------------------------------------------------------------------------------------------------

    def _go_on(self, made):
        """The survivors start; other clients come. What the copies that go on hold is the history from here on."""
        old, self.history = self.history, History()
        history = self.history
        self.channel_of.clear()  # of channels that no survivor knows; others of their numbers may be made
        history.tells_causes = False  # positions are older than what was sent
        history.limits, history.group_of = old.limits, old.group_of
        self.rescued_at = self.loop.now
        chosen = {group.group: group.chosen for group in made.groups}
        for channel in CHANNELS:
            number = history.group_of[channel]
            going_on = self.before[chosen[number]].get(channel, {}) if number in chosen else {}
            anywhere = [content.get(channel, {}) for content in self.before.values()]
            if number not in chosen:
                going_on = max(anywhere, key=len)
            history.stored[channel].update(going_on)
            floor = max(going_on, default=0) - self.limit if self.limit else 0
            on_survivors = {value: at for content in anywhere for at, value in content.items()}
            for value, publish in old.publishes.items():
                if publish.channel != channel:
                    continue
                kept = value in going_on.values()
                history.publishes[value] = publish if kept else replace(publish, ok_at=0)  # that may be there, or not
                if kept:
                    continue
                if publish.ok_at and value in on_survivors and on_survivors[value] > floor:
                    self.complain(
                        f"{channel}: {value} was acknowledged, is on a survivor, and not on the copy that goes on"
                    )
        history.cause(self.loop.now - SECOND, self.loop.now + 8 * SECOND, "rescue")
        self.quiet = False
        for node in self.survivors:
            node.kept_down = False
            node.boot()
        self.make_clients(pace=600 * MILLISECOND)

    def make_clients(self, restless=0.0, pace=60 * MILLISECOND):
        """The positions behind a rescue are new ones: they read all that there is."""
        super().make_clients(restless, pace)
        if not self.rescued_at:
            return
        for client in self.clients.values():
            client.life += LIVES_MAX  # other inboxes than before: what is sent to positions of then does not come here
            if isinstance(client, Publisher):
                client.number = BEHIND
                continue
            self.history.must_finish.pop(client.position, None)
            client.epoch = 50
            if client.client_id[:3] in ("dur", "grp"):
                self.history.must_finish[client.position] = client.channel

    def _come_back(self):
        """The lost nodes, as they were. One whose disk had just been replaced, or that had not joined yet, would be a new node.
        All survivors are there: else nobody could tell the lost nodes, which may be a majority, that there was a rescue."""
        self.aimed = dict.fromkeys(self.aimed, 0)
        self.back = [
            node for node in self.lost if self.random.random() < 0.8 and node.has_listened and not node.replaced
        ]
        for node in self.back:
            self.trace(f"{node} comes back")
            self.loop.after(self.random.choice((0, 10, 900)) * MILLISECOND, self._boot, node)

    def _boot(self, node):
        if not all(survivor.running for survivor in self.survivors):
            self.loop.after(100 * MILLISECOND, self._boot, node)
            return
        node.kept_down = False
        node.boot()
        node.kept_down = True  # it is not started again

    def _lost_are_refused(self):
        for node in self.back:
            if node.alive:
                self.complain(f"{node} came back and runs")
                node.crash(power=False)
        for node in self.lost:
            self.removed[node.name] = self.nodes.pop(node.name)
            node.database.close()
            self.names.remove(node.name)

    def complain(self, text):
        """A node that came back says why it ends."""
        if REFUSED in text:
            self.refused += 1
        else:
            super().complain(text)

    def stored(self, node, batch):
        """What a node that came back knew as committed before is not of this history."""
        if node not in self.back:
            super().stored(node, batch)
        elif any(int(value.rpartition("-")[2]) >= BEHIND for _, _, value in values_of(bytes(batch.records))):
            super().complain(f"{node} came back and has stored a batch")

    def note(self, node, level, text):
        if node in self.back and text.startswith("group") and "leads in" in text:
            super().complain(f"{node} came back, and {text}")
        super().note(node, level, text)

    # --- nodes with empty disks ---------------------------------------------------------------------------------------------

    def _fresh_nodes_join(self):
        """Until there are three again; sometimes under a name of before."""
        names = [f"x{at}" for at in range(2)]
        if self.lost and self.random.random() < 0.5:
            names[0] = self.lost[0].name
        for name in names[: max(0, 3 - len(self.survivors))]:
            node = self.nodes[name] = SimulatedNode(self, name, self.random.randrange(self.servers))
            node.boot()
            end = self.loop.now + 60 * SECOND
            while self.loop.now < end and not self._is_in(name):
                leader = self.leader(0)
                if leader is not None and leader.running:
                    leader.run(leader.cluster_node.broker.parts.nodes.add, Request(name.encode()))
                    leader.run(leader.driver.turns.wake)
                self.loop.run_until(self.loop.now + SECOND // 4)
            if not self._is_in(name):
                leader = self.leader(0)
                why = leader.cluster_node.reconfiguration.under_way() if leader else "no leader"
                self.complain(f"{name} does not get in: {why}")
                return
            self.names.append(name)
            self.joined += 1

    def _is_in(self, name):
        leader = self.leader(0)
        if leader is None or name not in leader.cluster_node.broker.parts.nodes.names:
            return False
        return not leader.cluster_node.reconfiguration.under_way()


def finished(coroutine):
    """What a coroutine returns that waits for nobody."""
    while True:
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
