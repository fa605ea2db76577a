"""The checks themselves: a right history passes, and each way of spoiling it is caught by the check that is there for it."""

from functools import partial

import pytest
from stan_protocol.scalars import MILLISECOND, SECOND

from stan.core.base.causes import Cause
from stan.core.state.cursors import Cursor, CursorKind
from stan.protocol.proto import entries_pb2 as entries
from tests.sim import history as checks
from tests.sim.history import KEPT_AFTER, Acked, Delivered, Ended, Failed, History, Publish, Reset, Sub, Working

MESSAGES = 12
LATE = 100 * SECOND


class Story:
    """A right history: one writer waits for each ack, another does not; a durable, a group of two, a plain subscriber."""

    def __init__(self):
        self.history = History()
        self.history.group_of["a"] = 1
        self.at = SECOND
        self.durable = Sub("durable.0", "dur", "a", "durable", 4, SECOND)
        self.left = Sub("group.0", "left", "a", "durable queue", 2, SECOND)
        self.right = Sub("group.0", "right", "a", "durable queue", 2, SECOND)
        self.plain = Sub("plain.1", "plain", "a", "plain", 4, SECOND)
        for sub in (self.durable, self.left, self.right, self.plain):
            self.history.joined(self.tick(), sub)
        for number in range(1, MESSAGES + 1):
            self._message(number, f"w-{number}")
        self.history.final["a"] = [(number, f"w-{number}") for number in range(1, MESSAGES + 1)]
        self.history.must_finish = {"durable.0": "a", "group.0": "a"}
        self.history.replicas[1] = {"n0": "same", "n1": "same"}

    def tick(self, length=MILLISECOND):
        self.at += length
        return self.at

    def _message(self, number, value):
        publish = self.history.publishes[value] = Publish("w-conn-1", number, "a", value, self.tick())
        for node in ("n0", "n1"):
            self.history.batch(node, "a", number, value.encode(), lambda: [value])
        publish.ok_at = self.tick()
        for sub in (self.durable, self.left if number % 2 else self.right, self.plain):
            self.deliver(sub, number)
            self.ack(sub, number)

    def deliver(self, sub, number, value="", count=0, at=0):
        event = Delivered(at or self.tick(), sub, number, value or f"w-{number}", count > 0, count)
        self.history.events.append(event)
        return event

    def ack(self, sub, number):
        self.history.events.append(Acked(self.tick(), sub, number))

    def end(self, sub):
        sub.ended_at = self.tick()
        self.history.events.append(Ended(self.at, sub))

    def find(self, kind, sub, number):
        events = self.history.events
        return next(at for at, e in enumerate(events) if isinstance(e, kind) and e.sub is sub and e.sequence == number)

    def drop(self, kind, sub, number):
        del self.history.events[self.find(kind, sub, number)]

    def change(self, sub, number, **fields):
        at = self.find(Delivered, sub, number)
        self.history.events[at] = self.history.events[at]._replace(**fields)

    def publish(self, number):
        return self.history.publishes[f"w-{number}"]


SPOILED = {}


def spoils(*names):
    """Registers a way to spoil a story, and the checks that must see it."""

    def register(spoil):
        SPOILED[spoil.__name__] = spoil, names
        return spoil

    return register


@spoils("check_lost")
def the_end_is_lost(story):
    del story.history.final["a"][-1]


@spoils("check_lost", "check_dense")
def the_middle_is_lost(story):
    del story.history.final["a"][5]


@spoils("check_dense")
def the_beginning_is_gone(story):
    story.history.first["a"] = 2
    del story.history.final["a"][0]


@spoils("check_dense")
def less_is_kept_than_the_limit_says(story):
    story.history.limits["a"] = 5
    story.history.first["a"] = 10
    del story.history.final["a"][:9]


@spoils("check_phantom")
def a_message_is_invented(story):
    story.history.final["a"].append((MESSAGES + 1, "v-1"))


@spoils("check_phantom")
def a_message_is_in_another_channel(story):
    story.history.final["b"] = [(1, "w-1")]


@spoils("check_one_order")
def a_subscriber_sees_another_message(story):
    story.change(story.plain, 3, value="w-4")


@spoils("check_one_order")
def a_message_is_there_twice(story):
    story.history.final["a"].append((MESSAGES + 1, "w-2"))


