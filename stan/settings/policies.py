"""The block `policies` of the configuration file: how messages are delivered, by pattern of channels; all mistakes with their
lines; pure.

`"orders.>" { max_deliver: 5, backoff: ["1s", "10s"], window: adaptive, durables { billing { max_deliver: 3 } } }`
"""

from typing import Any, Final

from stan.config import Setting
from stan.errors import go_quote
from stan.policies import PolicyRule
from stan.settings.nats_conf import ConfNode, Document
from stan.units import go_duration, parse_duration

KEYS: Final = ("max_deliver", "backoff", "max_hold", "window")
WINDOWS: Final = {"adaptive": True, "fixed": False}


class PoliciesReader:
    """Reads blocks `policies`; collects policies, how they are shown, and what is not as it must be."""

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
        told: dict[str, Any] = {}
        for key, each in options.items():
            match key.lower():
                case "max_deliver":
                    told["max_deliver"] = self._number(each, key)
                case "backoff":
                    told["backoff"] = self._durations(each, key)
                case "max_hold":
                    told["max_hold"] = self._duration(each, key)
                case "window":
                    told["adaptive_window"] = self._window(each, key)
                case "durables" if not name:
                    continue
                case _:
                    words = ", ".join((*KEYS, *([] if name else ["durables"])))
                    self._complain(each, f"a policy has {words}, not {go_quote(key)}")
                    continue
            self._show(f"{pattern}.durables.{name}" if name else pattern, key.lower(), each, told)
        rule = PolicyRule(pattern=pattern, name=name, where=node.place, **told)
        if any(rule.key == other.key for other in self.rules):
            of = f" of durable {go_quote(name)}" if name else ""
            self._complain(node, f"the policy of {go_quote(pattern)}{of} is there twice")
        elif not rule.empty:
            self.rules.append(rule)

    def _show(self, whose: str, option: str, node: ConfNode, told: dict[str, Any]) -> None:
        value = told["adaptive_window" if option == "window" else option]
        match option:
            case "backoff":
                text = ",".join(map(go_duration, value or ()))
            case "max_hold":
                text = go_duration(value or 0)
            case _:
                text = str(node.data)
        self.settings.append(Setting(f"policies.{whose}.{option}", text, node.place))

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
        found = [self._duration(each, name) for each in nodes]
        return None if None in found else tuple(each for each in found if each is not None)

    def _duration(self, node: ConfNode, name: str) -> int | None:
        if isinstance(node.data, str):
            try:
                return parse_duration(node.data)
            except ValueError:
                pass
        self._complain(node, f'expected {name} to be a duration such as "10s" or "1h30m"')
        return None

    def _window(self, node: ConfNode, name: str) -> bool | None:
        word = node.data.lower() if isinstance(node.data, str) else ""
        if word not in WINDOWS:
            self._complain(node, f"expected {name} to be {' or '.join(WINDOWS)}")
        return WINDOWS.get(word)
