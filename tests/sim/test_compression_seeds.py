"""Simulated runs with compressed channels: what other worlds check of messages holds, and a broken reader is found out."""

import os

import pytest
from stan_protocol import compression

from tests.sim.compression_worlds import NodeCompression
from tests.sim.worlds import found_out, make

SEEDS = int(os.environ.get("STAN_COMPRESSION_SEEDS", "2"))


@pytest.mark.parametrize(
    "kind", ["compression", "cluster-compression", "compressed-tables", "cluster-compressed-tables"]
)
def test_compressed_channels_leave_nothing_to_complain_about(kind):
    compressed = framed = 0
    for seed in range(SEEDS):
        world = make(kind, seed)
        assert world.run() == [], f"replay with: python -m tests.sim --world {kind} --seed {seed}"
        compressed += world.compressed
        framed += world.framed
    assert compressed > 5 * SEEDS, "the runs did something"
    assert framed or kind.endswith("tables")


def forgets_a_row(monkeypatch):
    rows_of = compression.rows_of

    def fewer(frame, bytes_max):
        rows = rows_of(frame, bytes_max)
        return rows[: 4 + int.from_bytes(rows[:4], "little")] * 2 if len(rows) > 100 else rows

    monkeypatch.setattr(compression, "rows_of", fewer)


@pytest.mark.parametrize("mutate", [forgets_a_row])
def test_a_broken_reader_is_found_out(monkeypatch, mutate):
    mutate(monkeypatch)

    assert any(found_out(NodeCompression, seed) for seed in range(4))
