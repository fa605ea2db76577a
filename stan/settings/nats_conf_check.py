"""Checks NATS's part of the configuration: the bundled nats-server is started with it elsewhere, and ended at once.

Promises: one complaint a line, each with the user's file and line; nothing is left running, and no file but those of a temporary
directory is written. nats-server listens on other, free ports, by default of the loopback interface, asks no other server for a
connection, and sees no data: stores and logs are in that directory, unless the user's place for them cannot be used, of which
nats-server complains then.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from stan_protocol.scalars import SECOND

from stan import limits
from stan.config import Config, EmbeddedConfig
from stan.edge.nats.nats_process import DEFAULT_PORT, NatsProcess
from stan.errors import StartError
from stan.settings.nats_conf import ConfNode, Data, Document, parse
from stan.settings.nats_conf_writer import render

LOOPBACK: Final = "127.0.0.1"
_ANY_HOST: Final = frozenset({"", "0.0.0.0", "*"})  # noqa: S104 - hosts that are replaced
_LISTENING: Final = frozenset({"cluster", "gateway", "leafnodes", "leaf", "websocket", "ws", "mqtt"})
"""Blocks with addresses, of this server and of others."""
_OTHERS: Final = frozenset({"routes", "urls", "url", "remotes", "gateways"})
"""Keys in them that name other servers."""
_RESOLVERS: Final = frozenset({"resolver", "account_resolver", "accounts_resolver"})
_STORES: Final = frozenset({"store_dir", "storedir", "store"})
_PORT_MAX: Final = 65535
_SILENT_FLAGS: Final = (
    "--syslog",
    "--remote_syslog",
    "--profile",
    "--store_dir",
    "--debug",
    "--trace",
    "--DV",
    "--VV",
    "--DVV",
)
_RUNS_MAX: Final = 32
"""How often it is started to find out which entry a complaint is about."""

_LOG_LINE = re.compile(r"(?:\[[0-9]+\] )?(?:[0-9/]+ [0-9:.]+ )?\[(?P<level>[A-Z]{3})\] (?P<text>.*)")
_KIND = re.compile(r"interface conversion: interface \{\} is (?P<got>\S+), not (?P<wanted>\S+)")
_LATE = "nats-server was not ready in time"
_WARNING = ": invalid use of field "
_PORT = re.compile(r"(?P<host>.*):(?P<port>-?[0-9]+)")
_URL = re.compile(r"(?P<scheme>[A-Za-z-]+://)(?P<login>[^/]*@)?[^/]+(?P<path>/.*)?")


class NatsVerdict(NamedTuple):
    """The answer of nats-server to its configuration."""

    complaints: list[str]  # with these it does not start
    notices: list[str]  # it starts, and says these


def check(config: Config) -> NatsVerdict:
    """Start nats-server as of *config* elsewhere, and end it. Blocks until it is ready, or has ended by itself."""
    if config.permissions is not None and config.permissions.users:
        from stan.edge.nats.accounts import with_accounts  # noqa: PLC0415 - slow to import, and not always needed

        config = with_accounts(config, "-")
    try:
        with TemporaryDirectory(prefix="stan-check-") as folder:
            trial = _Trial(config.embedded, folder)
            complaints, notices = trial.verdict()
            return NatsVerdict([*complaints, *_shared_ports(trial.document, config)], notices)
    except (StartError, OSError) as error:
        return NatsVerdict([f"nats-server could not check its configuration: {error}"], [])


class _Trial:
    def __init__(self, config: EmbeddedConfig, folder: str) -> None:
        self._runs = 0
        self._file = config.config_file or Path("the flags")
        document = parse(config.config_text or b"", "", {})
        self.document = _placed(document, config.config_places)
        self._places = frozenset(config.config_places)
        self._elsewhere = elsewhere = _Elsewhere(folder)
        flags = [elsewhere.flag(flag) for flag in config.extra_args if not flag.startswith(_SILENT_FLAGS)]
        if not _stores(self.document) and not any(flag.startswith("--store_dir") for flag in flags):
            flags.append(f"--store_dir={folder}")
        self._config = replace(
            config,
            host="" if config.host in _ANY_HOST else config.host,
            port=0,
            routes=tuple(map(elsewhere.url, config.routes)),
            listen_routes=other_port(config.listen_routes),
            config_file=self._file,
            ports_file_dir=Path(folder),
            extra_args=tuple(flags),
        )

    def verdict(self) -> NatsVerdict:
        """Complaints and notices about all of it."""
        complaints, notices = self._start(self.document)
        return NatsVerdict(list(map(self._with_place, complaints)), notices)

    def _with_place(self, complaint: str) -> str:
        """*complaint* with the place of the entry without which it would not be made, if it names none."""
        if any(complaint.startswith(f"{place}: ") for place in (*self._places, self._file)):
            return complaint
        node = self._culprit(self.document, [], complaint) if complaint != _LATE else None
        return f"{node.place if node is not None else self._file}: {complaint}"

    def _culprit(self, entries: Document, path: list[str], complaint: str) -> ConfNode | None:
        """The entry, or one in it; those that the complaint names are tried first."""
        text = complaint.lower().replace("_", " ")

        def named(name: str) -> int:
            at = text.find(name.lower().replace("_", " ").rstrip("s"))
            return at if at >= 0 else len(text)

        for name in sorted(entries, key=named):
            self._runs += 1
            if self._runs > _RUNS_MAX:
                return None
            where = [*path, name]
            others = self._start(_without(self.document, where)).complaints
            if _without_numbers(complaint) not in map(_without_numbers, others):
                node = entries[name]
                inner = self._culprit(node.data, where, complaint) if isinstance(node.data, dict) else None
                return inner or node
        return None

    def _start(self, document: Document) -> NatsVerdict:
        """Complaints and notices with *document*."""
        rendered = render(self._elsewhere.top(document))
        output = _Said()
        process = NatsProcess(replace(self._config, config_text=rendered.text, config_places=rendered.places), output)
        ready = False
        deadline = time.monotonic_ns() + limits.NATS_READY_TIMEOUT
        try:
            while process.running and not ready and time.monotonic_ns() < deadline:
                ready = process.address() is not None
                time.sleep(limits.NATS_POLL_INTERVAL / SECOND)
            late = process.running and not ready
        finally:
            process.kill()
            process.wait(limits.NATS_STOP_TIMEOUT / SECOND)
        lines = [_KIND.sub(r"value is expected to be \g<wanted>, got \g<got>", line) for line in output.of_start()]
        notices = [line for line in lines if _WARNING in line]
        if ready:
            return NatsVerdict([], notices)
        if late:
            return NatsVerdict([_LATE], notices)
        return NatsVerdict([line for line in lines if line not in notices] or ["nats-server ends"], notices)


def _without_numbers(complaint: str) -> str:
    """Return *complaint* without parts that differ from start to start, as a port."""
    return re.sub("[0-9]+", "", complaint)


class _Said:
    """The lines of a nats-server."""

    def __init__(self) -> None:
        self._lines = b""

    def raw(self, lines: bytes) -> None:
        self._lines += lines

    def of_start(self) -> Iterator[str]:
        """Lines from before it had a log, and the fatal ones since."""
        for line in self._lines.decode("utf-8", "replace").splitlines():
            logged = _LOG_LINE.fullmatch(line)
            text = logged["text"] if logged else line.removeprefix("nats-server: ")
            if text.strip() and (logged is None or logged["level"] == "FTL"):
                yield text


# --- the same configuration, elsewhere --------------------------------------------------------------------------------------


def _placed(data: Document, places: tuple[str, ...]) -> Document:
    """Give the entries of a rendered text the places in the user's files."""

    def placed(node: ConfNode) -> ConfNode:
        file, _, line = places[node.line - 1].rpartition(":") if node.line <= len(places) else ("", "", "0")
        value: Data = node.data
        if isinstance(value, dict):
            value = {name: placed(each) for name, each in value.items()}
        elif isinstance(value, list):
            value = [placed(each) for each in value]
        return replace(node, data=value, file=file, line=int(line), variable="")

    return {name: placed(node) for name, node in data.items()}


