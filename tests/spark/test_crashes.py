"""What each delivery promises when something dies, with a real broker, a real Spark and 80,000 rows; see crash_kit, and kills for
many random moments."""

import pytest

from tests.spark import kills
from tests.spark.crash_kit import EVENTS, ROWS, run_event

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize("event", EVENTS)
def test_rows_are_there_as_often_as_their_delivery_promises(tmp_path, event):
    """Idempotent rows too: the repetition is partitioned alike, whatever the order in each partition."""
    outcomes = run_event(tmp_path, event)

    for delivery in ("transactional", "idempotent"):
        assert (outcomes[delivery].duplicates, outcomes[delivery].lost) == (0, 0), outcomes
        assert outcomes[delivery].rows == ROWS
    assert outcomes["at-least-once"].lost == 0
    if event in ("writing", "acked", "committed", "retry"):
        assert outcomes["at-least-once"].duplicates > 0, "else the other two are not put to the test"


@pytest.mark.parametrize("event", ["writing", "acked", "committed"])
def test_update_mode_has_the_same_promises_by_foreach_batch(tmp_path, event):
    outcomes = run_event(tmp_path, event, update=True)

    for delivery in ("transactional", "idempotent"):
        assert (outcomes[delivery].duplicates, outcomes[delivery].lost) == (0, 0), outcomes
    assert outcomes["at-least-once"].lost == 0


@pytest.mark.parametrize("victim", kills.VICTIMS)
def test_kills_at_random_moments_neither_lose_nor_double_a_row(tmp_path, victim, capfd):
    series = ["--victim", victim, "--kills", "2", "--rows", "8000", "--directory", str(tmp_path), "--tables"]
    assert kills.main(series) == 0
    said = capfd.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said if line.startswith("kill ")] == ["kill 1 of 2", "kill 2 of 2"]
    sinks = ("transactional", "idempotent", "delta", "iceberg")
    assert ", ".join(f"{sink} 0 twice, 0 missing" for sink in sinks) in said[-1]
