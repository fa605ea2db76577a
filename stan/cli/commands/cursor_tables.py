"""Tables and documents of positions: durables, queue groups, subscriptions. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from stan_protocol.admin_types import CursorStatus
from stan_protocol.units import NEVER, counted, format_age, format_duration

from stan.cli.commands.channel_parts import parts_words
from stan.cli.commands.policies import format_in_force
from stan.cli.support.output import Table
from stan.cli.support.proto_json import document_of
from stan.protocol.part_status import part_of, summed_positions
from stan.status.positions import KINDS, full_name, lag, name_of, state_of, why, window, window_now, worst_of

RUNS_SHOWN: Final = 12


def cursor_document(cursor: CursorStatus, now_ns: int) -> dict[str, Any]:
    """Return a position as JSON: the server's answer, and its name, state, lag and window."""
    return {
        "name": name_of(cursor),
        "state": state_of(cursor, now_ns).word,
        "lag": lag(cursor),
        "window": window(cursor),
        **document_of(cursor),
    }


def cursors_table(
    cursors: list[CursorStatus],
    noun: str,
    now_ns: int,
    by: Callable[[CursorStatus], Any] = full_name,
    *,
    with_parts: bool = False,
) -> Table:
    """Return positions, one a line, ordered by *by*; those of one name in the parts of a channel together; *with_parts*: and each
    of them below."""

    def rows() -> list[tuple[str, ...]]:
        lines = []
        for one, parts in sorted(summed_positions(cursors), key=lambda each: by(each.total)):
            lines.append(_cursor_row(one, now_ns, parts))
            lines += [_cursor_row(part, now_ns) for part in parts if with_parts]
        return lines

    return Table(
        columns=("channel", noun, "state", ">waiting", ">unacked", ">oldest", ">redelivered", ">online"),
        rows=rows,
        document=lambda: {"cursors": [cursor_document(one, now_ns) for one in cursors]},
        names=[full_name(one) for one in cursors],
        foot=f"{counted(len(cursors), noun)}, worst lag {max(map(lag, cursors)):,}" if cursors else "",
        empty=f"No {noun}s.",
    )


def _cursor_row(status: CursorStatus, now_ns: int, parts: Sequence[CursorStatus] = ()) -> tuple[str, ...]:
    channel = status.channel
    return (
        parts_words(channel, parts) if parts else channel,
        full_name(status),
        state_of(worst_of(parts or [status], now_ns), now_ns).word,
        f"{status.waiting:,}",
        f"{status.pending:,}/{window(status):,}",
        format_age(status.oldest_pending, now_ns),
        f"{status.redelivered:,}",
        str(len(status.members)),
    )


def cursor_table(cursor: CursorStatus, now_ns: int) -> Table:
    """All of one."""
    wait = format_duration(cursor.ack_wait_s * 1_000_000_000)
    rows = [
        ("channel", cursor.channel),
        (KINDS[cursor.kind], full_name(cursor)),
        ("state", state_of(cursor, now_ns).word),
        ("next message", f"{cursor.last_sent + 1:,} of {cursor.first_sequence:,} to {cursor.last_sequence:,}"),
        ("acked up to", f"{cursor.acked_up_to:,}"),
        ("waiting", f"{cursor.waiting:,} not sent yet{_held_back(cursor)}"),
        ("unacked", f"{cursor.pending:,} of {window(cursor):,}: {format_runs(cursor.pending_runs)}"),
        ("window now", f"{window_now(cursor):,} of {window(cursor):,}"),
        ("to be sent again", f"{cursor.owed:,}: {format_runs(cursor.owed_runs)}"),
        ("oldest unacked", f"sent {format_age(cursor.oldest_pending, now_ns)} ago" if cursor.oldest_pending else NEVER),
        ("last ack", f"{format_age(cursor.last_ack, now_ns)} ago" if cursor.last_ack else "never"),
        ("ack wait", wait),
        ("redelivered", f"{cursor.redelivered:,} since this leader leads"),
        ("policy", format_in_force(cursor.policy) if cursor.policy is not None else "none is set"),
    ]
    if cursor.user:
        rows.append(("user", cursor.user))
    for member in cursor.members:
        words = (("active", member.active), ("window full", member.stalled), ("not answering", member.failing))
        trouble = [word for word, so in words if so]
        state = f"{member.client_id}: {member.pending:,} of {member.max_in_flight:,} unacked"
        if member.window_now < member.max_in_flight:
            trouble.append(f"window cut to {member.window_now:,}")
        rows.append((f"member {member.subscription_id}", ", ".join([state, *trouble])))
    if not cursor.members:
        rows.append(("members", "nobody is online"))
    return Table(rows=rows, document={"cursor": cursor_document(cursor, now_ns)}, names=[full_name(cursor)])


def _held_back(cursor: CursorStatus) -> str:
    return f", {cursor.held_back:,} of them held back by the order by key" if cursor.held_back else ""


def why_table(cursor: CursorStatus, now_ns: int) -> Table:
    """Return the reasons why a position gets nothing."""
    state, reasons = state_of(cursor, now_ns).word, why(cursor, now_ns)
    head = f"{KINDS[cursor.kind].capitalize()} {full_name(cursor)} of channel {cursor.channel}: {state}."
    return Table(
        rows=[(reason,) for reason in reasons],
        document={
            "channel": cursor.channel,
            "name": full_name(cursor),
            "state": state,
            "reasons": reasons,
            "cursor": cursor_document(cursor, now_ns),
        },
        names=[full_name(cursor)],
        head=head,
    )


def why_of_parts_table(cursors: list[CursorStatus], now_ns: int) -> Table:
    """Return the reasons why a position of this name gets nothing in the parts of a channel, with the sums of all."""
    ((total, parts),) = summed_positions(cursors)
    name, channel = full_name(total), total.channel
    documents, rows = [], []
    for one in parts:
        state, reasons = state_of(one, now_ns).word, why(one, now_ns)
        documents.append({"channel": one.channel, "state": state, "reasons": reasons})
        rows += [(f"~{part_of(one).number}" if not at else "", reason) for at, reason in enumerate(reasons)]
    state = state_of(worst_of(parts, now_ns), now_ns).word
    sums = f"{total.waiting:,} waiting, {total.pending:,} unacked in all"
    return Table(
        rows=rows,
        document={
            "channel": channel,
            "name": name,
            "state": state,
            "waiting": total.waiting,
            "pending": total.pending,
            "parts": documents,
            "cursors": [cursor_document(one, now_ns) for one in parts],
        },
        names=[name],
        head=f"{KINDS[total.kind].capitalize()} {name} of channel {parts_words(channel, parts)}: {state}, {sums}.",
    )


def format_runs(runs: Sequence[tuple[int, int]]) -> str:
    """`17, 20-25 and 3 more`; `-` for none."""
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in runs]
    more = f" and {len(texts) - RUNS_SHOWN} more" if len(texts) > RUNS_SHOWN else ""
    return ", ".join(texts[:RUNS_SHOWN]) + more or NEVER
