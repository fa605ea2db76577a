"""How an operator wants the messages of a cursor to be delivered; the defaults are the original's behaviour."""

from dataclasses import dataclass
from typing import Final

from stan.types import Nanos

NONE: Final = Nanos(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryPolicy:
    """The policy in force for one cursor."""

    max_deliver: int = 0  # deliveries of a message, the first included; 0: no limit
    backoff: tuple[Nanos, ...] = ()  # pauses after the first, second, ... failure of a message; the last one repeats
    max_hold: Nanos = NONE  # how long "working" may put an ack wait off, from the delivery on; 0: for ever
    adaptive_window: bool = False  # False: a window is always as large as the subscription asked for

    def pause_after(self, failures: int) -> Nanos:
        """The pause before a message is delivered again after so many failures, 1 or more."""
        return self.backoff[min(failures, len(self.backoff)) - 1] if self.backoff else NONE


DEFAULT: Final = DeliveryPolicy()
"""What is in force where no operator has set anything."""
