"""Some inputs for every parser; `python -m tests.fuzz --inputs 1000000` makes more."""

import pytest

from tests.fuzz.engine import Parser, fuzz
from tests.fuzz.parsers import all_parsers

INPUTS = 400
PARSERS = list(all_parsers())


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_parser_refuses_in_its_own_words(parser):
    assert not list(fuzz(parser, INPUTS, seed=1))


def test_names_are_different():
    assert len({parser.name for parser in PARSERS}) == len(PARSERS)


def test_engine_complains_of_what_is_not_refused_and_makes_the_same_inputs_again():
    def fails(data: bytes) -> None:
        if len(data) > 5:
            raise ZeroDivisionError

    (complaint,) = fuzz(Parser("bad", (b"12345",), fails), INPUTS, seed=3)
    assert "ZeroDivisionError" in complaint
    assert [complaint] == list(fuzz(Parser("bad", (b"12345",), fails), INPUTS, seed=3))


def test_engine_complains_of_memory_that_grows():
    kept = []
    found = list(fuzz(Parser("fat", (b"x",), lambda _data: kept.append(bytearray(1 << 17))), 1000, seed=1))
    assert len(found) == 1
    assert "more memory" in found[0]
