"""Write to two channels, all or nothing, and once.

Messages are staged first: they are on stable storage, and nobody sees them. The commit makes them visible. It names an
application and a version of its work. Whoever repeats a version that is committed changes nothing, so a program that does not
know whether its commit came through just does it again. It prints:

    before the commit: 0
    after it: 2 orders, 1 invoice
    after a repeat: 2 orders, 1 invoice
"""

import os

from stan_client import encode_rows
from stan_client.blocking import BlockingClient

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")
WORK = {"ex.orders": [b"a pot", b"two cups"], "ex.invoices": [b"12 euros"]}
APP, VERSION, ATTEMPT = "nightly", 1, "attempt-1"


def count(client: BlockingClient, channel: str) -> int:
    """How many messages a channel has."""
    info = client.info([channel])
    return info[channel].last if channel in info else 0


def work(client: BlockingClient) -> None:
    """Stage everything, and commit it."""
    for channel, messages in WORK.items():
        client.stage(APP, VERSION, ATTEMPT, 0, channel, encode_rows(messages), len(messages))
    if not count(client, "ex.orders"):
        print("before the commit:", count(client, "ex.orders"))
    client.commit(APP, VERSION, {channel: [(ATTEMPT, 1)] for channel in WORK})  # one part in each channel


with BlockingClient(SERVERS) as client:
    work(client)
    print(f"after it: {count(client, 'ex.orders')} orders, {count(client, 'ex.invoices')} invoice")
    work(client)
    print(f"after a repeat: {count(client, 'ex.orders')} orders, {count(client, 'ex.invoices')} invoice")
