"""A member of a consumer group as a process of its own, which is killed: it tells in a file what it handles and commits."""

import asyncio
import os
import time
from pathlib import Path

from stan_client import ChannelLostError, Direct, GroupConsumer
from stan_client.transport import session

GROUP = "ledger"


def consume(url: str, cluster_id: str, pattern: str, lease_s: float, directory: str) -> None:
    """Handle batches until the process is killed. Each line of the file `<pid>`: what was done, when (Unix ns), channel, first
    sequence, position after the batch; of what is handled, also the greatest age in ns of its messages."""
    session.nuid = type(session.nuid)()  # forked processes would make the same ids
    asyncio.run(_consume(url, cluster_id, pattern, lease_s, Path(directory, str(os.getpid()))))


async def _consume(url: str, cluster_id: str, pattern: str, lease_s: float, path: Path) -> None:
    with path.open("w", buffering=1) as told:
        async with Direct(url, cluster_id=cluster_id, timeout_s=10) as direct:
            member = GroupConsumer(
                direct, pattern, group=GROUP, lease_s=lease_s, auto_commit=False, name=str(os.getpid())
            )
            async with member:

                async def handle(batch):
                    messages = batch.messages()
                    now = time.time_ns()
                    age = max(now - message.timestamp_ns for message in messages)
                    which = f"{batch.channel} {messages[0].sequence} {batch.next_sequence}"
                    told.write(f"handled {now} {which} {age}\n")
                    try:
                        await batch.commit()
                    except ChannelLostError:
                        return
                    told.write(f"committed {time.time_ns()} {which} 0\n")

                await member.run(handle)
