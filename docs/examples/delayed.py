"""A message that comes later.

The ack says that the message is stored. It comes into its channel when the server's clock shows its time. An operator, or a
program, can cancel it until then. It prints:

    waiting: 2
    came: b'soon'
    waiting: 0
"""

import asyncio
import os

import stan_client

SERVERS = os.environ.get("STAN_SERVER", "nats://127.0.0.1:4222")
CHANNEL = "ex.reminders"


async def main() -> None:
    async with await stan_client.connect(SERVERS, client_id="reminder") as client:
        reminders = await client.subscribe(CHANNEL)
        await client.publish(CHANNEL, b"soon", delay_s=1)
        late = await client.publish(CHANNEL, b"tomorrow", delay_s=24 * 3600)
        print("waiting:", len(await client.admin.delayed(CHANNEL)))
        message = await reminders.next(timeout_s=20)
        print("came:", message.data)
        await client.admin.cancel_delayed(CHANNEL, [late.delayed_id])
        print("waiting:", len(await client.admin.delayed(CHANNEL)))


asyncio.run(main())
