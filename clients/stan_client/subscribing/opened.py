"""All subscriptions of one client: they are made again, drained and ended together."""

import logging

from stan_client.errors import ServerError, StanClientError
from stan_client.subscribing.parted import PartedSubscription
from stan_client.subscribing.subscription import Subscription
from stan_client.transport.session import Session
from stan_client.waiting import left_s

log = logging.getLogger("stan_client")


class OpenSubscriptions:
    """The subscriptions of a client that have not ended. The parts of a parted one are subscriptions of their own."""

    def __init__(self) -> None:
        self._single: list[Subscription] = []
        self._parted: list[PartedSubscription] = []

    def add(self, subscription: Subscription) -> None:
        """Note a subscription that was made."""
        self._single.append(subscription)

    def add_parted(self, subscription: PartedSubscription) -> None:
        """Note a parted subscription; its parts are noted by themselves."""
        self._parted = [*(one for one in self._parted if not one.closed), subscription]

    def forget(self, subscription: Subscription) -> None:
        """Note that a subscription has ended."""
        if subscription in self._single:
            self._single.remove(subscription)

    async def make_again(self, session: Session) -> None:
        """Make all on another session, until that is lost; a subscription that is refused ends."""
        for subscription in list(self._single):
            try:
                await subscription.make(session)
            except ServerError as refusal:
                log.warning("subscription to %s not made again: %s", subscription.channel, refusal)
                await subscription.end(refusal)
            except StanClientError as trouble:
                session.lose(trouble)
            if session.lost is not None:
                return

    async def drain(self, until: float | None) -> bool:
        """Drain all, one after the other, until that time; returns True if all that had come was handled."""
        finished = True
        everyone: list[PartedSubscription | Subscription] = [*self._parted, *self._single]
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
        for subscription in list(self._single):
            await subscription.end(error)
