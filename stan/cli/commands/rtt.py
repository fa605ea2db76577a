"""`stan rtt`: how long a question takes to NATS and back, and to the nodes and back."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import stan_client
import typer
from stan_protocol.secure import without_secrets

from stan.cli.support.common import Target
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table
from stan.cli.support.session import look

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

COUNT: Final = 5
MS: Final = 1000


@injected
def rtt(
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="Questions to each.")] = COUNT,
    *,
    target: Target,
    view: View,
) -> None:
    """Measure round trips: to NATS alone, and to all nodes of the cluster, in milliseconds."""

    async def table(direct: stan_client.Direct) -> Table:
        rows, document = [], []
        where: dict[str, Callable[[], Awaitable[object]]] = {
            f"NATS at {without_secrets(target.server)}": direct.ping,
            "all nodes": direct.admin.nodes,
        }
        for what, ask in where.items():
            times = []
            for _ in range(count):
                begun = time.perf_counter()
                await ask()
                times.append(MS * (time.perf_counter() - begun))
            least, mean, most = min(times), sum(times) / count, max(times)
            rows.append((what, f"{least:.2f}", f"{mean:.2f}", f"{most:.2f}"))
            document.append({"what": what, "count": count, "min_ms": least, "mean_ms": mean, "max_ms": most})
        return Table(("what", ">min ms", ">mean ms", ">max ms"), rows, {"round_trips": document}, list(where))

    look(target, view, table)
