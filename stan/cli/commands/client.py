"""`stan client`: the connected clients."""

import time
from typing import Annotated

import stan_client
import typer
from stan_protocol.admin_types import ClientStatus, CursorStatus
from stan_protocol.units import counted

from stan.cli.commands.cursor_tables import cursor_document
from stan.cli.support.common import CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, near, on_cluster
from stan.status.positions import KINDS, full_name, state_of


def _named(client: str) -> str:
    if not client:
        raise typer.BadParameter("a client id is not empty.")
    return client


ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="Client id.", callback=_named)]

app = group_of_commands("Clients: who is connected, and what they read.")


@app.command("list")
@injected
def list_(
    failing: Annotated[bool, typer.Option("--failing", help="Only those that do not answer heartbeats.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
) -> None:
    """All clients, and whether they answer."""

    async def table(direct: stan_client.Direct) -> Table:
        clients = await direct.admin.clients()
        return clients_table([one for one in clients if one.failing or not failing])

    look(target, view, table)


def clients_table(clients: list[ClientStatus]) -> Table:
    """Return clients, one a line."""
    names = [one.client_id for one in clients]
    rows = [
        (name, _state(one), f"{one.ping_interval_s}s x {one.ping_max_out}", one.heartbeat_inbox)
        for name, one in zip(names, clients, strict=True)
    ]
    return Table(
        columns=("client", "state", "pings", "heartbeat inbox"),
        rows=rows,
        document={"clients": [document_of(one) for one in clients]},
        names=names,
        foot=counted(len(clients), "client") if clients else "",
        empty="No clients.",
    )


def _state(client: ClientStatus) -> str:
    return "not answering" if client.failing else "well"


@app.command("show")
@injected
def show(client: ClientName, *, target: Target, view: View) -> None:
    """One client and its subscriptions."""

    async def table(direct: stan_client.Direct) -> Table:
        clients = await direct.admin.clients(client)
        cursors = await direct.admin.subscriptions(client_id=client)
        if not clients and not cursors:
            names = [one.client_id for one in await direct.admin.clients()]
            raise CliError(f"There is no client {client!r}.{near(client, names)} All of them: stan client list")
        return client_table(client, clients, cursors, time.time_ns())

    look(target, view, table)


def client_table(client: str, statuses: list[ClientStatus], cursors: list[CursorStatus], now_ns: int) -> Table:
    """Return all fields of a client; of one that is not connected: its positions."""
    rows = [("client", client), ("state", _state(statuses[0]) if statuses else "not connected")]
    for one in statuses:
        rows += [
            ("heartbeats", f"to {one.heartbeat_inbox}"),
            ("pings", f"every {one.ping_interval_s} s, closed after {one.ping_max_out} without an answer"),
        ]
    for cursor in cursors:
        state = f"{cursor.channel} {full_name(cursor)}: {state_of(cursor, now_ns).word}, {cursor.waiting:,} waiting"
        rows.append((KINDS[cursor.kind], f"{state}, {cursor.pending:,} unacked"))
    document = {
        "client": document_of(statuses[0]) if statuses else None,
        "cursors": [cursor_document(cursor, now_ns) for cursor in cursors],
    }
    return Table(rows=rows, document=document, names=[client])


@app.command("evict")
@injected
def evict(client: ClientName, *, target: Target, confirmation: Confirmation) -> None:
    """Close a client as if it had done so itself; its durables stay."""

    async def main(direct: stan_client.Direct) -> None:
        clients = await direct.admin.clients(client)
        if not clients:
            names = [one.client_id for one in await direct.admin.clients()]
            raise CliError(f"There is no client {client!r}.{near(client, names)} All of them: stan client list")
        count = sum(
            member.client_id == client
            for cursor in await direct.admin.subscriptions(client_id=client)
            for member in cursor.members
        )
        confirmation.require(
            f"Closes client {client} ({_state(clients[0])}) and its {counted(count, 'subscription')}; its durables keep their "
            "positions. A client that still runs may connect again."
        )
        await direct.admin.evict_client(client)
        done(f"Client {client} is closed.")

    on_cluster(target, main)
