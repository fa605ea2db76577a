"""Subscriptions: the path of one on a session, messages that wait for the handler, and verdicts on them."""

from stan_client.subscribing.parted import PartedSubscription
from stan_client.subscribing.subscription import Subscription

__all__ = ["PartedSubscription", "Subscription"]
