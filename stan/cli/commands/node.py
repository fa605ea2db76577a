"""`stan node`: the nodes of a cluster, their state, adding and removing them, and the level that they know."""

import time
from typing import Annotated

import stan_client
import typer
from stan_client.requests.admin import Nodes
from stan_protocol.ack_levels import TOLD
from stan_protocol.admin_types import NodeStatus
from stan_protocol.units import NEVER, format_age, format_size, format_time

from stan.cli.support.common import CliError, Target, group_of_commands
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, done
from stan.cli.support.output import show as show_table
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look, near, on_cluster
from stan.level import too_old
from stan.status.groups import cluster_level, labels_of, node_name

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its id.")]

app = group_of_commands("Nodes: who is there, how they are, taking them in and out, their level.")


def state_of(node: NodeStatus) -> str:
    """Return `ready`, or the missing conditions."""
    return ", ".join(node.not_ready) or ("ready, read replica" if node.replica else "ready")


def leads(node: NodeStatus) -> int:
    """Return the number of groups that a node leads."""
    return sum(group.role == "leader" for group in node.groups)


@app.command("list")
@injected
def list_(*, target: Target, view: View) -> None:
    """All nodes, those that do not answer too."""

    async def table(direct: stan_client.Direct) -> Table:
        return nodes_table(await direct.admin.nodes(), time.time_ns())

    look(target, view, table)


def nodes_table(nodes: Nodes, now_ns: int) -> Table:
    """Return nodes, one a line; with labels if any node has some."""
    labelled = any(one.labels for one in nodes.answers)
    rows: list[tuple[str, ...]] = [
        (
            node_name(one),
            *([one.labels or NEVER] if labelled else ()),
            state_of(one),
            f"{leads(one)}/{len(one.groups)}",
            format_age(one.started, now_ns),
            f"{one.messages_in:,}",
            f"{one.messages_out:,}",
            disk_left(one),
            format_size(one.rss),
            one.product,
        )
        for one in nodes.answers
    ]
    places = labels_of(nodes)
    for name in nodes.missing:
        label = [str(places.get(name, "")) or NEVER] if labelled else ()
        rows.append((name, *label, "does not answer", *[NEVER] * 7))
    return Table(
        columns=(
            "node",
            *(["labels"] if labelled else ()),
            *("state", ">leads", ">up", ">in", ">out", ">disk free", ">memory"),
            "version",
        ),
        rows=rows,
        document={"nodes": [document_of(one) for one in nodes.answers], "missing": nodes.missing},
        names=[node_name(one) for one in nodes.answers] + nodes.missing,
        foot=f"{len(nodes.missing)} of {len(rows)} nodes do not answer." if nodes.missing else "",
    )


def disk_left(node: NodeStatus) -> str:
    """Return the free space of the disk with the node's files."""
    if not node.disk_total:
        return NEVER
    return f"{format_size(node.disk_free)} ({100 * node.disk_free // node.disk_total}%)"


@app.command("show")
@injected
def show(node: NodeName = "", *, target: Target, view: View) -> None:
    """One node and its groups."""

    async def table(direct: stan_client.Direct) -> Table:
        nodes = await direct.admin.nodes()
        matching = [one for one in nodes.answers if node in (one.node, node_name(one))]
        if not matching:
            raise _unknown(node, nodes)
        return node_table(matching[0], time.time_ns())

    look(target, view, table)


def _unknown(node: str, nodes: Nodes) -> CliError:
    if node in nodes.missing:
        return CliError(f"Node {node} does not answer. Does its stan-server run, and reach NATS?")
    names = [node_name(one) for one in nodes.answers] + nodes.missing
    return CliError(f"There is no node {node!r}.{near(node, names)} There are: {', '.join(names)}.")


def acked_words(status: NodeStatus) -> str:
    """Return how many messages a node has acknowledged as a leader, by the meaning of the ack."""
    words = {int(level): level.word for level in TOLD}
    counts = [f"{acked.messages:,} {words.get(acked.level, 'otherwise')}" for acked in status.acked if acked.messages]
    counts += [f"{status.unanswered:,} published without an ack"] if status.unanswered else []
    return ", ".join(counts) or "none"


