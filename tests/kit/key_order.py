"""What the members of a key-ordered group tell of the messages that they get, and whether each key's came in order."""

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import stan_client

FAILED_SHARE = 0.05
"""Of the deliveries."""
WORK_S_MAX = 0.02


class KeyedWork:
    """What happens to the messages of a group, in the order in which it happens. *place_of*: what names a message."""

    def __init__(self, dice: random.Random, later: Callable[..., object], place_of: Callable[[Any], Hashable]) -> None:
        """*later*: has a function called after some seconds, as `loop.call_later`."""
        self.acked: set[Hashable] = set()  # places
        self.alive: set[str] = set()  # members
        self._events: list[tuple[str, str, Hashable, bytes]] = []  # what, member, place, key
        self._dice, self._later, self._place_of = dice, later, place_of

    def joins(self, member: str) -> Callable[[stan_client.Message], None]:
        """Returns what handles its messages: one in twenty fails at once, the others are acknowledged a little later."""
        self.alive.add(member)

        def handle(message: stan_client.Message) -> None:
            self._note("came", member, message)
            if self._dice.random() < FAILED_SHARE:
                self._note("failed", member, message)
                message.nak()
            else:
                self._later(WORK_S_MAX * self._dice.random(), self._done, member, message)

        return handle

    def dies(self, member: str) -> None:
        """It is killed now."""
        self.alive.discard(member)
        self._events.append(("died", member, None, b""))

    def _note(self, what: str, member: str, message: stan_client.Message) -> None:
        self._events.append((what, member, self._place_of(message), message.key))

    def _done(self, member: str, message: stan_client.Message) -> None:
        if member in self.alive:
            self._note("done", member, message)
            self.acked.add(self._place_of(message))
            message.ack()

    def complaints(self, order: Callable[[Any], Any] = lambda place: place) -> Iterator[str]:
        """For each message that came before the one before it of its key was done, or while another member had one of its key.
        What comes again after it was done is left out, as a leader that dies may not have told the next one of the last acks.
        *order*: of a place, as compared with others of its key."""
        newest: dict[bytes, Any] = {}
        seen: set[Hashable] = set()
        open_ones: dict[bytes, list[Hashable]] = defaultdict(list)  # by key: came, and not done
        holders: dict[bytes, tuple[str, Hashable]] = {}
        dead: set[str] = set()
        done: set[Hashable] = set()
        for what, member, place, key in self._events:
            if what == "died":
                dead.add(member)
            elif place in done:
                continue
            elif what == "came":
                if place not in seen:
                    if open_ones[key] or (key in newest and order(place) < newest[key]):
                        yield f"{place} of {key!r} came before {open_ones[key]} was done, or after {newest[key]}"
                    newest[key] = max(newest.get(key, order(place)), order(place))
                    seen.add(place)
                    open_ones[key].append(place)
                holder, held = holders.get(key, (member, place))
                if holder not in dead and holder != member and held != place:
                    yield f"{place} of {key!r} came to {member} while {holder} is at work on {held}"
                holders[key] = (member, place)
            else:
                if holders.get(key) == (member, place):
                    del holders[key]
                if what == "done":
                    done.add(place)
                    open_ones[key].remove(place)
