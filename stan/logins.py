"""The logins to the pages of a server, and what each person may see and change there: as configured; pure.

Without logins everybody who reaches the port sees everything. With them the rules of `permissions` say what a person sees, or
patterns of channels that stand beside the person here.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from stan_protocol.patterns import valid_name
from stan_protocol.refusals import go_quote
from stan_protocol.scalars import SECOND
from stan_protocol.units import go_duration

from stan.limits import LOGIN_NAME_CHARS_MAX, LOGIN_TOKEN_CHARS_MIN, LOGIN_USERS_MAX
from stan.permissions import EVERYTHING, NatsUser, Permissions

PROXY_HEADER_DEFAULT: Final = "X-Forwarded-User"
SESSION_DEFAULT: Final = 12 * 3600 * SECOND
SESSION_MIN: Final = 60 * SECOND
SESSION_MAX: Final = 30 * 24 * 3600 * SECOND
HASH: Final = "$2"
"""Begins passwords hashed by bcrypt, which only nats-server can check."""
_NAME: Final = re.compile(rf"[^\s\"'\\\x00-\x1f\x7f]{{1,{LOGIN_NAME_CHARS_MAX}}}")
_HEADER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUser:
    """Somebody who may log in to the pages."""

    name: str
    password: str = field(default="", repr=False)  # in clear; "": that of permissions, if there is one
    token: str = field(default="", repr=False)  # in place of name and password
    channels: tuple[str, ...] = ()  # patterns; none: as permissions say
    acts: bool = False  # may change what it sees, as far as its rights go
    where: str = ""  # file:line, for complaints

    def complaints(self) -> Iterator[str]:
        """Yield the mistakes that show without other users."""
        if not _NAME.fullmatch(self.name):
            yield f"{self.where}: invalid user {go_quote(self.name)}: no spaces and no quotes"
        if self.token and len(self.token) < LOGIN_TOKEN_CHARS_MIN:
            yield f"{self.where}: the token of {go_quote(self.name)} is shorter than {LOGIN_TOKEN_CHARS_MIN} characters"
        if self.password.startswith(HASH):
            yield f"{self.where}: the password of {go_quote(self.name)} is a hash: give a password in clear, or a token"
        yield from _invalid_patterns(self.channels, self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageProxy:
    """A proxy that authenticates people and names each in a header; everybody who can connect from its addresses is trusted."""

    addresses: tuple[str, ...] = ()  # of the proxy: 10.0.0.7, 10.1.0.0/16, ::1
    header: str = PROXY_HEADER_DEFAULT
    channels: tuple[str, ...] = ()  # patterns, for people who are not among the users; none: such people are refused
    acts: bool = False  # these people may change what they see
    where: str = ""

    def complaints(self) -> Iterator[str]:
        """Yield the mistakes in it."""
        if not self.addresses:
            yield f"{self.where}: a proxy needs the addresses that it connects from"
        for address in self.addresses:
            if _network(address) is None:
                yield f"{self.where}: {go_quote(address)} is no address and no network"
        if not _HEADER.fullmatch(self.header):
            yield f"{self.where}: {go_quote(self.header)} is no name of a header"
        if self.acts and not self.channels:
            yield f"{self.where}: the proxy's role is for people who are no users: add channels for them"
        yield from _invalid_patterns(self.channels, self.where)

    def networks(self) -> tuple[Network, ...]:
        """Return the addresses as networks."""
        return tuple(filter(None, map(_network, self.addresses)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """The block `dashboard`."""

    users: tuple[PageUser, ...] = ()
    proxy: PageProxy | None = None
    session_ns: int = SESSION_DEFAULT  # a session ends this long after its login
    where: str = ""
    mistakes: tuple[str, ...] = ()  # what could not be read

    def complaints(self, permissions: Permissions | None) -> list[str]:
        """Return everything that is wrong with them, beside these permissions."""
        found = list(self.mistakes)
        for user in self.users:
            found += user.complaints()
        if self.proxy is not None:
            found += self.proxy.complaints()
        if not self.users and (self.proxy is None or not self.proxy.channels) and not self.mistakes:
            found.append(f"{self.where}: dashboard without users: nobody could log in")
        if len(self.users) > LOGIN_USERS_MAX:
            found.append(f"{self.where}: there may be at most {LOGIN_USERS_MAX} users, not {len(self.users)}")
        if not SESSION_MIN <= self.session_ns <= SESSION_MAX:
            spans = f"{go_duration(SESSION_MIN)} and {go_duration(SESSION_MAX)}"
            found.append(f"{self.where}: session must be between {spans}, not {go_duration(self.session_ns)}")
        found += _twice(self.users, "user", lambda user: user.name)
        found += _twice(self.users, "token of", lambda user: user.token)
        return [*found, *self._beside(permissions)]

    def notices(self, *, secure: bool, loopback: bool, actions: bool) -> Iterator[str]:
        """Yield warnings.

        Args:
            secure: the pages are HTTPS.
            loopback: only this machine reaches them.
            actions: `dashboard_actions` is on.
        """
        if not (secure or loopback or self.proxy is not None):
            yield f"{self.where}: passwords and tokens cross the network in clear: serve the pages by https"
        if actions:
            yield f"{self.where}: dashboard_actions has no effect beside logins: the role of a user says who may change things"

    def text(self) -> str:
        """Return all logins in a line, without passwords and tokens."""
        people = [f"{user.name} {_may(user.channels, acts=user.acts)}" for user in self.users]
        proxy = self.proxy
        if proxy is not None:
            people.append(f"the proxy at {' '.join(proxy.addresses)} names people by {proxy.header}")
            people += [f"others of it {_may(proxy.channels, acts=proxy.acts)}"] if proxy.channels else []
        return "; ".join(people)

    def _beside(self, permissions: Permissions | None) -> Iterator[str]:
        """Yield what does not fit to the permissions."""
        known = {} if permissions is None else {user.name: user for user in permissions.users}
        for user in self.users:
            name, nats = go_quote(user.name), known.get(user.name)
            if nats is not None and user.channels:
                yield f"{user.where}: the rights of {name} are in permissions: leave out channels"
            if nats is None and permissions is not None and not user.channels:
                yield f"{user.where}: {name} is no user of permissions: add channels that it may see"
            if nats is not None and user.password and nats.password:
                yield f"{user.where}: the password of {name} is in permissions: leave it out here"
            if not (user.token or user.password or self.proxy is not None or (nats and nats.password)):
                yield f"{user.where}: {name} has no password and no token: add a token, or a password"


def clear_password(user: NatsUser) -> str:
    """Return the password of a user of permissions, if it is there in clear; else ""."""
    return "" if user.password.startswith(HASH) else user.password


def channels_of(user: PageUser) -> tuple[str, ...]:
    """Return the patterns of a user who is not in permissions; without any it is all channels."""
    return user.channels or (EVERYTHING,)


def _may(channels: tuple[str, ...], *, acts: bool) -> str:
    return f"{'changes' if acts else 'sees'} {' '.join(channels) or 'all it may'}"


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _invalid_patterns(patterns: Iterable[str], where: str) -> Iterator[str]:
    for pattern in patterns:
        if not valid_name(pattern, wildcards=True):
            yield f"{where}: invalid channel name {go_quote(pattern)}"


def _twice(users: Iterable[PageUser], what: str, key: Callable[[PageUser], str]) -> Iterator[str]:
    seen: set[str] = set()
    for user in users:
        if key(user) and key(user) in seen:
            yield f"{user.where}: the {what} {go_quote(user.name)} is there twice"
        seen.add(key(user))
