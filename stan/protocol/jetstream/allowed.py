"""The channels and subjects that streams may have, where a server serves clients of JetStream for some alone. Pure."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from stan_protocol.patterns import ONE, REST

from stan.protocol.jetstream.streams import StreamConfig


def outside(config: StreamConfig, patterns: Iterable[str]) -> str:
    """The channel or subject of a stream that none of *patterns* covers; "" if there is none, or there are no patterns."""
    known = [pattern.split(".") for pattern in patterns]
    names = (config.channel.decode(), *config.subjects)
    return (
        next((name for name in names if not any(_covers(one, name.split(".")) for one in known)), "") if known else ""
    )


def _covers(pattern: list[str], name: list[str]) -> bool:
    """True if a pattern covers a name, or everything that a narrower pattern covers."""
    if pattern[-1] == REST:
        return len(name) >= len(pattern) and _all_covered(pattern[:-1], name)
    return len(name) == len(pattern) and name[-1] != REST and _all_covered(pattern, name)


def _all_covered(pattern: list[str], name: list[str]) -> bool:
    return all(map(_token_covers, pattern, name))


def _token_covers(pattern: str, token: str) -> bool:
    """True if one token of a pattern, in which `*` is any characters, covers another one."""
    if token == REST:
        return False
    if ONE in (pattern, token):
        return pattern == ONE
    return fnmatchcase(token, pattern.replace("[", "[[]").replace("?", "[?]"))
