"""`stan pub`: messages from a shell into a channel. Never buffers a whole input."""

import asyncio
import io
import secrets
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import stan_client
import typer
from stan_protocol.compaction import DELETE_HEADER
from stan_protocol.scalars import SECOND
from stan_protocol.units import duration_ns, rfc3339

from stan.cli.support.args import parsed
from stan.cli.support.common import EXIT_FAILED, ClientId, Target, run
from stan.cli.support.options import injected
from stan.cli.support.terminal import err, write_json

PUBLISHES_PER_TURN_MAX: Final = 256
"""Messages encoded before the event loop gets its turn."""

STDIN_CHUNK_BYTES: Final = 65536
STDIN_CHUNKS_MAX: Final = 4
"""Chunks of stdin that are read ahead."""

FILLED: Final[dict[str, Callable[[int], str]]] = {
    "{count}": str,
    "{time}": lambda _number: rfc3339(time.time_ns()),
    "{unix}": lambda _number: str(time.time_ns() // SECOND),
    "{unix_ns}": lambda _number: str(time.time_ns()),
    "{id}": lambda _number: secrets.token_hex(11),
    "{random}": lambda _number: str(secrets.randbelow(1_000_000)),
}
"""The fields of a template, and the value of each for the message of that number."""

PAUSE_MIN_S: Final = 0.001
"""Shorter pauses of --rate are not slept but saved up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishJob:
    """The job of `stan pub`."""

    channel: str
    count: int
    rate: float
    wait: bool
    reply: str
    headers: dict[str, bytes]
    key: bytes
    delay_s: float | None = None
    ttl_s: float | None = None
    acked: bool = True
    as_json: bool = False
    template: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of the client's publish methods for each message."""
        return {
            "reply": self.reply,
            "headers": self.headers,
            "key": self.key,
            "delay_s": self.delay_s,
            "ttl_s": self.ttl_s,
        }


@injected
def pub(
    channel: Annotated[str, typer.Argument(help="Channel to publish to.")],
    message: Annotated[str | None, typer.Argument(help="The message; without it, or as -, what stdin holds.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Publish each message this often.")] = 1,
    size: Annotated[
        int | None, typer.Option(min=0, help="Publish zero bytes of this size instead of a message.")
    ] = None,
    rate: Annotated[float, typer.Option(min=0, help="Messages a second at most; 0 is no limit.")] = 0,
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="Publish a file's contents.")] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Publish each line of stdin.")] = False,  # noqa: FBT002
    wait: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--sync/--async", help="Wait for the ack of each message before the next; or only at the end."),
    ] = False,
    reply: Annotated[str, typer.Option(help="Reply subject handed to subscribers.")] = "",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Header of each message; repeat for more."),
    ] = None,
    key: Annotated[str, typer.Option(help="Key of each message: what it is about, a customer for example.")] = "",
    delete: Annotated[bool, typer.Option("--delete", help="A tombstone: it deletes the key; no MESSAGE.")] = False,  # noqa: FBT002
    delay: Annotated[str, typer.Option(help="Each message comes so much later: 90s, 1h30m.")] = "",
    ttl: Annotated[str, typer.Option(help="Nobody gets a message so long after it was stored: 90s, 1h30m.")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing when all went well.")] = False,  # noqa: FBT002
    acked: Annotated[  # noqa: FBT002
        bool,
        typer.Option("--ack/--no-ack", help="Wait for acks; or ask for none: what is refused or lost is not told."),
    ] = True,
    as_json: Annotated[  # noqa: FBT002
        bool, typer.Option("--json", help="One JSON object for each ack: sequence, guid, durability; or its error.")
    ] = False,
    template: Annotated[  # noqa: FBT002
        bool, typer.Option("--template", help=f"Fill in {', '.join(FILLED)} in message and key.")
    ] = False,
    client_id: ClientId = "",
    *,
    target: Target,
) -> None:
    """Publish messages to a channel and wait for their acks."""
    target = replace(target, client_id=client_id)
    given = [message is not None, size is not None, file is not None, lines]
    if delete and (any(given) or not key):
        raise typer.BadParameter("--delete goes with --key, and with no MESSAGE, --size, --file or --lines.")
    if delete:
        message, given, header = "", [True], [*(header or []), f"{DELETE_HEADER.decode()}=1"]
    _check_pub(given, acked=acked, sync=wait, as_json=as_json)
    if message == "-":
        message = None
    headers = parse_headers(header or [])
    payloads = _payloads(message, size, file, lines=lines)
    job = PublishJob(
        channel=channel,
        count=count,
        rate=rate,
        wait=wait,
        reply=reply,
        headers=headers,
        key=_bytes_of(key),
        delay_s=parsed("--delay", duration_ns, delay) / SECOND if delay else None,
        ttl_s=parsed("--ttl", duration_ns, ttl) / SECOND if ttl else None,
        acked=acked,
        as_json=as_json,
        template=template,
    )
    run(_publish(target, job, payloads, quiet=quiet))


def _check_pub(given: list[bool], *, acked: bool, sync: bool, as_json: bool) -> None:
    """Refuse two payloads, none, and --no-ack with options about acks. *given*: which of the ways to give a payload were."""
    if sum(given) > 1:
        raise typer.BadParameter("MESSAGE, --size, --file and --lines exclude each other.")
    if not any(given) and sys.stdin.isatty():
        raise typer.BadParameter("Give a MESSAGE, --size, --file or --lines, or pipe something in.")
    if not acked and (sync or as_json):
        option = "--sync waits for" if sync else "--json shows"
        raise typer.BadParameter(f"{option} acks, and --no-ack asks for none.")


