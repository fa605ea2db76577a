"""The page with all options of the server: flags, keys of the configuration file, variables of the environment."""

from collections.abc import Iterator
from typing import Final

from stan_protocol.units import go_duration

from docs.generator.markdown import code, codes, page, shown, table
from stan.logins import SESSION_DEFAULT
from stan.permissions import NatsUser
from stan.settings.dashboard import PROXY_KEYS, USER_KEYS
from stan.settings.file_schema import (
    CHANNEL,
    CLUSTER,
    ENVIRONMENT,
    FILE,
    FILE_ONLY,
    LIMITS,
    PAGES,
    PER_CHANNEL_NAMES,
    SECTIONS,
    SQL,
    TLS,
    TOP,
    Keys,
    Want,
)
from stan.settings.flags import GROUPS
from stan.settings.go_flags import Flag, FlagKind
from stan.settings.permissions import RIGHTS

KINDS: Final = {
    Want.STRING: "text",
    Want.DURATION: "duration: `10s`, `1h30m`",
    Want.BOOL: "`true`, `false`",
    Want.INT: "number",
    Want.LIST: "list",
    Want.SHARE: "share: `0.001`",
    Want.SWITCH: "`true`, `false`, or a list",
}
BLOCKS: Final = (
    ("", "Top level, or in a block `streaming`", TOP),
    ("store_limits", "Limits", LIMITS),
    ("store_limits.channels.NAME", "Limits of single channels", CHANNEL),
    ("file", "The FILE store", FILE),
    ("sql", "The SQL store", SQL),
    ("cluster", "The cluster", CLUSTER),
    ("tls", "TLS towards NATS", TLS),
)
"""Name of a block, a heading for it, and its keys."""


FILE_ONLY_TEXTS: Final = {
    "discover_prefix": "Begins the subject on which clients connect",
    "partitioning": "Serve only the channels that `store_limits.channels` lists; other servers serve others",
    "credentials": "File with a user's JWT and seed, for the connection to NATS",
    "nkey_seed_file": "File with the seed of an nkey, for the connection to NATS",
    "username": "User of the connection to NATS",
    "password": "That user's password",
    "token": "Token of the connection to NATS",
    "tls_server_name": "Name that the certificate of NATS must have, if not that of the URL",
    "tls_skip_verify": "Do not verify the certificate of NATS; not for production",
}
"""The meaning of keys that no flag is like."""


def default(flag: Flag) -> str:
    """The default of a flag as the command line takes it; empty if there is none."""
    match flag.default:
        case bool(value):
            return str(value).lower()
        case int(value) if flag.kind is FlagKind.DURATION:
            return go_duration(value)
        case value:
            return str(value)


def effect(flag: Flag) -> str:
    """The effect of a flag."""
    told = [shown(flag.help)] if flag.help else []
    if flag.refused:
        told.append(f"**Refused**: {shown(flag.refused)}")
    if flag.ignored and not flag.help.startswith("Without effect"):
        told.append("Without effect")
    if flag.passed:
        told.append("Handed on to nats-server")
    if not flag.help:
        told.append("not in `--help`")
    return ". ".join(told)


def _keys_of_flags() -> dict[str, list[str]]:
    """The keys of the file that set what a flag sets, by the flag's key."""
    found: dict[str, list[str]] = {}
    for name, _, keys in BLOCKS:
        if keys is CHANNEL:
            continue
        for key, (flag, _want) in keys.items():
            at = 0 if flag.endswith(key) else len(found.get(flag, ()))  # the flag's own name before others
            found.setdefault(flag, []).insert(at, f"{name}.{key}" if name else key)
    for key, flag in PAGES.items():
        found.setdefault(flag, []).append(key)
    return found


def _flags() -> Iterator[str]:
    keys = _keys_of_flags()
    for title, flags in GROUPS:
        rows = [
            (
                " ".join(filter(None, (codes(f"-{name}" for name in flag.names), code(flag.argument)))),
                code(default(flag)),
                effect(flag),
                code(keys[flag.key][0]) if flag.key in keys else "",
            )
            for flag in flags
        ]
        yield f"### {title}"
        yield table(("flag", "default", "what", "key of the file"), rows)


def _block(name: str, title: str, keys: Keys) -> Iterator[str]:
    yield f"### {title}"
    others = [other for other, (_, found) in SECTIONS.items() if found is keys and other != name]
    if name:
        also = f", or {codes(others)}" if others else ""
        yield f"In the block {code(name)}{also}."
    if keys is CHANNEL:
        yield f"NAME is that of a channel, or a pattern; {codes(PER_CHANNEL_NAMES)} mean the same."
    by_flag: dict[str, list[str]] = {}
    for key, (flag, _) in keys.items():
        by_flag.setdefault(flag or key, []).append(key)
    rows = []
    for names in by_flag.values():
        like, want = keys[names[0]]
        rows.append((codes(names), KINDS[want], _meaning(like)))
    yield table(("key", "value", "meaning"), rows)


def _meaning(flag: str) -> str:
    """The meaning of a key that is like the flag; "": it has no effect."""
    if flag not in FILE_ONLY:
        return f"as the flag {code('-' + flag)}" if flag else "read, without effect"
    value = FILE_ONLY[flag]
    return FILE_ONLY_TEXTS[flag] + (f" (default: {code(str(value))})" if value else "")


def _permissions() -> Iterator[str]:
    yield "### Users and rights"
    yield "In the block `permissions`; see [security](../security.md#permissions)."
    users = [name for name in NatsUser.__dataclass_fields__ if name not in {"where", "name"}]
    yield table(
        ("key", "value"),
        [
            (code("users"), f"a list of users, each with {codes(['user', *users])}"),
            (code("allow"), f"a list of rules, each with {codes(['user', 'client', *RIGHTS])}"),
        ],
    )


def _logins() -> Iterator[str]:
    yield "### Logins to the pages"
    yield "In the block `dashboard`; see [dashboard](../dashboard.md#logins)."
    yield table(
        ("key", "value"),
        [
            (code("users"), f"a list of users, each with {codes(USER_KEYS)}"),
            (code("proxy"), f"a proxy that names people, with {codes(PROXY_KEYS)}"),
            (code("session"), f"how long a login holds (default: {go_duration(SESSION_DEFAULT)})"),
        ],
    )


def _environment() -> Iterator[str]:
    yield "## Variables of the environment"
    rows = [
        (codes(names), f"{code('-' + key)}, where {code('-' + switch)} is on")
        for key, (switch, names) in ENVIRONMENT.items()
    ]
    yield table(("variable", "gives"), rows)
    yield "They win over flags and file. The file may name any variable as `$NAME`."


def options() -> str:
    """The page."""
    parts = [
        (
            "All flags of `stan-server` and all keys of its configuration file, from the tables by which the server reads them. "
            "How they work together is told in [configuration](../configuration.md)."
        ),
        (
            "A flag may be written with one dash or two, and its value behind `=` or as the next word. "
            "A flag wins over the file, the file over the default."
        ),
        "## Flags",
        *_flags(),
        "## Keys of the configuration file",
        (
            "Upper and lower case are the same. Several names in a row mean the same. "
            "Policies have [a page of their own](policies.md)."
        ),
    ]
    for name, title, keys in BLOCKS:
        parts += _block(name, title, keys)
    return page("Options of the server", *parts, *_permissions(), *_logins(), *_environment())
