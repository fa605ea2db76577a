"""A broker for FastStream: handlers, dependencies and documentation of FastStream over channels of stan.

broker = StanBroker(client_id="billing")

@broker.subscriber("orders", durable="billing")
async def bill(order: Order) -> None: ...

Needs the extra `faststream`. `TestStanBroker` runs handlers without any broker; in a simulation of `stan_client.testing` a
StanBroker meets the real one, under faults.
"""

from stan_client.faststream.broker import StanBroker, StanRouter
from stan_client.faststream.messages import StanMessage
from stan_client.faststream.testing import TestStanBroker

__all__ = ["StanBroker", "StanMessage", "StanRouter", "TestStanBroker"]
