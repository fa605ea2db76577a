"""The rows of the groups' states in the database: the changes since they were written, and the entry of their state.

Promises: a group's rows are written for one entry as a whole. Of a frozen group nothing more is written.
"""

from collections.abc import Container
from itertools import chain
from typing import Final

from stan_protocol.scalars import GroupId, RaftIndex, Term

from stan.core.broker.broker import Broker
from stan.errors import Damage
from stan.protocol.proto import entries_pb2 as pb
from stan.state.changes import add_rows, add_some_rows
from stan.state.database import Changes, Database

ROWS_AT_ONCE: Final = 250
"""Changed rows of one group that are encoded in one turn of the event loop."""


Marks = dict[GroupId, tuple[RaftIndex, Term]]
"""By group: index and term of the entry as of which its state is."""


class StateRows:
    """The rows of all groups; without a database (None, as with the memory store) nothing is written."""

    def __init__(self) -> None:
        self.database: Database | None = None
        self.flushed: dict[GroupId, RaftIndex] = {}  # the entry as of which a group's rows were last written
        self._stale: set[GroupId] = set()  # groups whose rows are of another state: all of them are written again
        self._frozen: set[GroupId] = (
            set()
        )  # groups whose log, or the program in them, failed: their rows stay as they are
        self._early: dict[GroupId, list[Changes]] = {}  # rows as of entries before the newest, for the next flush
        self._unwritten: dict[GroupId, list[Changes]] = {}  # changes that no flush has written yet

    async def read(self, number: GroupId) -> tuple[pb.Snapshot, str]:
        """Return the state in a group's rows, and their fault, with which the state is empty."""
        if self.database is None:
            return pb.Snapshot(), ""
        try:
            return await self.database.snapshot(number), ""
        except Damage as error:
            return pb.Snapshot(), f"{error}; "

    def mark_stale(self, number: GroupId) -> None:
        """Let the next flush write all rows of a group again, as those in the database are of another state."""
        self._stale.add(number)

    # --- changes --------------------------------------------------------------------------------------------------------

    def take_some(self, broker: Broker, number: GroupId) -> bool:
        """Collect some of a group's changed rows, if there are many, for the next flush, in which the others follow: one event
        loop's turn is too short for all. Returns False if there are few."""
        rows = broker.states.take_some_rows(number, ROWS_AT_ONCE)
        if rows is None:
            return False
        changes = self._begun(number)
        add_some_rows(changes, number, rows)
        if self.database is not None:
            self.database.seal(changes)
            self._early.setdefault(number, []).append(changes)
        return True

    def _begun(self, number: GroupId) -> Changes:
        changes = Changes()
        if number in self._stale:
            self._stale.discard(number)
            changes.clear(number)
        return changes

    def changes(self, broker: Broker, number: GroupId, mark: tuple[RaftIndex, Term]) -> Changes:
        """Return the changed rows of a group as of the entry *mark*; they count as collected."""
        changes = self._begun(number)
        add_rows(changes, number, broker.states.take_changed_rows(number), mark)
        if self.database is not None:
            self.database.seal(changes)
        return changes

    def take_changes(self, broker: Broker, number: GroupId, mark: tuple[RaftIndex, Term]) -> list[Changes]:
        """Return all changes for the next flush: those of `keep_hash` and `take_some` first, then the ones up to *mark*."""
        return [*self._early.pop(number, ()), self.changes(broker, number, mark)]

    def keep_hash(self, broker: Broker, number: GroupId, mark: tuple[RaftIndex, Term]) -> None:
        """Remember the hash of a group's state as of the entry *mark*; its rows go with the next flush."""
        if self.database is not None:
            self._early.setdefault(number, []).append(self.changes(broker, number, mark))
            self.database.ledger(number).keep()

    def hashes(self, number: GroupId) -> list[tuple[RaftIndex, int]]:
        """Hashes of a group's state, by entry, oldest first; all nodes have the same of the same entry."""
        return [] if self.database is None else list(self.database.ledger(number).hashes())

    # --- writing ----------------------------------------------------------------------------------------------------------

    async def write(self, changes: dict[GroupId, list[Changes]], marks: Marks, applied: Container[GroupId]) -> None:
        """Write changes by group, as of *marks*, after those that an earlier attempt could not write.

        A group that is not in *applied* once they are written has another state then.
        """
        if self.database is None:
            return
        for number, changed in changes.items():
            if number not in self._frozen:
                before = self._unwritten.get(number)  # of a flush that failed: it must not grow with each attempt
                self._unwritten[number] = [Changes.joined([*before, *changed])] if before else changed
        writing = {**self._unwritten}
        if writing:
            await self.database.flush(*chain.from_iterable(writing.values()))
        for number, written in writing.items():
            if self._unwritten.get(number) is written:  # the group was neither deleted nor changed since
                del self._unwritten[number]
        for number in changes:
            if number not in self._frozen and number in applied:
                self.flushed[number] = marks[number][0]

    def freeze(self, number: GroupId) -> None:
        """Write nothing more of a group."""
        self._frozen.add(number)
        self.forget_changes(number)

    def unfreeze(self, number: GroupId) -> None:
        """Write a group's rows again: another log has taken the place of the one that failed."""
        self._frozen.discard(number)

    def forget_changes(self, number: GroupId) -> None:
        """Write nothing of the state that a group had until now."""
        self._early.pop(number, None)
        self._unwritten.pop(number, None)

    async def delete(self, number: GroupId) -> None:
        """Delete all rows of a group."""
        self.forget_changes(number)
        if self.database is not None:
            changes = Changes()
            changes.clear(number)
            await self.database.flush(changes)

    def forget(self, number: GroupId) -> None:
        """Forget a group that is no longer on this node."""
        self.flushed.pop(number, None)
        self._stale.discard(number)
        self._frozen.discard(number)
