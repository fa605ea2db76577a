"""Parsers of what people write: configuration files, command lines, addresses, times, and the queries of pages."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import typer
from pyspark_stan.reading.offsets import Offset, from_json
from stan_protocol import units
from stan_protocol.patterns import valid_name
from stan_protocol.scalars import SECOND

from stan.cli.commands.sub import parse_start
from stan.config import Config, parse_nats_urls
from stan.errors import ConfigError
from stan.monitor.pages import Pages, UnknownNameError
from stan.monitor.view import NodeView
from stan.settings import go_flags
from stan.settings.go_flags import FlagError
from stan.settings.nats_conf import ConfError, Document, parse
from stan.settings.settings import parse as parse_flags
from stan.settings.stream_conf import read_files
from tests.fuzz.engine import Parser

CONFIGURATION = b"""
port: 4222, http: "127.0.0.1:8222"   # a comment
users = [ {user: a, password: "b", permissions: { publish: ["a.>"] }} ]
name = 'x'; NAME = $name
streaming {
  store: FILE, dir: /tmp/x
  store_limits { max_msgs: 10k, max_bytes: 1GB, max_age: "24h", channels { "orders.>" { max_age: "1h" } } }
  cluster { node_id: $NODE, peers: ["a", "b", "c"] }
}
block (
  text
)
"""
WORDS = (
    b"{",
    b"}",
    b"[",
    b"]",
    b"$x",
    b"include 'a'\n",
    b'"',
    b"'",
    b"#",
    b"\n",
    b"(\n",
    b"=",
    b":",
    b"\\x41",
    b"1e9",
    b"-",
)
NUL = b"\0"


def _file(data: bytes) -> None:
    document = parse(data, "a.conf", {"NODE": "a"}, lambda _name: b"x: 1\n")
    read_files(Path("a.conf"), None, lambda _path: document)


def _flags(data: bytes) -> None:
    def read(_path: Path) -> Document:
        return parse(CONFIGURATION, "a.conf", {"NODE": "a"})

    parsed = parse_flags([os.fsdecode(word) for word in data.split(NUL)], read, {})
    parsed.config.validate()


def _text(call: object) -> object:
    return lambda data: call(data.decode("utf-8", "surrogateescape"))


def configurations() -> Iterator[Parser]:
    """Files and flags."""
    yield Parser(
        "configuration files", (CONFIGURATION, b"streaming: {store: memory}\n"), _file, (ConfError, ConfigError), WORDS
    )
    good = [
        b"-st\0FILE\0-dir\0/tmp/x\0-mm=10",
        b"-c\0a.conf\0-p\04222",
        b"--clustered\0-cluster_peers\0a,b\0-dir\0x\0-st\0file",
    ]
    words = (NUL, b"-", b"--", b"=", b"true", b"-sc", b"1h", b"10mb", b"-SDV", b"help")
    yield Parser("command lines of the server", good, _flags, (), words)
    for name, call, samples in (
        ("durations", units.parse_duration, (b"1h30m", b"1.5s", b"-2us", b"300ms")),
        ("sizes", units.parse_size, (b"10kb", b"1GB", b"64")),
        ("switches", go_flags.parse_bool, (b"true", b"F", b"0")),
        ("numbers", go_flags.parse_int, (b"10", b"0x1f", b"1_000", b"-7")),
    ):
        yield Parser(name, samples, _text(call), (FlagError, ValueError))
    urls = (b"nats://a:4222", b"nats://u:p@a:1,nats://b:2", b"tls://[::1]:4222")
    yield Parser("addresses of NATS", urls, _text(parse_nats_urls), (ConfigError,), (b"://", b"@", b",", b"["))
    names = (b"foo.bar", b"foo.*.>", b"a")
    yield Parser(
        "names and patterns", names, _text(lambda name: valid_name(name, wildcards=True)), (), (b".", b"*", b">")
    )
    starts = (b"first", b"seq:7", b"since:1h", b"at:2026-01-31T12:00:00")
    yield Parser("start positions", starts, _text(parse_start), (typer.BadParameter, OverflowError))


def queries() -> Iterator[Parser]:
    """Parameters of the pages, and offsets that Spark gives back."""
    view = NodeView(Config(), "id", None, SECOND)
    pages = Pages(view)
    loop = asyncio.new_event_loop()

    def page(data: bytes) -> None:
        words = data.decode("utf-8", "surrogateescape").split("&")
        query = {word.partition("=")[0]: word.partition("=")[2] for word in words}
        for made in (pages.clientsz, pages.channelsz, pages.serverz):
            with suppress(UnknownNameError):
                loop.run_until_complete(made(query, 5 * SECOND))

    yield Parser("queries of pages", (b"channels=1&subs=1&limit=5&offset=2", b"client=me", b"channel=foo"), page)
    offset = json.dumps(Offset({"foo": 1}, {"foo": 1}, {"foo": 7}).to_json()).encode()

    def offsets(data: bytes) -> None:
        said = json.loads(data)
        if isinstance(said, dict):  # Spark gives back what it was given
            from_json(said)

    yield Parser(
        "offsets of Spark", (offset,), offsets, (ValueError, TypeError, KeyError, AttributeError, RecursionError)
    )


def parsers() -> Iterator[Parser]:
    """All of this module."""
    for family in (configurations, queries):
        yield from family()
