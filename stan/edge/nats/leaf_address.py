"""The listener for leafnodes of a NATS outside, with the login and TLS of our own connection to that NATS."""

from functools import partial
from urllib.parse import unquote

from stan_protocol.nats_client import signed_login
from stan_protocol.secure import requires_tls

from stan.config import NatsConfig, TlsConfig
from stan.edge.nats.connection import tls_context
from stan.edge.nats.leaf import LeafAddress, LeafTls


def leaf_address(place: str, config: NatsConfig) -> LeafAddress:
    """Address of the listener of an outside NATS.

    Args:
        place: `[scheme://][user:password@]host:port`; without a user the login is that of *config*.
        config: our own connection. If that has TLS, or the scheme is `tls`, so has this one; the scheme `nats` leaves it to the
            listener.
    """
    scheme, _, rest = place.rpartition("://")
    login, _, address = rest.rpartition("@")
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    asked = scheme == "tls" or (not scheme and (config.tls is not None or requires_tls(config.urls, {})))
    chosen = config.tls or TlsConfig()
    tls = LeafTls(partial(tls_context, chosen), chosen.server_name or host, asked)
    if login:
        user, _, password = login.partition(":")
        return LeafAddress(host, int(port), unquote(user), unquote(password), tls=tls)
    credentials, seed = config.credentials, config.nkey_seed_file
    sign = partial(signed_login, credentials=credentials, nkey_seed_file=seed) if credentials or seed else None
    return LeafAddress(host, int(port), config.user, config.password, sign, tls)
