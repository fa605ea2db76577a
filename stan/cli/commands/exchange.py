"""`stan export` and `stan import`: one channel as lines that other programs read and write.

    jsonl    {"sequence": 7, "time_ns": 1795300000000000000, "data": "text"} a line; `data_base64` if it is no UTF-8; if there are
             any, `reply`, `key` (or `key_base64`) and `headers`: pairs of a name and a text, or {"base64": ...};
             to import, `data` or `data_base64` is enough
    lines    the payloads alone, each a line
    --to jetstream: not lines, but streams and consumers (stan.cli.commands.jetstream)

An import makes new messages, with new sequences and times: a backup preserves them. Promises: messages that an import reports as
stored are stored; a wrong line is reported by its number, and nothing from it on is stored.
"""

import base64
import json
import secrets
import sys
from array import array
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, NamedTuple

import stan_client
import typer
from stan_client.transport.session import text_of
from stan_protocol.kernel.rows import ID_BYTES, Headers, columns, pack_rows
from stan_protocol.units import counted

from stan import limits
from stan.cli.commands.jetstream import JetStreamPlace, export_channels
from stan.cli.support.args import Channel, checked_channel, checked_pattern
from stan.cli.support.common import EXIT_USAGE, CliError, Target, run
from stan.cli.support.options import View, injected
from stan.cli.support.output import show
from stan.cli.support.progress import bar
from stan.cli.support.proto_json import headers_document, set_bytes
from stan.cli.support.session import is_unknown, no_channel, session
from stan.cli.support.terminal import STDOUT, CleanStdout, err
from stan.permissions import EVERYTHING

SHAPES: Final = ("jsonl", "lines")
JETSTREAM: Final = "jetstream"
PATIENCE_S: Final = 60.0
REQUEST_ROOM: Final = 2048
"""Bytes of a request beside its channel and its rows."""
ROW_ROOM: Final = 64
"""Bytes of a row beside its payload, its reply, its key and its headers: lengths, tags, its id, fields for subscribers."""
REQUEST_ROWS_MAX: Final = 10_000
LINE_BYTES_MAX: Final = 1 << 27

Shape = Annotated[str, typer.Option("--as", help="jsonl, or lines: payloads alone.")]


# --- export -----------------------------------------------------------------------------------------------------------------


@injected
def export(
    channel: Annotated[
        str, typer.Argument(metavar="CHANNEL", help="With --to jetstream also a pattern, and all channels without it.")
    ] = EVERYTHING,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="To be made; stdout without it.")] = None,
    shape: Shape = "jsonl",
    first: Annotated[int, typer.Option("--first", min=1, help="First sequence.")] = 1,
    last: Annotated[int, typer.Option("--last", min=0, help="Last sequence; 0: the newest.")] = 0,
    to: Annotated[str, typer.Option("--to", help="jetstream: streams and consumers instead of lines.")] = "",
    jetstream: Annotated[str, typer.Option(help="URL of the NATS with JetStream; that of --server without it.")] = "",
    jetstream_creds: Annotated[str, typer.Option(help="Credentials file for it.")] = "",
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Of each stream.")] = 1,
    *,
    target: Target,
    view: View,
) -> None:
    """Write a channel's messages as lines, or copy channels with their durables to JetStream."""
    if to:
        _check_jetstream(to, channel, file)
        run(_to_jetstream(target, channel, JetStreamPlace(jetstream, jetstream_creds, replicas), view))
    if jetstream or jetstream_creds:
        raise CliError("--jetstream and --jetstream-creds go with --to jetstream.", EXIT_USAGE)
    _check(channel, shape)
    if file is not None and file.exists():
        raise CliError(f"{file} exists.", EXIT_USAGE)
    run(_export(target, channel, file, shape, (first, last)))


def _check_jetstream(to: str, pattern: str, file: Path | None) -> None:
    complaints = [] if to == JETSTREAM else [f"--to is {JETSTREAM}, not {to!r}."]
    complaints += ["--to jetstream makes streams, and no FILE."] if file is not None else []
    if complaints:
        raise CliError("\n".join(complaints), EXIT_USAGE)
    checked_pattern(pattern)


async def _to_jetstream(target: Target, pattern: str, place: JetStreamPlace, view: View) -> int:
    show(await export_channels(target, pattern, place), view)
    return 0


