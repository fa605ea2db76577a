"""Which record batches a read of several runs gets when it is bounded."""

from stan.edge.batch_lookup import refs_of_runs
from stan.log.memorylog import MemoryLog
from tests.kit.batches import batch, entry


def index_of(*batches):
    """An index of batches of one channel, given as (base, count, bytes of a message)."""
    log = MemoryLog()
    log.append([entry(at, batch(1, base, count, size=size)) for at, (base, count, size) in enumerate(batches, 1)])
    log.commit(log.last_index)
    return log.channel(1)


def test_bounded_read_leaves_no_gap():
    """Whoever asked takes what is missing in front of the last batch for removed: it would never be sent again."""
    index = index_of((1, 2, 30), (3, 3, 30), (6, 1, 30), (7, 1, 30))
    bases = [ref.base_sequence for ref in refs_of_runs(index, ((2, 5), (7, 7)), 100)]
    assert bases == [1]


def test_runs_that_fit_are_read_together():
    index = index_of((1, 2, 30), (3, 3, 30), (6, 1, 30), (7, 1, 30))
    assert [ref.base_sequence for ref in refs_of_runs(index, ((2, 2), (4, 4), (5, 5), (7, 7)), 1000)] == [1, 3, 7]


def test_what_was_removed_ends_no_read():
    index = index_of((1, 2, 30), (3, 3, 30), (6, 1, 30), (7, 1, 30))
    assert [ref.base_sequence for ref in refs_of_runs(index, ((7, 9),), 1000)] == [7]
    assert refs_of_runs(index, ((8, 9),), 1000) == []
