"""Policies of delivery for people. Pure."""

from typing import Any

from stan_protocol.admin_types import DeliveryPolicy, NodeStatus
from stan_protocol.units import go_duration

from stan.policies import POLICY_OPTIONS, REPLICATED, Form, PolicyOption, given_options


def format_policy(policy: DeliveryPolicy) -> str:
    """Return the set options, in a line: `max deliver 5, back-off 1s 10s 1m0s, max hold 10m0s, adaptive window`; or `-`."""
    given = given_options(policy)
    return ", ".join(_phrase(option, given[option.field]) for option in POLICY_OPTIONS if option.field in given) or "-"


def format_in_force(policy: DeliveryPolicy) -> str:
    """Return the options of the policy in force that differ from no policy, in a line."""
    given = given_options(policy)
    idle = {"dead_letter_rate"} if not policy.dead_letter else set()
    idle |= {"min_age", "tombstone_max"} if not policy.compact else set()
    idle |= {"tier_stretch"} if not policy.tier else set()
    shown = [option for option in POLICY_OPTIONS if given.get(option.field) and option.field not in idle]
    return ", ".join(_phrase(option, given[option.field]) for option in shown) or "-"


def without_effect(policy: DeliveryPolicy, nodes: list[NodeStatus]) -> str:
    """Return the options without effect with the stores and groups of these nodes, in sentences; "" if there are none."""
    stores = {node.store.upper() for node in nodes if node.store}
    alone = any(not node.node for node in nodes)
    replicated = not nodes or any(group.commit == REPLICATED for node in nodes for group in node.groups)
    how = "A server alone has none." if alone else "Make some: stan cluster grow --commit replicated."
    idle = (
        (policy.compact and stores and "FILE" not in stores, "compact", "only the store FILE compacts."),
        (policy.compress and stores == {"SQL"}, "compress", "the store SQL has each message in clear."),
        (
            policy.commit == REPLICATED and not replicated,
            "commit replicated",
            f"no groups are replicated, so channels are synced. {how}",
        ),
        (policy.from_replica and alone, "served by replica", "a server alone has no replica."),
    )
    return " ".join(f"Without effect now: {what}: {why}" for counts, what, why in idle if counts)


def _phrase(option: PolicyOption, value: Any) -> str:
    shown = format_option(option, value)
    if option.form is Form.WORD and not option.label.endswith(" by"):
        return f"{shown} {option.label}"
    if option.form is Form.CHOICE:
        return f"{option.label} {shown}"
    return f"{option.label} {shown}" if shown else f"no {option.label}"


def format_option(option: PolicyOption, value: Any) -> str:
    """A value as people read it; "": 0, none, or no limit."""
    match option.form:
        case Form.NUMBER:
            return f"{value:,}" if value else ""
        case Form.DURATION:
            return go_duration(value) if value else ""
        case Form.DURATIONS:
            return " ".join(map(go_duration, value))
        case Form.WORD | Form.CHOICE:
            return option.words[int(value)]
        case Form.CHANNEL:
            return str(value)
