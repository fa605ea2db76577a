"""A queue group shares the messages of a channel among its members.

Each message goes to one member. If that one dies before its ack, another one gets the message. It prints:

    handled: 1 2 3 4 5 6 7 8 9 10
    members that worked: 2
"""

import asyncio
import os
from collections import defaultdict

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")
MESSAGES = 10


async def main() -> None:
    handled: dict[str, list[int]] = defaultdict(list)
    done = asyncio.Event()

    async with await stan_client.connect(SERVERS, client_id="workers") as client:

        async def member(name: str) -> None:
            async def work(message: stan_client.Message) -> None:
                handled[name].append(int(message.data))
                if sum(map(len, handled.values())) == MESSAGES:
                    done.set()

            await client.subscribe("ex.jobs", work, queue="workers", max_in_flight=1)  # one message at a time

        await member("a")
        await member("b")
        await client.publish_many("ex.jobs", [b"%d" % number for number in range(1, MESSAGES + 1)])
        await asyncio.wait_for(done.wait(), 20)
    print("handled:", *sorted(number for numbers in handled.values() for number in numbers))
    print("members that worked:", len(handled))


asyncio.run(main())
