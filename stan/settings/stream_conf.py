"""The settings of the streaming server in a configuration file, and the part for NATS; pure.

Promises: every key of STAN-SPEC 12.3 under each of its names, as values of the flags or of `FILE_ONLY`
(`stan.settings.file_schema`); all values of a wrong type are reported together, in the original's words, with file and line;
unknown keys are ignored with a notice each. Opens no file: the caller gives a reader.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stan_protocol.refusals import go_quote
from stan_protocol.units import go_duration, parse_duration

from stan.config import ChannelOverride, Setting
from stan.settings.dashboard import read_logins
from stan.settings.file_schema import (
    CHANNEL,
    COMMON_KEYS,
    LOGGED,
    NATS,
    OVERRIDES,
    PAGES,
    PER_CHANNEL_NAMES,
    SECTIONS,
    SHARED_BLOCKS,
    STREAMING,
    TOP,
    Keys,
    Want,
)
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagKind, Value
from stan.settings.nats_conf import ConfError, ConfNode, Document, Moment
from stan.settings.nats_conf_writer import render
from stan.settings.nats_users import Login, login_of, with_user
from stan.settings.permissions import read_permissions
from stan.settings.policies import PoliciesReader
from stan.settings.settings_reader import FileSettings, KeyPlace, NatsPart

Reader = Callable[[Path], Document]


def read_files(streaming: Path | None, nats: Path | None, read: Reader, own: Login | None = None) -> FileSettings:
    """Read the files of `-sc` and `-c`, either of which stands for the other where only one is given (STAN-SPEC 12.1); *own*
    becomes a user of the nats-server, if that has users and nothing tells which of them we are.
    """
    files = FileSettings()
    ours, other = streaming or nats, nats or streaming
    if ours is None or other is None:
        return files
    document = _document(ours, read, files)
    if document is not None:
        mine, rest = _split(document, files, shared=ours == other)
        _Section(files).top(mine)
        if ours == other:
            _hand_over(other, rest, files, own)
    if ours != other and (document := _document(other, read, files)) is not None:
        _, rest = _split(document, FileSettings(), shared=True)
        unused = {name: node for name, node in document.items() if rest.get(name) is not node and not node.referenced}
        files.notices += [f"{node.place}: {name} has no effect, as -sc names {ours}" for name, node in unused.items()]
        _hand_over(other, rest, files, own)
    return files


def _document(file: Path, read: Reader, settings: FileSettings) -> Document | None:
    try:
        return read(file)
    except ConfError as error:
        settings.complaints += map(str, (error, *error.others))
        return error.document or None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        settings.complaints.append(f"open {file}: {reason.lower()}")
    return None


def _split(document: Document, settings: FileSettings, *, shared: bool) -> tuple[Document, Document]:
    """Return the streaming server's part of a file, and NATS's if the file is for both."""
    blocks = [node for name, node in document.items() if name.lower() == "streaming"]
    if not shared:
        if blocks:
            return _map(blocks[-1], "streaming section", settings), {}
        return document, {}
    if blocks:
        rest = {name: node for name, node in document.items() if name.lower() not in STREAMING}
        for name, node in document.items():
            if name.lower() in STREAMING - {"streaming"} and not node.referenced:
                settings.notices.append(f"{node.place}: {name} has no effect beside a streaming block")
        return _map(blocks[-1], "streaming section", settings), rest
    mine: Document = {}
    rest = {}
    for name, node in document.items():
        if name.lower() in SHARED_BLOCKS and isinstance(node.data, dict):
            ours = {key: each for key, each in node.data.items() if key.lower() in SHARED_BLOCKS[name.lower()]}
            if ours:
                mine[name] = replace(node, data=ours, variable="")
            theirs = {key: each for key, each in node.data.items() if key not in ours}
            mixed = not {key.lower() for key in ours} <= COMMON_KEYS
            if theirs or not ours:
                rest[name] = replace(node, data=theirs, variable="") if mixed else node
        else:
            (mine if name.lower() in STREAMING else rest)[name] = node
    return mine, rest


def _hand_over(file: Path, rest: Document, settings: FileSettings, own: Login | None) -> None:
    """Note the text that nats-server has to read in place of *file*."""
    rest = _Section(settings).without_logged(_take_pages(rest, settings))
    rest = {name: _as_before(name, node) for name, node in rest.items()}
    nats = settings.nats
    _look_at_tls(rest, nats)
    entries = rest
    logins = [name for name in rest if name.lower() == "authorization"]
    if logins:
        nats.login = login_of(rest[logins[-1]])
        if own is not None and not _IDENTITIES & settings.values.keys():
            joined = with_user(rest[logins[-1]], own)
            nats.own_user = joined is not None
            rest = rest if joined is None else rest | {logins[-1]: joined}
    written = render(rest)
    known = {name: node for name, node in rest.items() if id(node) in written.used or name.lower() in NATS}
    if len(known) < len(rest):
        written = render(known)
    settings.notices += [
        _unknown(name, node) for name, node in rest.items() if name not in known and not node.referenced
    ]
    rest = known
    nats.entries = {name: node for name, node in entries.items() if name in known}
    if rest:
        nats.file, nats.text, nats.places = file, written.text, written.places
    nats.names = {name.lower(): node.place for name, node in rest.items()}


def _unknown(name: str, node: ConfNode) -> str:
    return f"{node.place}: unknown option {go_quote(name)} is ignored"


_CONNECTIONS_DEFAULT = 65_536
_CONNECTIONS_UNLIMITED = 2**31 - 1


def _as_before(name: str, node: ConfNode) -> ConfNode:
    """Return an entry whose meaning nats-server has changed since 2.9, with a value that means the same: with 0 or less
    `max_connections`, which were its default and no limit, it takes no connection at all today, not even ours."""
    data = node.data
    if name.lower() not in {"max_connections", "max_conn"} or type(data) is not int or data > 0:
        return node
    return replace(node, data=_CONNECTIONS_UNLIMITED if data else _CONNECTIONS_DEFAULT, variable="")


_IDENTITIES = {"username", "nkey_seed_file", "credentials", "nats_server"}
"""Settings of our connection's login, or of another server for it."""


