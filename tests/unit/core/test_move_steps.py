"""The steps of a move: whatever happens in which order, channels are led in one group, and the move can end."""

from itertools import product

from stan.core.features.moves.steps import MoveAction, MoveEvent, MoveStep, next_step

SOURCE = (MoveStep.LED, MoveStep.DEPARTING, MoveStep.HELD, MoveStep.GONE)
ASKS = (MoveStep.ASKING, MoveStep.FINISHING, MoveStep.LISTING)
STAYS, GOES = MoveEvent.STAYS, MoveEvent.GOES
DECIDED = {MoveAction.FINISH: GOES, MoveAction.CANCEL: STAYS}
ENTRIES = {"arriving", "arrived", "arrival_dropped", "departed", "returned"}
OF_TARGET = ("WAKE", "NEAR", "COMPLETE", "LISTED", "OTHER_ROWS", "HOPELESS")
BEGIN = MoveStep.LED, MoveStep.EXPECTED, None


def events(source, target, decided):
    """For both leaders the events that may come: of the source True."""
    decision = [decided] if decided else []
    asked = [MoveEvent.ASKED] if target in ASKS and not decided else []
    looked_at = [MoveEvent.HOPELESS] if asked or source is MoveStep.HELD else []
    says = [MoveEvent.HELD] if source is MoveStep.HELD else []
    yield from product([True], [MoveEvent.REFUSED, *asked, *looked_at, *decision])
    yield from product([False], [*map(MoveEvent.__getitem__, OF_TARGET), *says, *decision])


def following(source, target, decided):
    """The states to which an event leads, whether entries that it makes are written or not."""
    for is_source, event in events(source, target, decided):
        step, action = next_step(source if is_source else target, event)
        if action is MoveAction.FINISH and not decided:
            assert source is MoveStep.HELD, "everything has come, and nothing changes where it came from"
        after = (step, target) if is_source else (source, step)
        yield (*after, decided or DECIDED.get(action))
        if action.value in ENTRIES:
            yield source, target, decided
    if source is MoveStep.DEPARTING:
        yield MoveStep.HELD, target, decided


def reached():
    """For each state that can be reached, those that follow it while no leader changes."""
    found, left = {}, [BEGIN]
    while left:
        source, target, decided = state = left.pop()
        if state not in found:
            found[state] = set(following(*state))
            left += found[state]
            if target in ASKS:  # the next leader knows only what is in the log
                left.append((source, MoveStep.COPYING, decided))
    return found


def has_ended(source, target, decided):
    if decided is GOES:
        return (source, target) == (MoveStep.GONE, MoveStep.ARRIVED)
    return decided is STAYS and source is MoveStep.LED and target is not MoveStep.ARRIVED


def test_an_event_leaves_each_leader_in_its_part() -> None:
    for step, event in product(MoveStep, MoveEvent):
        assert (next_step(step, event)[0] in SOURCE) == (step in SOURCE)


def test_channels_that_go_are_led_no_more_by_their_source_and_have_come_to_their_target() -> None:
    gone = [state for state in reached() if state[2] is GOES]
    assert {state[:2] for state in gone} == {(MoveStep.HELD, MoveStep.ARRIVED), (MoveStep.GONE, MoveStep.ARRIVED)}


def test_a_move_can_end_from_wherever_it_is() -> None:
    found = reached()
    ends = {state for state in found if has_ended(*state)}
    assert {decided for *_, decided in ends} == {STAYS, GOES}
    while more := {state for state in found.keys() - ends if found[state] & ends}:
        ends |= more
    assert ends == found.keys()
