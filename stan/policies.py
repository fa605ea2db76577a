"""Policies of delivery as operators set them, by pattern of channels and by durable, and what of them is in force; pure.

Promises: whatever the order in which policies are given, a wider pattern comes before a narrower one, and one for all before one
for a single durable or queue group; each sets what it sets, and the rest is inherited.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stan.errors import go_quote
from stan.limits import (
    BACKOFF_PAUSE_MAX,
    BACKOFF_PAUSES_MAX,
    CHANNEL_NAME_BYTES_MAX,
    MAX_DELIVER_MAX,
    MAX_HOLD_MAX,
    NAME_BYTES_MAX,
    POLICIES_MAX,
)
from stan.patterns import matches, valid_name, width
from stan.units import go_duration

OPTIONS: Final = ("max_deliver", "backoff", "max_hold", "adaptive_window")
"""What a policy can set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What one policy sets; None: it is inherited."""

    pattern: str  # of channels
    name: str = ""  # of a durable, or of a queue group (durable ones `durable:group`); "": all
    max_deliver: int | None = None
    backoff: tuple[int, ...] | None = None  # ns
    max_hold: int | None = None  # ns
    adaptive_window: bool | None = None
    where: str = ""  # file:line, of one that is configured

    @property
    def empty(self) -> bool:
        """True if it sets nothing."""
        return all(getattr(self, option) is None for option in OPTIONS)

    @property
    def key(self) -> tuple[str, str]:
        """Pattern and name: what no two policies of one origin have in common."""
        return self.pattern, self.name

    def concerns(self, channel: str, name: str) -> bool:
        """True if it is for that durable or queue group ("": a subscription without a name) of that channel."""
        return self.name in ("", name) and matches(self.pattern, channel)

    def complaints(self) -> list[str]:
        """The mistakes in it, each naming the option."""
        found = []
        if not valid_name(self.pattern, wildcards=True) or len(self.pattern) > CHANNEL_NAME_BYTES_MAX:
            found.append(f"invalid channel name {go_quote(self.pattern)}")
        if len(self.name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            found.append(f"the name of a durable is longer than {NAME_BYTES_MAX} bytes")
        if self.max_deliver is not None and not 0 <= self.max_deliver <= MAX_DELIVER_MAX:
            found.append(f"max_deliver must be between 0 and {MAX_DELIVER_MAX}, not {self.max_deliver}")
        if self.backoff is not None:
            if len(self.backoff) > BACKOFF_PAUSES_MAX:
                found.append(f"backoff has at most {BACKOFF_PAUSES_MAX} pauses, not {len(self.backoff)}")
            found += [
                f"backoff: a pause must be between 0 and {go_duration(BACKOFF_PAUSE_MAX)}, not {go_duration(pause)}"
                for pause in self.backoff
                if not 0 <= pause <= BACKOFF_PAUSE_MAX
            ]
        if self.max_hold is not None and not 0 <= self.max_hold <= MAX_HOLD_MAX:
            found.append(
                f"max_hold must be between 0 and {go_duration(MAX_HOLD_MAX)}, not {go_duration(self.max_hold)}"
            )
        return [f"{self.where}: {text}" if self.where else text for text in found]


def options_of(message: Any) -> dict[str, Any]:
    """What a protobuf message about a policy sets, as fields of PolicyRule. Its fields are called like the options, and are
    optional; pauses are in `backoff.pauses`."""
    found = {option: getattr(message, option) for option in OPTIONS if message.HasField(option)}
    return found | {"backoff": tuple(found["backoff"].pauses)} if "backoff" in found else found


def in_order(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The widest pattern first; of one pattern, the policy for all names first."""
    return tuple(sorted(rules, key=lambda rule: (width(rule.pattern), *rule.key)))


def policy_complaints(rules: Sequence[PolicyRule]) -> list[str]:
    """The mistakes in the policies of a configuration."""
    found = [text for rule in rules for text in rule.complaints()]
    if len(rules) > POLICIES_MAX:
        found.append(f"there may be at most {POLICIES_MAX} policies, not {len(rules)}")
    return found