def _look_at_tls(rest: Document, nats: NatsPart) -> None:
    """Note the TLS settings that clients of nats-server, such as we, have to know."""
    nats.cluster = any(name.lower() == "cluster" for name in rest)
    tls = next((node.data for name, node in rest.items() if name.lower() == "tls"), None)
    if isinstance(tls, dict):
        keys = {name.lower(): node.data for name, node in tls.items()}
        nats.tls = True
        nats.verify = any(keys.get(name) is True for name in ("verify", "verify_and_map"))
        files = {name: keys.get(name) for name in ("cert_file", "key_file")}
        nats.certificate = {name: Path(file) for name, file in files.items() if isinstance(file, str)}


def _take_pages(rest: Document, settings: FileSettings) -> Document:
    """Note the address of the monitoring pages, and leave it out of *rest*: they are ours, with nats-server's among them."""
    for name, node in rest.items():
        key = PAGES.get(name.lower())
        if key is None:
            continue
        host, _, port = str(node.data).rpartition(":")
        if _kind(node) not in {"int64", "string"} or not re.fullmatch(r"-?[0-9]{1,9}", port, re.ASCII):
            settings.complaints.append(
                f"{node.place}: could not parse {name}: expected a port or host:port, got {_shown(node)}"
            )
            continue
        settings.values[key] = int(port)
        settings.places[key] = KeyPlace(name, node.place)
        if host:
            settings.values["http_host"] = host.strip("[]")
            settings.places["http_host"] = KeyPlace(name, node.place)
    return {name: node for name, node in rest.items() if name.lower() not in PAGES}


def _map(node: ConfNode, what: str, settings: FileSettings) -> Document:
    if isinstance(node.data, dict):
        return node.data
    settings.complaints.append(f"{node.place}: expected {what} to be a map/struct, got {_shown(node)}")
    return {}