def _without(document: Document, path: list[str]) -> Document:
    name, *inner = path
    if not inner:
        return {key: node for key, node in document.items() if key != name}
    node = document[name]
    assert isinstance(node.data, dict)  # noqa: S101 - it was descended into
    return document | {name: replace(node, data=_without(node.data, inner))}


class _Elsewhere:
    """Moves a configuration to other ports and files, away from other servers."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._others: dict[str, str] = {}  # addresses of other servers, and those in their place

    def top(self, document: Document) -> Document:
        """The whole."""
        harmless = [name for name, node in document.items() if name.lower() == "prof_port" and _is_port(node.data)]
        entries = {name: self._entry(name.lower(), node) for name, node in document.items() if name not in harmless}
        if not {"port", "listen"} & {name.lower() for name in entries}:
            entries["port"] = ConfNode(-1, "", 0)
        return self._listening(entries)

    def _entry(self, key: str, node: ConfNode) -> ConfNode:
        data = node.data
        if key in _STORES:
            return replace(node, data=self._directory(data))
        if not isinstance(data, dict):
            return _address(key, node)
        if key == "jetstream":
            moved = {name: replace(data[name], data=self._directory(data[name].data)) for name in _stores(data)}
            return replace(node, data=data | moved)
        if key in _LISTENING:
            inner = {name: self._others_in(name, _address(name.lower(), each)) for name, each in data.items()}
            return replace(node, data=self._listening(inner))
        return replace(node, data=self._resolver(data)) if key in _RESOLVERS else node

    def _listening(self, block: Document) -> Document:
        """*block*, on the loopback interface if it does not say where it listens."""
        keys = {name.lower() for name in block}
        if "port" not in keys or keys & {"host", "net", "listen"}:
            return block
        return block | {"host": ConfNode(LOOPBACK, "", 0)}

    def _others_in(self, name: str, node: ConfNode) -> ConfNode:
        """Return other servers, with addresses that do not answer in place of theirs."""
        data = node.data
        if name.lower() not in _OTHERS:
            return node
        if isinstance(data, str):
            return replace(node, data=self.url(data))
        if isinstance(data, list):
            return replace(node, data=[self._others_in(name, each) for each in data])
        if isinstance(data, dict):
            return replace(node, data={key: self._others_in(key, each) for key, each in data.items()})
        return node

    def url(self, url: str) -> str:
        """The URL of another server, with another address."""
        number = len(self._others) + 1
        address = self._others.setdefault(url, f"127.1.{number >> 8 & 255}.{number & 255}:1")
        return _URL.sub(rf"\g<scheme>\g<login>{address}\g<path>", url)

    def flag(self, flag: str) -> str:
        """A flag of nats-server."""
        name, _, value = flag.partition("=")
        if name == "--routes":
            return f"{name}={','.join(map(self.url, value.split(',')))}"
        if name == "--store_dir":
            return f"{name}={self._directory(value)}"
        return f"{name}={other_port(value)}" if name in {"--cluster", "--cluster_listen"} else flag

    def _resolver(self, resolver: Document) -> Document:
        """The same, with a copy of its directory."""
        for name, node in resolver.items():
            if name.lower() == "dir" and (moved := self._directory(node.data)) != node.data:
                with suppress(OSError):
                    copytree(str(node.data), str(moved), dirs_exist_ok=True)
                return resolver | {name: replace(node, data=moved)}
        return resolver

    def _directory(self, data: Data) -> Data:
        """A directory in place of one that could be used."""
        return f"{self._folder}/data" if isinstance(data, str) and usable_directory(data) else data


def other_port(address: str) -> str:
    """An address with a free port in place of its own, if that can be one."""
    match = _PORT.fullmatch(address)
    return f"{match['host']}:-1" if match is not None and _is_port(int(match["port"])) else address


def _is_port(data: Data) -> bool:
    return isinstance(data, int) and not isinstance(data, bool) and -1 <= data <= _PORT_MAX


def _address(key: str, node: ConfNode) -> ConfNode:
    """Return an entry, on another port if it is an address to listen on."""
    data = node.data
    if key == "port" and _is_port(data):
        return replace(node, data=-1)
    if key == "listen" and (_is_port(data) or isinstance(data, str)):
        host, colon, port = other_port(f":{data}" if _is_port(data) else str(data)).rpartition(":")
        return replace(node, data=f"{LOOPBACK if host in _ANY_HOST and colon else host}{colon}{port}")
    if key in {"host", "net"} and isinstance(data, str) and data in _ANY_HOST:
        return replace(node, data=LOOPBACK)
    return node


def _stores(document: Document) -> list[str]:
    """Keys that say where JetStream keeps its files."""
    inner = [
        node.data for name, node in document.items() if name.lower() == "jetstream" and isinstance(node.data, dict)
    ]
    return [name for name in document if name.lower() in _STORES] + [name for data in inner for name in _stores(data)]


class _Listener(NamedTuple):
    """An address on which one of the servers listens, and the place that says so."""

    host: str
    port: int
    place: str

    def collides(self, listener: "_Listener") -> bool:
        """Return True if only one of them can listen."""
        anywhere = self.host in _ANY_HOST or listener.host in _ANY_HOST
        return 0 < self.port == listener.port and (anywhere or self.host == listener.host)


def _shared_ports(document: Document, config: Config) -> Iterator[str]:
    """Complaints about two listeners on one address: a start on other ports does not show them."""
    pages = "https_port" if config.monitor.secure else "http_port"
    sources = {setting.name: setting.source for setting in config.shown()}
    listeners = [_Listener(config.monitor.host, config.monitor.port, sources.get(pages, ""))]
    listeners.append(_listener(document, _Listener("", DEFAULT_PORT, "the default port of clients")))
    if config.embedded.port or config.embedded.host:
        host, port, place = listeners[-1]
        flags = config.embedded
        listeners[-1] = _Listener(flags.host or host, flags.port or port, "-p" if flags.port else place)
    for name, node in document.items():
        if name.lower() in _LISTENING and isinstance(node.data, dict):
            listeners.append(_listener(node.data, _Listener("", 0, "")))
    for number, one in enumerate(listeners):
        other = next((other for other in listeners[:number] if one.collides(other)), None)
        if other is not None:
            yield f"{one.place}: port {one.port} is that of {other.place}, too"


def _listener(block: Document, listener: _Listener) -> _Listener:
    """Return the address in a block; *listener* has the missing parts."""
    for name, node in block.items():
        data = f":{node.data}" if _is_port(node.data) else str(node.data)
        if name.lower() in {"host", "net"}:
            listener = listener._replace(host=str(node.data))
        elif name.lower() in {"port", "listen"} and (address := _PORT.fullmatch(data)) is not None:
            host = address["host"] if name.lower() == "listen" else listener.host
            listener = _Listener(host, int(address["port"]), node.place)
    return listener


def usable_file(path: str) -> bool:
    """Return True if it is a file that can be written to, or made."""
    place = Path(path)
    return (
        os.access(place, os.W_OK) and not place.is_dir()
        if place.exists()
        else os.access(place.parent, os.W_OK | os.X_OK)
    )


def usable_directory(path: str) -> bool:
    """Return True if it is a directory that can be written to, or made."""
    directory = Path(path).absolute()
    there = next(place for place in (directory, *directory.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