@spoils("check_one_order", "check_real_time")
def two_messages_change_places(story):
    read = story.history.final["a"]
    read[3], read[4] = (4, "w-5"), (5, "w-4")
    stored = story.history.stored["a"]
    stored[4], stored[5] = "w-5", "w-4"


@spoils("check_real_time")
def an_old_ack_is_overtaken(story):
    for number in (4, 5):
        story.publish(number).writer = f"other-{number}"
    two_messages_change_places(story)


@spoils("check_honest")
def a_refused_message_is_there(story):
    story.publish(4).ok_at, story.publish(4).failed_at = 0, LATE


@spoils("check_honest")
def a_message_gets_two_answers(story):
    story.publish(4).failed_at = LATE


@spoils("check_repeats", "check_position")
def a_repeat_is_not_flagged(story):
    story.deliver(story.durable, 5, at=LATE)


@spoils("check_repeats")
def a_flag_without_a_count(story):
    story.change(story.plain, 5, redelivered=True)


@spoils("check_repeats")
def a_repeat_has_no_reason(story):
    story.change(story.plain, 5, redelivered=True, count=1)


@spoils("check_repeats")
def a_repeat_comes_before_its_time(story):
    story.drop(Acked, story.durable, MESSAGES)
    story.deliver(story.durable, MESSAGES, count=1)
    story.ack(story.durable, MESSAGES)


@spoils("check_position")
def an_ack_is_forgotten(story):
    story.deliver(story.durable, 5, count=1, at=LATE)


@spoils("check_position")
def an_ack_of_well_before_a_death_is_forgotten(story):
    story.durable.died_at = story.at + SECOND
    story.deliver(story.durable, MESSAGES, count=1, at=LATE)


@spoils("check_position")
def an_ack_of_while_nobody_led_is_forgotten_without_a_fault(story):
    unled_from_the_last_ack(story)
    story.deliver(story.plain, MESSAGES, count=1, at=LATE)


@spoils("check_position")
def who_comes_back_misses_one(story):
    story.drop(Acked, story.durable, 5)
    story.end(story.durable)
    again = Sub("durable.0", "dur", "a", "durable", 4, SECOND)
    story.history.joined(story.tick(), again)
    story.deliver(again, 7, count=1, at=story.tick(2 * SECOND))


@spoils("check_windows")
def a_window_is_too_full(story):
    for number in (1, 3, 5):
        story.drop(Acked, story.left, number)


@spoils("check_windows")
def two_hold_the_same(story):
    story.drop(Acked, story.left, 11)
    story.deliver(story.right, 11, count=1)
    story.ack(story.right, 11)


@spoils("check_first_order")
def a_later_one_comes_first(story):
    first, second = story.find(Delivered, story.plain, 6), story.find(Delivered, story.plain, 7)
    events = story.history.events
    one, two = events[first], events[second]
    events[first], events[second] = two._replace(at=one.at), one._replace(at=two.at)


@spoils("check_first_order", "check_at_least_once")
def one_is_skipped(story):
    story.drop(Delivered, story.plain, 6)
    story.drop(Acked, story.plain, 6)


@spoils("check_at_least_once")
def one_is_never_acked(story):
    story.drop(Delivered, story.left, 11)
    story.drop(Acked, story.left, 11)


@spoils("check_failover")
def two_members_are_active(story):
    story.history.failover = True


@spoils("check_key_order")
def two_messages_of_a_key_are_in_flight(story):
    story.history.key_of = lambda _value: "key"
    story.drop(Acked, story.left, 11)


@spoils("check_idle")
def a_key_waits_for_nothing(story):
    story.history.key_of = lambda _value: "key"
    story.history.wide = True
    last = story.publish(12)
    last.ok_at = story.publish(1).ok_at
    story.change(story.right, 12, at=story.at + 5 * SECOND)


def keys_of(tombstones=()):
    """Of the story's messages: two keys in turn."""
    return {number: (b"%d" % (number % 2), number in tombstones) for number in range(1, MESSAGES + 1)}


@spoils("check_tables")
def a_key_is_lost(story):
    story.history.keyed["a"] = keys_of()
    story.history.removal_asked("a", range(1, MESSAGES + 1), story.at)
    story.history.final["a"] = story.history.final["a"][:-1]


@spoils("check_tables")
def a_deleted_key_comes_back(story):
    story.history.keyed["a"] = keys_of({MESSAGES})
    story.history.removal_asked("a", [MESSAGES], story.at)
    story.history.final["a"] = story.history.final["a"][:-1]


