"""Users that may connect to nats-server, by its `authorization` block, and one more, for our own connection; pure.

The operator's users stay as they are. A block with one user becomes a list of users; one with a token takes no users beside
it, so that our connection shows the token. Modelled on the options of nats-server.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from stan.settings.nats_conf import ConfNode, Data, Document

_WORDS: Mapping[str, str] = {"user": "user", "username": "user", "pass": "pass", "password": "pass", "token": "auth"}
_HASH = "$2"
"""Prefix of passwords hashed by bcrypt."""
_FOREIGN = frozenset({"token", "auth_callout"})
"""Keys beside which no user can be added."""


class Login(NamedTuple):
    """A user with its password."""

    user: str
    password: str


def login_of(authorization: ConfNode) -> dict[str, str]:
    """User, pass and auth that clients need, as far as the block tells: a hash does not."""
    block = authorization.data if isinstance(authorization.data, dict) else {}
    return {
        _WORDS[name.lower()]: node.data
        for name, node in block.items()
        if name.lower() in _WORDS and isinstance(node.data, str) and not node.data.startswith(_HASH)
    }


def with_user(authorization: ConfNode, own: Login) -> ConfNode | None:
    """Return the block with *own* among its users, with all rights; None if it has no users, or takes no more."""
    block = authorization.data
    if not isinstance(block, dict):
        return None
    lower = {name.lower(): name for name in block}
    if _FOREIGN & lower.keys():
        return None
    users = block[lower["users"]] if "users" in lower else None
    if users is not None:
        if not isinstance(users.data, list):
            return None
        grown = replace(users, data=[*users.data, _user(users, own)], variable="")
        return replace(authorization, data=block | {lower["users"]: grown}, variable="")
    single = {name: node for name, node in block.items() if _WORDS.get(name.lower())}
    if not any(_WORDS[name.lower()] == "user" for name in single):
        return None
    first = next(iter(single.values()))
    everything = _node(first, {"publish": _node(first, ">"), "subscribe": _node(first, ">")})
    theirs = _node(first, single | {"permissions": everything})
    rest: Document = {name: node for name, node in block.items() if name not in single}
    return replace(authorization, data=rest | {"users": _node(first, [theirs, _user(first, own)])}, variable="")


def _user(beside: ConfNode, own: Login) -> ConfNode:
    everything = _node(beside, {"publish": _node(beside, ">"), "subscribe": _node(beside, ">")})
    data: Document = {
        "user": _node(beside, own.user),
        "password": _node(beside, own.password),
        "permissions": everything,
    }
    return _node(beside, data)


def _node(beside: ConfNode, data: Data) -> ConfNode:
    return ConfNode(data, beside.file, beside.line)
