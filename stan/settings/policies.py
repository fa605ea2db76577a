"""The block `policies` of the configuration file: how messages are delivered, by pattern of channels; all mistakes with their
lines; pure.

`"orders.>" { max_deliver: 5, backoff: ["1s", "10s"], window: adaptive, durables { billing { max_deliver: 3 } } }`
"""

from typing import Any, Final

from stan_protocol.refusals import go_quote
from stan_protocol.schemas import json_data
from stan_protocol.units import go_duration, parse_duration

from stan.config import Setting
from stan.policies import POLICY_OPTIONS, VALID, Form, PolicyOption, PolicyRule
from stan.settings.nats_conf import ConfNode, Document

BY_KEY: Final = {option.key: option for option in POLICY_OPTIONS}


class PoliciesReader:
    """Reads blocks `policies`; collects policies, their presentation, and mistakes."""

    def __init__(self) -> None:
        self.rules: list[PolicyRule] = []
        self.settings: list[Setting] = []
        self.complaints: list[str] = []

    def read(self, node: ConfNode) -> None:
        """Read one block."""
        for pattern, block in self._map(node, "policies").items():
            options = self._map(block, f"the policy of {go_quote(pattern)}")
            self._rule(block, options, pattern)
            for key, durables in options.items():
                if key.lower() != "durables":
                    continue
                for name, each in self._map(durables, "durables").items():
                    self._rule(each, self._map(each, f"the policy of durable {go_quote(name)}"), pattern, name)

    def _rule(self, node: ConfNode, options: Document, pattern: str, name: str = "") -> None:
        given: dict[str, Any] = {}
        for key, each in options.items():
            option = BY_KEY.get(key.lower())
            if option is not None:
                value = given[option.field] = self._value(option, each, key)
                self._show(f"{pattern}.durables.{name}" if name else pattern, option, each, value)
            elif name or key.lower() != "durables":
                words = ", ".join((*BY_KEY, *([] if name else ["durables"])))
                self._complain(each, f"a policy has {words}, not {go_quote(key)}")
        rule = PolicyRule(pattern=pattern, name=name, where=node.place, **given)
        if any(rule.key == other.key for other in self.rules):
            of = f" of durable {go_quote(name)}" if name else ""
            self._complain(node, f"the policy of {go_quote(pattern)}{of} is there twice")
        elif not rule.empty:
            self.rules.append(rule)

    def _value(self, option: PolicyOption, node: ConfNode, key: str) -> Any:
        match option.form:
            case Form.NUMBER:
                return self._number(node, key)
            case Form.DURATION:
                return self._duration(node, key)
            case Form.DURATIONS:
                return self._durations(node, key)
            case Form.WORD:
                chosen = self._word(node, key, option.words)
                return None if chosen is None else bool(chosen)
            case Form.CHOICE:
                word = self._word(node, key, option.words)
                if option.field == "schema" and word == VALID and not json_data.AVAILABLE:
                    self._complain(node, f"{key}: {json_data.MISSING}")
                return word
            case Form.CHANNEL:
                return self._channel(node, key)

    def _show(self, whose: str, option: PolicyOption, node: ConfNode, value: Any) -> None:
        match option.form:
            case Form.DURATIONS:
                text = ",".join(map(go_duration, value or ()))
            case Form.DURATION:
                text = go_duration(value or 0)
            case _:
                text = str(node.data)
        self.settings.append(Setting(f"policies.{whose}.{option.key}", text, node.place))

    def _complain(self, node: ConfNode, text: str) -> None:
        self.complaints.append(f"{node.place}: {text}")

    def _map(self, node: ConfNode, what: str) -> Document:
        if isinstance(node.data, dict):
            return node.data
        self._complain(node, f"expected {what} to be a map in braces")
        return {}

    def _number(self, node: ConfNode, name: str) -> int | None:
        if isinstance(node.data, int) and not isinstance(node.data, bool):
            return node.data
        self._complain(node, f"expected {name} to be a number")
        return None

    def _durations(self, node: ConfNode, name: str) -> tuple[int, ...] | None:
        nodes = node.data if isinstance(node.data, list) else [node]
        durations = [self._duration(each, name) for each in nodes]
        return None if None in durations else tuple(each for each in durations if each is not None)

    def _duration(self, node: ConfNode, name: str) -> int | None:
        if isinstance(node.data, str):
            try:
                return parse_duration(node.data)
            except ValueError:
                pass
        self._complain(node, f'expected {name} to be a duration such as "10s" or "1h30m"')
        return None

    def _word(self, node: ConfNode, name: str, words: tuple[str, ...]) -> int | None:
        word = node.data.lower() if isinstance(node.data, str) else ""
        if word not in words:
            self._complain(node, f"expected {name} to be {' or '.join(reversed(words))}")
            return None
        return words.index(word)

    def _channel(self, node: ConfNode, name: str) -> str | None:
        if isinstance(node.data, str):
            return "" if node.data.lower() == "none" else node.data
        self._complain(node, f"expected {name} to be the name of a channel, or none")
        return None
