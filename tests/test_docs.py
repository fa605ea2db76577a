"""The pages in docs/: each section that is cited in code exists, each link leads somewhere, each file that is named is there.

Comments cite a page by a short name and a section (`DESIGN` and a number, `RAFT.md`, ...). Reads text only, imports none of it. A
section that is cited keeps its number; whoever moves or renames a file changes the pages that name it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_tidy import FOREIGN, SKIPPED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

PAGES = {
    "STAN-SPEC": DOCS / "stan-protocol.md",
    "DESIGN": DOCS / "architecture.md",
    "RAFT.md": DOCS / "raft.md",
    "RAFT": DOCS / "raft.md",
    "SPARK.md": DOCS / "spark-internals.md",
    "FIELD": DOCS / "field.md",
}
"""What a citation begins with, and the page that it means."""
BY_ITEM = {"FIELD"}
"""Pages whose numbered items may be cited by their number alone."""

WORDS_MAX = 2_500
"""Of a page for users: one that is longer is about more than one thing, and becomes several."""
LONG = {
    *("stan-protocol.md", "admin-api.md", "architecture.md", "raft.md", "log-format.md", "testing.md", "glossary.md"),
    "benchmarks-details.md",
}
"""Pages to look something up, and those about the code."""

CITING = ("stan", "clients", "tests", "deploy")
CODE = {".py", ".pyx", ".pxd", ".proto", ".sh", ".toml", ".yaml", ".yml", ".conf", ".service", ".js", ".css", ".html"}
TOLD = [*sorted(ROOT.glob("*.md")), ROOT / "changes" / "README.md"]

_NAME = re.compile(r"(?<![\w./-])(" + "|".join(map(re.escape, PAGES)) + r")(?![\w-])")
_SECTION = re.compile(
    r"[,;]?\s+(?:(?:and|to)\s+)?(?:[A-Z]\w+[;,]\s+)?"
    r"(Appendix [A-Z]\b|#\d+\b|C\d+\b|\d+\.[A-Z]\b|\d+(?:\.\d+)?[a-f]?\b(?!\.\d)|[A-Z]\b)"
)
_DOCUMENT = re.compile(r"(?<![\w./-])\w+(?:/[\w.-]+)+\.md\b")
_HAZARD = re.compile(r"\bS\d\d?\b")
"""In the package of Raft, the name of a hazard: a heading of the page about Raft."""

_HEADING = re.compile(r"(#+) (.+)")
_NUMBER = re.compile(r"(Appendix [A-Z]\b|\d+(?:\.\d+)*[a-z]?\b|[A-Z](?=\. )|S\d+(?=: ))")
_ITEM = re.compile(r"(?:(\d+)\. |\| (\w+) \|)")
_LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./*-]*/[\w.*-]+\.(?:py|pyx|pxd|proto|md|txt|sh|toml)")
_STEP = re.compile(r"\| \d+ [^|]*\| `([^`]+)` `(\w+)`")


class Citation(NamedTuple):
    """A section, or a whole page (""), that some text cites."""

    name: str
    section: str


class Outline(NamedTuple):
    """What of a page can be cited or linked to."""

    sections: frozenset[str]  # numbers of headings ("7.1", "16.G", "S3"), and of items in them ("16.G.129", "1a.3")
    anchors: frozenset[str]


# --- what there is ---------------------------------------------------------------------------------------------------------


def outline_of(text: str) -> Outline:
    """Headings and numbered items of a page; letters belong to the numbered heading above them."""
    sections: set[str] = set()
    anchors: dict[str, int] = {}
    chapter = section = ""
    for line in lines_outside_fences(text):
        heading, item = _HEADING.match(line), _ITEM.match(line)
        if heading is not None:
            slug = _slug(heading[2])
            anchors[slug] = anchors.get(slug, -1) + 1
            found = _NUMBER.match(heading[2])
            if found is not None:
                number = found[1]
                chapter = number if len(heading[1]) == 2 else chapter
                section = f"{chapter}.{number}" if re.fullmatch("[A-Z]", number) else number
                sections.add(section)
        elif item is not None and section:
            sections |= {f"{section}.{item[1] or item[2]}", f"#{item[1] or item[2]}"}
    repeats = {f"{slug}-{n}" for slug, count in anchors.items() for n in range(1, count + 1)}
    return Outline(frozenset(sections), frozenset(anchors) | repeats)


def lines_outside_fences(text: str) -> Iterator[str]:
    """The lines of a page without blocks of code."""
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield line


def _slug(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).strip().replace(" ", "-")


@cache
def outline(page: Path) -> Outline:
    return outline_of(page.read_text(encoding="utf-8"))


# --- what is cited ---------------------------------------------------------------------------------------------------------


def citations(text: str) -> list[Citation]:
    """Every section that *text* cites."""
    found = []
    for name in _NAME.finditer(text):
        sections = list(_sections(text, name.end()))
        found += [Citation(name[1], section) for section in sections or [""]]
    return found


def _sections(text: str, at: int) -> Iterator[str]:
    """Sections behind the name of a page: "5, 6.7, 16 E and F 106", "16.M", "1a #3", "Appendix B"."""
    chapter = letter = ""
    while (found := _SECTION.match(text, at)) is not None:
        at, token = found.end(), found[1]
        head, _, tail = token.partition(".")
        if re.fullmatch("[A-Z]", token):
            if not chapter:  # the beginning of a sentence
                return
            letter = f"{chapter}.{token}"
            yield letter
        elif re.fullmatch("[A-Z]", tail):
            chapter, letter = head, token
            yield token
        elif token.isdigit() and letter:
            yield f"{letter}.{token}"
        else:
            chapter, letter = token, ""
            yield token


def is_there(citation: Citation) -> bool:
    """Whether the page has that section, or that item."""
    page = PAGES[citation.name]
    if not citation.section:
        return page.is_file()
    known = outline(page).sections
    return citation.section in known or (citation.name in BY_ITEM and f"#{citation.section}" in known)


def texts() -> list[Path]:
    """Files that may cite a page, but for this one."""
    found = [path for folder in CITING for path in (ROOT / folder).rglob("*") if path.suffix in CODE]
    return sorted(path for path in found if not SKIPPED & set(path.parts) and path != Path(__file__))


def test_every_cited_section_exists():
    wrong, count = [], 0
    for path in texts():
        text = path.read_text(encoding="utf-8")
        cited = citations(text)
        count += len(cited)
        wrong += [f"{path.relative_to(ROOT)}: {c.name} {c.section}" for c in cited if not is_there(c)]
        wrong += [
            f"{path.relative_to(ROOT)}: {name}" for name in _DOCUMENT.findall(text) if not (ROOT / name).is_file()
        ]
    assert not wrong, "\n".join(wrong)
    assert count > 100


def test_every_hazard_that_the_raft_package_names_is_described():
    named = {
        (path.name, hazard)
        for folder in ("stan/raft", "tests/raft")
        for path in (ROOT / folder).glob("*.py")
        for hazard in _HAZARD.findall(path.read_text(encoding="utf-8"))
    }
    assert named
    assert {hazard for _, hazard in named} <= outline(PAGES["RAFT"]).sections


# --- what is linked and named ----------------------------------------------------------------------------------------------


def pages() -> list[Path]:
    """Pages for people."""
    found = [path for folder in ("docs", *CITING) for path in (ROOT / folder).rglob("*.md")]
    return sorted(path for path in [*TOLD, *found] if not SKIPPED & set(path.parts))


each_page = pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))


def broken_links(page: Path, text: str) -> list[str]:
    """Links of a page that lead to no file, or to no heading of one."""
    wrong = []
    for line in lines_outside_fences(text):
        for target in _LINK.findall(_SPAN.sub("", line)):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name).resolve() if name else page
            if not file.exists() or (
                anchor and anchor not in (outline_of(text) if file == page else outline(file)).anchors
            ):
                wrong.append(target)
    return wrong


def missing_files(text: str) -> list[str]:
    """Files that a page names, and that are nowhere; names are those of the root, of `stan` or of `clients`."""
    return [
        name
        for line in lines_outside_fences(text)
        for name in _SPAN.findall(line)
        if _FILE.fullmatch(name) and not any(list(base.glob(name)) for base in (ROOT, ROOT / "stan", ROOT / "clients"))
    ]


def missing_steps(text: str) -> list[str]:
    """Steps of a walk (a file and a function in a table) whose function is not in that file."""
    wrong = []
    for line in text.splitlines():
        step = _STEP.match(line)
        if step is not None:
            files = [base / step[1] for base in (ROOT / "stan", ROOT) if (base / step[1]).is_file()]
            if not files or not re.search(rf"\bdef {step[2]}\(", files[0].read_text(encoding="utf-8")):
                wrong.append(f"{step[1]} {step[2]}")
    return wrong


@each_page
def test_links_lead_somewhere(page):
    assert not broken_links(page, page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", [*TOLD, *sorted(DOCS.rglob("*.md"))], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_is_there(page):
    text = page.read_text(encoding="utf-8")
    assert not missing_files(text)
    assert not missing_steps(text)
    assert not [word for word in FOREIGN if word in text]


def test_every_page_is_in_the_index():
    for folder in (DOCS, DOCS / "decisions"):
        index = (folder / "README.md").read_text(encoding="utf-8")
        assert not [
            page.name for page in folder.glob("*.md") if page.name != "README.md" and f"({page.name})" not in index
        ]
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert not [page.name for page in (DOCS / "features").glob("*.md") if f"(features/{page.name})" not in index]


def test_pages_for_users_are_short_enough_to_be_read():
    lengths = {page.name: len(page.read_text(encoding="utf-8").split()) for page in DOCS.glob("**/*.md")}
    assert not {name for name, words in lengths.items() if words > WORDS_MAX} - LONG
    assert lengths.keys() >= LONG


INSIDE = re.compile(r"`[^`]*`|\*\*[^*]*\*\*|[(\[][^()\[\]]*[)\]]")
"""Code, strong words, and what stands in brackets, where a sentence may end within a line."""


def several_sentences(text: str) -> list[str]:
    """The lines of prose with more than one sentence: changes of a page are read sentence by sentence."""
    prose = re.sub(r"(?ms)^ *```.*?^ *```$", "", text).splitlines()
    lines = [line for line in prose if line.strip(" >")[:1] not in {"|", "#"}]
    return [line for line in lines if re.search(r"[^\d][.!?] [A-Z]", INSIDE.sub("x", line))]


@each_page
def test_each_sentence_has_a_line_of_its_own(page):
    assert several_sentences(page.read_text(encoding="utf-8")) == []


# --- the checks can fail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("see STAN-SPEC 7.1.", ["7.1"]),
        ("(STAN-SPEC 5, 6.7, 16 E and F)", ["5", "6.7", "16", "16.E", "16.F"]),
        ("(STAN-SPEC 16 G 129, 134)", ["16", "16.G", "16.G.129", "16.G.134"]),
        ("(STAN-SPEC 3, 14, 16.M).", ["3", "14", "16.M"]),
        ("STAN-SPEC 3 to 6 as a client sees it", ["3", "6"]),
        ("(STAN-SPEC, Appendix B).", ["Appendix B"]),
        ("STAN-SPEC 2.1, MsgProto; 6.6.", ["2.1", "6.6"]),
        ("(FIELD 1a #3)", ["1a", "#3"]),
        ("(FIELD 3f, C1 to C12)", ["3f", "C1", "C12"]),
        ("(DESIGN 6). And 7 more", ["6"]),
        ("DESIGN 6 names CRC-32C", ["6"]),
        ("(RAFT.md: larger ones", [""]),
        ("STAN-SPEC 3. A client", ["3"]),
        ("DESIGNED 5, A_RAFT 7", []),
    ],
)
def test_citations_are_read_as_people_read_them(text, sections):
    assert [citation.section for citation in citations(text)] == sections


@pytest.mark.parametrize(
    "text",
    [
        *("STAN-SPEC 7.9", "STAN-SPEC 17", "STAN-SPEC 16 N", "STAN-SPEC 16 G 1", "STAN-SPEC, Appendix Z"),
        *("DESIGN 14", "FIELD 1a #47", "FIELD 3f, C99", "FIELD 1e", "RAFT 10"),
    ],
)
def test_a_wrong_citation_is_found(text):
    assert not all(map(is_there, citations(text) or [Citation("RAFT", "nothing was read")]))


def test_a_wrong_link_a_missing_file_and_a_wrong_step_are_found():
    page = DOCS / "README.md"
    assert broken_links(page, "# One\n[a](architecture.md#1-the-promise) [b](#one) [c](https://example.org/x.md)") == []
    assert broken_links(page, "[a](nowhere.md) [b](architecture.md#nothing) [c](#two)") == [
        "nowhere.md",
        "architecture.md#nothing",
        "#two",
    ]
    assert missing_files("`core/broker/broker.py` `protocol/kernel/*.py` `tests/test_docs.py` `core/nothing.py`") == [
        "core/nothing.py"
    ]
    assert missing_steps(
        "| 1 a | `core/broker/broker.py` `ready` | b |\n| 2 a | `core/broker/broker.py` `nothing` | b |"
    ) == ["core/broker/broker.py nothing"]


def test_several_sentences_in_a_line_are_found():
    assert several_sentences("One. Two.") == ["One. Two."]
    assert several_sentences("- **One. Two.** `A. B` (C. D.)\n\n| One. Two. |\n\n```\nOne. Two.\n```\n") == []


def test_an_outline_knows_headings_and_items():
    text = (
        "# Page\n## 1. One\n### 1a. Part\n| 3 | x |\n## 16. List\n### G. Group\n7. item\n```\n## 9. no\n```\n## 1. One"
    )
    found = outline_of(text)
    assert found.sections >= {"1", "1a", "1a.3", "#3", "16", "16.G", "16.G.7", "#7"}
    assert "9" not in found.sections
    assert found.anchors == {"page", "1-one", "1a-part", "16-list", "g-group", "1-one-1"}