@spoils("check_tables")
def a_position_misses_a_tombstone(story):
    story.history.keyed["a"] = keys_of({MESSAGES - 1})
    story.history.events = [e for e in story.history.events if getattr(e, "sequence", 0) != MESSAGES - 1]
    story.history.removal_asked("a", [MESSAGES - 1, MESSAGES - 3], story.at)
    story.history.final["a"] = [(at, value) for at, value in story.history.final["a"] if at != MESSAGES - 1]


@spoils("check_removed")
def a_removed_message_is_there(story):
    story.history.removal_asked("a", [3], story.at)
    story.history.removal_done("a", [3], story.at)


@spoils("check_removed")
def a_removed_message_is_sent(story):
    del story.history.final["a"][2]
    story.history.removal_asked("a", [3], story.at)
    story.history.removal_done("a", [3], story.at)
    story.deliver(story.plain, 3, count=1, at=story.at + SECOND)


@spoils("check_expired")
def an_expired_message_is_sent(story):
    story.history.expires["a", 0] = 5 * SECOND
    story.history.shown += [("a", 0, 5 * SECOND - 1), ("a", 0, 5 * SECOND)]


@spoils("check_expired")
def a_message_is_gone_before_it_expires(story):
    story.history.expires["a", 0] = 5 * SECOND
    story.history.expired["a", 0] = 4 * SECOND


@spoils("check_expired")
def a_message_goes_that_never_expires(story):
    story.history.expires["a", 0] = 0
    story.history.expired["a", 0] = 4 * SECOND


@spoils("check_expired")
def an_expired_message_is_there_at_the_end(story):
    story.history.expires["a", 3] = 5 * SECOND


@spoils("check_replicas")
def replicas_differ(story):
    story.history.replicas[1]["n1"] = "other"


@spoils("check_replicas")
def a_node_stores_another_batch(story):
    story.history.batch("n2", "a", 3, b"w-33", lambda: ["w-33"])


@spoils("check_replicas")
def two_lead_in_one_term(story):
    story.history.leads(SECOND, 1, 5, "n0")
    story.history.leads(SECOND, 1, 5, "n1")


@spoils("check_deliveries")
def a_message_is_delivered_too_often(story):
    story.history.max_deliver = 2
    story.drop(Acked, story.durable, MESSAGES)
    story.deliver(story.durable, MESSAGES, count=1, at=story.at + SECOND)
    story.deliver(story.durable, MESSAGES, count=2, at=story.at + 2 * SECOND)


@spoils("check_deliveries")
def a_count_begins_again(story):
    story.history.max_deliver = 3
    for at in (1, 2):
        story.deliver(story.durable, MESSAGES, count=1, at=story.at + at * SECOND)


@spoils("check_deliveries")
def a_message_is_given_up_too_early(story):
    story.history.max_deliver = 2
    story.drop(Acked, story.durable, MESSAGES)


@spoils("check_deliveries")
def a_failed_message_comes_without_a_pause(story):
    story.history.max_deliver = 3
    story.drop(Acked, story.durable, MESSAGES)
    story.history.events.append(Failed(story.tick(), story.durable, MESSAGES, SECOND))
    story.deliver(story.durable, MESSAGES, count=1)
    story.ack(story.durable, MESSAGES)


