"""`stan channel verify`: every node reads its copy of a channel from the disk, and the copies are compared.

    leader gives first and last ─► each node counts and sums up its copy, slice by slice ─► compare

Promises: exit code 0 only if every required copy was read completely, without damage, and all sums are the same. A copy
that retention shortens meanwhile is read again; one that lags is waited for.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_protocol.admin_types import ChannelStatus
from stan_protocol.units import counted, format_size

from stan import limits
from stan.cli.support.args import checked_channel
from stan.cli.support.common import EXIT_FAILED, EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.progress import bar
from stan.cli.support.session import no_channel, session
from stan.policies import EPHEMERAL
from stan.status.groups import groups_of, odd_hashes, odd_words

ATTEMPTS: Final = 3
"""Readings of a channel that retention shortens meanwhile."""
LAG_PATIENCE_S: Final = 10.0
LAG_PAUSE_S: Final = 0.2
_SAME: Final = "the same everywhere"
_EPHEMERAL: Final = "ephemeral: has no copies"


@dataclass(slots=True)
class Copy:
    """The copy of a channel on one node."""

    node: str
    first_sequence: int = 0
    last_sequence: int = 0
    messages: int = 0
    bytes: int = 0
    crc: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""  # why it could not be read

    @property
    def sums(self) -> tuple[int, int, int]:
        """The figures that have to be equal everywhere."""
        return self.messages, self.bytes, self.crc

    @property
    def is_whole(self) -> bool:
        """True if it was read to its end, without damage."""
        return not self.problem and not self.damaged


@dataclass(slots=True)
class Verdict:
    """The verdict on one channel."""

    channel: str
    first_sequence: int
    last_sequence: int
    copies: list[Copy]
    problem: str = ""
    ephemeral: bool = False  # its messages are in the memory of one node

    @property
    def ok(self) -> bool:
        """True if all copies are there, whole, and the same, or if there are none."""
        return self.words in (_SAME, _EPHEMERAL)

    @property
    def words(self) -> str:
        """Return the result in words."""
        if self.ephemeral or self.problem:
            return self.problem or _EPHEMERAL
        wrong = [f"{copy.node}: {copy.problem}" for copy in self.copies if copy.problem]
        wrong += [
            f"{copy.node or 'the server'}: {counted(len(copy.damaged), 'damaged batch', 'damaged batches')}"
            for copy in self.copies
            if copy.damaged
        ]
        whole = [copy for copy in self.copies if copy.is_whole]
        if len({copy.sums for copy in whole}) > 1:
            wrong.append("copies differ: " + ", ".join(f"{copy.node} {copy.crc:08x}" for copy in whole))
        return "; ".join(wrong) or _SAME

    @property
    def good(self) -> set[str]:
        """Return the nodes whose copies are complete and equal to most complete ones; empty if there is no majority."""
        ranked = Counter(copy.sums for copy in self.copies if copy.is_whole).most_common(2)
        if not ranked or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
            return set()
        return {copy.node for copy in self.copies if copy.is_whole and copy.sums == ranked[0][0]}

    @property
    def bad(self) -> set[str]:
        """The nodes whose copies are damaged, or whole and not good. One that was not read to its end is neither."""
        return {copy.node for copy in self.copies if copy.damaged or copy.is_whole} - self.good


class Shortened(Exception):  # noqa: N818 - what happened
    """Retention has removed messages that were being read."""


@injected
def verify(
    channel: Annotated[str, typer.Argument(help="Name of the channel; or --all.")] = "",
    every: Annotated[bool, typer.Option("--all", help="All channels.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
) -> None:
    """Read all copies of a channel from the disks, check their checksums, and compare them."""
    if bool(channel) == every:
        raise CliError("Give a CHANNEL, or --all.", EXIT_USAGE)
    if channel:
        checked_channel(channel)
    run(_verify(target, channel, view))


async def _verify(target: Target, channel: str, view: View) -> int:
    async with session(target) as direct:
        statuses = await direct.admin.channels(channel or ">")
        if channel and not statuses:
            raise await no_channel(direct, channel)
        nodes = await direct.admin.nodes()
        holders: dict[int, list[str]] = {}
        for node in nodes.answers:
            for group in node.groups:
                holders.setdefault(group.group, []).append(node.node)
        room = asyncio.Semaphore(limits.VERIFIES_UNDER_WAY_MAX)
        total = sum(one.messages * len(holders.get(one.group, "x")) for one in statuses if one.commit != EPHEMERAL)
        with bar("Verifying", total) as advance:

            async def verify(status: ChannelStatus) -> Verdict:
                nodes_of = holders.get(status.group) or [""]
                async with room:
                    return await verified(direct, status, nodes_of, advance)

            verdicts = await asyncio.gather(*map(verify, statuses))
    odd = {group.number: odd_words(group) for group in groups_of(nodes) if odd_hashes(group)}
    for status, verdict in zip(statuses, verdicts, strict=True):
        verdict.problem = verdict.problem or "; ".join(
            f"states of group {number} differ" for number in (0, status.group) if number in odd
        )
    show(verdicts_table(verdicts, nodes.missing, odd), view)
    return 0 if all(verdict.ok for verdict in verdicts) and not nodes.missing and not odd else EXIT_FAILED


async def verified(
    direct: stan_client.Direct, status: ChannelStatus, nodes: list[str], progress: Callable[[int], None]
) -> Verdict:
    """All copies of one channel, compared."""
    name, first, last = status.name, max(status.first_sequence, 1), status.last_sequence
    if status.commit == EPHEMERAL:
        return Verdict(name, first, last, [], ephemeral=True)
    for _ in range(ATTEMPTS):
        verdict = Verdict(name, first, last, [Copy(node) for node in nodes])
        if first > last:
            return verdict
        results = await asyncio.gather(
            *(_read(direct, status, copy, (first, last), progress) for copy in verdict.copies), return_exceptions=True
        )
        for copy, result in zip(verdict.copies, results, strict=True):
            if isinstance(result, stan_client.StanClientError):
                copy.problem = f"cannot be read ({result})"
            elif isinstance(result, BaseException) and not isinstance(result, Shortened):
                raise result
        if not any(isinstance(result, Shortened) for result in results):
            return verdict
        first = max(first, *(copy.first_sequence for copy in verdict.copies))
    verdict.problem = "retention removes messages faster than they are read"
    return verdict


async def _read(
    direct: stan_client.Direct,
    status: ChannelStatus,
    copy: Copy,
    span: tuple[int, int],
    progress: Callable[[int], None],
) -> None:
    """Read one copy to its end. Raises Shortened."""
    (first, last), loop = span, asyncio.get_running_loop()
    at, until = first, loop.time() + LAG_PATIENCE_S
    while at <= last:
        compared_from = status.compacted_until + 1 if status.compacted_until else 0
        answer = await direct.admin.verify(
            status.name, at, last, node=copy.node, uid=status.uid, crc=copy.crc, compared_from=compared_from
        )
        copy.first_sequence, copy.last_sequence = answer.first_sequence, answer.last_sequence
        if answer.first_sequence > at:
            raise Shortened
        copy.messages += answer.messages
        copy.bytes += answer.bytes
        copy.crc = answer.crc
        for damage in answer.damaged:
            copy.damaged.append({"first": damage.first_sequence, "last": damage.last_sequence, "text": damage.text})
        progress(answer.messages)
        if answer.next_sequence > at:
            at, until = answer.next_sequence, loop.time() + LAG_PATIENCE_S
        elif loop.time() > until:
            copy.problem = f"ends with message {answer.last_sequence:,}, {last:,} is the newest"
            return
        else:
            await asyncio.sleep(LAG_PAUSE_S)


def advice(verdicts: list[Verdict]) -> list[str]:
    """Return advice about bad copies: nodes are filled again only if the others have a good copy of every channel."""
    nodes = sorted({node for verdict in verdicts for node in verdict.bad})
    if not nodes:
        return []
    lost = [verdict.channel for verdict in verdicts if verdict.bad and verdict.good <= set(nodes)]
    if lost:
        return [f"No node without a bad copy has a good one of {', '.join(lost)}: keep all data directories."]
    steps = f"One after the other of {', '.join(nodes)}: stop it, move its data directory away, start it again; "
    return [f"{steps}it is filled from the others."]


def verdicts_table(verdicts: list[Verdict], missing: list[str], odd: Mapping[int, str] | None = None) -> Table:
    """Return the verdicts, one channel a line; *odd*: groups whose state differs between nodes, and where."""
    rows = []
    for verdict in verdicts:
        whole = verdict.copies[0] if verdict.copies else Copy("")
        rows.append(
            (
                verdict.channel,
                f"{whole.messages:,}",
                format_size(whole.bytes),
                f"{whole.crc:08x}",
                str(len(verdict.copies)),
                verdict.words,
            )
        )
    bad = [verdict.channel for verdict in verdicts if not verdict.ok]
    foot = [
        f"{copy.node or 'the server'}: messages {damage['first']:,} to {damage['last']:,}: {damage['text']}"
        for verdict in verdicts
        for copy in verdict.copies
        for damage in copy.damaged
    ]
    foot += [f"Group {number}: {words}." for number, words in (odd or {}).items()]
    if missing:
        foot.append(f"Not verified, for they do not answer: {', '.join(missing)}.")
    foot += advice(verdicts)
    document = {
        "ok": not bad and not missing and not odd,
        "missing": missing,
        "channels": [{**asdict(verdict), "ok": verdict.ok, "result": verdict.words} for verdict in verdicts],
    }
    return Table(
        columns=("channel", ">messages", ">size", ">crc", ">copies", "result"),
        rows=rows,
        document=document,
        names=bad,
        foot="\n".join(foot),
        empty="No channels.",
    )
