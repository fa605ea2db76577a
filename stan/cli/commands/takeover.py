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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import stan_client
import typer
from stan_client.requests.names import raw
from stan_protocol.admin_types import RestoredRun
from stan_protocol.secure import without_secrets
from stan_protocol.units import counted

from stan.cli.commands.exchange import ImportRow, packed_rows
from stan.cli.commands.old_server import OldServer, RunningChannel, RunningPosition
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import Confirmation, View, injected
from stan.cli.support.output import Table, show
from stan.cli.support.progress import bar
from stan.cli.support.session import session
from stan.cli.support.terminal import err

PATIENCE_S: Final = 60.0
IN_FLIGHT_MAX: Final = 4096
"""Messages of a channel that the old server sends before they are copied ..."""
IN_FLIGHT_BYTES: Final = 1 << 24
"""... and about how many bytes."""
ACK_WAIT_S: Final = 60
COPIED_TOGETHER_MAX: Final = 16
"""Channels that are copied at once; one that has been copied is followed beside them."""
POLL_S: Final = 0.2
FENCED_POLLS: Final = 3
"""How often in a row the old server must have got nothing new, with all copied, to count as fenced."""
FENCE_S: Final = 30.0
BEHIND_MAX: Final = 2000
"""Messages that may be left to copy when clients are to stay away."""
NO_NEARER_S: Final = 10.0
"""Clients are to stay away, too, if the copies have come no nearer for so long: they publish faster than can be copied."""
REQUEST_ROOM: Final = 1024
ROW_ROOM: Final = 96
"""Bytes of a request for each message beside its payload, its reply and its run."""
NAME_BYTES: Final = 16


