"""Transactions: batches that are staged, and committed together."""

from collections.abc import Mapping

from stan_protocol.scalars import Nanos

from stan.core.features import BrokerFeature
from stan.core.features.transactions.committing import Committing
from stan.core.features.transactions.staging import Staging
from stan.core.leader.local_group import Leadership
from stan.core.requests.router import Handler


class TransactionsFeature(BrokerFeature):
    """Transactions of channels."""

    def handlers(self) -> Mapping[str, Handler]:
        """Requests of publishers."""
        return {
            "stage": lambda accepted: accepted.part(Staging).stage(accepted),
            "commit": lambda accepted: accepted.part(Committing).commit(accepted),
            "abort": lambda accepted: accepted.part(Staging).abort(accepted),
            "finish": lambda accepted: accepted.part(Staging).finish(accepted),
            "last_committed": lambda accepted: accepted.part(Staging).last_committed(accepted),
        }

    def lead_group(self, leadership: Leadership) -> None:
        """Add the parts that stage and commit."""
        for kind in (Staging, Committing):
            leadership.keep(kind(self.services, leadership, self.parts.channels, self.parts.publishing))

    def look(self, now: Nanos) -> None:  # noqa: ARG002 - as BrokerFeature has it
        """Drop staged parts that were not committed in time."""
        self.services.leading.each(Staging, Staging.expire)
