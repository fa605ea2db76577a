"""What a log remembers of compressed batches, and what it counts."""

import pytest

from stan.errors import Damage
from stan.log.tail import DecompressedBatches
from stan.log.types import BatchRef
from stan.protocol.compressed_batches import BatchCompressor
from stan.protocol.kernel import server as kernel
from tests.kit.batches import rows_of

CHANNEL = b"foo"
COUNT = 50


@pytest.fixture
def kept():
    """What a log keeps of a batch, and the size of its records."""
    rows = rows_of([b"event %d" % number * 10 for number in range(COUNT)])
    return BatchCompressor().stored_form(CHANNEL, rows, kernel.seal(CHANNEL, 1, 7, [rows]))


def ref(position, size):
    return BatchRef(1, COUNT, 7, 1, position, 0, size)


def test_batches_that_did_not_stay_are_counted_again(kept) -> None:
    stored, size = kept
    batches = DecompressedBatches(bytes_max=2 * size)
    for position in (1, 2):
        batches.make(ref(position, size), stored)
    assert batches.get(ref(1, size)) is not None
    batches.make(ref(3, size), stored)
    assert batches.get(ref(2, size)) is None, "it was read least recently"
    assert (batches.totals.batches, batches.totals.again) == (3, 0)
    batches.make(ref(2, size), stored)
    assert (batches.totals.batches, batches.totals.again, batches.totals.clear_bytes) == (4, 1, 4 * size)
    assert len(batches) == 2 * size


def test_checks_and_batches_that_never_stay(kept) -> None:
    stored, size = kept
    batches = DecompressedBatches(bytes_max=size - 1)
    for _ in range(2):
        batches.make(ref(1, size), stored, remember=False)
    assert (batches.totals.batches, batches.totals.again) == (2, 0)
    for _ in range(3):
        batches.make(ref(1, size), stored)
    assert batches.totals.again == 2
    batches.clear()
    batches.make(ref(1, size), stored)
    assert batches.totals.again == 2, "another batch lies there now"


def test_places_that_are_known_are_bounded(kept, monkeypatch) -> None:
    monkeypatch.setattr("stan.log.tail.DECOMPRESSED_PLACES_MAX", 3)
    stored, size = kept
    batches = DecompressedBatches(bytes_max=size)
    for position in range(10):
        batches.make(ref(position, size), stored)
    assert len(batches._forgotten) == 3


def test_damage_is_not_counted(kept) -> None:
    stored, size = kept
    batches = DecompressedBatches()
    with pytest.raises(Damage):
        batches.make(ref(1, size), stored[:-9])
    assert batches.totals.batches == 0
