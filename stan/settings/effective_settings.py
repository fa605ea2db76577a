"""The settings in force as texts, each with where it comes from; pure.

Promises: every option of the command line and of the file that has an effect, under its name on the command line, and the
limits of single channels; entries of NATS's part without a flag under their own names behind `nats.`; never a secret: passwords,
tokens and keys are masked, also within URLs.
"""

from collections.abc import Iterator
from typing import Final

from stan_protocol.units import go_duration

from stan.config import Config, Setting
from stan.edge.log import REDACTED, redacted
from stan.settings.file_schema import FILE_ONLY, NATS
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagKind, Value
from stan.settings.nats_conf import ConfNode, Document
from stan.settings.settings_reader import SettingsReader

OF_NATS: Final = (
    dict.fromkeys(("host", "net"), "addr")
    | dict.fromkeys(("store_dir", "storedir"), "store_dir")
    | dict.fromkeys(("authorization.user", "authorization.username"), "user")
    | dict.fromkeys(("authorization.pass", "authorization.password"), "pass")
    | dict.fromkeys(("cluster.advertise", "cluster.cluster_advertise"), "cluster_advertise")
    | {"authorization.token": "auth", "prof_port": "profile", "trace_verbose": "VV", "cluster.listen": "cluster_listen"}
    | {"tls.cert_file": "tlscert", "tls.key_file": "tlskey", "tls.ca_file": "tlscacert", "tls.verify": "tlsverify"}
    | {
        "cluster.name": "cluster_name",
        "cluster.no_advertise": "no_advertise",
        "cluster.connect_retries": "connect_retries",
    }
    | {name: name for name in ("port", "server_name", "client_advertise", "jetstream")}
    | {name: name for name in ("debug", "trace", "max_traced_msg_len")}
)
"""Entries of NATS's part that have a flag, and its key."""
OWN_NAMES: Final = "nats."
"""Begins the names of entries of NATS's part that have no flag."""
SECRETS: Final = frozenset({"pass", "auth", "encryption_key", "password", "token"})
"""Keys whose values are never shown."""
_NATS_SECRETS: Final = SECRETS | {"key", "ek", "prev_key", "prev_ek", "prev_encryption_key", "seed"}
"""Such keys in NATS's part."""
_URLS = frozenset(
    {"nats_server", "routes", "cluster", "cluster_listen", "cluster_advertise", "sql_source", "trace_endpoint"}
)
_ACTIONS = frozenset({"signal", "t", "help", "version", "help_tls", "SDV", "DV", "DVV"})


def effective_settings(config: Config, values: SettingsReader) -> Iterator[Setting]:
    """Each setting once, in the order of the help."""
    given, sources = values.given, values.sources
    defaults = {flag.key: flag.default for flag in TABLE if not flag.ignored and flag.key not in _ACTIONS} | dict(
        FILE_ONLY
    )
    kinds = {flag.key: flag.kind for flag in TABLE}
    in_force = _in_force(config)
    of_nats = [] if config.nats.urls else [*_of_nats(values.file.nats.entries)]
    with_flag = {OF_NATS[path]: setting for path, setting in of_nats if path in OF_NATS}
    for key, default in defaults.items():
        value = given.get(key, default)
        text = as_text(kinds.get(key, FlagKind.TEXT), value)
        if key not in given and key in with_flag:
            yield with_flag[key]._replace(name=key)
            continue
        if key not in given:
            text = in_force.get(key, text)
        yield Setting(key, masked(key, text), sources.get(key, "default"))
    yield from (setting for path, setting in of_nats if path not in OF_NATS)
    if config.permissions is not None:
        yield Setting("permissions", config.permissions.text(), sources.get("permissions", "default"))
    if config.monitor.logins is not None:
        yield Setting("dashboard", config.monitor.logins.text(), config.monitor.logins.where)
    yield from values.file.overrides


def _in_force(config: Config) -> dict[str, str]:
    """Return the values in force of options whose default leaves the value open."""
    options = {
        "raft_groups": str(config.store.raft_groups),
        "http_host": config.monitor.host,
    }
    if not config.nats.urls:
        options |= {"addr": "0.0.0.0", "port": "4222"}  # noqa: S104 - as nats-server has them
    return options


def _of_nats(document: Document, above: str = "") -> Iterator[tuple[str, Setting]]:
    """Yield path, in lower case, and setting of each value in NATS's part; values for variables alone are no options."""
    for name, node in document.items():
        path = above + name
        if node.referenced and not above and path.lower() not in NATS:
            continue
        if isinstance(node.data, dict):
            yield from _of_nats(node.data, f"{path}.")
            continue
        text = _value_text(name.lower(), node)
        if path.lower() == "listen":
            host, colon, port = text.rpartition(":")
            yield "port", Setting("port", port, node.place)
            path, text = "host", host.strip("[]") if colon and host else "0.0.0.0"  # noqa: S104 - as nats-server has it
        yield path.lower(), Setting(OWN_NAMES + path, text, node.place)


def _value_text(name: str, node: ConfNode) -> str:
    """A value without secrets; those of a list are between brackets."""
    if isinstance(node.data, list):
        return f"[{', '.join(_value_text(name, each) for each in node.data)}]"
    if isinstance(node.data, dict):
        return f"{{{', '.join(f'{key}: {_value_text(key.lower(), each)}' for key, each in node.data.items())}}}"
    text = str(node.data).lower() if isinstance(node.data, bool) else str(node.data)
    return (REDACTED if text else "") if name in _NATS_SECRETS else redacted(text)


def as_text(kind: FlagKind, value: Value) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return go_duration(value) if kind is FlagKind.DURATION and isinstance(value, int) else str(value)


def masked(key: str, text: str) -> str:
    """*text* without secrets."""
    if key in SECRETS:
        return REDACTED if text else ""
    return redacted(text) if key in _URLS else text
