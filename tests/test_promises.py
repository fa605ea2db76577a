"""SECURITY.md and docs/security.md promise nothing that no test checks, sentence by sentence.

`tests/promises.toml` has an entry for each sentence of both pages: a quote that only this sentence has, and either the tests
that fail if the sentence is wrong, or one word that says why it needs none. So a new sentence without an entry fails here, and
an entry whose sentence or test does not exist any more. Reads text and syntax trees only, imports none of these tests.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.test_docs import lines_outside_fences

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "promises.toml"

PAGES = {"SECURITY.md": "What is trusted", "docs/security.md": ""}
"""Pages whose sentences have entries, and the heading with which the first of these sentences begins ("": the page)."""

NO_PROMISE = {
    "advice": "what whoever runs a server should do",
    "definition": "says what a word or an option means, or points to another page",
    "limit": "says what is not protected, or who is trusted",
    "nats": "says what nats-server does, whoever connects to it",
    "title": "names what follows",
    "cost": "says what something costs; benchmarks measure it",
}
"""Why a sentence needs no test."""

Entries = Mapping[str, list[str] | str]

_END = re.compile(r"(?:(?<=[.?!])|(?<=[.?!][)\"*]))\s+(?=[\w(\"*`\[\0])")
_SPAN = re.compile(r"`[^`]*`|\]\([^)]*\)")
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
_RULE = re.compile(r"\|[-:| ]+\|")


def sentences(text: str, begin: str = "") -> list[str]:
    """Sentences of a page behind the heading *begin*: of paragraphs, items of lists and rows of tables, in one line each."""
    return [
        sentence for block in _blocks(text, begin) for sentence in _split(" ".join(block.replace("**", "").split()))
    ]


def _blocks(text: str, begin: str) -> Iterator[str]:
    """Paragraphs, items of lists and rows of tables."""
    block: list[str] = []
    inside = not begin
    for line in [*lines_outside_fences(text.replace("\n```", "\n\n```")), ""]:
        heading = line.startswith("#")
        if heading or not line.strip() or _ITEM.match(line) or line.startswith("|"):
            if inside and block:
                yield "\n".join(block)
            block = []
        inside = inside or (heading and line.lstrip("# ") == begin)
        if line.strip() and not heading and not _RULE.fullmatch(line):
            block.append(_ITEM.sub("", line, count=1).strip("| ") if line[0] in "|-" else line)


def _split(block: str) -> Iterator[str]:
    """Sentences of a block; what stands in code and in links ends none."""
    spans = _SPAN.findall(block)
    for sentence in _END.split(_SPAN.sub("\0", block)):
        yield re.sub("\0", lambda _: spans.pop(0), sentence)


def entries() -> dict[str, Entries]:
    """By page: what is said of each quote."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


@cache
def defined_in(path: Path) -> frozenset[str]:
    """The tests of a file, those of classes as `Class::test`; none if there is no such file."""
    if not path.is_file():
        return frozenset()
    body = ast.parse(path.read_text(encoding="utf-8")).body
    names = list(_functions(body))
    names += [
        f"{each.name}::{name}" for each in body if isinstance(each, ast.ClassDef) for name in _functions(each.body)
    ]
    return frozenset(names)


def _functions(body: list[ast.stmt]) -> Iterator[str]:
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
            yield each.name


def unmatched(said: list[str], known: Entries) -> list[str]:
    """Sentences that no quote matches, or several; quotes that match no sentence, or several."""
    found = {sentence: [quote for quote in known if quote in sentence] for sentence in said}
    wrong = [f"{len(quotes)} entries: {sentence}" for sentence, quotes in found.items() if len(quotes) != 1]
    for quote in known:
        count = sum(quote in sentence for sentence in said)
        wrong += [f"{count} sentences: {quote}"] if count != 1 else []
    return wrong


def untested(known: Entries) -> list[str]:
    """Entries that name no test that exists, and no reason."""
    wrong = []
    for quote, tests in known.items():
        if isinstance(tests, str):
            wrong += [f"{quote}: {tests} is no reason"] if tests not in NO_PROMISE else []
            continue
        wrong += [] if tests else [f"{quote}: no test"]
        for test in tests:
            path, _, name = test.partition("::")
            wrong += [f"{quote}: {test} does not exist"] if name not in defined_in(ROOT / path) else []
    return wrong


def test_these_pages_have_entries():
    assert entries().keys() == PAGES.keys()


@pytest.mark.parametrize(("page", "begin"), PAGES.items(), ids=[*PAGES])
def test_each_sentence_has_one_entry(page, begin):
    said = sentences((ROOT / page).read_text(encoding="utf-8"), begin)
    assert len(said) > 20
    wrong = unmatched(said, entries()[page])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES)
def test_each_entry_names_tests_that_exist_or_a_reason(page):
    wrong = untested(entries()[page])
    assert not wrong, "\n".join(wrong)


# --- the checks can fail ---------------------------------------------------------------------------------------------------


def test_sentences_are_read_as_people_read_them():
    text = """# Page
Not this.
## Begin
One, `a. B`, [c](D. E): "f." **Two.** Three
goes on (really). *Four*: yes?
- five. Six
  goes on
```
No. Not this.
```
| right | what |
|---|---|
| `seven` | eight. Nine |

Ten.
"""
    assert sentences(text, "Begin") == [
        *('One, `a. B`, [c](D. E): "f."', "Two.", "Three goes on (really).", "*Four*: yes?", "five.", "Six goes on"),
        *("right | what", "`seven` | eight.", "Nine", "Ten."),
    ]
    assert sentences(text)[0] == "Not this."


def test_a_sentence_without_an_entry_and_an_entry_without_a_sentence_are_found():
    assert unmatched(["One is so.", "Two is."], {"One": "advice", "Two": "advice"}) == []
    assert unmatched(["One is so.", "Two is."], {"One": "advice"}) == ["0 entries: Two is."]
    assert unmatched(["One is so."], {"One": "advice", "Two": "advice"}) == ["0 sentences: Two"]
    assert unmatched(["One is so."], {"One": "advice", "is so": "advice"}) == ["2 entries: One is so."]
    assert unmatched(["One is.", "One was."], {"One": "advice"}) == ["2 sentences: One"]


def test_a_test_that_does_not_exist_and_a_reason_that_is_none_are_found():
    here = f"tests/{Path(__file__).name}"
    assert untested({"One": [f"{here}::test_these_pages_have_entries"], "Two": "advice"}) == []
    for wrong in ([], [f"{here}::test_nothing"], [f"{here}::entries"], ["tests/test_nothing.py::test_it"], "because"):
        assert len(untested({"One": wrong})) == 1, wrong
