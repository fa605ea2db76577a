"""All parsers there are to be fuzzed."""

from collections.abc import Iterator
from itertools import chain

from tests.fuzz import disk, network, operating, text
from tests.fuzz.engine import Parser


def all_parsers() -> Iterator[Parser]:
    """Each with a name of its own."""
    return chain(network.parsers(), disk.parsers(), text.parsers(), operating.parsers())


def named(name: str) -> Parser:
    """The parser of that name."""
    return next(parser for parser in all_parsers() if parser.name == name)
