"""A command's session with the servers: a connection without registration, and errors that name the next step."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from difflib import get_close_matches

import stan_client
from stan_client.requests.names import raw
from stan_protocol.channels import whole_of
from stan_protocol.secure import without_secrets

from stan.cli.support.common import EXIT_NO_ANSWER, CliError, Target, explained, run
from stan.cli.support.options import View
from stan.cli.support.output import Table, present
from stan.status.findings import check_leaders
from stan.status.groups import groups_of

PATIENCE_S = 10.0
"""Seconds until a request without an answer fails."""
UNSERVED_S = 2.0
"""Seconds until a request fails that no server listens to, as NATS reports."""
NODES_PATIENCE_S = 2.0
"""Wait for the nodes' answers after another request had no answer."""
NEAR_MAX = 3
"""Names that are suggested instead of a wrong one."""


def open_direct(target: Target, timeout_s: float) -> stan_client.Direct:
    """The client that asks the servers; tests replace this function."""
    return stan_client.Direct(
        target.server,
        cluster_id=target.cluster_id,
        name="stan-cli",
        timeout_s=timeout_s,
        unserved_s=UNSERVED_S,
        nats_options=target.nats_options(),
    )


@contextlib.asynccontextmanager
async def session(target: Target, *, timeout_s: float = PATIENCE_S) -> AsyncIterator[stan_client.Direct]:
    """An open connection to the servers; errors inside of the block become CliErrors."""
    with explained(target):
        direct = open_direct(target, timeout_s)
        await direct.open()
    try:
        yield direct
    except stan_client.NobodyListensError:
        raise CliError(_no_cluster(target), EXIT_NO_ANSWER) from None
    except stan_client.RequestTimeoutError as error:
        raise CliError(f"{error}\n{await _silence(direct, target)}", EXIT_NO_ANSWER) from None
    except stan_client.ServerError as error:
        raise CliError(f"The server refuses: {error}.") from None
    finally:
        await direct.close()


def on_cluster(target: Target, work: Callable[[stan_client.Direct], Awaitable[object]]) -> None:
    """Run *work* with a connection, and leave with exit code 0 if it does not fail."""

    async def main() -> int:
        async with session(target) as direct:
            await work(direct)
        return 0

    run(main())


def look(target: Target, view: View, table: Callable[[stan_client.Direct], Awaitable[Table]]) -> None:
    """Show the table once, or again and again, as *view* says."""
    on_cluster(target, lambda direct: present(lambda: table(direct), view)())


async def _silence(direct: stan_client.Direct, target: Target) -> str:
    """Return the likely reason for a missing answer, as far as the nodes report one."""
    try:
        nodes = await direct.admin.nodes(patience_s=NODES_PATIENCE_S)
    except stan_client.StanClientError:
        return _no_cluster(target)
    for leaders in check_leaders(groups_of(nodes)):
        away = f" These nodes do not answer: {', '.join(nodes.missing)}." if nodes.missing else ""
        return f"{leaders.text}{away} {leaders.step}"
    return "The nodes answer, and every group has a leader: ask again; if it stays so, see stan doctor."


def _no_cluster(target: Target) -> str:
    return (
        f"NATS answers at {without_secrets(target.server)}, but no server of cluster {target.cluster_id!r} does. Is the "
        "cluster id right (--cluster-id), does stan-server run there?"
    )


def near(wrong: str, names: Iterable[str]) -> str:
    """A sentence with the names that may have been meant, "" if there is none."""
    matches = get_close_matches(wrong, list(names), NEAR_MAX, 0.5)
    return f" Did you mean {' or '.join(matches)}?" if matches else ""


async def no_channel(direct: stan_client.Direct, channel: str) -> CliError:
    """The error that there is no such channel, with names that are like it."""
    names = [one.name for one in await direct.admin.channels()]
    if not names:
        return CliError(f"There is no channel {channel!r}; there are no channels at all.")
    if parts := [name for name in names if whole_of(raw(name)) == raw(channel)]:
        return CliError(
            f"Channel {channel!r} has {len(parts)} parts, which are channels: stan channel list '{channel}.*'"
        )
    hint = near(channel, names)
    return CliError(f"There is no channel {channel!r}.{hint} All of them: stan channel list")


def is_unknown(error: stan_client.ServerError) -> bool:
    """Return True if a server's error means that there is no such channel."""
    return error.code == "unknown_channel"