class _Section:
    """Reads entries of one block after the other into the settings."""

    def __init__(self, settings: FileSettings) -> None:
        self._settings = settings

    def top(self, document: Document) -> None:
        """Read everything of the streaming server's part."""
        for name, node in document.items():
            if name.lower() == "permissions":
                self._settings.permissions = read_permissions(node)
                self._settings.places["permissions"] = KeyPlace(name, node.place)
                continue
            if name.lower() == "dashboard":
                self._settings.logins = read_logins(node)
                self._settings.places["dashboard"] = KeyPlace(name, node.place)
                continue
            if name.lower() == "policies":
                self._policies(node)
                continue
            section = SECTIONS.get(name.lower())
            if section is None:
                self._entry(name, node, TOP)
                continue
            what, keys = section
            inner = _map(node, what, self._settings)
            if what == "cluster" and isinstance(node.data, dict):
                self._set("clustered", KeyPlace(name, node.place), value=True)
            for key, each in inner.items():
                if what == "store limits" and key.lower() in PER_CHANNEL_NAMES:
                    self._channels(_map(each, "per channel limits", self._settings))
                else:
                    self._entry(key, each, keys)

    def without_logged(self, rest: Document) -> Document:
        """Read the entries of NATS's part that are for both servers, and leave them out of *rest*."""
        for name, node in rest.items():
            if name.lower() in LOGGED:
                self._entry(name, node, LOGGED)
        return {name: node for name, node in rest.items() if name.lower() not in LOGGED}

    def _policies(self, node: ConfNode) -> None:
        read = PoliciesReader()
        read.read(node)
        self._settings.policies += read.rules
        self._settings.overrides += read.settings
        self._settings.complaints += read.complaints

    def _entry(self, name: str, node: ConfNode, keys: Keys) -> None:
        read = self._read(name, node, keys)
        if read is None:
            return
        key, value = read
        place = KeyPlace(name, node.place)
        if not key:
            self._settings.ignored.append(place)
        elif key == "store" and str(value).upper() not in {"MEMORY", "FILE", "SQL"}:
            self._settings.complaints.append(f"{node.place}: unknown store type: {value}")
        else:
            self._set(key, place, value)
            if key == "encryption_key" and "encrypt" not in self._settings.values:
                self._set("encrypt", place, value=True)  # an empty key too: the environment may give it

    def _set(self, key: str, place: KeyPlace, value: Value) -> None:
        self._settings.values[key] = str(value) if key in _SIZES else value
        self._settings.places[key] = place

    def _channels(self, channels: Document) -> None:
        for channel, block in channels.items():
            limits: dict[str, int] = {}
            for name, node in _map(block, "channel limits", self._settings).items():
                read = self._read(name, node, CHANNEL)
                if read is not None:
                    limits[OVERRIDES[read[0]]] = int(read[1]) or -1  # 0 is no limit here, where it would inherit
                    text = go_duration(int(read[1])) if OVERRIDES[read[0]].endswith("_ns") else str(read[1])
                    self._settings.overrides.append(Setting(f"channels.{channel}.{read[0]}", text, node.place))
            self._settings.channels[channel] = ChannelOverride(**limits)

    def _read(self, name: str, node: ConfNode, keys: Keys) -> tuple[str, Value] | None:
        """The setting that an entry is and its value; None if it is none, or not as it must be."""
        if name.lower() not in keys:
            if not node.referenced:
                self._settings.notices.append(_unknown(name, node))
            return None
        key, want = keys[name.lower()]
        if want is Want.SWITCH and isinstance(node.data, bool | str | list):
            want = (
                Want.BOOL if isinstance(node.data, bool) else Want.STRING if isinstance(node.data, str) else Want.LIST
            )
        nodes = node.data if want is Want.LIST and isinstance(node.data, list) else [node]
        kind = Want.STRING if want is Want.LIST and nodes is node.data else want
        values = [self._value(name, each, kind) for each in nodes]
        if any(value is None for value in values):
            return None
        return key, ",".join(map(str, values)) if want is Want.LIST else values[0]  # type: ignore[return-value]

    def _value(self, name: str, node: ConfNode, want: Want) -> Value | None:
        """The value of one entry; None, and a complaint, if it is not as it must be."""
        kind = "string" if want is Want.DURATION else want.value
        data = node.data
        problem = ""
        if want is Want.SHARE and _kind(node) in {"float64", "int64"}:
            return str(data)
        if _kind(node) != kind:
            problem = f"parameter {go_quote(name)} value is expected to be {kind}, got {_kind(node)}"
        elif isinstance(data, str) and any("\ud800" <= char <= "\udfff" for char in data):
            problem = f"parameter {go_quote(name)} value is not UTF-8"
        elif want is Want.DURATION and isinstance(data, str):
            try:
                return parse_duration(data)
            except ValueError as error:
                problem = str(error)
        if not problem and isinstance(data, str | int):
            return data
        self._settings.complaints.append(f"{node.place}: {problem}")
        return None


_SIZES = {flag.key for flag in TABLE if flag.kind is FlagKind.SIZE}


def _kind(node: ConfNode) -> str:
    """The kind of a value as Go names it."""
    kinds = {bool: "bool", int: "int64", float: "float64", str: "string", Moment: "struct", list: "slice", dict: "map"}
    return kinds[type(node.data)]


def _shown(node: ConfNode) -> str:
    """A value as Go prints it."""
    if isinstance(node.data, list):
        return f"[{' '.join(_shown(each) for each in node.data)}]"
    if isinstance(node.data, dict):
        return f"map[{' '.join(f'{name}:{_shown(each)}' for name, each in node.data.items())}]"
    return str(node.data).lower() if isinstance(node.data, bool) else str(node.data)
