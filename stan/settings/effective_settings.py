"""The settings in force as texts, each with where it comes from; pure.

Promises: every option of the command line and of the file that has an effect, under its name on the command line, and the
limits of single channels; never a secret: passwords, tokens and keys are masked, also within URLs.
"""

from collections.abc import Iterator
from typing import Final

from stan.config import Config, Setting
from stan.edge.log import REDACTED, redacted
from stan.settings.file_schema import FILE_ONLY
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagKind, Value
from stan.settings.settings_reader import SettingsReader
from stan.units import go_duration

SECRETS: Final = frozenset({"pass", "auth", "encryption_key", "password", "token"})
"""Keys whose values are never shown."""
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
    for key, default in defaults.items():
        value = given.get(key, default)
        text = as_text(kinds.get(key, FlagKind.TEXT), value)
        if key not in given:
            text = in_force.get(key, text)
        yield Setting(key, masked(key, text), sources.get(key, "default"))
    if config.permissions is not None:
        yield Setting("permissions", config.permissions.text(), sources.get("permissions", "default"))
    yield from values.file.overrides


def _in_force(config: Config) -> dict[str, str]:
    """Return the values in force of options whose default leaves the value open."""
    found = {
        "raft_groups": str(config.store.raft_groups),
        "http_host": config.monitor.host,
    }
    if not config.nats.urls and config.embedded.config_file is None:
        found |= {"addr": "0.0.0.0", "port": "4222"}  # noqa: S104 - as nats-server has them
    return found


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
