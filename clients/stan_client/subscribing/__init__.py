"""Subscriptions: the path of one on a session, messages that wait for the handler, and verdicts on them."""

from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.parted import PartedSubscription
from stan_client.subscribing.parts import PartedDelivery
from stan_client.subscribing.subscription import Subscription

__all__ = ["PartedDelivery", "PartedSubscription", "Subscription", "SubscriptionDelivery"]
