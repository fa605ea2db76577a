"""Types of handlers' arguments that FastStream fills in: `async def bill(order: Order, message: StanMessage)`."""

from typing import Annotated

from faststream import Context

from stan_client.faststream import broker, messages

StanMessage = Annotated[messages.StanMessage, Context("message")]
"""The message that is handled, with its verdicts."""
StanBroker = Annotated[broker.StanBroker, Context("broker")]
"""The broker."""
