"""Policies of delivery as operators set them, by pattern of channels and by durable, and what of them is in force; pure.

Promises: whatever the order in which policies are given, a wider pattern comes before a narrower one, and one for all before one
for a single durable or queue group; each sets what it sets, and the rest is inherited.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from stan_protocol.choices import Commit, Compact, Compress, SchemaCheck, words
from stan_protocol.patterns import matches, valid_name, width
from stan_protocol.refusals import go_quote
from stan_protocol.units import go_duration

from stan.limits import (
    BACKOFF_PAUSE_MAX,
    BACKOFF_PAUSES_MAX,
    CHANNEL_NAME_BYTES_MAX,
    DEAD_LETTER_RATE_MAX,
    DELAY_MAX,
    MAX_DELIVER_MAX,
    MAX_HOLD_MAX,
    NAME_BYTES_MAX,
    POLICIES_MAX,
    TIER_STRETCH_MAX,
    TTL_MAX,
)


class Form(Enum):
    """What kind of value an option takes."""

    NUMBER = auto()
    DURATION = auto()  # ns
    DURATIONS = auto()  # tuple of ns
    WORD = auto()  # a bool, written as one of two words
    CHOICE = auto()  # the place of one of several words
    CHANNEL = auto()  # a name, of a channel or a position; "", written `none`: none


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """One option of a policy."""

    field: str  # of PolicyRule and of protobuf messages about policies
    key: str  # how operators write it
    label: str  # how it is called in a line of text
    form: Form
    most: int = 0  # of a number or a duration
    words: tuple[str, ...] = ("", "")  # for False and True, or for 0, 1, ...
    zero: str = "no limit"  # what 0 and "" mean
    of_channel: bool = False  # True: about a whole channel, so that no policy of a single durable has it


SYNCED, REPLICATED, EPHEMERAL = map(int, Commit)
"""Of `commit`: an ack means that a majority has the message on its disks; that a majority has it in its memory; that the leader
of its group has it in memory, which is of a channel in a group of any kind."""
COMMITS: Final = words(Commit)
GROUP_COMMITS: Final = COMMITS[:EPHEMERAL]
"""Those that a group has: what its log means for all of its channels but the ephemeral ones."""
POLICY_OPTIONS: Final = (
    PolicyOption("max_deliver", "max_deliver", "max deliver", Form.NUMBER, MAX_DELIVER_MAX),
    PolicyOption("backoff", "backoff", "back-off", Form.DURATIONS, BACKOFF_PAUSE_MAX, zero="none"),
    PolicyOption("max_hold", "max_hold", "max hold", Form.DURATION, MAX_HOLD_MAX),
    PolicyOption("adaptive_window", "window", "window", Form.WORD, words=("fixed", "adaptive")),
    PolicyOption("dead_letter", "dead_letter", "dead letters", Form.CHANNEL, zero="none"),
    PolicyOption("dead_letter_rate", "dead_letter_rate", "dead letter rate", Form.NUMBER, DEAD_LETTER_RATE_MAX),
    PolicyOption("failover", "mode", "mode", Form.WORD, words=("shared", "failover")),
    PolicyOption("ordered_by_key", "order", "order", Form.WORD, words=("any", "key")),
    PolicyOption("from_replica", "served_by", "served by", Form.WORD, words=("leader", "replica")),
    PolicyOption("delay", "delay", "delay", Form.DURATION, DELAY_MAX, zero="none", of_channel=True),
    PolicyOption("target", "target", "target", Form.CHANNEL, zero="none", of_channel=True),
    PolicyOption("max_late", "max_late", "max late", Form.DURATION, DELAY_MAX, of_channel=True),
    PolicyOption("ttl", "ttl", "time to live", Form.DURATION, TTL_MAX, zero="none", of_channel=True),
    PolicyOption("compact", "compact", "compact", Form.CHOICE, words=words(Compact), of_channel=True),
    PolicyOption("min_age", "min_age", "min age", Form.DURATION, DELAY_MAX, zero="none", of_channel=True),
    PolicyOption(
        "tombstone_max", "tombstone_max", "tombstone max", Form.DURATION, TTL_MAX, zero="none", of_channel=True
    ),
    PolicyOption("tier", "tier", "tier", Form.CHANNEL, zero="none", of_channel=True),
    PolicyOption("tier_stretch", "tier_stretch", "tier stretch", Form.NUMBER, TIER_STRETCH_MAX, of_channel=True),
    PolicyOption("commit", "commit", "commit", Form.CHOICE, words=COMMITS, of_channel=True),
    PolicyOption("schema", "schema", "schema", Form.CHOICE, words=words(SchemaCheck), of_channel=True),
    PolicyOption("compress", "compress", "compress", Form.CHOICE, words=words(Compress), of_channel=True),
)
"""What a policy can set, in the order in which it is shown."""
OFF, KNOWN, VALID = map(int, SchemaCheck)
"""Of `schema`: messages are not checked; they say by which registered version they are written; they fit it."""
OPTIONS: Final = tuple(option.field for option in POLICY_OPTIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRule:
    """What one policy sets; None: it is inherited."""

    pattern: str  # of channels
    name: str = ""  # of a durable, or of a queue group (durable ones `durable:group`); "": all
    max_deliver: int | None = None
    backoff: tuple[int, ...] | None = None  # ns
    max_hold: int | None = None  # ns
    adaptive_window: bool | None = None
    dead_letter: str | None = None  # a channel; beginning with a dot: what is added to the channel's name; "": none
    dead_letter_rate: int | None = None  # a minute
    failover: bool | None = None
    ordered_by_key: bool | None = None
    from_replica: bool | None = None
    delay: int | None = None  # ns
    target: str | None = None
    max_late: int | None = None  # ns
    ttl: int | None = None  # ns
    compact: int | None = None  # 0: not, 1: the newest message of each key stays, 2: the oldest
    min_age: int | None = None  # ns
    tombstone_max: int | None = None  # ns
    tier: str | None = None  # a named position; "": none
    tier_stretch: int | None = None
    commit: int | None = None  # SYNCED, REPLICATED
    schema: int | None = None  # OFF, KNOWN, VALID
    compress: int | None = None  # 0: not, 1: zstd
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
        for option in POLICY_OPTIONS:
            value = getattr(self, option.field)
            if value is None:
                continue
            found += option_complaints(option, value)
            if self.name and option.of_channel:
                found.append(f"{option.key} is for whole channels, not for one durable")
        return [f"{self.where}: {text}" if self.where else text for text in found]


def option_complaints(option: PolicyOption, value: Any) -> list[str]:
    """What is wrong with the value of one option."""
    match option.form:
        case Form.NUMBER if not 0 <= value <= option.most:
            return [f"{option.key} must be between 0 and {option.most}, not {value}"]
        case Form.DURATION if not 0 <= value <= option.most:
            return [f"{option.key} must be between 0 and {go_duration(option.most)}, not {go_duration(value)}"]
        case Form.DURATIONS:
            many = len(value) > BACKOFF_PAUSES_MAX
            found = [f"{option.key} has at most {BACKOFF_PAUSES_MAX} pauses, not {len(value)}"] if many else []
            return found + [
                f"{option.key}: a pause must be between 0 and {go_duration(option.most)}, not {go_duration(pause)}"
                for pause in value
                if not 0 <= pause <= option.most
            ]
        case Form.CHOICE if not 0 <= value < len(option.words):
            return [f"{option.key} is one of {', '.join(option.words)}"]
        case Form.CHANNEL if value and not _is_name(value):
            return [f"{option.key}: invalid channel name {go_quote(value)}"]
    return []


def _is_name(channel: str) -> bool:
    """True for the name of a channel, and for what is added to the name of one."""
    whole = f"a{channel}" if channel.startswith(".") else channel
    return (
        valid_name(whole, wildcards=False) and len(whole.encode("utf-8", "surrogateescape")) <= CHANNEL_NAME_BYTES_MAX
    )


def given_options(policy: Any) -> dict[str, Any]:
    """Return the options that a PolicyRule sets, or another policy with options as attributes; None stands for an unset one."""
    return {option: value for option in OPTIONS if (value := getattr(policy, option)) is not None}


def options_of(message: Any) -> dict[str, Any]:
    """Return the options that a protobuf message about a policy sets, by the names of the fields of PolicyRule."""
    from stan_protocol.admin_types import DeliveryPolicy  # noqa: PLC0415 - the server's start waits for no protobuf

    return given_options(DeliveryPolicy.from_pb(message))


def in_order(rules: Iterable[PolicyRule]) -> tuple[PolicyRule, ...]:
    """The widest pattern first; of one pattern, the policy for all names first."""
    return tuple(sorted(rules, key=lambda rule: (width(rule.pattern), *rule.key)))


def policy_complaints(rules: Sequence[PolicyRule]) -> list[str]:
    """The mistakes in the policies of a configuration."""
    found = [text for rule in rules for text in rule.complaints()]
    if len(rules) > POLICIES_MAX:
        found.append(f"there may be at most {POLICIES_MAX} policies, not {len(rules)}")
    return found
