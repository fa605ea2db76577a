"""`stan demo`: half a minute that shows what the broker promises, with a kill -9 in the middle of the load.

With --cluster, see demo_cluster; with --spark, demo_spark. Starts a broker of its own in a temporary directory, speaks to it with
the client library only, and believes nothing: every figure counts acknowledged and received messages. Exit code 0 only
if all promises hold. Leaves no process and no file. Each step is a function that describes itself in one sentence.
"""

import asyncio
import contextlib
import time
from typing import Annotated, Final

import typer
from stan_client import Client, Message, everything

from stan.cli.support.common import needing_distributions, run_until_signalled
from stan_bench.demo.demo_broker import DemoBroker
from stan_bench.demo.demo_cluster import show_cluster
from stan_bench.demo.demo_screen import fact, rate, step, verdict
from stan_bench.demo_tally import Figure, PublishLedger, Tally, figures_of_log, figures_of_reader

ORDERS: Final = "orders"
LOAD: Final = "load"
MESSAGES: Final = 20_000
READ_BEFORE_CLOSE: Final = 5_000
MEMBERS: Final = 3
UNACKED: Final = 3
ACK_WAIT_S: Final = 1
LOAD_ACK_WAIT_S: Final = 2
ACK_TIMEOUT_S: Final = 2.0
IN_FLIGHT_MAX: Final = 2_000  # publishes without ack
BURST: Final = 200  # messages published before the readers get their turn
KILL_AFTER_ACKS: Final = 60_000
ACKS_AFTER_RESTART: Final = 60_000


def demo(
    cluster: Annotated[  # noqa: FBT002
        bool, typer.Option("--cluster", help="Three nodes, of which the leader is killed under load.")
    ] = False,
    spark: Annotated[  # noqa: FBT002
        bool, typer.Option("--spark", help="A pipeline on Spark, whose driver is killed under load.")
    ] = False,
) -> None:
    """Show in half a minute what the broker promises, on a broker of its own that is killed under load."""
    if cluster and spark:
        raise typer.BadParameter("give one of --cluster and --spark")
    if spark:
        with needing_distributions("demo --spark"):
            from stan_bench.demo.demo_spark import show_spark  # noqa: PLC0415
        run_until_signalled(show_spark())
    else:
        run_until_signalled(show_cluster() if cluster else _show())


async def _show() -> int:
    began = time.monotonic()
    step(
        1,
        "A broker",
        "One process with its own nats-server; messages go to files, each fsynced before it is acknowledged.",
    )
    async with DemoBroker() as broker:
        fact(f"stan-server, pid {broker.pid}, {broker.url}, files in {broker.directory}")
        async with broker.client("demo-shop", ACK_TIMEOUT_S, IN_FLIGHT_MAX) as client:
            await _publish(client)
            await _replay(broker, client)
            await _resume_durable(broker, client)
            await _share(broker)
            await _redeliver(broker, client)
        figures = await _survive(broker)
    return verdict(figures, time.monotonic() - began)


# --- the quiet part -------------------------------------------------------------------------------------------------


async def _publish(client: Client) -> None:
    step(2, "Publishing", "An ack means: stored, in one order for everybody, and safe from a crash.")
    began = time.monotonic()
    acked = await client.publish_many(ORDERS, (b"%d" % number for number in range(1, MESSAGES + 1)))
    fact(f"acknowledged: {rate(acked, began)}")


async def _replay(broker: DemoBroker, client: Client) -> None:
    step(3, "A subscription from the beginning", "Messages stay; whoever comes later can have all of them.")
    began, tally = time.monotonic(), Tally()
    subscription = await client.subscribe(ORDERS, tally.note, start=everything())
    await broker.until(lambda: tally.missing(MESSAGES) == 0, "all messages")
    fact(f"received in order: {rate(tally.received, began)}")
    await subscription.close()


async def _resume_durable(broker: DemoBroker, client: Client) -> None:
    step(4, "A durable", "The broker remembers what was acknowledged under a name, also while nobody listens.")
    first, second = Tally(), Tally()

    def note(message: Message) -> None:
        if message.sequence <= READ_BEFORE_CLOSE:
            first.note(message)
            message.ack()

    reader = await client.subscribe(ORDERS, note, durable="billing", start=everything(), manual_acks=True)
    await broker.until(lambda: first.last == READ_BEFORE_CLOSE, "the durable")
    await reader.close()
    second.mark()
    reader = await client.subscribe(ORDERS, second.note, durable="billing")
    await broker.until(lambda: second.last == MESSAGES, "the durable, resumed")
    await reader.close()
    fact(f"acknowledged up to {first.last:,}, closed, resumed: went on at {second.marked_at:,}, up to {second.last:,}")