async def _export(target: Target, channel: str, file: Path | None, shape: str, span: tuple[int, int]) -> int:
    async with session(target, timeout_s=PATIENCE_S) as direct:
        try:
            status = (await direct.channels.info([channel])).get(channel)
            if status is None:
                raise await no_channel(direct, channel)
            first, last = max(span[0], status.first, 1), min(span[1] or status.last, status.last)
            count = 0
            with _opened(file) as out, bar("Exporting", max(0, last - first + 1)) as advance:
                answers = direct.batches.read_range(channel, first, last, uid=status.uid) if first <= last else None
                if answers is not None:
                    async with aclosing(answers):
                        async for answer in answers:
                            out.write(b"".join(_lines(answer, shape)))
                            count += answer.count
                            advance(answer.count)
        except stan_client.ServerError as error:
            if is_unknown(error):
                raise await no_channel(direct, channel) from None
            raise
        except OSError as error:
            raise CliError(f"The export is not whole: {error}.") from None
    if file is not None:
        err.print(f"{counted(count, 'message')} of {channel} in {file}.", markup=False, highlight=False)
    return 0


@contextmanager
def _opened(file: Path | None) -> Iterator[BinaryIO | CleanStdout]:
    if file is None:
        yield STDOUT
        STDOUT.flush()
        return
    with file.open("xb") as out:
        yield out


def _lines(answer: stan_client.Fetched, shape: str) -> Iterator[bytes]:
    messages = answer.messages()
    if shape == "lines":
        for message in messages:
            yield message.data + b"\n"
        return
    headers = columns(answer.records, answer.count, headers=True).headers or []
    for message, pairs in zip(messages, headers, strict=True):
        document: dict[str, Any] = {"sequence": message.sequence, "time_ns": message.timestamp_ns}
        set_bytes(document, "data", message.data)
        if message.reply:
            document["reply"] = message.reply
        if message.key:
            set_bytes(document, "key", message.key)
        if pairs:
            document["headers"] = headers_document((text_of(name), value) for name, value in pairs)
        yield json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


# --- import -----------------------------------------------------------------------------------------------------------------


class ImportRow(NamedTuple):
    """A message to be stored."""

    data: bytes
    reply: bytes = b""
    headers: Headers = ()
    key: bytes = b""

    @property
    def size(self) -> int:
        """Bytes of a request that it needs, at most."""
        headers = sum(len(name) + len(value) + ROW_ROOM for name, value in self.headers)
        return len(self.data) + len(self.reply) + len(self.key) + headers + ROW_ROOM


class LineError(Exception):
    """A line that is no message."""


@injected
def import_(
    channel: Channel,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="What export has made; stdin without it.")
    ] = None,
    shape: Shape = "jsonl",
    *,
    target: Target,
) -> None:
    """Publish each line of a file as a message of a channel, which is made if it does not exist."""
    _check(channel, shape)
    if file is not None and not file.is_file():
        raise CliError(f"There is no file {file}.", EXIT_USAGE)
    if file is None and sys.stdin.isatty():
        raise CliError("Give a FILE, or pipe something in.", EXIT_USAGE)
    run(_import(target, channel, file, shape, file.stat().st_size if file is not None else None))


class RowSender:
    """Stores rows in a channel, many by one request; nothing is stored twice by repeated requests."""

    def __init__(self, direct: stan_client.Direct, channel: str, room: int) -> None:
        """*room*: bytes of rows in one request, see `row_room`."""
        self._direct, self._channel, self._room = direct, channel, room
        self._producer = f"import-{secrets.token_hex(8)}"
        self._version = self._size = 0
        self._pending: list[ImportRow] = []
        self.stored = 0

    async def add(self, row: ImportRow) -> bool:
        """Take a row; True if those before it were stored just now. Raises LineError: it is too large."""
        if row.size > self._room:
            raise LineError(f"{len(row.data):,} bytes are more than NATS takes in one message")
        full = self._size + row.size > self._room or len(self._pending) == REQUEST_ROWS_MAX
        if full:
            await self.flush()
        self._pending.append(row)
        self._size += row.size
        return full

    async def flush(self) -> None:
        """Store the rows that were taken."""
        rows, self._pending, self._size = self._pending, [], 0
        if rows:
            ids = b"".join((self.stored + at).to_bytes(ID_BYTES, "big") for at in range(len(rows)))
            await self._direct.batches.publish(
                self._channel, packed_rows(rows), len(rows), producer=self._producer, version=self._version, ids=ids
            )
            self._version += 1  # the server remembers the ids of two
            self.stored += len(rows)


