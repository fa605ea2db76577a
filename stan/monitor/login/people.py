"""Finds the person of a name and password, of a token, or of a proxy's header, as the logins are configured.

Promises: passwords and tokens are compared in a time that depends on nothing secret, also for names that nobody has.
"""

import hashlib
import hmac
from collections.abc import Iterable
from ipaddress import ip_address

from stan import limits
from stan.logins import Logins, channels_of, clear_password
from stan.monitor.login.viewer import Viewer, limited, permitted
from stan.permissions import Permissions


class People:
    """All who may log in, each with its rights."""

    def __init__(self, logins: Logins, permissions: Permissions | None) -> None:
        """Take the passwords of users of *permissions* from there, unless they are hashed."""
        nats = {} if permissions is None else {user.name: user for user in permissions.users}
        self._viewers: dict[str, Viewer] = {}
        self._passwords: dict[str, bytes] = {}
        self._hashed: set[str] = set()
        self._tokens: list[tuple[bytes, str]] = []
        for user in logins.users:
            known = nats.get(user.name)
            if known is not None and permissions is not None:
                self._viewers[user.name] = permitted(user.name, permissions, acts=user.acts)
            else:
                self._viewers[user.name] = limited(user.name, channels_of(user), acts=user.acts)
            password = user.password or ("" if known is None else clear_password(known))
            if known is not None and known.password and not password:
                self._hashed.add(user.name)
            if password:
                self._passwords[user.name] = _digest(password)
            if user.token:
                self._tokens.append((_digest(user.token), user.name))
        self._proxy = logins.proxy
        self._networks = () if logins.proxy is None else logins.proxy.networks()

    def named(self, name: str) -> Viewer | None:
        """Return the user of that name, as known by a session; None if there is none."""
        return self._viewers.get(name)

    def by_password(self, name: str, password: str) -> Viewer | None:
        """Return the user with this password; None: there is no such user, or it has another password."""
        expected = self._passwords.get(name)
        same = hmac.compare_digest(expected or bytes(32), _digest(password))
        return self._viewers.get(name) if same and expected is not None else None

    def has_hash(self, name: str) -> bool:
        """Return True if only NATS can check the password of this user."""
        return name in self._hashed

    def by_token(self, token: str) -> Viewer | None:
        """Return the user with this token; all tokens are compared, whichever fits."""
        given = _digest(token)
        fitting = [name for expected, name in self._tokens if hmac.compare_digest(expected, given)]
        return self._viewers[fitting[0]] if fitting else None

    def is_proxy(self, address: str) -> bool:
        """Return True if a connection from *address* is the proxy's."""
        try:
            peer = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(peer in network for network in self._networks)

    @property
    def proxy_header(self) -> str:
        """The header in which the proxy names a person; "" without a proxy."""
        return "" if self._proxy is None else self._proxy.header

    def by_proxy(self, names: Iterable[str]) -> Viewer | None:
        """Return the person of the values of the proxy's header; None unless it is one name, of somebody who may look."""
        each = list(names)
        name = each[0].strip() if len(each) == 1 else ""
        if self._proxy is None or not name or len(name) > limits.LOGIN_NAME_CHARS_MAX or not name.isprintable():
            return None
        viewer = self._viewers.get(name)
        if viewer is None and self._proxy.channels:
            return limited(name, self._proxy.channels, acts=self._proxy.acts)
        return viewer


def _digest(secret: str) -> bytes:
    """Return the hash that is compared in place of a secret; its length does not depend on the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
