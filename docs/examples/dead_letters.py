"""Dead letters: messages that a handler cannot take.

A policy says how often a message is delivered, and where it goes then. It is set once, by an operator:

    stan policy set ex.bills --max-deliver 2 --dead-letter .dlq --yes

A message that was delivered so often without an ack, or that a handler rejects, is moved to the channel `ex.bills.dlq`, with
headers that say why. It prints:

    paid 12
    dead: b'a dozen' from ex.bills: no number
"""

import asyncio
import os

import stan_client
from stan_client.dead_letters import dead_letter

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="biller") as client:
        await client.publish_many("ex.bills", [b"12", b"a dozen"])
        start = stan_client.everything()
        bills = await client.subscribe("ex.bills", durable="bank", start=start, manual_acks=True)
        for _ in range(2):
            message = await bills.next(timeout_s=20)
            if message.data.isdigit():
                print("paid", int(message.data))
                await message.ack()
            else:
                await message.reject("no number")
        dead = await client.subscribe("ex.bills.dlq", start=start)
        letter = dead_letter(await dead.next(timeout_s=20))
        assert letter is not None
        print(f"dead: {letter.message.data!r} from {letter.channel}: {letter.error}")


asyncio.run(main())
