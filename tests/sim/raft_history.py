"""What must hold in every simulated run of replicated groups, noted while it runs.

R1  term and vote on disk are at least what any sent message shows; one vote per member and term
R2  one leader per group and term
R3  the same entry at an index for every member, for ever; handed out once and in order
R4  an acknowledged proposal is on every member in the end, once; one that was refused or replaced on none
R5  a member's log holds what it acknowledged, until a later leader replaces it; a leader counts itself for no more
A1  what is handed out is durable on the member that applies it: its state is never ahead of its log
R7  after healing every member gets everything, and something new can be committed
R8  at no time two nodes have a lease of one group; who has one knows of everything that was acknowledged
R9  in the end all nodes go by the voters that the newest change named; they all vote, and nobody else does
"""

from stan.protocol.entries import Kind
from stan.raft.transport.codec import AppendAnswer, VoteAnswer, VoteRequest

CHANGE = b"a change of the voters"


class RaftHistory:
    """One run's notes; complaints go to the world."""

    def __init__(self, world):
        self.world = world
        self.leaders = {}  # (group, term) -> node
        self.votes = {}  # (group, node, term) -> candidate
        self.shown = {}  # (node, group) -> highest term shown
        self.committed = {number: {} for number in world.numbers}  # index -> (term, kind, body)
        self.handed = {}  # (node, group) -> newest index
        self.acks = {}  # (node, group) -> (index, its term, term in which it was acknowledged)
        self.values = {}  # body -> what is known of its fate
        self.owners = {}  # (node, group) -> index -> (term, body) of what this life of the node proposed
        self.applied = set()  # (group, index, body) acknowledged to a client
        self.acked_to = dict.fromkeys(world.numbers, 0)
        self.forgotten = set()  # nodes that were replaced
        self.truncations = 0
        self.leased = 0  # looks at a node with a lease
        self._last = {}  # group -> body proposed after healing

    # --- what happens -----------------------------------------------------------------------------------------------------

    def value(self, length):
        body = b"%d:" % len(self.values)
        body += b"x" * length
        self.values[body] = "new"
        return body

    def refused(self, body, *, maybe):
        self.values[body] = "perhaps" if maybe else "refused"

    def proposed(self, node, number, index, term, body):
        self.owners.setdefault((node, number), {}).setdefault(index, []).append((term, body))
        if self.world.quiet and body is not CHANGE:
            self._last[number] = body

    def booted(self, node, number, log, hard_state, saved):
        key = node, number
        if log.last_index < saved:
            self.world.complain(f"A1: {key}: state at {saved}, log ends at {log.last_index}")
        if hard_state.term < self.shown.get(key, 0):
            self.world.complain(f"R1: {key}: term {hard_state.term} after it had shown {self.shown[key]}")
        mine = self.votes.get((number, node, hard_state.term))
        if mine is not None and hard_state.voted_for != mine:
            self.world.complain(f"R1: {key}: voted for {mine} in {hard_state.term}, remembers {hard_state.voted_for}")
        self.handed[key] = saved
        self._holds_acked(key, log, hard_state.term)

    def replaced(self, node):
        """Its disk is gone, with all that it had promised; what others counted on must hold all the same."""
        self.forgotten.add(node)
        for number in self.world.numbers:
            self.shown.pop((node, number), None)
            self.acks.pop((node, number), None)
        self.votes = {key: candidate for key, candidate in self.votes.items() if key[1] != node}

    def _counted(self, log):
        """How much of a log may be acknowledged."""
        return log.last_index if self.world.unsynced else log.durable_index

    def lost_power(self, node):
        """What it had acknowledged and not synced may be gone."""
        self.forgotten.add(node)
        for number in self.world.numbers:
            self.acks.pop((node, number), None)

    def void(self):
        """Nothing that was acknowledged until now has to be there: too many have lost power."""
        for number in self.world.numbers:
            self.committed[number].clear()
            self.acked_to[number] = 0
        self.applied.clear()
        self.values = dict.fromkeys(self.values, "perhaps")

    def died(self, node, number):
        """Nothing is promised to proposers of a dead node, nor of a group whose object was replaced."""
        self.owners.pop((node, number), None)

    def sent(self, node, number, peer, message, log):
        key = node, number
        if isinstance(message, VoteRequest) and message.pre:
            return
        if not (isinstance(message, VoteAnswer) and message.pre):
            self.shown[key] = max(self.shown.get(key, 0), message.term)
        if isinstance(message, VoteAnswer) and message.granted and not message.pre:
            self._voted(number, node, message.term, peer)
        elif isinstance(message, VoteRequest):
            self._voted(number, node, message.term, node)
        elif isinstance(message, AppendAnswer) and message.success:
            index = message.next_index - 1
            if index > self._counted(log):
                self.world.complain(f"R5: {key}: acknowledges {index}, durable is {log.durable_index}")
            if index >= self.acks.get(key, (0,))[0]:
                self.acks[key] = index, log.term_at(index), message.term

    def _voted(self, number, node, term, candidate):
        before = self.votes.setdefault((number, node, term), candidate)
        if before != candidate:
            self.world.complain(f"R1: {node}/{number} voted for {before} and {candidate} in term {term}")

    def looked_at(self, node, number, group):
        """After each turn of the owner."""
        if group._raft.library.is_leader:
            before = self.leaders.setdefault((number, group.term), node)
            if before != node:
                self.world.complain(f"R2: group {number} term {group.term}: {before} and {node}")
            if group.commit_index > max(self._counted(group.log), group._raft.library.term_begins - 1):
                self.world.complain(
                    f"R5: {node}/{number} leads and counts {group.commit_index}, which is not durable here"
                )
        self._holds_acked((node, number), group.log, group.term)

    def _holds_acked(self, key, log, term):
        index, entry_term, ack_term = self.acks.get(key, (0, 0, 0))
        if log.last_index >= index and (index == 0 or log.term_at(index) == entry_term):
            return
        if term <= ack_term:
            self.world.complain(f"R5: {key}: acknowledged {index} of term {entry_term}, log ends at {log.last_index}")
        self.truncations += 1
        self.acks[key] = (0, 0, 0)

    def handed_out(self, node, number, entries, log):
        key, committed = (node, number), self.committed[number]
        if entries[-1].index > self._counted(log):
            self.world.complain(f"A1: {key}: {entries[-1].index} is handed out and not durable")
        for entry in entries:
            if entry.index != self.handed[key] + 1:
                self.world.complain(f"R3: {key}: {entry.index} after {self.handed[key]}")
            self.handed[key] = entry.index
            content = entry.term, entry.kind, entry.body
            if committed.setdefault(entry.index, content) != content:
                self.world.complain(f"R3: {key}: another entry at {entry.index}")

    def settled(self, node, number, entry):
        """An entry is handed out: what became of the proposals of the node at its index. Returns how many were applied."""
        applied = 0
        for term, body in self.owners.get((node, number), {}).pop(entry.index, ()):
            if term == entry.term:
                applied += 1
            if body is CHANGE:
                continue
            self.values[body] = "applied" if term == entry.term else "replaced"
            if term == entry.term:
                self.applied.add((number, entry.index, body))
                self.acked_to[number] = max(self.acked_to[number], entry.index)
        return applied

    def leases(self, node):
        """After whatever a node did: only then can its lease begin."""
        for number in self.world.numbers:
            if not node.has_lease(number):
                continue
            self.leased += 1
            for other in self.world.nodes.values():
                if other is not node and other.has_lease(number):
                    self.world.complain(f"R8: group {number}: {node.name} and {other.name} have a lease")
            known = node.groups[number].commit_index
            if known < self.acked_to[number]:
                self.world.complain(
                    f"R8: {node.name}/{number} has a lease and knows {known} of {self.acked_to[number]}"
                )

    # --- the end ----------------------------------------------------------------------------------------------------------

    def last_words_said(self):
        said = {body for committed in self.committed.values() for _, _, body in committed.values()}
        return all(self._last.get(number) in said for number in self.world.numbers)

    def converged(self):
        if not self.last_words_said():
            return False
        newest = {number: max(self.committed[number]) for number in self.world.numbers}
        return all(
            node.alive
            and self.handed[node.name, number] >= newest[number]
            and set(node.groups[number].members) == set(self.world.final_voters(number))
            and node.groups[number].votes == (node.name in node.groups[number].members)
            for node in self.world.nodes.values()
            for number in self.world.numbers
        )

    def state(self):
        """For a complaint and the trace."""
        return repr(
            {
                (node.name, number): (
                    node.alive,
                    self.handed.get((node.name, number)),
                    (group := node.groups[number]).term,
                    group.leader,
                    group.commit_index,
                    group.log.last_index,
                    group.failed,
                    group.members,
                    group.amnesiac,
                )
                for node in self.world.nodes.values()
                for number in self.world.numbers
            }
        )

    def finish(self):
        complain = self.world.complain
        places = {}
        for number, committed in self.committed.items():
            for index, (_, kind, body) in committed.items():
                if kind not in (Kind.NOOP, Kind.CONFIG):
                    places.setdefault(body, []).append((number, index))
        for body, where in places.items():
            if len(where) > 1:
                complain(f"R4: {body[:12]} was applied at {where}")
            if self.values.get(body) in ("replaced", "refused", None):
                complain(f"R4: {body[:12]} was {self.values.get(body)} and is at {where}")
        for number, index, body in self.applied:
            if self.committed[number].get(index, (0, 0, b""))[2] != body:
                complain(f"R4: acknowledged {body[:12]} is not at {index}")
        for node in self.world.nodes.values():
            for number in self.world.numbers if node.alive else ():
                entries = node.groups[number].log.entries(1, node.groups[number].log.last_index, 1 << 40)
                for entry in entries:
                    content = self.committed[number].get(entry.index)
                    if content is not None and content != (entry.term, entry.kind, entry.body):
                        complain(f"R3: {node.name}/{number}: log differs at {entry.index}")
