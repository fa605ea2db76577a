"""`stan takeover`: a running server of NATS Streaming is replaced, whatever its store, while its clients go on.

    look ─► copy and follow ─► fence: clients stay away ─► the rest ─► positions, pending messages ─► stop, open

Channels are read as a client reads them, and put into the new server by the requests of a restore, with their sequences and
times. Promises: until clients stay away nothing changes in the old server, and until the end no channel of the new one can be
used; nothing that the old server has acknowledged is left behind, as it is asked for its newest sequences when clients stay away;
interrupted at any moment, the same command goes on; `--abort` removes the copies.
"""

import asyncio
import contextlib
import hashlib
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_client.requests.names import raw
from stan_protocol.secure import without_secrets
from stan_protocol.units import counted

from stan.cli.commands.old_server import OldServer, RunningChannel, RunningPosition
from stan.cli.commands.takeover_channel import ChannelCopy, Copying, is_under_way
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.progress import bar
from stan.cli.support.session import session
from stan.cli.support.terminal import err

PATIENCE_S: Final = 60.0
COPIED_TOGETHER_MAX: Final = 16
"""Channels that are copied at once; one that has been copied is followed beside them."""
POLL_S: Final = 0.2
FENCED_POLLS: Final = 3
"""How often in a row the old server must have got nothing new, with all copied, to count as fenced."""
FENCE_S: Final = 30.0
BEHIND_MAX: Final = 500
"""Messages that may be left to copy when clients are to stay away ..."""
DOUBLED_S: Final = 5.0
"""... and after how many seconds so often, twice as many: clients may publish as fast as can be copied."""
NO_NEARER_S: Final = 10.0
"""Another channel is copied beside one that has come no nearer to its end for so long."""
NAME_BYTES: Final = 16
PHASES: Final = ("until nothing came any more", "for pending messages", "for positions", "to switch")


@injected
def takeover(
    old: Annotated[str, typer.Argument(metavar="OLD", help="NATS URL of the old server.")],
    pages: Annotated[
        str, typer.Option("--pages", help="URL of its monitoring port; of a cluster those of all nodes, with commas.")
    ] = "http://127.0.0.1:8222",
    old_cluster_id: Annotated[str, typer.Option(help="Its cluster id; that of the new one without it.")] = "",
    old_creds: Annotated[Path | None, typer.Option(help="Credentials file for its NATS.")] = None,
    old_tls_ca: Annotated[Path | None, typer.Option(help="Certificates that are trusted there.")] = None,
    old_tls_cert: Annotated[Path | None, typer.Option(help="Certificate of ours for it.")] = None,
    old_tls_key: Annotated[Path | None, typer.Option(help="Its key.")] = None,
    fence_command: Annotated[str, typer.Option(help="Keeps clients away from the old server, which goes on.")] = "",
    stop_command: Annotated[str, typer.Option(help="Stops the old server, once all is copied.")] = "",
    open_command: Annotated[str, typer.Option(help="Sends clients to the new server.")] = "",
    abort: Annotated[bool, typer.Option("--abort", help="Remove the copies; the old server goes on.")] = False,  # noqa: FBT002
    *,
    target: Target,
    view: View,
    confirmation: Confirmation,
) -> None:
    """Replace a running server of NATS Streaming; --server names the new one, which runs already."""
    login = Target(creds=old_creds, tls_ca=old_tls_ca, tls_cert=old_tls_cert, tls_key=old_tls_key)
    cluster_id = old_cluster_id or target.cluster_id
    source = OldServer(old, tuple(pages.split(",")), cluster_id, login.nats_options())
    if confirmation.yes and not fence_command and not abort and not confirmation.dry_run:
        raise CliError("--yes needs --fence-command: clients that publish meanwhile would lose messages.", EXIT_USAGE)
    work = _Takeover(source, target, _Commands(fence_command, stop_command, open_command, confirmation), view)
    run(work.look() if confirmation.dry_run else work.remove() if abort else work.run())


