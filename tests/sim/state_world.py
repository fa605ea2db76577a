"""A cluster in which the rows of a node's state are damaged while it is down: a flipped bit, a row that is gone, a whole file."""

from stan_protocol.scalars import MILLISECOND, SECOND

from tests.sim.cluster_world import ClusterWorld
from tests.sim.database import SimDatabase

STRIKES_MAX = 4


class DamagedState(ClusterWorld):
    """One run; the others are well when a node is hit, as its log may have let go of what the state was made of."""

    def __init__(self, seed, *, calm=False):
        super().__init__(seed, calm=calm)
        self.struck = self.told = 0
        self._untold = set()

    def _plan_faults(self, end):
        super()._plan_faults(end)
        for _ in range(self.random.randint(1, STRIKES_MAX)):
            self.loop.at(self.random.randint(self.loop.now + 2 * SECOND, end), self._strike)

    def _strike(self):
        node = self._someone()
        others = [other for other in self.nodes.values() if other is not node]
        if not node.running or not all(other.well and other.votes for other in others):
            return
        node.crash(power=self.random.random() < 0.5, length=self.random.choice((5, 400)) * MILLISECOND)
        how = self.random.choice((self._flip, self._flip, self._flip, self._remove, self._truncate))
        done = how(node)
        if done:
            self.struck += 1
            self.faults.append((self.loop.now, f"{node}: {done}"))

    def _row(self, node):
        """(medium, table, rowid) of a row."""
        medium = node.database.medium
        if medium.in_transaction:
            medium.execute("ROLLBACK")
        tables = [
            name for (name,) in medium.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        ]
        rows = [
            (table, rowid)
            for table in tables
            for (rowid,) in medium.execute(f"SELECT rowid FROM {table} ORDER BY rowid")  # noqa: S608
        ]
        return (medium, *self.random.choice(rows)) if rows else None

    def _flip(self, node):
        found = self._row(node)
        if found is None:
            return ""
        medium, table, rowid = found
        at = medium.execute(f"SELECT * FROM {table} WHERE rowid = {rowid}")  # noqa: S608
        names = [column[0] for column in at.description]
        column, value = self.random.choice(list(zip(names, at.fetchone(), strict=True)))
        if isinstance(value, int):
            changed = value ^ 1 << self.random.randrange(62)
        elif value:
            data = bytearray(value if isinstance(value, bytes) else value.encode())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(7)
            changed = bytes(data) if isinstance(value, bytes) else data.decode()
        else:
            return ""
        medium.execute("PRAGMA ignore_check_constraints = ON")  # a bad medium heeds none
        medium.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE rowid = {rowid}", (changed,))  # noqa: S608
        self._untold.add(node)
        return f"a bit of {column} in a row of {table} is flipped"

    def _remove(self, node):
        found = self._row(node)
        if found is None:
            return ""
        medium, table, rowid = found
        medium.execute(f"DELETE FROM {table} WHERE rowid = {rowid}")  # noqa: S608
        if table != "applied":  # of a group that has no other rows, nothing tells that there was one
            self._untold.add(node)
        return f"a row of {table} is gone"

    def _truncate(self, node):
        """What a start makes of a file that is none: another one."""
        node.database.close()
        node.database = SimDatabase(pauses=True)
        self._untold.discard(node)
        return "the file is lost"

    def note(self, node, level, text):
        if level == "ERR" and text.startswith("state.db: ") and self.struck:
            self.trace(f"{node.name} {level} {text}")
            self._untold.discard(node)
            self.told += 1
        else:
            super().note(node, level, text)

    def finish(self, left_out=None):
        found = super().finish(left_out)
        return found + [f"{node} did not tell of its damaged rows" for node in self._untold]
