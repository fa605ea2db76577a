"""The limits that a server logs at its start."""

from stan_protocol.patterns import ChannelLimits, ChannelOverride
from stan_protocol.scalars import SECOND

from stan.config import StoreLimits
from stan.edge.process import limit_lines


def test_defaults_have_a_star():
    assert limit_lines(StoreLimits()) == [
        "---------- Store Limits ----------",
        "Channels:                  100 *",
        "--------- Channels Limits --------",
        "  Subscriptions:          1000 *",
        "  Messages     :       1000000 *",
        "  Bytes        :     976.56 MB *",
        "  Age          :     unlimited *",
        "  Inactivity   :     unlimited *",
        "----------------------------------",
    ]


def test_channels_with_limits_of_their_own_are_listed_widest_first():
    limits = StoreLimits(
        channels=0,
        default=ChannelLimits(msgs=5, age_ns=5400 * SECOND),
        per_channel={
            "orders.eu": ChannelOverride(subscriptions=7),
            "orders.>": ChannelOverride(msgs=-1, bytes=2048, inactivity_ns=SECOND),
        },
    )
    lines = limit_lines(limits)
    assert lines[1:7] == [
        "Channels:            unlimited",
        "--------- Channels Limits --------",
        "  Subscriptions:          1000 *",
        "  Messages     :             5",
        "  Bytes        :     976.56 MB *",
        "  Age          :       1h30m0s",
    ]
    assert lines[8:] == [
        "-------- List of Channels --------",
        "orders.>",
        " |-> Messages            unlimited",
        " |-> Bytes                 2.00 KB",
        " |-> Inactivity                 1s",
        "orders.eu",
        " |-> Subscriptions               7",
        "----------------------------------",
    ]
