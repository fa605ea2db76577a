"""The steps of a move of channels on the leaders of the two groups, as a function of events. Pure.

    source:  LED ─asked─► DEPARTING ─written─► HELD ─goes─► GONE
              ▲               │ refused          │ stays
              └───────────────┴──────────────────┘
    target:  EXPECTED ─► COPYING ─near─► ASKING ─held─► FINISHING ─complete─► LISTING ─listed─► ARRIVED ─goes─► led here
                          ▲  └────────────held────────────▲ ▲─────other rows─────┘                 │ stays
                          └────────────────────────────────────────────────────────────────────────┘

While COPYING, the source leads the channels; in ASKING few messages are missing, and it is asked to hold them; in FINISHING it
holds them, and in LISTING all messages are here and everything else comes.

Entries of the logs make HELD, GONE, COPYING and ARRIVED, so each next leader finds these; the rest is in the memory of a leader.
The metadata alone decide whether channels stay or go; leaders ask them to.
"""

from enum import Enum, auto
from typing import Final


class MoveStep(Enum):
    """How far a move is, as the leader of one of the two groups knows."""

    LED, DEPARTING, HELD, GONE = auto(), auto(), auto(), auto()
    EXPECTED, COPYING, ASKING, FINISHING, LISTING, ARRIVED = auto(), auto(), auto(), auto(), auto(), auto()


class MoveEvent(Enum):
    """Why a leader looks at a move again."""

    WAKE = "nothing is waited for"
    ASKED = "the target asks for the channels, and they can be held"
    REFUSED = "the entry that holds them was not written"
    NEAR = "few messages are missing"
    HELD = "the source holds the channels, as it says"
    COMPLETE = "no message is missing"
    LISTED = "all rows have come, and fit the messages"
    OTHER_ROWS = "all rows have come, and tell of other messages"
    HOPELESS = "it takes too long, or cannot be done"
    STAYS = "the metadata have decided that the channels are the source's"
    GOES = "the metadata have decided that the channels are the target's"
    DELETED = "a channel was deleted"


class MoveAction(Enum):
    """The answer of a leader to an event: a proposal of the change of that name, or something else."""

    NOTHING = ""
    ARRIVING, ARRIVED, ARRIVAL_DROPPED = "arriving", "arrived", "arrival_dropped"
    DEPART, DEPARTED, RETURNED = "depart", "departed", "returned"
    DROP_CHANNEL = "drop_channel"
    GO_ON = "lead the channels again"
    ASK = "ask for messages"
    ASK_ROWS = "ask for everything else"
    LOOK_AGAIN = "ask again about all channels"
    CANCEL = "ask the metadata to let the channels stay"
    FINISH = "ask the metadata to let them go"


_NEXT: Final = {
    (MoveStep.LED, MoveEvent.ASKED): (MoveStep.DEPARTING, MoveAction.DEPART),
    (MoveStep.LED, MoveEvent.HOPELESS): (MoveStep.LED, MoveAction.CANCEL),
    (MoveStep.DEPARTING, MoveEvent.REFUSED): (MoveStep.LED, MoveAction.GO_ON),
    (MoveStep.HELD, MoveEvent.HOPELESS): (MoveStep.HELD, MoveAction.CANCEL),
    (MoveStep.HELD, MoveEvent.STAYS): (MoveStep.LED, MoveAction.RETURNED),
    (MoveStep.HELD, MoveEvent.GOES): (MoveStep.GONE, MoveAction.DEPARTED),
    (MoveStep.GONE, MoveEvent.DELETED): (MoveStep.GONE, MoveAction.DROP_CHANNEL),
    (MoveStep.EXPECTED, MoveEvent.WAKE): (MoveStep.COPYING, MoveAction.ARRIVING),
    (MoveStep.EXPECTED, MoveEvent.HOPELESS): (MoveStep.EXPECTED, MoveAction.CANCEL),
    (MoveStep.COPYING, MoveEvent.WAKE): (MoveStep.COPYING, MoveAction.ASK),
    (MoveStep.COPYING, MoveEvent.NEAR): (MoveStep.ASKING, MoveAction.NOTHING),
    (MoveStep.COPYING, MoveEvent.HELD): (MoveStep.FINISHING, MoveAction.LOOK_AGAIN),
    (MoveStep.COPYING, MoveEvent.HOPELESS): (MoveStep.COPYING, MoveAction.CANCEL),
    (MoveStep.COPYING, MoveEvent.DELETED): (MoveStep.COPYING, MoveAction.DROP_CHANNEL),
    (MoveStep.ASKING, MoveEvent.WAKE): (MoveStep.ASKING, MoveAction.ASK),
    (MoveStep.ASKING, MoveEvent.HELD): (MoveStep.FINISHING, MoveAction.LOOK_AGAIN),
    (MoveStep.ASKING, MoveEvent.HOPELESS): (MoveStep.ASKING, MoveAction.CANCEL),
    (MoveStep.FINISHING, MoveEvent.WAKE): (MoveStep.FINISHING, MoveAction.ASK),
    (MoveStep.FINISHING, MoveEvent.COMPLETE): (MoveStep.LISTING, MoveAction.NOTHING),
    (MoveStep.LISTING, MoveEvent.WAKE): (MoveStep.LISTING, MoveAction.ASK_ROWS),
    (MoveStep.LISTING, MoveEvent.OTHER_ROWS): (MoveStep.FINISHING, MoveAction.LOOK_AGAIN),
    (MoveStep.LISTING, MoveEvent.HOPELESS): (MoveStep.LISTING, MoveAction.CANCEL),
    (MoveStep.LISTING, MoveEvent.LISTED): (MoveStep.ARRIVED, MoveAction.ARRIVED),
    (MoveStep.ARRIVED, MoveEvent.WAKE): (MoveStep.ARRIVED, MoveAction.FINISH),
    (MoveStep.ARRIVED, MoveEvent.STAYS): (MoveStep.COPYING, MoveAction.ARRIVAL_DROPPED),
    (MoveStep.ARRIVED, MoveEvent.DELETED): (MoveStep.ARRIVED, MoveAction.DROP_CHANNEL),
}


def next_step(step: MoveStep, event: MoveEvent) -> tuple[MoveStep, MoveAction]:
    """Return the step that follows an event, if the proposed change is written, and the action. Pairs that are not in the table
    change nothing."""
    return _NEXT.get((step, event), (step, MoveAction.NOTHING))
