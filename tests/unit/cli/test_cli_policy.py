"""What `stan policy set` says before it asks: for how many channels the policy holds."""

import pytest

from stan.cli.commands.policy import covered

PARTED = ["orders", "sales.eu"]


@pytest.mark.parametrize(
    ("pattern", "names", "told"),
    [
        ("stock", ["stock"], "1 channel now."),
        ("nothing", [], "0 channels now."),
        ("orders", [], "1 channel now."),
        (">", ["stock", "orders.~0", "orders.~1", "sales.eu.~0"], "3 channels now."),
        (
            "orders.*",
            ["orders.~0", "orders.~1", "orders.new"],
            "1 channel now. It does not hold for the parts of orders: they have the policy of their channel as a whole.",
        ),
        (
            "sales.*.*",
            ["sales.eu.~0"],
            "0 channels now. It does not hold for the parts of sales.eu: they have the policy of their channel as a whole.",
        ),
        ("sales.*", ["sales.us"], "2 channels now."),
        ("logs.*", ["logs.~0"], "1 channel now."),  # called like a part, and there is no such whole
    ],
)
def test_channels_that_a_policy_holds_for(pattern, names, told):
    assert covered(pattern, names, PARTED) == f" The pattern covers {told}"