async def row_room(direct: stan_client.Direct, channel: str) -> int:
    """Bytes of rows that one request to *channel* has room for."""
    names = 2 * len(channel.encode("utf-8", "surrogateescape"))
    return await direct.channels.message_bytes_max() - REQUEST_ROOM - names


async def _import(target: Target, channel: str, file: Path | None, shape: str, total: int | None) -> int:
    number = read = 0
    async with session(target, timeout_s=PATIENCE_S) as direct:
        sender = RowSender(direct, channel, await row_room(direct, channel))
        with _source(file) as source, bar("Importing", total) as advance:
            try:
                for number, line in enumerate(iter(lambda: source.readline(LINE_BYTES_MAX), b""), 1):  # noqa: B007
                    row = _row(line, shape)
                    if row is not None and await sender.add(row):
                        advance(read)
                        read = 0
                    read += len(line)
                await sender.flush()
                advance(read)
            except LineError as error:
                await sender.flush()
                raise CliError(
                    f"{file or 'stdin'}:{number}: {error}. Stored are the {counted(sender.stored, 'message')} before it, "
                    f"in {channel}."
                ) from None
            except stan_client.StanClientError as error:
                raise CliError(
                    f"{error}\nStored are the first {counted(sender.stored, 'message')} at least; line {number} was read last."
                ) from None
    err.print(f"{counted(sender.stored, 'message')} stored in {channel}.", markup=False, highlight=False)
    return 0


@contextmanager
def _source(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as source:
        yield source


def _row(line: bytes, shape: str) -> ImportRow | None:
    """The message of a line; None for an empty one between JSON. Raises LineError."""
    if shape == "lines":
        return ImportRow(line.removesuffix(b"\n"))
    if not line.strip():
        return None
    try:
        fields = json.loads(line.decode("utf-8", "surrogateescape"))
        if not isinstance(fields, dict) or ("data" in fields) == ("data_base64" in fields):
            raise LineError("a line is an object with either data or data_base64")
        headers = tuple((_bytes(name), _value(value)) for name, value in fields.get("headers", ()))
        row = ImportRow(_bytes_at(fields, "data"), _bytes(fields.get("reply", "")), headers, _bytes_at(fields, "key"))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LineError(str(error) or type(error).__name__) from None
    if len(row.key) > limits.KEY_BYTES_MAX:
        raise LineError(f"a key of {len(row.key):,} bytes; a key has at most {limits.KEY_BYTES_MAX:,}")
    return row


def _bytes_at(document: dict[str, Any], name: str) -> bytes:
    """Return the bytes of an object under *name* or *name*_base64; b"": neither."""
    coded = f"{name}_base64"
    return base64.b64decode(document[coded], validate=True) if coded in document else _bytes(document.get(name, ""))


def _value(value: object) -> bytes:
    """Return the value of a header."""
    return base64.b64decode(value["base64"], validate=True) if isinstance(value, dict) else _bytes(value)


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise LineError(f"{text!r} is no text")
    return text.encode("utf-8", "surrogateescape")


def packed_rows(pending: list[ImportRow]) -> bytes:
    """The rows of a request."""

    def column(values: list[bytes]) -> tuple[bytes, bytes]:
        offsets = array("i", [0])
        for value in values:
            offsets.append(offsets[-1] + len(value))
        if sys.byteorder == "big":
            offsets.byteswap()
        return offsets.tobytes(), b"".join(values)

    offsets, data = column([row.data for row in pending])
    replies = (*column([row.reply for row in pending]), 0) if any(row.reply for row in pending) else None
    headers = [row.headers for row in pending] if any(row.headers for row in pending) else None
    keys = (*column([row.key for row in pending]), 0) if any(row.key for row in pending) else None
    return pack_rows(offsets, data, 0, len(pending), replies=replies, headers=headers, keys=keys)


def _check(channel: str, shape: str) -> None:
    checked_channel(channel)
    if shape not in SHAPES:
        raise CliError(f"--as is one of {', '.join(SHAPES)}.", EXIT_USAGE)