@injected
def takeover(
    old: Annotated[str, typer.Argument(metavar="OLD", help="NATS URL of the old server.")],
    pages: Annotated[str, typer.Option("--pages", help="URL of its monitoring port.")] = "http://127.0.0.1:8222",
    old_cluster_id: Annotated[str, typer.Option(help="Its cluster id; that of the new one without it.")] = "",
    old_creds: Annotated[Path | None, typer.Option(help="Credentials file for its NATS.")] = None,
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
    source = OldServer(
        nats=old,
        pages=pages,
        cluster_id=old_cluster_id or target.cluster_id,
        nats_options={"user_credentials": str(old_creds)} if old_creds is not None else {},
    )
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

    def has_stopped(self, left: int) -> bool:
        """Note how many messages are left. True if they have become no fewer for NO_NEARER_S."""
        if self.least is None or left < self.least:
            self.least, self.at = left, time.monotonic()
        return time.monotonic() - self.at > NO_NEARER_S


@dataclass(slots=True)
class _Copy:
    """The copy of a channel while it grows."""

    name: str
    restore: str
    direct: stan_client.Direct
    room: int  # bytes of a request
    advance: Callable[[int], None]
    copied: int = 0  # newest sequence that the new server has
    done: bool = False  # an earlier run has ended its restore
    waiting: asyncio.Queue[list[stan_client.Message]] = field(default_factory=asyncio.Queue)
    task: asyncio.Task[None] | None = None

    async def begin(self, old: RunningChannel) -> None:
        """Make the channel in the new server, or find the copy of an earlier run."""
        first = max(old.first, 1) if old.messages else old.last + 1
        try:
            await self.direct.admin.restore_channel(self.name, self.restore, first)
        except stan_client.ServerError as error:
            there = await self.direct.admin.channel(self.name)
            if there is None or there.last_sequence != old.last:
                raise CliError(f"Channel {self.name} cannot be copied: {error}.") from None
            self.done, self.copied = True, old.last
            return
        there = await self.direct.admin.channel(self.name)
        self.copied = max(there.last_sequence if there is not None else 0, first - 1)

    async def follow(self, client: stan_client.Client, old: RunningChannel) -> None:
        """Read the channel behind its copy on; returns when the copy has all that the old server had."""
        if self.done:
            return
        fitting = IN_FLIGHT_BYTES * old.messages // max(old.bytes, 1)
        await client.subscribe(
            self.name,
            self.waiting.put_nowait,
            start=stan_client.from_sequence(self.copied + 1),
            max_in_flight=min(IN_FLIGHT_MAX, max(fitting, 1)) if old.messages else IN_FLIGHT_MAX,
            ack_wait_s=ACK_WAIT_S,
            manual_acks=True,
            batch=True,
        )
        self.task = asyncio.create_task(self._copy())
        nearer = _Nearer()
        while (
            old.messages and self.copied < old.last and not nearer.has_stopped(old.last - self.copied)
        ):  # it may expire
            self.check()
            await asyncio.sleep(POLL_S)

    def check(self) -> None:
        """Raise the error of copying, if it has failed."""
        if self.task is not None and self.task.done():
            self.task.result()

    async def _copy(self) -> None:
        while True:
            messages = await self.waiting.get()
            while not self.waiting.empty():
                messages += self.waiting.get_nowait()
            by_sequence = {one.sequence: one for one in messages if one.sequence > self.copied}  # some may come again
            fresh = [by_sequence[sequence] for sequence in sorted(by_sequence)]
            while fresh:
                part = self._part(fresh)
                await self._put(part)
                fresh = fresh[len(part) :]
            for message in messages:
                message.ack()

    def _part(self, messages: list[stan_client.Message]) -> list[stan_client.Message]:
        """The first of *messages*, as many as one request takes."""
        size = 0
        for at, message in enumerate(messages):
            size += len(message.data) + len(message.reply) + ROW_ROOM
            if at and size > self.room:
                return messages[:at]
        return messages

    async def _put(self, messages: list[stan_client.Message]) -> None:
        runs = [RestoredRun(first_sequence=one.sequence, count=1, timestamp=one.timestamp_ns) for one in messages]
        rows = packed_rows([ImportRow(one.data, raw(one.reply)) for one in messages])
        await self.direct.admin.restore_rows(self.name, self.restore, runs, rows)
        self.copied = messages[-1].sequence
        self.advance(len(messages))

    async def end(self, last: int, positions: list[tuple[RunningPosition, set[int]]]) -> None:
        """Put the positions there, and end the restore."""
        if self.task is not None:
            self.task.cancel()
        if self.done:
            return
        for position, owed in positions:
            await self.direct.admin.restore_cursor(self.name, self.restore, position.status(owed))
        await self.direct.admin.restore_end(self.name, self.restore, last)


class _Takeover:
    """A takeover from its look to its end."""

    def __init__(self, old: OldServer, target: Target, commands: _Commands, view: View) -> None:
        self.old, self.target, self.commands, self.view = old, target, commands, view
        name = hashlib.sha256(raw(old.cluster_id)).hexdigest()
        self.restore = f"takeover-{name[:NAME_BYTES]}"
        self.copies: dict[str, _Copy] = {}
        self.notes: list[str] = []

    # --- without a change ---------------------------------------------------------------------------------------------

    async def look(self) -> int:
        """Show what would be taken over."""
        await self.old.facts()
        channels = await self.old.channels()
        async with session(self.target, timeout_s=PATIENCE_S) as direct:
            there = {one.name for one in await direct.admin.channels()}
        in_use = sorted(there & channels.keys())
        if in_use:
            self.notes.append(f"the new server has channels of these names: {', '.join(in_use)}")
        show(self._table(channels, "can be taken over"), self.view)
        return 0

    async def remove(self) -> int:
        """Remove the copies."""
        channels = await self.old.channels()
        async with session(self.target, timeout_s=PATIENCE_S) as direct:
            for name, old in channels.items():
                copy = _Copy(name, self.restore, direct, 0, lambda _count: None)
                if await direct.admin.channel(name) is None:
                    continue
                try:
                    await copy.begin(old)
                except CliError:
                    continue  # it is in use, and not of this takeover
                if not copy.done:
                    await direct.admin.delete_channel(name)
        err.print("What was copied is removed; the old server goes on.")
        return 0

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
        await self.old.facts()
        channels = await self.old.channels()
        self.commands.confirmation.require(
            f"Copies {counted(len(channels), 'channel')} of the server at {without_secrets(self.old.nats)} into cluster "
            f"{self.target.cluster_id} at {without_secrets(self.target.server)}, and goes on until clients are to stay away."
        )
        client = await self.old.connect()
        try:
            async with session(self.target, timeout_s=PATIENCE_S) as direct:
                with bar("Copying", sum(one.messages for one in channels.values())) as advance:
                    await self._follow(client, direct, channels, advance)
                    await self._almost_caught_up(client, direct, advance)
                    await self.commands.do(
                        self.commands.fence,
                        "All but the newest messages are copied. Keep publishers and subscribers away from the old server now.",
                    )
                    begun = time.monotonic()
                    channels = await self._caught_up(client, direct, advance)
                owed = await self._pending(channels)
                await asyncio.gather(
                    *(copy.end(channels[name].last, owed.get(name, [])) for name, copy in self.copies.items())
                )
        finally:
            for copy in self.copies.values():
                if copy.task is not None:
                    copy.task.cancel()
            with contextlib.suppress(stan_client.StanClientError):
                await client.close()
        if self.commands.stop:
            await self.commands.do(self.commands.stop, "")
        if self.commands.open:
            await self.commands.do(self.commands.open, "")
        err.print(f"Clients had to stay away for {time.monotonic() - begun:.1f} s.", highlight=False)
        show(self._table(channels, "are taken over"), self.view)
        return 0

    async def _follow(
        self,
        client: stan_client.Client,
        direct: stan_client.Direct,
        channels: dict[str, RunningChannel],
        advance: Callable[[int], None],
    ) -> None:
        """Begin to copy channels that are not copied yet."""
        payload_max, together = await direct.channels.message_bytes_max(), asyncio.Semaphore(COPIED_TOGETHER_MAX)

        async def begin(name: str, old: RunningChannel) -> None:
            async with together:
                room = payload_max - REQUEST_ROOM - len(raw(name))
                copy = _Copy(name, self.restore, direct, room, advance)
                await copy.begin(old)
                self.copies[name] = copy
                await copy.follow(client, old)

        await asyncio.gather(*(begin(name, old) for name, old in channels.items() if name not in self.copies))

    async def _behind(
        self, client: stan_client.Client, direct: stan_client.Direct, advance: Callable[[int], None]
    ) -> tuple[dict[str, RunningChannel], int]:
        """The channels of the old server, also new ones, and how many messages of them are not copied yet."""
        channels = await self.old.channels()
        await self._follow(client, direct, channels, advance)
        for copy in self.copies.values():
            copy.check()
        return channels, sum(
            max(0, one.last - self.copies[name].copied) for name, one in channels.items() if one.messages
        )

    async def _almost_caught_up(
        self, client: stan_client.Client, direct: stan_client.Direct, advance: Callable[[int], None]
    ) -> None:
        """Return when little is left to copy, or no less for a while."""
        nearer = _Nearer()
        while True:
            _, behind = await self._behind(client, direct, advance)
            if behind <= BEHIND_MAX:
                return
            if nearer.has_stopped(behind):
                self.notes.append(f"clients publish faster than their messages are copied: {behind:,} were left")
                return
            await asyncio.sleep(POLL_S)

    async def _caught_up(
        self, client: stan_client.Client, direct: stan_client.Direct, advance: Callable[[int], None]
    ) -> dict[str, RunningChannel]:
        """Return the channels once all is copied and the old server gets nothing any more."""
        until, quiet = time.monotonic() + FENCE_S, 0
        before: dict[str, int] = {}
        while True:
            channels, behind = await self._behind(client, direct, advance)
            ends = {name: one.last for name, one in channels.items()}
            quiet = quiet + 1 if not behind and ends == before else 0
            if quiet == FENCED_POLLS:
                return channels
            if ends != before and time.monotonic() > until:
                raise CliError(
                    f"The old server still gets messages {FENCE_S:.0f} s after clients were to stay away. Nothing was "
                    "switched; stan takeover goes on when it is given again."
                )
            before = ends
            await asyncio.sleep(POLL_S)

    async def _pending(self, channels: dict[str, RunningChannel]) -> dict[str, list[tuple[RunningPosition, set[int]]]]:
        """By channel, each position and its pending messages; clients are closed for that."""
        positions = [each for one in channels.values() for each in one.positions if not self.copies[one.name].done]
        asked = [each for each in positions if each.pending]
        await self.old.close_clients({client_id for each in asked for client_id in each.clients})
        found: dict[str, list[tuple[RunningPosition, set[int]]]] = {}
        by_client: dict[str, list[RunningPosition]] = {}
        for each in positions:
            if each.pending:
                by_client.setdefault("" if each.queue else each.client_id, []).append(each)
            else:
                found.setdefault(each.channel, []).append((each, set()))

        async def ask(client_id: str, theirs: list[RunningPosition]) -> None:
            try:
                client = await self.old.connect(client_id)
            except stan_client.ServerError as error:
                raise CliError(
                    f"Client {client_id} still speaks to the old server ({error}): keep clients away from it. Nothing was "
                    "switched; stan takeover goes on when it is given again."
                ) from None
            try:
                for each in theirs:
                    owed, complete = await self.old.pending(each, client)
                    if not complete:
                        self.notes.append(
                            f"of {each.title} on {each.channel} not all that is pending came again: messages from "
                            f"{min(owed):,} on come again, flagged"
                        )
                    found.setdefault(each.channel, []).append((each, owed))
            finally:
                await client.close()

        await asyncio.gather(*(ask(client_id, theirs) for client_id, theirs in by_client.items()))
        return found