@spoils("check_working")
def a_message_is_taken_from_whoever_works_on_it(story):
    story.drop(Acked, story.durable, MESSAGES)
    story.history.events.append(Working(story.tick(SECOND // 2), story.durable, MESSAGES))
    story.deliver(story.durable, MESSAGES, count=1, at=story.at + 3 * SECOND // 4)
    story.ack(story.durable, MESSAGES)


def unled_from_the_last_ack(story):
    """Nobody leads from just before it, for 3 s."""
    story.history.leads(SECOND, 1, 5, "n0")
    story.history.leads_no_more(story.at - 1, 1, "n0")
    story.history.leads_no_more(story.at + SECOND, 1, "n2")  # it did not lead
    story.history.leads(story.at + 3 * SECOND, 1, 6, "n1")


def seen(history):
    return {check.__name__: list(check(history)) for check in checks.CHECKS}


def test_a_right_history_passes():
    assert checks.complaints(Story().history) == []


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_history_is_refused(name):
    spoil, names = SPOILED[name]
    story = Story()
    spoil(story)
    found = seen(story.history)
    assert all(found[name] for name in names), {name: texts for name, texts in found.items() if texts}


def test_every_check_is_proven():
    assert {name for _, names in SPOILED.values() for name in names} == {check.__name__ for check in checks.CHECKS}


def recorded(story, sub, number, cause, *, count=1):
    """The log tells that *sub* was sent a message again just now, and why; returns the time."""
    history, cursor_id = story.history, 1 + ("durable.0", "group.0", "plain.1").index(sub.consumer)
    history.tells_causes = True
    history.cursors[1, cursor_id] = Cursor(cursor_id, 1, CursorKind.DURABLE, b"d", b"dur", 0)
    change = entries.GroupChange(at=story.tick())
    progress = change.progress.add(cursor_id=cursor_id)
    progress.sent.add(client_id=sub.member.encode(), cause=cause, count=count, runs=[number, number])
    history.changes[1, len(history.changes) + 1] = [change], 0
    return story.at


def a_repeat(story, cause, *, after=SECOND):
    """The last message comes to the durable again."""
    story.drop(Acked, story.durable, MESSAGES)
    story.tick(after)
    if cause is not None:
        recorded(story, story.durable, MESSAGES, cause)
    story.deliver(story.durable, MESSAGES, count=1)
    story.ack(story.durable, MESSAGES)


@spoils("check_causes")
def a_repeat_is_not_recorded(story):
    story.history.tells_causes = True
    a_repeat(story, None)


@spoils("check_causes")
def a_repeat_is_recorded_with_another_cause(story):
    a_repeat(story, Cause.NEGATIVE_ACK)


@spoils("check_causes")
def a_repeat_is_recorded_twice(story):
    a_repeat(story, Cause.ACK_WAIT_OVER)
    [change], zero = story.history.changes[1, 1]
    story.history.changes[1, 2] = [entries.GroupChange.FromString(change.SerializeToString())], zero
    story.history.changes[1, 2][0][0].progress[0].sent[0].cause = Cause.MOVED


@spoils("check_causes")
def a_repeat_of_one_delivery_stands_for_two(story):
    a_repeat(story, Cause.ACK_WAIT_OVER)
    story.deliver(story.durable, MESSAGES, count=1, at=story.tick(SECOND))


@spoils("check_causes")
def a_repeat_is_blamed_on_a_node_from_which_nothing_was_taken_back(story):
    story.history.taken_back[1].append(story.tick() + 10 * SECOND)
    a_repeat(story, Cause.SERVER_CHANGED)


# --- what looks wrong and is right ------------------------------------------------------------------------------------------


def test_a_repeat_after_the_ack_wait_is_right():
    story = Story()
    story.drop(Acked, story.durable, MESSAGES)
    story.deliver(story.durable, MESSAGES, count=1, at=story.at + SECOND)
    story.ack(story.durable, MESSAGES)
    assert checks.complaints(story.history) == []


def test_a_recorded_repeat_is_right():
    story = Story()
    a_repeat(story, Cause.ACK_WAIT_OVER)
    assert checks.complaints(story.history) == []


def test_a_repeat_that_a_leader_has_no_time_to_record_is_right():
    story = Story()
    story.history.tells_causes = True
    a_repeat(story, None)
    story.history.cause(story.at, story.at, "n0 down")
    assert checks.complaints(story.history) == []


def _fails(story, pause):
    story.history.events.append(Failed(story.tick(), story.durable, MESSAGES, pause * MILLISECOND))


def test_a_failure_that_crosses_a_delivery_may_count_for_it():
    for crossing, complaints in ((MILLISECOND, 0), (100 * MILLISECOND, 1)):
        story = Story()
        story.history.max_deliver = 9
        story.drop(Acked, story.durable, MESSAGES)
        failed = partial(_fails, story)
        failed(300)
        story.tick((300 - crossing // MILLISECOND) * MILLISECOND)
        failed(100)
        story.deliver(story.durable, MESSAGES, count=1, at=story.tick(crossing))
        failed(300)
        story.deliver(story.durable, MESSAGES, count=2, at=story.tick(120 * MILLISECOND))
        story.ack(story.durable, MESSAGES)
        assert len(seen(story.history)["check_deliveries"]) == complaints


def test_a_message_that_was_given_up_after_all_its_deliveries_is_right():
    story = Story()
    story.history.max_deliver = 3
    story.drop(Acked, story.durable, MESSAGES)
    for count in (1, 2):
        story.history.events.append(Failed(story.tick(), story.durable, MESSAGES, SECOND // 10))
        story.deliver(story.durable, MESSAGES, count=count, at=story.tick(SECOND // 10))
    assert checks.complaints(story.history) == []


@pytest.mark.parametrize(("died", "away", "complaints"), [(True, 3, 0), (True, 1, 1), (False, 3, 1)])
def test_the_last_deliveries_of_a_message_may_have_gone_to_a_client_that_was_dead(died, away, complaints):
    story = Story()
    story.history.max_deliver = 4
    story.drop(Acked, story.durable, 5)
    story.end(story.durable)
    if died:
        story.durable.died_at = story.at
    again = Sub("durable.0", "dur", "a", "durable", 4, SECOND)
    story.history.joined(story.tick(away * SECOND), again)
    story.deliver(again, 7, count=1)
    assert len([text for text in seen(story.history)["check_position"] if "comes back" in text]) == complaints


def test_an_ack_of_while_nobody_leads_may_be_forgotten_with_a_node_that_heard_it():
    story = Story()
    unled_from_the_last_ack(story)
    story.history.cause(story.at + SECOND, story.at + SECOND, "n1 down")
    story.deliver(story.plain, MESSAGES, count=1, at=LATE)
    assert seen(story.history)["check_position"] == []


def test_an_ack_of_while_nobody_leads_may_be_forgotten_with_whoever_leads_again_and_dies_at_once():
    for after, complaints in ((KEPT_AFTER // 6, 0), (3 * KEPT_AFTER, 1)):
        story = Story()
        unled_from_the_last_ack(story)
        leads = story.at + 3 * SECOND
        story.history.cause(leads, leads, "n2 leads group 1")
        story.history.cause(leads + after, leads + after, "n2 down")
        story.deliver(story.plain, MESSAGES, count=1, at=LATE)
        assert len(seen(story.history)["check_position"]) == complaints


def test_an_ack_of_while_a_leader_hands_over_may_be_forgotten_with_whoever_takes_over_and_dies_at_once():
    for after, complaints in ((KEPT_AFTER // 6, 0), (3 * KEPT_AFTER, 1)):
        story = Story()
        unled_from_the_last_ack(story)
        story.history.unled.clear()
        ended = story.at + SECOND
        story.history.handovers[1].append([story.at - SECOND, ended])
        story.history.cause(ended + after, ended + after, "n2 down")
        story.deliver(story.plain, MESSAGES, count=1, at=LATE)
        assert len(seen(story.history)["check_position"]) == complaints


def test_what_an_operator_removes_is_missing_and_right():
    story = Story()
    story.drop(Delivered, story.plain, 3)
    story.drop(Acked, story.plain, 3)
    del story.history.final["a"][:3]
    story.history.removal_asked("a", range(1, 4), 0)
    story.history.removal_done("a", range(1, 4), story.at)
    assert checks.complaints(story.history) == []


def test_a_repeat_after_a_member_left_is_right():
    story = Story()
    story.drop(Acked, story.left, 11)
    story.end(story.left)
    story.deliver(story.right, 11, count=1)
    story.ack(story.right, 11)
    assert checks.complaints(story.history) == []


def test_an_ack_of_the_moment_of_a_death_may_not_have_left():
    story = Story()
    acked = story.history.events[story.find(Acked, story.durable, MESSAGES)]
    story.durable.died_at = acked.at + MILLISECOND
    story.end(story.durable)
    again = Sub("durable.0", "dur", "a", "durable", 4, SECOND)
    story.history.joined(story.tick(), again)
    story.deliver(again, MESSAGES, count=1, at=story.tick(2 * SECOND))
    assert checks.complaints(story.history) == []


def test_what_arrived_at_a_member_that_had_left_goes_to_the_next():
    story = Story()
    story.drop(Acked, story.left, 11)
    story.end(story.left)
    story.deliver(story.left, 11, count=1, at=story.at + LATE)  # it was on its way
    story.deliver(story.right, 11, count=2)
    story.ack(story.right, 11)
    assert checks.complaints(story.history) == []


def test_repeats_around_a_fault_are_right():
    story = Story()
    story.drop(Acked, story.left, 11)
    story.history.cause(story.at, story.at + SECOND, "a leader was lost")
    story.history.events.append(Reset(story.tick(), 1))
    story.deliver(story.right, 11, count=1)
    story.ack(story.right, 11)
    story.deliver(story.durable, 12, count=1)
    assert checks.complaints(story.history) == []


def let_go_of(story, later):
    """A link lets go of what an old leader has sent to one member; its successor, who cannot know that, sends it to another."""
    story.drop(Acked, story.left, 11)
    story.history.cause(story.at, story.at + SECOND, "n0 delayed")
    story.history.events.append(Reset(story.tick(), 1))
    story.deliver(story.left, 11, count=2, at=story.tick(SECOND - MILLISECOND + later))
    story.deliver(story.right, 11, count=1)
    story.ack(story.right, 11)


def let_go_of_several(story, later):
    """As above: the member has acked what it had, and gets more than its window from two leaders."""
    for number in (7, 9, 11):
        story.drop(Delivered, story.left, number)
        story.drop(Acked, story.left, number)
    story.history.cause(story.at, story.at + SECOND, "n0 delayed")
    story.tick(SECOND + later)
    for number in (7, 9, 11):
        story.deliver(story.left, number, count=1, at=story.at)
    for number in (7, 9, 11):
        story.ack(story.left, number)


def let_go_of_the_first_copy(story, later):
    """As above, and the successor's flagged copy is a little faster than the old leader's, which has no flag."""
    for kind in (Delivered, Acked):
        story.drop(kind, story.durable, MESSAGES)
    story.history.cause(story.at, story.at + SECOND, "n0 delayed")
    story.deliver(story.durable, MESSAGES, count=1, at=story.tick(SECOND + later))
    story.deliver(story.durable, MESSAGES, at=story.at)
    story.ack(story.durable, MESSAGES)


def let_go_of_an_earlier_one(story, later):
    """As above, and what the successor has sent is a later message."""
    for number in (11, 12):
        for kind in (Delivered, Acked):
            story.drop(kind, story.durable, number)
    story.history.cause(story.at, story.at + SECOND, "n0 delayed")
    story.deliver(story.durable, 12, count=1, at=story.tick(SECOND + later))
    story.deliver(story.durable, 11, at=story.at)
    for number in (11, 12):
        story.ack(story.durable, number)


@pytest.mark.parametrize(
    ("let_go", "names"),
    [
        (let_go_of, {"check_repeats", "check_windows"}),
        (let_go_of_several, {"check_windows"}),
        (let_go_of_the_first_copy, {"check_repeats"}),
        (let_go_of_an_earlier_one, {"check_first_order"}),
    ],
)
def test_what_a_link_has_let_go_of_is_still_on_its_way_when_the_fault_is_over(let_go, names):
    story = Story()
    let_go(story, checks.ON_THE_WAY)
    assert checks.complaints(story.history) == []

    story = Story()
    let_go(story, checks.ON_THE_WAY + 1)
    assert {name for name, texts in seen(story.history).items() if texts} == names


@pytest.mark.parametrize(
    ("ended_before", "without_nats", "complaints"),
    [(SECOND, 0, 0), (2 * SECOND, 0, 0), (3 * SECOND, 0, 1), (3 * SECOND, SECOND, 0), (4 * SECOND, SECOND, 1)],
)
def test_what_is_new_may_go_ahead_of_what_a_fault_has_swallowed_until_its_ack_wait_is_over(
    ended_before, without_nats, complaints
):
    """That may be another one if its client fails a heartbeat, and stands still without NATS."""
    story = Story()
    for number in (11, 12):
        story.drop(Delivered, story.durable, number)
        story.drop(Acked, story.durable, number)
    story.history.cause(story.at, story.at + MILLISECOND, "cut off", "dur")
    if without_nats:
        story.history.cause(story.at, story.at + without_nats, checks.NO_NATS)
    story.deliver(story.durable, 11, count=1, at=story.tick(ended_before))
    story.ack(story.durable, 11)
    story._message(13, "w-13")
    story.deliver(story.durable, 12, count=1)
    story.ack(story.durable, 12)
    story.history.final["a"].append((13, "w-13"))
    assert [text.partition(":")[0] for text in checks.complaints(story.history)] == ["check_first_order"] * complaints


def test_what_a_limit_removed_is_not_lost():
    story = Story()
    story.history.limits["a"] = 5
    story.history.first["a"] = MESSAGES - 4
    del story.history.final["a"][: MESSAGES - 5]
    assert checks.complaints(story.history) == []
