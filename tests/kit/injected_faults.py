"""A program error in any call of the core that is made for one group: the calls of a run are listed, and each of them fails once.

A call is for a group if one of its arguments is the group, or belongs to it; the calls beneath it are not listed unless they are,
too. Look-ups that ask all groups for something are no calls for a group.
"""

import sys
from pathlib import Path
from typing import get_type_hints

from stan_protocol.frames import Frame
from stan_protocol.scalars import SECOND

from stan.core.base.ready import Delivery, Fetch, Proposal, Replay
from stan.core.boundary.group_view import GroupView
from stan.core.boundary.loading import GroupStates
from stan.core.boundary.meta_view import MetaView
from stan.core.boundary.view import BrokerView, ScopeView
from stan.core.broker.broker import Broker
from stan.core.broker.frames import ReceivedFrames
from stan.core.broker.reads import FetchedMessages
from stan.core.broker.replay import FrameReplay
from stan.core.broker.stops import GroupStops
from stan.core.features.moves.spreading import Spreading
from stan.core.leader.acks import AckProcessor
from stan.core.leader.dispatch import Dispatch
from stan.core.leader.local_group import ChannelGroup
from stan.core.leader.membership import LiveMembership
from stan.core.leader.redelivery import Redelivery
from stan.core.metadata.meta import ChannelInfo, MetaMachine
from stan.core.publishing.live_channel import LiveChannel
from stan.core.requests.request import AcceptedRequest
from stan.core.services.leader_part import MetaPart
from stan.core.services.services import Services
from stan.core.state.group import GroupMachine
from stan.invariant import InvariantError

CORE = str(Path(sys.modules["stan.core"].__file__).parent)
NAMED = {"number", "group", "to"}
"""Arguments that are the number of a group."""
GROUP_OF = {
    AckProcessor: lambda acks: acks.redelivery.timers.group,
    AcceptedRequest: lambda accepted: accepted.border if accepted.groups else None,
    ChannelGroup: lambda group: group.machine.group,
    ChannelInfo: lambda info: info.group,
    Delivery: lambda delivery: delivery.group,
    Dispatch: lambda dispatch: dispatch.machine.group,
    Fetch: lambda fetch: fetch.group,
    GroupMachine: lambda machine: machine.group,
    LiveChannel: lambda channel: channel.info.group,
    LiveMembership: lambda members: members.machine.group,
    Proposal: lambda proposal: proposal.group,
    Redelivery: lambda redelivery: redelivery.timers.group,
    Replay: lambda replay: replay.group,
}
LOOK_UPS = {"__init__", "group", "leads"}
OF_ALL_GROUPS = (
    *get_type_hints(Services).values(),
    BrokerView,
    GroupView,
    MetaView,
    ScopeView,
    Broker,
    ReceivedFrames,
    FrameReplay,
    FetchedMessages,
    GroupStops,
    GroupStates,
    MetaMachine,
    MetaPart,
    Spreading,
)
"""Their methods only look something up, begin a call for a group, are called within its border, or are the metadata's."""
CHANGES = {"change_group", "end", "leave", "propose"}
"""Methods of `Proposals` that are not of these."""


class Injector:
    """Watches the calls for one group while it is entered, and lets one of them fail."""

    def __init__(self, group, target=None):
        """*target*: the call that fails, from `calls` of an earlier run; None: none does."""
        self.group = group
        self.target = target
        self.calls = {}  # (function, its caller) -> None, in order
        self.failed = False

    def __enter__(self):
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_error):
        sys.setprofile(None)

    def _profile(self, frame, event, _arg):
        if event != "call" or not frame.f_code.co_filename.startswith(CORE) or not self._is_for_group(frame):
            return
        call = name_of(frame), name_of(frame.f_back)
        self.calls[call] = None
        if call == self.target and not self.failed:
            self.failed = True
            raise InvariantError(f"{call[0]}, called by {call[1]}, has failed")

    def _is_for_group(self, frame):
        code, given = frame.f_code, frame.f_locals
        if code.co_name.startswith(("<", "step_")) or code.co_name in LOOK_UPS:
            return False
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        first = given.get(names[0]) if names else None
        if isinstance(first, OF_ALL_GROUPS) and code.co_name not in CHANGES:
            return False
        for name in names:
            value = given.get(name)
            find = GROUP_OF.get(type(value))
            if (
                find(value) if find is not None else value if name in NAMED and type(value) is int else None
            ) == self.group:
                return True
        return False


def name_of(frame):
    """Where a frame is: module and function."""
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"


def break_delivery(broker, group, name, broken):
    """From now on the leader of a group fails where it sends messages (*name*: `pump`), gets acks (`ack`), or tells the log what
    it has sent (`take`)."""
    dispatch = broker.services.node.groups[group].dispatch
    owner = {"take": dispatch.reports, "ack": dispatch.acks}.get(name, dispatch)
    setattr(owner, name, broken)


def answer_to(broker, group, call):
    """*call* gets the answer to a request that a group has sent."""
    broker.services.requests.send(group, b"_INBOX.nobody", SECOND, call)
    number = broker.services.requests.newest
    broker.frames.step_frame(Frame(1, b"%b%d" % (broker.view.reply_prefix, number), b"", b"", b""))
