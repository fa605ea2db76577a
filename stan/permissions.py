"""Permissions: which user or client may do what with which channels. The configured rules are compiled once; pure.

Promises: what no rule allows is forbidden. A rule applies to a client that matches everything that the rule names: the NATS user,
which is proven where users are configured (stan.protocol.user_subjects), and the client id, which alone is only a claim of the
client. Verdicts are cached, so that the same question later costs a look-up.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from stan_protocol.patterns import ONE, REST, valid_name
from stan_protocol.refusals import go_quote

from stan.limits import PERMISSION_RULES_MAX
from stan.remembered import Remembered


class Right(Enum):
    """A right to use a channel; the value is its wording in a sentence."""

    PUBLISH = "publish to"
    SUBSCRIBE = "read"  # by subscriptions, fetch and questions about positions
    DURABLE = "keep durables on"  # to make, resume and unsubscribe them; needs SUBSCRIBE too
    ADMIN_READ = "look into"
    ADMIN_WRITE = "change"


EVERYTHING = ">"
RESERVED = "stan-broker"
"""The broker's own user, a name that no configured user may have."""
_USER = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CLIENT = re.compile(r"[A-Za-z0-9_*-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rights of the users and clients that match the rule; channels are patterns with `*` and `>`."""

    user: str = ""  # of NATS; "": whoever it is
    client: str = ""  # client id, `*` stands for any characters; "": whichever, also none
    rights: Mapping[Right, tuple[str, ...]] = field(default_factory=dict)
    where: str = ""  # file:line, for complaints

    def complaints(self) -> list[str]:
        """Return the mistakes in it."""
        found = []
        if self.client and not _CLIENT.fullmatch(self.client):
            found.append(_client_complaint(self.client))
        found += [
            f"invalid channel name {go_quote(name)}"
            for names in self.rights.values()
            for name in names
            if not valid_name(name, wildcards=True)
        ]
        return [f"{self.where}: {text}" if self.where else text for text in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsUser:
    """Somebody whom NATS lets in, in an account of his own."""

    name: str
    password: str = field(default="", repr=False)  # in clear or as bcrypt has it
    nkey: str = ""  # public; in place of a password
    clients: tuple[str, ...] = ()  # client ids that he may use, as in a rule; none: any
    where: str = ""

    def complaints(self) -> list[str]:
        """Return the mistakes in it."""
        found = []
        if not _USER.fullmatch(self.name):
            found.append(f"invalid user {go_quote(self.name)}: 1 to 64 letters, digits, `-` or `_`")
        found += [_client_complaint(client) for client in self.clients if not _CLIENT.fullmatch(client)]
        if self.name == RESERVED:
            found.append(f"the user {RESERVED} is the broker itself")
        if bool(self.password) is bool(self.nkey):
            found.append(f"user {go_quote(self.name)} needs either a password or an nkey")
        return [f"{self.where}: {text}" if self.where else text for text in found]


class Permissions:
    """All rules. Where there are `users`, who asks is known by NATS, else by client id alone."""

    def __init__(self, rules: Iterable[Rule], users: Iterable[NatsUser] = (), complaints: Iterable[str] = ()) -> None:
        """*complaints*: about what could not be read as a rule or user."""
        self.rules = tuple(rules)
        self.users = tuple(users)
        self._complaints = tuple(complaints)
        self._clients = [_client_pattern(rule.client) for rule in self.rules]
        self._of_user = {user.name: list(map(_client_pattern, user.clients)) for user in self.users if user.clients}
        self._known: Remembered[tuple[str, bytes, Right, bytes], bool] = Remembered()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Permissions) and (self.rules, self.users) == (other.rules, other.users)

    def __hash__(self) -> int:
        return hash(len(self.rules))

    def __repr__(self) -> str:
        return f"<Permissions of {len(self.rules)} rules, {len(self.users)} users>"

    def complaints(self) -> list[str]:
        """Everything that is wrong with them."""
        found = list(self._complaints)
        for one in self.users:
            found += one.complaints()
        for rule in self.rules:
            found += rule.complaints()
        names = [user.name for user in self.users]
        found += [
            f"{user.where}: user {go_quote(user.name)} is there twice"
            for at, user in enumerate(self.users)
            if user.name in names[:at]
        ]
        found += [
            f"{rule.where}: nobody is the user {go_quote(rule.user)}: add it to users"
            for rule in self.rules
            if rule.user and rule.user not in names
        ]
        if len(self.rules) > PERMISSION_RULES_MAX:
            found.append(f"there may be at most {PERMISSION_RULES_MAX} rules of permissions, not {len(self.rules)}")
        return found

    def notices(self) -> list[str]:
        """Return warnings about rules that rely on client ids alone."""
        if not self.users:
            return [
                "permissions by client id alone: it is what a client says of itself; with users it is known who asks"
            ]
        return [
            f"{rule.where}: the rule names a client id and no user: every user may use that client id"
            for rule in self.rules
            if rule.client and not rule.user
        ]

    def text(self) -> str:
        """All rules in a line, without what is secret."""
        return "; ".join(
            " ".join(
                [
                    f"{rule.user or 'anybody'}{' as ' + rule.client if rule.client else ''} may",
                    ", ".join(f"{right.name.lower()} {' '.join(names)}" for right, names in rule.rights.items())
                    or "connect",
                ]
            )
            for rule in self.rules
        )

    def admits(self, user: str, client: bytes) -> bool:
        """Return True if the user may use the client id and at least one rule applies to them: without any rule a client is not
        admitted."""
        own = self._of_user.get(user)
        if own is not None and not any(pattern is not None and pattern.fullmatch(client) for pattern in own):
            return False
        return any(self._fits(at, user, client) for at in range(len(self.rules)))

    def has(self, user: str, client: bytes, right: Right) -> bool:
        """Return True if the user with this client id has the right to at least one channel."""
        return any(rule.rights.get(right) and self._fits(at, user, client) for at, rule in enumerate(self.rules))

    def allows(self, user: str, client: bytes, right: Right, channel: bytes) -> bool:
        """Return True if the user with this client id has the right to a channel, or to all channels that a pattern covers.
        *client*: b"" without a registration."""
        key = (user, client, right, channel)
        found = self._known.get(key)
        if found is None:
            name = channel.decode("utf-8", "surrogateescape")
            found = any(
                any(covers(pattern, name) for pattern in rule.rights.get(right, ())) and self._fits(at, user, client)
                for at, rule in enumerate(self.rules)
            )
            self._known.remember(key, found, len(user) + len(client) + len(channel))
        return found

    def _fits(self, at: int, user: str, client: bytes) -> bool:
        rule, pattern = self.rules[at], self._clients[at]
        return rule.user in ("", user) and (pattern is None or pattern.fullmatch(client) is not None)


def covers(pattern: str, name: str) -> bool:
    """Return True if *pattern* covers a channel name, or everything that another pattern covers."""
    wanted, tokens = pattern.split("."), name.split(".")
    for place, want in enumerate(wanted):
        if place >= len(tokens):
            return False
        if want == REST:
            return True
        token = tokens[place]
        if token == REST or (want not in (ONE, token)):
            return False
    return len(wanted) == len(tokens)


def _client_complaint(client: str) -> str:
    return f"invalid client id {go_quote(client)}: letters, digits, `-`, `_`, and `*` for any of them"


def _client_pattern(text: str) -> re.Pattern[bytes] | None:
    """None: whichever, also none. A pattern never fits who has no client id. What a `*` has found first it keeps, so that a
    client id is gone through once for each part at most, whatever it looks like."""
    if not text:
        return None
    first, *parts = (re.escape(part.encode()) for part in text.split("*"))
    last = b"[^.]*" + parts.pop() if parts else b""
    return re.compile(b"(?=.)" + first + b"".join(b"(?>[^.]*?%b)" % part for part in parts) + last, re.DOTALL)
