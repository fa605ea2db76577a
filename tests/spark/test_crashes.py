"""What each delivery promises when something dies, with a real broker, a real Spark and 80,000 rows; see crash_kit."""

import pytest

from tests.spark.crash_kit import EVENTS, ROWS, run_case

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
each_event = pytest.mark.parametrize("event", EVENTS)


@each_event
def test_transactional_is_exactly_once(tmp_path, event):
    outcome = run_case(tmp_path, "transactional", event)

    assert (outcome.rows, outcome.duplicates, outcome.lost) == (ROWS, 0, 0)


@each_event
def test_idempotent_is_exactly_once_if_a_repetition_is_partitioned_alike(tmp_path, event):
    outcome = run_case(tmp_path, "idempotent", event)

    assert (outcome.rows, outcome.duplicates, outcome.lost) == (ROWS, 0, 0)


@each_event
def test_at_least_once_loses_nothing(tmp_path, event):
    outcome = run_case(tmp_path, "at-least-once", event)

    assert outcome.lost == 0
    if event in ("writing", "acked", "committed", "retry"):
        assert outcome.duplicates > 0, "else the other two are not put to the test"


@pytest.mark.parametrize("event", ["writing", "acked", "committed", "worker"])
def test_update_mode_is_exactly_once_by_foreach_batch(tmp_path, event):
    outcome = run_case(tmp_path, "transactional", event, update=True)

    assert (outcome.duplicates, outcome.lost) == (0, 0)
