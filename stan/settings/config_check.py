"""Checks a configuration file and flags as `stan-server` would at its start, without starting it.

Promises: complaints of the streaming part, of nats-server about its part, and about files that are named and cannot be used,
all at once; nothing is changed. nats-server is started elsewhere for a moment (`stan.settings.nats_conf_check`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stan.config import Config, Setting
from stan.errors import StartError
from stan.settings.nats_conf import load
from stan.settings.nats_conf_check import check, usable_directory, usable_file
from stan.settings.settings import Action, parse

_READ: Final = ("credentials", "nkey_seed_file", "tls_client_cert", "tls_client_key", "tls_client_cacert")
"""Settings that name files which are read at start."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Complaints and notices about a configuration, and the settings that it comes to."""

    complaints: tuple[str, ...]
    notices: tuple[str, ...]
    settings: tuple[Setting, ...]


def examine(file: Path, flags: Sequence[str], environ: Mapping[str, str]) -> CheckResult:
    """Look at *file* as `stan-server -c file flags` would; asks nats-server, too."""
    parsed = parse(["-c", str(file), *flags], lambda name: load(name, environ), environ, own_password="-")  # noqa: S106
    if parsed.action not in {Action.SERVE, Action.CHECK}:
        return CheckResult((parsed.complaint or "the flags ask for something else than to serve",), (), ())
    config = parsed.config
    complaints = [*parsed.complaints, *config.validate(), *_unreadable(config)]
    notices = [*config.notices]
    if not config.nats.urls:
        verdict = check(config)
        complaints += verdict.complaints
        notices += verdict.notices
    return CheckResult(tuple(sorted(dict.fromkeys(complaints), key=_by_line)), tuple(notices), config.shown())


_LINE = re.compile(r"(?P<file>[^\s:]+):(?P<line>[0-9]+)(?=: )")


def _by_line(complaint: str) -> tuple[str, int]:
    """Complaints about one file come together, by line, behind those that name no place."""
    match = _LINE.match(complaint)
    return (match["file"], int(match["line"])) if match else ("", 0)


def _unreadable(config: Config) -> Iterator[str]:
    """Files that our connection or the monitoring pages need."""
    files = {setting.name: setting for setting in config.shown() if setting.name in _READ and setting.value}
    missing = set()
    for name, setting in files.items():
        problem = _problem(Path(setting.value))
        if problem:
            missing.add(setting.value)
            yield f"{_place(setting)}: {name}: {problem}"
    yield from _unwritable(config)
    if config.nats.tls is not None and not missing:
        from stan.edge.nats.connection import tls_context  # noqa: PLC0415 - slow to import, seldom needed

        try:
            tls_context(config.nats.tls)
        except (OSError, StartError, ValueError) as error:
            yield f"TLS towards NATS: {error}"


def _unwritable(config: Config) -> Iterator[str]:
    """Places for messages and logs; a directory for messages may be missing, as the start makes it."""
    settings = {setting.name: setting for setting in config.shown() if setting.value}
    store, place = config.store, config.store.place
    if store.kind != "memory" and place is not None:
        name = "sql_source" if store.kind == "sql" else "dir" if "dir" in settings else "cluster_log_path"
        if not usable_directory(str(place)):
            yield f"{_place(settings[name])}: {name}: {place} is no directory, or cannot be written to"
        elif store.source is not None and store.source.exists() and not usable_file(str(store.source)):
            yield f"{_place(settings[name])}: {name}: {store.source} is no file that can be written to"
    for name in ("log", "pid"):
        if name in settings and not usable_file(settings[name].value):
            yield f"{_place(settings[name])}: {name}: {settings[name].value} is no file that can be written to"


def _place(setting: Setting) -> str:
    return setting.source if ":" in setting.source else f"-{setting.name}"


def _problem(file: Path) -> str:
    try:
        with file.open("rb"):
            return ""
    except OSError as error:
        return f"{file}: {(error.strerror or str(error)).lower()}"
