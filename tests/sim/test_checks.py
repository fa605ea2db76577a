"""Checks that single worlds have can fail: a right story passes, and each way of spoiling it is found."""

import pytest
from stan_protocol.scalars import SECOND

from stan.core.state.ephemeral import BLOCK_BITS
from tests.sim.commit_worlds import FAST, check_replicated
from tests.sim.consumer_group_worlds import Noted, Share, check_handled, check_owners
from tests.sim.ephemeral_worlds import Heard, Sent, check_ephemeral
from tests.sim.history import Acked, Delivered, History, Publish, Sub

# --- replicated channels ----------------------------------------------------------------------------------------------


class FastStory:
    """Three messages of the replicated channel, acked at 10, 11 and 12 s, and read by a durable."""

    def __init__(self):
        self.history = History()
        self.sub = Sub("durable", "me", FAST, "durable", 5, SECOND)
        self.history.must_finish["durable"] = FAST
        for number in (1, 2, 3):
            at = (9 + number) * SECOND
            self.history.publishes[f"m{number}"] = Publish("w", number, FAST, f"m{number}", at - SECOND, ok_at=at)
            self.got(at, number, f"m{number}")
            self.history.final[FAST].append((number, f"m{number}"))

    def got(self, at, sequence, value):
        self.history.events.append(Delivered(at, self.sub, sequence, value, redelivered=False, count=0))

    def loses(self, number):
        """A message is gone, and another one is at its sequence."""
        self.history.publishes["new"] = Publish("w", 9, FAST, "new", 30 * SECOND, ok_at=31 * SECOND)
        self.history.final[FAST][number - 1] = (number, "new")
        self.got(31 * SECOND, number, "new")

    def complaints(self, *outages):
        return [*check_replicated(self.history, FAST, [at * SECOND for at in outages], [])]


def test_a_replicated_channel_without_loss_is_clean():
    assert FastStory().complaints() == []


def test_what_was_acked_just_before_an_outage_may_be_gone():
    story = FastStory()
    story.loses(3)
    assert story.complaints(13) == []


@pytest.mark.parametrize(("number", "outages"), [(3, ()), (3, (5,)), (1, (15,)), (3, (40,))])
def test_a_loss_without_an_outage_in_the_seconds_after_is_found(number, outages):
    story = FastStory()
    story.loses(number)
    assert any("was acknowledged, and is not there" in text for text in story.complaints(*outages))


def test_another_message_at_a_sequence_without_an_outage_between_is_found():
    story = FastStory()
    story.loses(3)
    assert any("no outage was between" in text for text in story.complaints(50))


@pytest.mark.parametrize(("outages", "found"), [((), True), ((8,), True), ((10,), False), ((14,), True)])
def test_who_gets_nothing_is_found_unless_it_subscribed_just_before_an_outage(outages, found):
    story = FastStory()
    story.history.joined(9 * SECOND, story.sub)
    del story.history.events[0]  # what it got
    assert any("durable: never got [1]" in text for text in story.complaints(*outages)) == found


@pytest.mark.parametrize(("outages", "found"), [((), True), ((13,), False)])
def test_who_acks_what_is_gone_acks_what_has_its_sequence(outages, found):
    story = FastStory()
    story.loses(3)
    del story.history.events[-1]  # it never gets the new one
    story.history.events.append(Acked(14 * SECOND, story.sub, 3))
    assert any("durable: never got [3]" in text for text in story.complaints(*outages)) == found


def test_gaps_repeats_phantoms_and_what_nobody_got_are_found():
    story = FastStory()
    story.history.final[FAST][:] = [(1, "m1"), (3, "m3"), (4, "m3"), (5, "nobody's")]
    found = " ".join(story.complaints())
    for text in ("is there twice", "a gap", "never published", "durable: never got [4, 5]"):
        assert text in found


# --- ephemeral channels -----------------------------------------------------------------------------------------------


def heard_story():
    """Three messages of an epoch, acked one after the other, and a listener that heard them."""
    said = [Sent(f"e-{number}", 10 * number) for number in range(3)]
    for number, sent in enumerate(said):
        sent.ok_at, sent.sequence = 10 * number + 5, (1 << BLOCK_BITS) + 1 + number
    heard = Heard("l", "")
    heard.joined_at = -1
    heard.messages = [(sent.ok_at, sent.sequence, sent.value, False) for sent in said]
    return said, said[:], [heard]


def test_an_ephemeral_channel_as_it_should_be_is_clean():
    assert list(check_ephemeral(*heard_story())) == []


def test_what_must_not_be_in_an_ephemeral_channel_is_found():
    def complaints(spoil):
        said, acks, subscriptions = heard_story()
        spoil(said, acks, subscriptions[0].messages)
        return " ".join(check_ephemeral(said, acks, subscriptions))

    assert "never got e-1" in complaints(lambda _said, _acks, messages: messages.pop(1))
    assert "it is no repeat" in complaints(lambda _said, _acks, messages: messages.append(messages[0]))
    assert "was never published" in complaints(lambda said, _acks, _messages: said.pop())
    said, acks, (one, *_) = heard_story()
    one.messages.append(one.messages[0])
    assert list(check_ephemeral(said, acks, [one], held_back=lambda *_: True)) == [], (
        "what an old leader sent comes late"
    )
    other = (99, (1 << BLOCK_BITS) + 1, "e-2", False)
    assert "is e-0 and, for l, e-2" in complaints(lambda _said, _acks, messages: messages.append(other))
    assert "acked before it was sent" in complaints(lambda _said, acks, _messages: acks.reverse() or _swap(acks))


def _swap(acks):
    for at, sent in enumerate(acks):
        sent.asked_at, sent.ok_at = 10 * at, 10 * at + 5


# --- consumer groups --------------------------------------------------------------------------------------------------


def noted(generation, asked_at, told_at, asked, sequence):
    return Noted("a", 1, generation, asked_at, told_at, asked, sequence)


STORY = [noted(5, 1, 2, 0, 1), noted(5, 3, 4, 6, 6), noted(9, 5, 6, 0, 6), noted(9, 7, 8, 11, 11)]


def shares():
    first, second = Share("a", 1, 5, "m"), Share("a", 1, 9, "n")
    first.batches = [[1, 2, 3, 4, 5], [6, 7]]
    second.batches = [[6, 7, 8, 9, 10]]
    return [first, second]


def test_right_groups_pass():
    assert list(check_owners(STORY)) == []
    assert list(check_handled(shares(), STORY)) == []
    assert list(check_owners([*STORY, noted(5, 4, 9, 8, 8)])) == []  # it was asked before the claim was answered


def test_spoiled_groups_are_found():
    assert "generation 5 was taken after 9" in next(check_owners([*STORY, noted(5, 9, 10, 12, 12)]))
    assert "the position is 9, and was 11" in next(check_owners([*STORY, noted(9, 9, 10, 9, 9)]))
    twice = shares()
    twice[1].batches.append([10])
    assert "came twice" in next(check_handled(twice, STORY))
    early = shares()
    early[1].batches[0].insert(0, 5)
    found = list(check_handled(early, STORY))
    assert any("not with the last batch" in one for one in found)
    assert any("is before" in one for one in found)
