"""A node that leads all groups, and hears what it says to the other nodes."""

from dataclasses import replace

from tests.kit.core_harness import CLUSTERED, Node

NODES = "_STAN.node.test-cluster."
MANY = replace(CLUSTERED, store=replace(CLUSTERED.store, raft_groups=2))


class Everywhere(Node):
    """A node of a cluster, as a rule with two groups of channels."""

    def __init__(self, entries=(), config=MANY):
        super().__init__(config=config)
        for group, kind, body in entries[1:]:
            self.feed(group, kind, body)
        self.alive |= {client.heartbeat_inbox.decode() for client in self.state.clients.values()}

    def _boot(self):
        self.order = []  # all entries, as they were committed
        super()._boot()

    def _commit_entry(self, group, index, kind, body):
        self.order.append((group, kind, body))
        super()._commit_entry(group, index, kind, body)

    def turn(self):
        super().turn()
        while asked := [said for name in ("meta", "read_index", "moves") for said in self.hear(f"{NODES}{name}")]:
            for said in asked:
                self.hears(self.request(said.subject, said.payload, said.reply))
            for said in [said for said in self.said if said.subject.startswith("_INBOX.node.")]:
                self.said.remove(said)
                self.hears(
                    self.request("_INBOX.node.*", said.payload, "").replace(b"_INBOX.node.*", said.subject.encode(), 1)
                )
