"""All parsers there are to be fuzzed."""

from collections.abc import Iterator
from itertools import chain

from tests.fuzz import disk, network, operations, text
from tests.fuzz.engine import Parser, run


def all_parsers() -> Iterator[Parser]:
    """Each with a name of its own."""
    return chain(network.parsers(), disk.parsers(), text.parsers(), operations.parsers())


def run_named(name: str, count: int, seed: int) -> tuple[str, list[str], float]:
    """Fuzz the parser of that name: name, complaints, inputs a second."""
    return name, *run(next(parser for parser in all_parsers() if parser.name == name), count, seed)