def parse_headers(given: list[str]) -> dict[str, bytes]:
    """The --header options: value by name.

    Raises:
        typer.BadParameter: one is not NAME=VALUE, or a name comes twice.
    """
    headers: dict[str, bytes] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--header: {text!r} is not NAME=VALUE.")
        if name in headers:
            raise typer.BadParameter(f"--header: {name!r} is given twice.")
        headers[name] = _bytes_of(value)
    return headers


def _bytes_of(text: str) -> bytes:
    """Return typed text, byte for byte."""
    return text.encode("utf-8", "surrogateescape")


async def _payloads(message: str | None, size: int | None, file: Path | None, *, lines: bool) -> AsyncIterator[bytes]:
    if lines:
        async for line in _stdin_lines():
            yield line
    elif size is not None:
        yield bytes(size)
    elif file is not None:
        yield file.read_bytes()  # noqa: ASYNC240 - before anything else happens
    elif message is not None:
        yield _bytes_of(message)
    else:
        yield sys.stdin.buffer.read()


async def _stdin_lines() -> AsyncIterator[bytes]:
    """Lines of stdin as they come. A thread reads, because a pipe may be silent for long while acks and pings must go on."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue(maxsize=STDIN_CHUNKS_MAX)

    def read() -> None:
        source = sys.stdin.buffer
        while True:
            chunk = source.read1(STDIN_CHUNK_BYTES) if isinstance(source, io.BufferedReader) else source.read()
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            if not chunk:
                return

    threading.Thread(target=read, daemon=True, name="stdin").start()
    rest = b""
    while chunk := await chunks.get():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def _paced(payloads: AsyncIterator[bytes], job: PublishJob) -> AsyncIterator[bytes]:
    """Each payload `count` times, at most `rate` a second."""
    loop = asyncio.get_running_loop()
    began, done = loop.time(), 0
    async for data in payloads:
        for _ in range(job.count):
            if job.rate:
                ahead = done / job.rate - (loop.time() - began)
                if ahead > PAUSE_MIN_S:
                    await asyncio.sleep(ahead)
            yield data
            done += 1


def filled(text: bytes, number: int) -> bytes:
    """*text* with the fields of a template filled in; *number*: of the message, from 1 on."""
    for field, value in FILLED.items():
        if (name := field.encode()) in text:
            text = text.replace(name, value(number).encode())
    return text


class PublishTally:
    """Counts publishes and their outcomes."""

    def __init__(self, *, as_json: bool) -> None:
        self.published = self.bytes = self.in_flight = 0
        self.failures: list[stan_client.StanClientError] = []
        self.idle = asyncio.Event()  # nothing in flight
        self.first = self.last = 0  # the lowest and the highest sequence of acks; 0: none was reported
        self._as_json = as_json

    def sent(self, data: bytes) -> None:
        """Count a message that is on its way."""
        self.published, self.bytes, self.in_flight = self.published + 1, self.bytes + len(data), self.in_flight + 1
        self.idle.clear()

    def settle(self, published: stan_client.Published, error: stan_client.StanClientError | None) -> None:
        """Count an outcome; an OnAck."""
        self.in_flight -= 1
        sequence = published.sequence
        if error is not None:
            self.failures.append(error)
        elif sequence:
            self.first, self.last = min(self.first or sequence, sequence), max(self.last, sequence)
        if self._as_json:
            document = {"sequence": sequence, "guid": published.guid, "acked_as": published.acked_as or None}
            document |= {"delayed_id": published.delayed_id} if published.delayed_id else {}
            write_json(document | ({"error": str(error)} if error is not None else {}))
        if not self.in_flight:
            self.idle.set()

    @property
    def place(self) -> str:
        """The sequences for a sentence: " as #7", or between which they are; "" if they are not known."""
        if not self.last:
            return ""
        if self.first == self.last:
            return f" as #{self.last}"
        alone = self.last - self.first + 1 == self.published
        return f" as #{self.first} to #{self.last}" if alone else f" between #{self.first} and #{self.last}"


async def _publish(target: Target, job: PublishJob, payloads: AsyncIterator[bytes], *, quiet: bool) -> int:
    tally, options = PublishTally(as_json=job.as_json), job.options()
    began = time.monotonic()
    async with target.connect("pub") as client:
        room = 0
        async for payload in _paced(payloads, job):
            data = payload
            if job.template:
                data, options["key"] = filled(payload, tally.published + 1), filled(job.key, tally.published + 1)
            if not job.acked:
                await client.publish(job.channel, data, ack="none", **options)
                tally.published, tally.bytes = tally.published + 1, tally.bytes + len(data)
                continue
            if room == 0:
                room = min(await client.window.room(), PUBLISHES_PER_TURN_MAX)
                await asyncio.sleep(0)  # acks come in, bytes go out
            tally.sent(data)
            client.window.publish(job.channel, data, on_ack=tally.settle, numbered=True, **options)
            room -= 1
            if job.wait:
                await tally.idle.wait()
            if tally.failures:
                break
        if tally.in_flight:
            await tally.idle.wait()
    if tally.failures:
        text = f"{len(tally.failures)} of {tally.published} messages were not acked: {tally.failures[0]}"
        err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)
        return EXIT_FAILED
    if not quiet:
        messages = "1 message" if tally.published == 1 else f"{tally.published:,} messages"
        text = (
            f"{'Published' if job.acked else 'Sent'} {messages} ({tally.bytes:,} bytes) to {job.channel}{tally.place}"
        )
        err.print(f"{text} in {time.monotonic() - began:.2f} s", markup=False, highlight=False, soft_wrap=True)
    return 0
