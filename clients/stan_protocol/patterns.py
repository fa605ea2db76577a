"""Channel names with wildcards, and the limits a channel inherits from them; pure.

Promises: the effective limits of STAN-SPEC 7.3, whatever the order of the configuration. Never looks at channels that
exist, never creates one. Modelled on the store limits of the original server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from stan_protocol.declared_options import option

ONE = "*"
REST = ">"
RESERVED = ("_STAN.", "_INBOX._STAN.", "$", "_GR_.")
"""Prefixes of the NATS subjects on which our servers, nats-servers and their gateways speak to each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Effective limits of one channel; 0 means unlimited everywhere (STAN-SPEC 7.1)."""

    msgs: int = option("max_msgs", 1_000_000)
    bytes: int = option("max_bytes", 1_024_000_000)
    age_ns: int = option("max_age", 0)
    subscriptions: int = option("max_subs", 1000)
    inactivity_ns: int = option("max_inactivity", 0)  # 0: the channel is never deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelOverride:
    """The limits of one configured name or pattern: 0 inherits, negative is unlimited (STAN-SPEC 7.2)."""

    msgs: int = 0
    bytes: int = 0
    age_ns: int = 0
    subscriptions: int = 0
    inactivity_ns: int = 0


_LIMITS = tuple(field.name for field in fields(ChannelLimits))


def valid_name(name: str, *, wildcards: bool) -> bool:
    """Return True if *name* can name a channel: tokens separated by single dots, no slash or space, wildcards only as whole
    tokens, `>` only as the last one (STAN-SPEC 4.2).
    """
    tokens = name.split(".")
    last = len(tokens) - 1
    for place, token in enumerate(tokens):
        if not token or "/" in token:
            return False
        if ONE in token or REST in token:
            alone = token == ONE or (token == REST and place == last)
            if not (wildcards and alone):
                return False
    return True


def literal(name: str) -> bool:
    """Return True if a valid *name* is without wildcards."""
    return ONE not in name and REST not in name


def matches(pattern: str, name: str) -> bool:
    """Return True if *pattern* covers *name*; wildcards inside *name* are plain text, so `*.*` covers `foo.>`."""
    parts = pattern.split(".")
    tokens = name.split(".")
    for place, part in enumerate(parts):
        if place >= len(tokens):
            return False
        if part == REST:
            return True
        if part not in (ONE, tokens[place]):
            return False
    return len(parts) == len(tokens)


def overlap(first: str, second: str) -> bool:
    """Return True if some name is covered by both patterns."""
    for a, b in zip(first.split("."), second.split("."), strict=False):
        if REST in (a, b):
            return True
        if a != b and ONE not in (a, b):
            return False
    return first.count(".") == second.count(".")


def width(pattern: str) -> tuple[int, ...]:
    """Sort key, widest first: at each token level `>` comes before `*`, and `*` before a literal token."""
    return tuple(0 if token == REST else 1 if token == ONE else 2 for token in pattern.split("."))


def inherit(default: ChannelLimits, overrides: Mapping[str, ChannelOverride]) -> dict[str, ChannelLimits]:
    """Fill in every pattern's unset limits from the next wider pattern that covers it, the widest from *default*.

    Returns: effective limits by pattern, widest pattern first; `narrowest` reads it.
    """
    resolved: dict[str, ChannelLimits] = {}
    for pattern in sorted(overrides, key=lambda each: (width(each), each)):
        resolved[pattern] = _merge(overrides[pattern], narrowest(default, resolved, pattern))
    return resolved


def narrowest(default: ChannelLimits, resolved: Mapping[str, ChannelLimits], name: str) -> ChannelLimits:
    """Limits of the narrowest pattern of `inherit` that covers *name*; *default* if none does."""
    best = default
    for pattern, limits in resolved.items():
        if matches(pattern, name):
            best = limits
    return best


def _merge(override: ChannelOverride, wider: ChannelLimits) -> ChannelLimits:
    """Take 0 from *wider*; a negative value becomes 0, which is unlimited in effective limits."""
    return ChannelLimits(**{key: max(getattr(override, key), 0) or _inherited(override, wider, key) for key in _LIMITS})


def _inherited(override: ChannelOverride, wider: ChannelLimits, key: str) -> int:
    unlimited = getattr(override, key) < 0
    value: int = getattr(wider, key)
    return 0 if unlimited else value
