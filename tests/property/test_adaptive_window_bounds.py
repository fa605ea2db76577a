"""An adaptive window stays between 1 and max in flight, and counts no place twice, whatever acks and timeouts come."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from stan_protocol.scalars import SECOND

from stan.core.base.runs import Run, Runs
from stan.core.leader.adaptive_window import AdaptiveWindow

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 50), st.integers(0, 1)),
        st.tuples(st.just("ack"), st.integers(1, 200), st.integers(1, 100)),
        st.tuples(st.just("time"), st.integers(0, 2 * SECOND), st.just(0)),
        st.tuples(st.just("away"), st.integers(0, 9 * SECOND), st.just(0)),
        st.tuples(st.just("lead"), st.just(0), st.just(0)),
        st.tuples(st.just("moved"), st.just(0), st.just(0)),
    ),
    max_size=80,
)


@given(st.integers(1, 5000), STEPS)
def test_window_stays_between_one_and_max_in_flight(most, steps):
    adaptive, window, now, sent = AdaptiveWindow.open(most, SECOND), Runs(), 10 * SECOND, 0
    cuts = []
    for what, first, second in steps:
        before = adaptive.size
        match what:
            case "send":
                count = min(first, adaptive.size - adaptive.late - len(window))
                if count > 0:
                    window.add(Run(sent + 1, sent + count, now + SECOND, second))
                    sent += count
            case "ack":
                in_flight = len(window)
                runs = window.remove(first, first + second - 1)
                adaptive.acks(runs, second - sum(run.size for run in runs), in_flight, now)
                assert adaptive.size - before in (0, max(1, before // 16), most - before)
            case "time":
                now += first
                adaptive.give_up(now)
                due = window.due(now)
                for run in due:
                    window.remove(run.first, run.last)
                if due:
                    adaptive.taken_back(due, now)
                if adaptive.size < before:
                    cuts.append(now)
            case "away":
                now += first
                window.shift(first)
                adaptive.put_off(first)
                cuts = [at + first for at in cuts]
            case "lead":
                adaptive.led(now)
            case "moved":
                window.clear()
                adaptive.forget_late()
        assert 1 <= adaptive.size <= most
        assert 0 <= adaptive.late <= most
        assert adaptive.rate.of_last(now) >= 0
    assert all(later - earlier >= SECOND for earlier, later in pairwise(cuts))
