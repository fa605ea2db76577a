"""The work that a JSON Schema makes of data at most: data that would take too long is refused.

The package that checks data cannot be interrupted. A part of a schema that is reached in two ways is evaluated twice, and so is
all that it reaches: the number of evaluations of one value may grow with each level of nesting, without bound where a schema
refers to itself. They are counted here by level, from the graph of the schema's parts: a step is one part applied to one value.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from stan_protocol.limits import (
    SCHEMA_CHAIN_MAX,
    SCHEMA_CHECK_STEPS_MAX,
    SCHEMA_DEPTH_MAX,
    SCHEMA_PATTERNS_SIZE_MAX,
    SCHEMA_WEIGHING_STEPS_MAX,
    SCHEMA_WEIGHT_MAX,
)
from stan_protocol.schemas.json_schema import objects, resolved
from stan_protocol.schemas.kinds import SchemaError

_ONE: Final = ("not", "if", "then", "else")
_MANY: Final = ("allOf", "anyOf", "oneOf")
_BRANCHING: Final = ("anyOf", "oneOf", "not", "if")
_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_OTHER_MEMBERS: Final = ("additionalProperties", "unevaluatedProperties")
_OTHER_ITEMS: Final = ("items", "additionalItems", "unevaluatedItems")
_AGAIN: Final = 3
"""Times that the package evaluates the keywords beside `unevaluatedProperties` or `unevaluatedItems`."""
_FRACTION_STEPS: Final = 100
"""Steps that the division by a `multipleOf` which is no whole number takes."""

_Node = int  # the id of a part of the schema
_State = frozenset[tuple[_Node, int]]  # parts that are applied to one value, each with how often


class Level(NamedTuple):
    """The cost of one value on a level of the data."""

    steps: int
    """Parts that are applied to it."""
    pattern: int
    """Size of the patterns that are matched with it, and with its name."""


class Weight:
    """The work that a schema makes."""

    def __init__(self, root: dict[str, Any]) -> None:
        """Weigh a schema that `json_schema.parse` takes.

        Raises:
            SchemaError: one part of it applies to a value without end or too often, or it is too intricate to be weighed.
        """
        self._root = root
        self._parts: dict[_Node, dict[str, Any]] = {}
        self._applied: dict[_Node, Counter[_Node]] = {}
        self._sizes: dict[str, int] = {}
        self._work = 0
        self.branches = False
        """True if the reason of a refusal is looked for in several places."""
        self._measure_patterns()
        self.levels = self._levels()
        self._most = list(accumulate(self.levels, lambda one, other: Level(*map(max, one, other))))

    def steps(self, values_by_level: list[int]) -> int:
        """Steps for data with so many values on each level, the outermost first."""
        last = len(self.levels) - 1
        return sum(count * self.levels[min(at, last)].steps for at, count in enumerate(values_by_level))

    def most_at(self, level: int) -> Level:
        """The most that a value costs on a level or above it."""
        return self._most[min(level, len(self._most) - 1)]

    # --- one value --------------------------------------------------------------------------------------------------------

    def _closure(self, part: Any, depth: int = SCHEMA_CHAIN_MAX) -> Counter[_Node]:
        """All parts that are applied to a value if *part* is, with how often; empty for true and false."""
        if not isinstance(part, dict):
            return Counter()
        key = id(part)
        parts = self._applied.get(key)
        if parts is not None:
            if not parts:
                raise SchemaError("a part of the schema refers to itself without end")
            return parts
        if not depth:
            raise SchemaError(f"more than {SCHEMA_CHAIN_MAX} of its parts refer to each other in a chain")
        self._parts[key] = part
        self._applied[key] = Counter()  # under way
        times = _AGAIN if any(name in part for name in _UNEVALUATED) else 1
        parts = Counter({key: 1})
        for other in self._beside(part):
            for inner, count in self._spend(self._closure(other, depth - 1)).items():
                parts[inner] += times * count
        if parts.total() > SCHEMA_WEIGHT_MAX:
            raise SchemaError(f"more than {SCHEMA_WEIGHT_MAX} of its parts apply to one value")
        self._applied[key] = parts
        return parts

    def _beside(self, part: dict[str, Any]) -> Iterator[Any]:
        """The parts that *part* applies to the same value."""
        self.branches |= any(name in part for name in _BRANCHING)
        if isinstance(part.get("$ref"), str):
            yield resolved(part["$ref"], self._root)
        for name in _ONE:
            yield part.get(name)
        for name in _MANY:
            yield from _list(part.get(name))
        for name in ("dependentSchemas", "dependencies"):
            yield from _map(part.get(name)).values()

    # --- its members ------------------------------------------------------------------------------------------------------

    def _levels(self) -> list[Level]:
        levels: list[Level] = []
        states = {frozenset(self._closure(self._root).items())}
        followers: dict[
            _State, dict[_State, int]
        ] = {}  # of each the states of its members, with the cost of matching names
        deep, names, pattern = 0, 0, 0
        while len(levels) <= SCHEMA_DEPTH_MAX:
            costs = [self._cost(state) for state in states]
            steps = max((cost.steps for cost in costs), default=1) + deep + names
            levels.append(Level(steps, pattern + max((cost.pattern for cost in costs), default=0)))
            if steps > SCHEMA_CHECK_STEPS_MAX:  # no data with so many levels will be checked
                break
            deep += max((self._repeats(state) for state in states), default=0)
            for state in states - followers.keys():
                followers[state] = self._members(state)
            pattern = max((size for state in states for size in followers[state].values()), default=0)
            names = max((self._named(state) for state in states), default=0)
            before, states = states, {one for state in states for one in followers[state]}
            if states == before and not deep:
                break
        return levels

    def _members(self, state: _State) -> dict[_State, int]:
        """The states of the members of a value to which *state* is applied, by their names."""
        keys: Counter[_Node] = Counter()
        patterns = 0
        for node, count in state:
            self._add(keys, self._parts[node].get("propertyNames"), count)
            patterns += count * sum(map(self._sizes.__getitem__, _map(self._parts[node].get("patternProperties"))))
        named = self._by_name(
            state, _properties, _OTHER_MEMBERS, lambda part: _map(part.get("patternProperties")).values()
        )
        placed = self._by_name(state, _places, _OTHER_ITEMS, lambda part: [part.get("contains")])
        members = {frozenset(each.items()): patterns for each in (keys, *named)}
        return dict.fromkeys((frozenset(each.items()) for each in placed), 0) | members

    def _by_name(
        self,
        state: _State,
        named: Callable[[dict[str, Any]], Mapping[Any, Any]],
        unnamed: tuple[str, ...],
        always: Callable[[dict[str, Any]], Iterable[Any]],
    ) -> list[Counter[_Node]]:
        """Return the parts applied to the members of a value that some part of *state* names, and to all other members.

        Args:
            state: is applied to the value.
            named: returns a part's members by name.
            unnamed: keywords for the members that the same part does not name.
            always: returns a part's schemas for members of any name.
        """
        rest: Counter[_Node] = Counter()
        by_name: dict[Any, Counter[_Node]] = {}
        for node, count in state:
            part = self._parts[node]
            known = named(part)
            for inner in always(part):
                self._add(rest, inner, count)
            for key in unnamed:
                self._add(rest, part.get(key), count)
            for name, inner in known.items():
                each = by_name.setdefault(name, Counter())
                self._add(each, inner, count)
                for key in unnamed:
                    self._add(each, part.get(key), -count)
        return [rest, *(+(self._spend(each) + self._spend(rest)) for each in by_name.values())]

    def _spend(self, parts: Counter[_Node]) -> Counter[_Node]:
        """Count work on *parts*, and return them."""
        self._work += 1 + len(parts)
        if self._work > SCHEMA_WEIGHING_STEPS_MAX:
            raise SchemaError("it is too intricate to check data by it")
        return parts

    def _add(self, to: Counter[_Node], part: Any, times: int) -> None:
        for node, count in self._spend(self._closure(part)).items():
            to[node] += times * count

    # --- what it costs ----------------------------------------------------------------------------------------------------

    def _cost(self, state: _State) -> Level:
        steps = pattern = 0
        self._spend(Counter(dict(state)))
        for node, count in state:
            part = self._parts[node]
            whole = sum(map(_values_in, _list(part.get("enum"))))
            divisor = part.get("multipleOf")
            steps += count * (1 + whole + _FRACTION_STEPS * isinstance(divisor, float))
            if isinstance(part.get("pattern"), str):
                pattern += count * self._sizes[part["pattern"]]
        return Level(steps, pattern)

    def _repeats(self, state: _State) -> int:
        """Return how often the whole content of a value is looked at, as by `uniqueItems`."""
        return sum(count for node, count in state if self._parts[node].get("uniqueItems"))

    def _named(self, state: _State) -> int:
        """Return the steps for each member of a value, to check for its evaluation by another part."""
        if not any(name in self._parts[node] for node, _ in state for name in _UNEVALUATED):
            return 0
        return sum(count for _, count in state)

    def _measure_patterns(self) -> None:
        for _, part in objects(self._root):
            given = [part["pattern"]] if isinstance(part.get("pattern"), str) else []
            self._sizes |= {one: pattern_size(one) for one in (*given, *_map(part.get("patternProperties")))}
        if sum(self._sizes.values()) > SCHEMA_PATTERNS_SIZE_MAX:
            most = SCHEMA_PATTERNS_SIZE_MAX
            raise SchemaError(f"its patterns have more than {most} characters, with counted repeats written out")


def values_by_level(data: Any) -> list[int]:
    """The number of values on each level of JSON data, the outermost first; ends behind SCHEMA_DEPTH_MAX levels."""
    counts, level = [1], [data]
    while len(counts) <= SCHEMA_DEPTH_MAX + 1:
        level = [
            each
            for one in level
            if isinstance(one, dict | list)
            for each in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            break
        counts.append(len(level))
    return counts


def pattern_size(pattern: str) -> int:
    """The length of a regular expression whose counted repeats are written out, in characters; about its number of states."""
    sizes, last = [0], [0]  # of the open groups: their content, and its last element
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "\\":
            at += 1
        if in_class:
            in_class = char != "]"
            continue
        if char == "(":
            sizes.append(0)
            last.append(0)
            continue
        if char == ")" and len(sizes) > 1:
            size = sizes.pop()
            last.pop()
        elif char == "{" and (end := pattern.find("}", at)) > 0 and _is_count(pattern[at:end]):
            times = max(int(each) for each in pattern[at:end].split(",") if each.strip())
            size, at = last[-1] * max(times - 1, 0), end + 1
        else:
            in_class = char == "["
            size = 1
        sizes[-1] += size
        last[-1] = size if char != "{" else last[-1] + size
    return sum(sizes)


def _is_count(text: str) -> bool:
    numbers = text.split(",")
    return len(numbers) <= 2 and numbers[0].strip().isdigit() and all(len(each) < 10 for each in numbers)


def _properties(part: dict[str, Any]) -> dict[str, Any]:
    return _map(part.get("properties"))


def _places(part: dict[str, Any]) -> dict[int, Any]:
    return dict(enumerate(_list(part.get("prefixItems")) or _list(part.get("items"))))


def _values_in(value: Any) -> int:
    """Steps to compare data with a value of an enum: those without members are looked up together."""
    if isinstance(value, dict | list):
        return 1 + sum(map(_values_in, value.values() if isinstance(value, dict) else value)) + len(value)
    return 0


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
