"""`stan explain`: each delivery of one message to a durable or queue group, with its cause and its outcome."""

from typing import Annotated, Final

import stan_client
import typer
from stan_client.requests.admin import Explanation
from stan_protocol.admin_types import CursorRef, CursorStatus
from stan_protocol.units import format_time

from stan import limits
from stan.cli.commands.durable import CursorCommands, find_cursor
from stan.cli.support.args import Channel
from stan.cli.support.common import EXIT_USAGE, CliError, Target
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table
from stan.cli.support.proto_json import document_of
from stan.cli.support.session import look
from stan.monitor.explained import BEGINS_LATE, GOES_ON, STATES, moment_of, sentence_of
from stan.status.positions import DURABLES, QUEUES, full_name

POSITIONS: Final = CursorCommands("durable", "durable or queue group", DURABLES | QUEUES)


@injected
def explain(
    channel: Channel,
    name: Annotated[str, typer.Argument(metavar="DURABLE", help="Name of the durable or of the queue group.")],
    sequence: Annotated[int, typer.Argument(metavar="SEQUENCE", help="The message.")],
    owner: Annotated[
        str, typer.Option("--client", help="Client id of the owner, if several have a durable of this name.")
    ] = "",
    *,
    whole: Annotated[bool, typer.Option("--all", help="Read the log to its end, however long it is.")] = False,
    target: Target,
    view: View,
) -> None:
    """Why did message 17 come twice, late, or not at all? Each delivery with its cause, and what came of it, from the log."""
    if sequence < 1:
        raise CliError("SEQUENCE: sequences begin with 1.", EXIT_USAGE)

    answers = 0 if whole else limits.EXPLAIN_ANSWERS_MAX

    async def table(direct: stan_client.Direct) -> Table:
        cursor = await find_cursor(direct, POSITIONS, channel, name, owner)
        account = await direct.admin.explain(CursorRef(channel, cursor_id=cursor.cursor_id), sequence, answers=answers)
        return explained_table(cursor, sequence, account)

    look(target, view, table)


def explained_table(cursor: CursorStatus, sequence: int, explanation: Explanation) -> Table:
    """Return the history of a message, one step a line."""
    stored = f"stored {format_time(explanation.timestamp_ns)}" if explanation.timestamp_ns else "gone from the channel"
    rows = [(moment_of(step), step.node, sentence_of(step)) for step in explanation.steps]
    foot = [STATES.get(explanation.state, explanation.state)]
    if explanation.begins_late:
        foot.append(BEGINS_LATE)
    if explanation.goes_on:
        foot.append(GOES_ON)
    document = {
        "channel": cursor.channel,
        "name": full_name(cursor),
        "sequence": sequence,
        "timestamp_ns": explanation.timestamp_ns,
        "state": explanation.state,
        "begins_late": explanation.begins_late,
        "goes_on": explanation.goes_on,
        "steps": [{**document_of(step), "text": sentence_of(step)} for step in explanation.steps],
    }
    return Table(
        columns=("time", "leader", "what"),
        rows=rows,
        document=document,
        head=f"Message {sequence:,} of channel {cursor.channel}, {stored}, for {full_name(cursor)}:",
        foot=" ".join(foot),
        empty="The log tells of no delivery.",
    )
