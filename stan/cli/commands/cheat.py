"""`stan cheat`: commands that are needed most, by task. A test reads each of them as the shell would."""

from typing import Annotated, Final

import typer

from stan.cli.support.common import EXIT_USAGE, fail
from stan.cli.support.terminal import write

SHEETS: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "messages": (
        ("stan pub orders hello", "publish, and wait for the ack"),
        ("stan pub orders --lines", "publish each line of stdin"),
        ("stan pub orders '{\"n\": {count}}' --template --count 10 --json", "ten messages, their acks as JSON"),
        ("stan sub orders --from first --until-end", "all that is there"),
        ("stan sub orders --durable ledger --client-id shop", "go on where the durable is"),
        ("stan sub orders --from since:1h --format '%s %t %k %d'", "sequence, time, key, data"),
        ("stan find 'orders.>' refund -i --since 1d", "look into messages"),
        ("stan channel get orders --newest 10", "the newest, without a subscription"),
    ),
    "trouble": (
        ("stan doctor", "what is wrong, and what to do"),
        ("stan durable list --watch", "who is behind"),
        ("stan durable why orders shop/ledger", "why it gets nothing"),
        ("stan explain orders shop/ledger 4711", "each delivery of a message"),
        ("stan dlq list", "dead letters"),
        ("stan events", "what happens now"),
        ("stan doctor --bundle report.zip", "for a bug report"),
    ),
    "positions": (
        ("stan durable next orders shop/ledger", "take its next message, and ack it"),
        ("stan durable move orders shop/ledger --seq 4711", "begin elsewhere"),
        ("stan durable skip orders shop/ledger 4711", "pass over a message"),
        ("stan durable redeliver orders shop/ledger", "send unacked messages again now"),
        ("stan durable pause orders shop/ledger", "send nothing until resume"),
        ("stan durable create orders shop/ledger --at first", "make one ahead"),
    ),
    "channels": (
        ("stan channel list --sort bytes", "the largest"),
        ("stan channel limits orders --max-age 7d", "how long messages stay"),
        ("stan channel purge orders --before 24h", "remove old messages"),
        ("stan channel copy orders orders.trial", "a copy to try with"),
        ("stan channel create clicks --parts 8", "one channel in several groups"),
        ("stan backup saved", "save all channels with their positions"),
        ("stan restore saved", "put them back"),
    ),
    "cluster": (
        ("stan node list", "the nodes"),
        ("stan group list", "groups and their leaders"),
        ("stan channel verify --all", "compare all copies from disk"),
        ("stan check --lag 1000,10000 --nodes 3", "for alerting, by exit code"),
        ("stan rtt", "round trips"),
        ("stan top", "rates and lag, live"),
    ),
}


def cheat(topic: Annotated[str, typer.Argument(help=f"{', '.join(SHEETS)}; all without it.")] = "") -> None:
    """Commands that are needed most, by task."""
    if topic and topic not in SHEETS:
        fail(f"There is no topic {topic!r}: {', '.join(SHEETS)}.", EXIT_USAGE)
    lines: list[str] = []
    for name, commands in SHEETS.items():
        if topic in ("", name):
            lines += [*([""] if lines else []), name]
            lines += [f"  {command:<60}  {text}" for command, text in commands]
    write(lines)
