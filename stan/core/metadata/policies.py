"""Policies of delivery in the replicated metadata, and the policy in force for each cursor.

Those of the configuration are each node's own and come first; those of the metadata, which operators set while the cluster runs,
come behind them and so have the last word.
"""

from dataclasses import replace
from typing import Any

from stan_protocol import refusals
from stan_protocol.channels import whole_of
from stan_protocol.patterns import matches
from stan_protocol.proto import admin_pb2 as admin
from stan_protocol.records import message_of

from stan.core.base.delivery_policy import DEFAULT, DeliveryPolicy
from stan.limits import POLICIES_MAX
from stan.policies import OPTIONS, PolicyRule, given_options, in_order, options_of
from stan.protocol.proto import entries_pb2 as pb
from stan.remembered import Remembered

TOO_MANY = refusals.TOO_MANY_POLICIES.format(POLICIES_MAX)


def raw(name: str) -> bytes:
    """The bytes of a channel's name in a policy."""
    return name.encode("utf-8", "surrogateescape")


def rule_of(row: pb.Policy) -> PolicyRule:
    """A policy of the metadata."""
    return PolicyRule(
        pattern=row.pattern.decode("utf-8", "surrogateescape"),
        name=row.name.decode("utf-8", "surrogateescape"),
        **options_of(row),
    )


def row_of(rule: PolicyRule) -> pb.Policy:
    """The inverse of `rule_of`."""
    return message_of(pb.Policy, pattern=rule.pattern, name=rule.name, **given_options(rule))


def with_policy(info: pb.ClusterInfo, policy: pb.Policy) -> pb.ClusterInfo | str:
    """The metadata with *policy* in place of the one of the same pattern and name, or without either if *policy* sets nothing; or
    why it is refused."""
    key = policy.pattern, policy.name
    kept = [row for row in info.policies if (row.pattern, row.name) != key]
    if not rule_of(policy).empty:
        if len(kept) >= POLICIES_MAX:
            return TOO_MANY
        kept.append(policy)
    changed = pb.ClusterInfo()
    changed.CopyFrom(info)
    del changed.policies[:]
    changed.policies.extend(sorted(kept, key=lambda row: (row.pattern, row.name)))
    return info if changed == info else changed


def shown_policy(policy: DeliveryPolicy | PolicyRule) -> admin.DeliveryPolicy:
    """What is in force, all of it set; or what a policy sets."""
    return message_of(admin.DeliveryPolicy, **given_options(policy))


class Policies:
    """The policies in force, remembered until the configuration or the metadata have other policies."""

    def __init__(self) -> None:
        self.configured: tuple[PolicyRule, ...] = ()
        self.info: pb.ClusterInfo | None = None  # the metadata replace it when their policies change
        self.of_streams: tuple[PolicyRule, ...] = ()
        self.rules: tuple[PolicyRule, ...] = ()  # the later one has the last word
        self._known: Remembered[tuple[bytes, bytes], DeliveryPolicy] = Remembered()
        self._dead_letters: frozenset[bytes] = frozenset()  # channels that policies name for dead letters
        self._suffixes: dict[bytes, list[str]] = {}  # what policies add to the names of channels, and of which patterns

    def brought_up_to(
        self, configured: tuple[PolicyRule, ...], info: pb.ClusterInfo | None, of_streams: tuple[PolicyRule, ...] = ()
    ) -> "Policies":
        """These policies, with those that the configuration, the metadata and its streams have now."""
        if configured is not self.configured or info is not self.info or of_streams is not self.of_streams:
            self.configured, self.info, self.of_streams = configured, info, of_streams
            own = in_order(map(rule_of, () if info is None else info.policies))
            self.rules = in_order(configured) + own + of_streams
            self._known.clear()
            named = [(raw(rule.dead_letter), rule.pattern) for rule in self.rules if rule.dead_letter]
            self._suffixes = {name: [] for name, _ in sorted(named) if name.startswith(b".")}
            self._dead_letters = frozenset(name for name, _ in named).difference(self._suffixes)
            for name, pattern in named:
                if name in self._suffixes:
                    self._suffixes[name].append(pattern)
        return self

    def is_dead_letter_channel(self, channel: bytes) -> bool:
        """True if a policy names *channel* for dead letters, or what its name ends in."""
        return channel in self._dead_letters or bool(self.source_of(channel))

    def source_of(self, channel: bytes) -> bytes:
        """The channel whose name with the suffix of a policy for it is *channel*; b"" if there is none."""
        for suffix, patterns in self._suffixes.items():
            if channel.endswith(suffix):
                source = channel[: -len(suffix)]
                where = whole_of(source).decode("utf-8", "surrogateescape")
                if any(matches(pattern, where) for pattern in patterns):
                    return source
        return b""

    def of(self, channel: bytes, name: bytes) -> DeliveryPolicy:
        """The policy in force for the cursor with that name (b"": plain) in a channel. Cost: O(1) when asked again, else
        O(policies)."""
        if not self.rules:
            return DEFAULT
        key = channel, name
        found = self._known.get(key)
        if found is None:
            found = self._known.remember(key, self._merged(*key), len(channel) + len(name))
        return found

    def shown(self, channel: bytes, name: bytes) -> admin.DeliveryPolicy | None:
        """`of` as operators are told; None if nothing else is in force than without policies."""
        found = self.of(channel, name)
        return None if found == DEFAULT else shown_policy(found)

    def concerning(self, channel: bytes, name: bytes) -> list[PolicyRule]:
        """The policies that `of` merges, in this order; of a part of a channel those of the channel."""
        where, who = whole_of(channel).decode("utf-8", "surrogateescape"), name.decode("utf-8", "surrogateescape")
        return [rule for rule in self.rules if rule.concerns(where, who)]

    def _merged(self, channel: bytes, name: bytes) -> DeliveryPolicy:
        found: dict[str, Any] = {}
        for rule in self.concerning(channel, name):
            found |= {option: getattr(rule, option) for option in OPTIONS if getattr(rule, option) is not None}
        if self.is_dead_letter_channel(channel):  # its messages are dead letters already: they end nowhere else
            found["dead_letter"] = ""
        return replace(DEFAULT, **found)
