"""Settings of NATS: of the nats-server that we start, and of our own connection, which it knows by itself; pure."""

from collections.abc import Iterator

from stan_protocol.declared_options import filled

from stan import limits
from stan.config import EmbeddedConfig, NatsConfig, TlsConfig, parse_nats_urls
from stan.errors import ConfigError
from stan.settings.flags import TABLE
from stan.settings.go_flags import FlagKind
from stan.settings.settings_reader import SettingsReader, clustered

OWN_USER = "_stan-server"
"""The name of our own connection among the users of the embedded nats-server."""


def nats_settings(values: SettingsReader) -> NatsConfig:
    """Our own connection to NATS."""
    urls: tuple[str, ...] = ()
    if values.text("nats_server"):
        try:
            urls = parse_nats_urls(values.text("nats_server"))
        except ConfigError as error:
            values.complaints.extend(error.complaints)
    embedded = _embedded_tls(values) if not urls else None
    files = [values.path(key) for key in ("tls_client_cert", "tls_client_key", "tls_client_cacert")]
    tls = embedded
    alone = bool(urls) and (values.flag("tls_skip_verify") or bool(values.text("tls_server_name")))
    if values.flag("secure") or any(files) or alone:
        tls = filled(
            TlsConfig,
            values,
            client_cert=files[0] or (embedded.client_cert if embedded else None),
            client_key=files[1] or (embedded.client_key if embedded and not files[0] else None),
            client_ca=files[2],
            pinned=embedded.pinned if embedded else None,
        )
    own = not urls and _is_own(values)
    if own:
        user, password, token = OWN_USER, values.own_password, ""
    else:
        login_given = any(values.text(flag) for flag in ("user", "pass", "auth"))
        login = {} if login_given else values.file.nats.login
        user, password, token = (
            values.text(flag) or login.get(flag) or values.text(option)
            for flag, option in (("user", "username"), ("pass", "password"), ("auth", "token"))
        )
    return filled(NatsConfig, values, urls=urls, user=user, password=password, token=token, tls=tls, own=own)


def _is_own(values: SettingsReader) -> bool:
    """Return True if our connection has a user of its own in the embedded nats-server."""
    if values.file.nats.own_user:
        return True
    named = any(values.text(key) for key in ("credentials", "nkey_seed_file"))
    return bool(values.own_password and values.text("user") and not named)


def _embedded_tls(values: SettingsReader) -> TlsConfig | None:
    """TLS towards our own nats-server: its certificate is known; where it wants one of clients, it is shown its own."""
    nats = values.file.nats
    verify = values.flag("tlsverify") or nats.verify
    on = values.flag("tls") or values.flag("tlsverify") or (nats.tls and "tls" not in values.given)
    certificate = values.path("tlscert") or nats.certificate.get("cert_file")
    key = values.path("tlskey") or nats.certificate.get("key_file")
    if not on or certificate is None:
        return None
    return TlsConfig(
        pinned=certificate, client_cert=certificate if verify else None, client_key=key if verify else None
    )


def embedded_settings(values: SettingsReader) -> EmbeddedConfig:
    """The nats-server that we start."""
    config_file = values.file.nats.file
    if values.text("routes") and not (config_file or {"cluster", "cluster_listen"} & values.given.keys()):
        values.complaints.append("solicited routes require cluster capabilities, e.g. --cluster")
    own = sorted({"leafnodes", "leaf", "accounts"} & values.file.nats.names.keys())
    if own and values.flag("jetstream_api") and not values.text("jetstream_leaf"):
        values.complaints.append(f"jetstream_api with {own[0]} in NATS's own file needs jetstream_leaf, too")
    hidden = _hidden(values)
    return filled(
        EmbeddedConfig,
        values,
        pages=bool(values.number("http_port") or values.number("https_port")),
        own_user=OWN_USER if _is_own(values) else "",
        own_password=values.own_password if _is_own(values) else "",
        **({} if raises_payload(values) else {"max_payload": 0}),
        **{name: 0 for name in ("max_pending", "write_deadline") if name in values.file.nats.names},
        routes=values.names("routes") if hidden else (),
        listen_routes=(values.text("cluster") or values.text("cluster_listen")) if hidden else "",
        joined=bool(_ROUTES & values.given.keys() or _JOINING & values.file.nats.names.keys()),
        config_file=config_file,
        config_text=values.file.nats.text,
        config_places=values.file.nats.places,
        extra_args=tuple(_passed(values, hidden, named=config_file is not None)),
    )


def message_bytes(values: SettingsReader) -> dict[str, int]:
    """The limit of messages, as an argument of RequestLimits: NATS's own, unless it takes more than clients expect."""
    return {} if raises_payload(values) else {"payload_bytes": limits.NATS_PAYLOAD_BYTES_MAX}


def raises_payload(values: SettingsReader) -> bool:
    """Return True if the nats-server is ours and no payload limit is set: it accepts more than messages may have."""
    return not values.text("nats_server") and "max_payload" not in values.file.nats.names


_SYSLOGS = frozenset({"syslog", "remote_syslog"})
_ROUTES = frozenset({"routes", "cluster", "cluster_listen"})
_JOINING = frozenset({"cluster", "gateway", "leafnodes", "leaf"})
"""Blocks of a file by which other nats-servers are connected to this one."""


def _hidden(values: SettingsReader) -> frozenset[str]:
    """Flags that nats-server must not get as arguments, which everybody on the machine can read: URLs with passwords."""
    given = _ROUTES & values.given.keys()
    if not any("@" in values.text(key) for key in given):
        return frozenset()
    if values.file.nats.cluster:
        names = " and ".join(f"-{key}" for key in sorted(given))
        values.complaints.append(f"{names} with a password: put it into the cluster block of the file, which there is")
    return frozenset(given)


def _passed(values: SettingsReader, hidden: frozenset[str], *, named: bool) -> Iterator[str]:
    """Spell the flags that are nats-server's business for it; *named*: its file may name the NATS cluster."""
    left_out = hidden | _SYSLOGS if values.text("log") else hidden
    for flag in TABLE:
        if flag.passed and flag.key in values.given and flag.key not in left_out:
            value = values.given[flag.key]
            text = str(value).lower() if flag.kind is FlagKind.BOOL else str(value)
            yield f"--{flag.key}={text}"
    routed = _ROUTES & values.given.keys()
    if clustered(values) and routed and not (named or "cluster_name" in values.given):
        # Servers that begin together would each invent a name, and refuse each other's routes for a while.
        yield f"--cluster_name={values.text('cluster_id')}"
