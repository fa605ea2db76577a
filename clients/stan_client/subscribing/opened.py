"""All subscriptions of one client: they are made again, drained and ended together."""

import logging

from stan_client.errors import ServerError, StanClientError
from stan_client.subscribing.delivery import SubscriptionDelivery
from stan_client.subscribing.parted import PartedSubscription
from stan_client.subscribing.parts import PartedDelivery
from stan_client.subscribing.subscription import Subscription
from stan_client.transport.session import Session
from stan_client.waiting import left_s

log = logging.getLogger("stan_client")


class OpenSubscriptions:
    """The subscriptions of a client that have not ended. The parts of a parted one are subscriptions of their own."""

    def __init__(self) -> None:
        self._single: dict[SubscriptionDelivery, Subscription] = {}
        self._parted: dict[PartedDelivery, PartedSubscription] = {}

    def add(self, delivery: SubscriptionDelivery, subscription: Subscription) -> None:
        """Note a subscription that was made."""
        self._single[delivery] = subscription

    def add_parted(self, delivery: PartedDelivery, subscription: PartedSubscription) -> None:
        """Note a parted subscription; its parts are noted by themselves."""
        self._parted = {one: parted for one, parted in self._parted.items() if not parted.closed}
        self._parted[delivery] = subscription

    def forget(self, delivery: SubscriptionDelivery) -> None:
        """Note that a subscription has ended."""
        self._single.pop(delivery, None)

    async def make_again(self, session: Session) -> None:
        """Make all on another session, until that is lost; a subscription that is refused ends."""
        for delivery in list(self._single):
            try:
                await delivery.make(session)
            except ServerError as refusal:
                log.warning("subscription to %s not made again: %s", delivery.channel, refusal)
                await delivery.end(refusal)
            except StanClientError as trouble:
                session.lose(trouble)
            if session.lost is not None:
                return

    async def drain(self, until: float | None) -> bool:
        """Drain all, one after the other, until that time; returns True if all that had come was handled."""
        finished = True
        everyone: list[PartedSubscription | Subscription] = [*self._parted.values(), *self._single.values()]
        for subscription in everyone:
            if subscription.closed:
                continue
            try:
                finished &= await subscription.drain(timeout_s=left_s(until))
            except StanClientError as trouble:  # it has ended meanwhile, or the server does not answer
                log.warning("subscription to %s not drained: %s", subscription.channel, trouble)
                finished = False
        return finished

    async def end(self, error: StanClientError | None) -> None:
        """End all without a request to the server; iterations end, with *error* if there is one."""
        for parted in self._parted:
            parted.end(error)
        for delivery in list(self._single):
            await delivery.end(error)