async def _share(broker: DemoBroker) -> None:
    step(5, "A queue group", "Each message goes to one of the members, so that they share the work.")
    group, shares = Tally(), [0] * MEMBERS
    async with contextlib.AsyncExitStack() as stack:
        for number in range(MEMBERS):

            def note(message: Message, number: int = number) -> None:
                shares[number] += 1
                group.note(message)

            member = await stack.enter_async_context(
                broker.client(f"demo-member-{number + 1}", ACK_TIMEOUT_S, IN_FLIGHT_MAX)
            )
            await member.subscribe(ORDERS, note, queue="packing", start=everything(), max_in_flight=100)
        await broker.until(lambda: group.missing(MESSAGES) == 0, "the group")
    parts = " + ".join(f"{share:,}" for share in shares)
    fact(f"{parts} = {group.received:,} messages, {group.flagged + group.unexplained} of them twice")


async def _redeliver(broker: DemoBroker, client: Client) -> None:
    step(6, "No ack", f"What is not acknowledged within its ack wait ({ACK_WAIT_S} s) comes again, and says so.")
    began, tally = time.monotonic(), Tally()

    def note(message: Message) -> None:
        tally.note(message)
        if message.redelivered:
            message.ack()

    subscription = await client.subscribe(
        ORDERS, note, start=everything(), max_in_flight=UNACKED, ack_wait_s=ACK_WAIT_S, manual_acks=True
    )
    await broker.until(lambda: tally.flagged >= UNACKED, "the messages to come again")
    seconds = time.monotonic() - began
    await subscription.close()
    fact(f"{UNACKED} messages left unacknowledged: {UNACKED} came again after {seconds:.1f} s, flagged as redelivered")


# --- the crash ------------------------------------------------------------------------------------------------------


async def _survive(broker: DemoBroker) -> list[Figure]:
    step(7, "kill -9 under load", "Messages flow, the broker is killed in the middle of it and started again.")
    durable, group, ledger = Tally(), Tally(), PublishLedger()
    async with contextlib.AsyncExitStack() as stack:
        writer = await stack.enter_async_context(broker.client("demo-writer", ACK_TIMEOUT_S, IN_FLIGHT_MAX))
        reader = await stack.enter_async_context(broker.client("demo-reader", ACK_TIMEOUT_S, IN_FLIGHT_MAX))
        await reader.subscribe(LOAD, durable.note, durable="ledger", start=everything(), ack_wait_s=LOAD_ACK_WAIT_S)
        for number in range(MEMBERS):
            member = await stack.enter_async_context(
                broker.client(f"demo-worker-{number + 1}", ACK_TIMEOUT_S, IN_FLIGHT_MAX)
            )
            await member.subscribe(
                LOAD, group.note, queue="workers", durable="workers", start=everything(), ack_wait_s=LOAD_ACK_WAIT_S
            )
        writing = asyncio.ensure_future(_write(writer, ledger))
        try:
            await _kill_and_restart(broker, ledger, durable, group)
        finally:
            writing.cancel()
            await asyncio.wait([writing])
        await broker.until(lambda: ledger.in_flight == 0, "the last acks")
        stored = await _read_back(broker, reader, writer)
        last = len(stored)
        await broker.until(lambda: durable.missing(last) == 0 and group.missing(last) == 0, "the readers to catch up")
    return [
        *figures_of_log(ledger, stored),
        *figures_of_reader("durable", durable, last, ordered=True),
        *figures_of_reader("queue group", group, last, ordered=False),
    ]


async def _write(client: Client, ledger: PublishLedger) -> None:
    """Publish 1, 2, 3, ... until cancelled, as fast as the window of IN_FLIGHT_MAX without ack allows."""
    while True:
        for _ in range(min(await client.window.room(), BURST)):
            data, settle = ledger.publish()
            client.window.publish(LOAD, data, on_ack=settle)
        await asyncio.sleep(0)


async def _kill_and_restart(broker: DemoBroker, ledger: PublishLedger, durable: Tally, group: Tally) -> None:
    await broker.until(
        lambda: len(ledger.acked) >= KILL_AFTER_ACKS and min(durable.last, group.last) > 1 and ledger.in_flight > 0,
        "the load",
    )
    pid, killed = broker.pid, time.monotonic()
    fact(f"{len(ledger.acked):,} acknowledged, {ledger.in_flight} under way: kill -9 {pid}")
    await broker.kill()
    acked = len(ledger.acked)
    durable.mark()
    group.mark()
    fact(f"dead; durable at {durable.last:,}, group at {group.last:,}")
    await broker.begin()
    fact(f"started again on the same files, pid {broker.pid}: ready {time.monotonic() - killed:.1f} s after the kill")
    await broker.until(lambda: len(ledger.acked) >= acked + ACKS_AFTER_RESTART, "the load after the restart")
    fact("writer and subscribers went on by themselves; reading the channel back")


async def _read_back(broker: DemoBroker, reader: Client, writer: Client) -> list[bytes]:
    """All data of the channel in its order, up to a message that is published last."""
    end = b"0"
    await writer.publish(LOAD, end)
    tally = Tally()
    await reader.subscribe(LOAD, tally.note, start=everything())
    await broker.until(lambda: tally.seen.get(tally.last) == end and not tally.missing(tally.last), "the whole channel")
    return [tally.seen[sequence] for sequence in range(1, tally.last)]
