"""Policies of delivery for people. Pure."""

from stan.protocol.proto import admin_pb2 as pb
from stan.units import go_duration


def format_policy(policy: pb.DeliveryPolicy) -> str:
    """What is set, in a line: `max deliver 5, back-off 1s 10s 1m0s, max hold 10m0s, adaptive window`; `-` for nothing."""
    told = []
    if policy.HasField("max_deliver"):
        told.append(f"max deliver {policy.max_deliver:,}" if policy.max_deliver else "no max deliver")
    if policy.HasField("backoff"):
        pauses = " ".join(map(go_duration, policy.backoff.pauses))
        told.append(f"back-off {pauses}" if pauses else "no back-off")
    if policy.HasField("max_hold"):
        told.append(f"max hold {go_duration(policy.max_hold)}" if policy.max_hold else "no max hold")
    if policy.HasField("adaptive_window"):
        told.append("adaptive window" if policy.adaptive_window else "fixed window")
    return ", ".join(told) or "-"