@dataclass(frozen=True, slots=True)
class _Commands:
    """The operator's part of the switch: commands, or prompts without them."""

    fence: str
    stop: str
    open: str
    confirmation: Confirmation

    async def do(self, command: str, otherwise: str) -> None:
        """Run a command; without one ask the operator to do it."""
        if not command:
            self.confirmation.require(otherwise)
            return
        process = await asyncio.create_subprocess_shell(command)
        if code := await process.wait():
            raise CliError(
                f"{command!r} ended with exit code {code}. stan takeover goes on from here when it is given again."
            )


@dataclass(slots=True)
class _Nearer:
    """The progress of a copy towards its end."""

    least: int | None = None  # messages that were left
    at: float = 0.0  # when so few were left first

    def is_stuck(self, left: int) -> bool:
        """Note how many messages are left. True if they have become no fewer for NO_NEARER_S."""
        if self.least is None or left < self.least:
            self.least, self.at = left, time.monotonic()
        return time.monotonic() - self.at > NO_NEARER_S


class _Takeover:
    """A takeover from its look to its end."""

    def __init__(self, old: OldServer, target: Target, commands: _Commands, view: View) -> None:
        self.old, self.target, self.commands, self.view = old, target, commands, view
        name = hashlib.sha256(raw(old.cluster_id)).hexdigest()
        self.restore = f"takeover-{name[:NAME_BYTES]}"
        self.copies: dict[str, ChannelCopy] = {}
        self.notes: list[str] = []

    # --- without a change ---------------------------------------------------------------------------------------------

    async def look(self) -> int:
        """Show what would be taken over."""
        await self.old.find_leader()
        channels = await self.old.channels()
        client = await self.old.connect()
        try:
            await self.old.check_same(client)
        finally:
            await client.close()
        async with session(self.target, timeout_s=PATIENCE_S) as direct:
            there = {one.name for one in await direct.admin.channels()}
            await self._check_room(direct, channels)
        in_use = sorted(there & channels.keys())
        if in_use:
            self.notes.append(f"the new server has channels of these names: {', '.join(in_use)}")
        if not self.old.limits:
            self.notes.append("the pages do not show the limits of channels: give them to the new server")
        show(self._table(channels, "can be taken over"), self.view)
        return 0

    async def remove(self) -> int:
        """Remove the copies, whether the old server has their channels or not."""
        async with session(self.target, timeout_s=PATIENCE_S) as direct:
            for one in await direct.admin.channels():
                await self._remove(direct, one.name)
        err.print("What was copied is removed; the old server goes on.")
        return 0

    async def _remove(self, direct: stan_client.Direct, channel: str) -> bool:
        """Remove a channel of the new server if it is a copy that is not in use yet."""
        under_way = await is_under_way(direct, channel, self.restore)
        if under_way:
            await direct.admin.delete_channel(channel)
        return under_way

    async def _remove_gone(self, direct: stan_client.Direct, channel: str) -> None:
        if await self._remove(direct, channel):
            self.notes.append(f"the copy of {channel} is removed: the old server has it no more")

    async def _check_room(self, direct: stan_client.Direct, channels: dict[str, RunningChannel]) -> None:
        """Raise CliError if the new server takes fewer channels."""
        together = channels.keys() | {one.name for one in await direct.admin.channels()}
        for node, options in (await direct.admin.options()).items():
            most = next((int(one.value) for one in options if one.name == "max_channels"), 0)
            if 0 < most < len(together):
                raise CliError(
                    f"The new server takes {most:,} channels{f' ({node})' if node else ''}, and {len(together):,} are needed: "
                    "start it with a larger -mc."
                )

    def _table(self, channels: dict[str, RunningChannel], head: str) -> Table:
        ended = sum(one.others for one in channels.values())
        if ended:
            self.notes.append(f"{counted(ended, 'subscription')} without a durable name, ended with the clients")
        rows, document = [], []
        for name, one in channels.items():
            positions = [f"{each.title}: sent {each.last_sent:,}, {each.pending:,} pending" for each in one.positions]
            rows.append((name, f"{one.messages:,}", f"{one.first:,}", f"{one.last:,}", "; ".join(positions) or "-"))
            document.append(
                {
                    "name": name,
                    "messages": one.messages,
                    "first_sequence": one.first,
                    "last_sequence": one.last,
                    "positions": positions,
                }
            )
        messages = sum(one.messages for one in channels.values())
        foot = [f"{counted(len(rows), 'channel')} with {counted(messages, 'message')} {head}."]
        foot += [f"Note: {note}." for note in self.notes]
        return Table(
            columns=("CHANNEL", ">MESSAGES", ">FIRST", ">LAST", "DURABLES AND GROUPS"),
            rows=rows,
            document={"channels": document, "notes": self.notes},
            names=[*channels],
            foot="\n".join(foot),
        )

    # --- the takeover -------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Take the old server over."""
        await self.old.find_leader()
        channels = await self.old.channels()
        self.commands.confirmation.require(
            f"Copies {counted(len(channels), 'channel')} of the server at {without_secrets(self.old.nats)} into cluster "
            f"{self.target.cluster_id} at {without_secrets(self.target.server)}, and goes on until clients are to stay away."
        )
        client = await self.old.connect()
        try:
            await self.old.check_same(client)
            async with session(self.target, timeout_s=PATIENCE_S) as direct:
                begun = await self._copy_all(client, direct, channels)
        finally:
            for copy in self.copies.values():
                copy.stop()
            with contextlib.suppress(stan_client.StanClientError):
                await client.close()
        if self.commands.stop:
            await self.commands.do(self.commands.stop, "")
        if self.commands.open:
            await self.commands.do(self.commands.open, "")
        begun.append(time.monotonic())
        parts = [
            f"{after - before:.1f} s {what}" for what, (before, after) in zip(PHASES, pairwise(begun), strict=True)
        ]
        err.print(f"Clients had to stay away for {begun[-1] - begun[0]:.1f} s: {', '.join(parts)}.", highlight=False)
        show(self._table({name: copy.old for name, copy in self.copies.items()}, "are taken over"), self.view)
        return 0

    async def _copy_all(
        self, client: stan_client.Client, direct: stan_client.Direct, channels: dict[str, RunningChannel]
    ) -> list[float]:
        """Copy the channels with their positions, and end it. Returns when each of PHASES has begun."""
        await self._check_room(direct, channels)
        for one in await direct.admin.channels():
            if one.name not in channels:
                await self._remove_gone(direct, one.name)
        payload_max = await direct.channels.message_bytes_max()
        with bar("Copying", sum(one.messages for one in channels.values())) as advance:
            ends = Copying(client, direct, self.restore, payload_max, advance, self.notes)
            await self._almost_caught_up(ends)
            begun = [time.monotonic()]
            await self.commands.do(
                self.commands.fence,
                "All but the newest messages are copied. Keep publishers and subscribers away from the old server now.",
            )
            if not self.commands.fence:
                begun = [time.monotonic()]
            await self._caught_up(ends)
        begun.append(time.monotonic())
        owed = await self._pending()
        begun.append(time.monotonic())
        await asyncio.gather(*(copy.end(owed.get(name, [])) for name, copy in self.copies.items()))
        begun.append(time.monotonic())
        return begun

    async def _behind(self, ends: Copying) -> int:
        """Look at the channels of the old server, begin to copy new ones, and return how many messages are not copied yet."""
        before = {name: copy.copied for name, copy in self.copies.items()}
        restarted, channels = await self.old.find_leader(), await self.old.channels()
        for name, copy in [*self.copies.items()]:
            copy.check()
            if restarted and name not in channels:
                copy.stop()
                await self._remove_gone(ends.direct, name)
                del self.copies[name]
                continue
            copy.old = channels.get(name, replace(copy.old, messages=0))
            if restarted or before[name] > copy.old.last:
                copy.compare_again(lost=before[name] > copy.old.last)
        together = asyncio.Semaphore(COPIED_TOGETHER_MAX)

        async def begin(name: str, old: RunningChannel) -> None:
            async with together:
                copy = ChannelCopy(ends, old)
                await copy.begin()
                self.copies[name] = copy
                nearer = _Nearer()
                while copy.behind and not nearer.is_stuck(copy.behind):
                    copy.check()
                    await asyncio.sleep(POLL_S)

        await asyncio.gather(*(begin(name, old) for name, old in channels.items() if name not in self.copies))
        return sum(copy.behind for copy in self.copies.values())

    async def _almost_caught_up(self, ends: Copying) -> None:
        """Return when little is left to copy; the longer it takes, the more may be left."""
        begun = time.monotonic()
        while True:
            behind, doubled = await self._behind(ends), (time.monotonic() - begun) / DOUBLED_S
            if behind <= BEHIND_MAX * 2**doubled:
                break
            await asyncio.sleep(POLL_S)
        if doubled > 1:
            self.notes.append(f"clients publish about as fast as their messages are copied: {behind:,} were left")

    async def _caught_up(self, ends: Copying) -> None:
        """Return once all is copied and the old server gets nothing any more."""
        until, quiet = time.monotonic() + FENCE_S, 0
        before: dict[str, int] = {}
        while True:
            behind = await self._behind(ends)
            last = {name: copy.old.last for name, copy in self.copies.items()}
            quiet = quiet + 1 if not behind and last == before else 0
            if quiet == FENCED_POLLS:
                return
            if last != before and time.monotonic() > until:
                raise CliError(
                    f"The old server still gets messages {FENCE_S:.0f} s after clients were to stay away. Nothing was "
                    "switched; stan takeover goes on when it is given again."
                )
            before = last
            await asyncio.sleep(POLL_S)

    async def _pending(self) -> dict[str, list[tuple[RunningPosition, set[int]]]]:
        """By channel, each position and its pending messages; clients are closed for that."""
        positions = [each for copy in self.copies.values() if not copy.done for each in copy.old.positions]
        asked = [each for each in positions if each.pending]
        await self.old.close_clients({client_id for each in asked for client_id in each.owners})
        found: dict[str, list[tuple[RunningPosition, set[int]]]] = {}
        by_client: dict[str, list[RunningPosition]] = {}
        for each in positions:
            if each.pending:
                by_client.setdefault("" if each.queue else each.client_id, []).append(each)
            else:
                found.setdefault(each.channel, []).append((each, set()))

        async def resume(position: RunningPosition, client: stan_client.Client) -> None:
            owed, complete = await self.old.pending(position, client)
            if not complete:
                self.notes.append(
                    f"of {position.title} on {position.channel} not all that is pending came again: messages from "
                    f"{min(owed):,} on come again, flagged"
                )
            found.setdefault(position.channel, []).append((position, owed))

        async def ask(client_id: str, theirs: list[RunningPosition]) -> None:
            try:
                client = await self.old.connect(client_id)
            except stan_client.ServerError as error:
                raise CliError(
                    f"Client {client_id} still speaks to the old server ({error}): keep clients away from it. Nothing was "
                    "switched; stan takeover goes on when it is given again."
                ) from None
            try:
                await asyncio.gather(*(resume(each, client) for each in theirs))
            finally:
                await client.close()

        await asyncio.gather(*(ask(client_id, theirs) for client_id, theirs in by_client.items()))
        if await self.old.find_leader():
            raise CliError(
                "The old server was restarted, or another node leads, while its pending messages were looked at. Nothing was "
                "switched; stan takeover goes on when it is given again."
            )
        return found