def node_table(status: NodeStatus, now_ns: int) -> Table:
    """Return all fields of a node."""
    rows = [
        ("node", node_name(status)),
        ("state", state_of(status)),
        *([("labels", status.labels)] if status.labels else []),
        ("version", f"{status.product}, kernel {status.kernel}, server id {status.server_id}"),
        ("started", f"{format_time(status.started)} ({format_age(status.started, now_ns)} ago)"),
        ("store", f"{status.store}, sync {status.sync}"),
        ("disk free", disk_left(status)),
        ("memory", format_size(status.rss)),
        ("clients", f"{status.clients:,}"),
        ("channels", f"{status.channels:,}"),
        ("acked", acked_words(status)),
        ("in", f"{status.messages_in:,} messages, {format_size(status.bytes_in)} since it started"),
        ("out", f"{status.messages_out:,} messages, {format_size(status.bytes_out)}"),
        ("monitoring", status.monitor or "off"),
    ]
    for group in status.groups:
        title = f"group {group.group}" if group.group else "metadata"
        progress = f"{group.role}, term {group.term}, applied {group.applied:,} of {group.last_index:,}"
        leader = f", led by {group.leader or 'nobody'}" if group.role != "leader" else ""
        rows.append((title, progress + leader + (f": {group.trouble}" if group.trouble else "")))
    return Table(rows=rows, document={"node": document_of(status)}, names=[node_name(status)])


@app.command("add")
@injected
def add(node: NodeName, *, target: Target, confirmation: Confirmation) -> None:
    """Take a node in: it gets copies of groups, and votes in them once it has them.

    Start it first, with --join; all nodes need -cluster_allow_add_remove_node.
    """

    async def main(direct: stan_client.Direct) -> None:
        nodes = await direct.admin.nodes()
        members = {name for one in nodes.answers for name in one.nodes}
        if node in members:
            done(f"Node {node} is in the cluster already.")
            return
        confirmation.require(
            f"Takes node {node} into the cluster of {', '.join(sorted(members)) or 'one server alone'}: groups move to it, "
            "one after the other, each with a pause of a fraction of a second."
        )
        await direct.admin.add_node(node)
        done(f"Node {node} is being taken in. Watch it: stan group list --watch")

    on_cluster(target, main)


@app.command("remove")
@injected
def remove(node: NodeName, *, target: Target, confirmation: Confirmation) -> None:
    """Take a node out: its groups move to the others, then it ends by itself."""

    async def main(direct: stan_client.Direct) -> None:
        nodes = await direct.admin.nodes()
        members = sorted({name for one in nodes.answers for name in one.nodes})
        if members and node not in members:
            raise CliError(
                f"There is no node {node!r} in the cluster.{near(node, members)} There are: {', '.join(members)}."
            )
        remaining = ", ".join(name for name in members if name != node) or "nobody"
        absent = f" These do not answer now: {', '.join(nodes.missing)}." if nodes.missing else ""
        confirmation.require(
            f"Takes node {node} out; what remains with copies of everything: {remaining}.{absent} The process of "
            f"{node} ends when it is in no group any more."
        )
        await direct.admin.remove_node(node)
        done(f"Node {node} is being taken out. Watch it: stan group list --watch")

    on_cluster(target, main)


@app.command("level")
@injected
def level(
    *,
    up: Annotated[
        bool, typer.Option("--raise", help="Raise the cluster's level to the highest that all nodes know.")
    ] = False,
    target: Target,
    view: View,
    confirmation: Confirmation,
) -> None:
    """The level of the cluster, and what each node's version knows; after an upgrade of all nodes it can be raised.

    What a newer version writes that older ones do not understand is written only above their level.
    """

    async def main(direct: stan_client.Direct) -> None:
        nodes = await direct.admin.nodes()
        if up:
            known = {node_name(one): one.level_known for one in nodes.answers}
            to, newest = min(known.values(), default=0), max(known.values(), default=0)
            if nodes.missing:
                raise CliError(f"The level is raised when all nodes answer. These do not: {', '.join(nodes.missing)}.")
            if to <= cluster_level(nodes) < newest:
                old = ", ".join(too_old(known, newest))
                raise CliError(
                    f"The cluster stays at level {cluster_level(nodes)}: level {newest} is not known to {old}. Upgrade first."
                )
            if to > cluster_level(nodes):
                confirmation.require(
                    f"Raises the level of the cluster from {cluster_level(nodes)} to {to}. No node can go back to an older "
                    "version afterwards."
                )
            await direct.admin.raise_level(to)
            done(f"The cluster is at level {to}.")
        else:
            show_table(level_table(nodes), view)

    on_cluster(target, main)


def level_table(nodes: Nodes) -> Table:
    """Return the levels of nodes, one a line."""
    at, lowest = cluster_level(nodes), min((one.level_known for one in nodes.answers), default=0)
    return Table(
        columns=("node", "version", ">knows level"),
        rows=[(node_name(one), one.product, str(one.level_known)) for one in nodes.answers]
        + [(name, "does not answer", NEVER) for name in nodes.missing],
        document={
            "level": at,
            "nodes": {node_name(one): one.level_known for one in nodes.answers},
            "missing": nodes.missing,
        },
        names=[node_name(one) for one in nodes.answers] + nodes.missing,
        foot=f"The cluster is at level {at}."
        + (f" All nodes know level {lowest}: stan node level --raise" if lowest > at and not nodes.missing else ""),
    )
