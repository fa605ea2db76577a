"""The hooks of mkdocs: adds generated pages, and the files outside of docs/ to which pages link.

A link in a page is that of the repository, so that it works there, too. A file outside of docs/ becomes a page or a file below
`repository/` of the site; a link to anything else than that is a mistake, and `mkdocs build --strict` fails.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
sys.path[:0] = [str(ROOT), str(ROOT / "clients")]

OUTSIDE: Final = "repository"
"""The folder of the site with files of the rest of the repository."""
_LINK: Final = re.compile(r"(\[[^]]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE: Final = re.compile(r" *```")
_FOREIGN: Final = re.compile(r"\w+:|/")


def site_name(path: Path) -> str:
    """The name in the site of a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return posixpath.join(OUTSIDE, path.relative_to(ROOT).as_posix())


def linked(source: Path, text: str) -> set[Path]:
    """The files outside of docs/ to which a page links."""
    found = {(source.parent / link[2]).resolve() for link in _links(text)}
    return {path for path in found if path.is_file() and path.is_relative_to(ROOT) and not path.is_relative_to(DOCS)}


def _links(text: str) -> list[re.Match[str]]:
    return [link for _, line in _lines(text) for link in _LINK.finditer(line) if not _FOREIGN.match(link[2])]


def _lines(text: str) -> list[tuple[bool, str]]:
    """The lines outside of code, each with False; and all others, with True, and empty."""
    found, code = [], False
    for line in text.splitlines():
        fence = _FENCE.match(line) is not None
        found.append((code or fence, "" if code or fence else line))
        code ^= fence
    return found


def with_links_of_the_site(source: Path, text: str) -> str:
    """The text of a page with links to files of the repository as links within the site."""
    here = posixpath.dirname(site_name(source))

    def moved(link: re.Match[str]) -> str:
        target = (source.parent / link[2]).resolve()
        if _FOREIGN.match(link[2]) or not target.is_file() or not target.is_relative_to(ROOT):
            return link[0]
        return f"{link[1]}{posixpath.relpath(site_name(target), here or '.')}{link[3]}"

    lines = zip(text.splitlines(), _lines(text), strict=True)
    return "\n".join(line if code else _LINK.sub(moved, line) for line, (code, _) in lines)


def outside_files(pages: list[Path]) -> list[Path]:
    """Files outside of docs/ to which pages link, and those to which these link in turn."""
    found: set[Path] = set()
    waiting = set(pages)
    while waiting:
        page = waiting.pop()
        new = linked(page, page.read_text(encoding="utf-8")) - found
        found |= new
        waiting |= {path for path in new if path.suffix == ".md"}
    return sorted(found)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add generated pages and files of the repository."""
    from docs.generator.reference import pages  # noqa: PLC0415 - the path was set above

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    for path in outside_files([DOCS / file.src_uri for file in files.documentation_pages() if not file.generated_by]):
        added = File.generated(config, site_name(path), abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - of mkdocs
    """Rewrite links of a page that is a file of the repository."""
    uri = page.file.src_uri
    source = ROOT / uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else DOCS / uri
    return with_links_of_the_site(source, markdown) if source.is_file() else markdown
