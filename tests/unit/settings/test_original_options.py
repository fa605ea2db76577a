"""Each option of NATS Streaming Server 0.25.6, and what becomes of it here: nothing is ignored without a word.

The options, with a value each, are in `tests/fixtures/options-0.25.6.toml`; with STAN_ORIGINAL the original is asked, too.
"""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from stan.settings.nats_conf import parse as parse_conf
from stan.settings.settings import Action, Parsed, parse
from tests.kit.original import ORIGINAL, needs_original

OPTIONS = tomllib.loads((Path(__file__).parents[2] / "fixtures" / "options-0.25.6.toml").read_text(encoding="utf-8"))
FLAGS = [(name, value, here) for name, (value, here) in OPTIONS["flags"].items()]
BLOCKS = {"": "%s"} | {
    name: f"{name} {{ %s }}" for name, each in OPTIONS["streaming"].items() if isinstance(each, dict)
}
ENTRIES = [
    (block, name, *given)
    for block in BLOCKS
    for name, given in (OPTIONS["streaming"][block] if block else OPTIONS["streaming"]).items()
    if isinstance(given, list)
]
FILE = "stan.conf"


def check(parsed: Parsed, name: str, here: str) -> None:
    """Fail unless the option has become what *here* says."""
    config = parsed.config
    in_force = [f"{setting.name} = {setting.value}" for setting in config.shown() if setting.source != "default"]
    warned = [notice for notice in config.notices if notice.startswith("Options without effect in this version: ")]
    assert not any("unknown" in text for text in (*parsed.complaints, *config.notices))
    match here:
        case "asks":
            assert parsed.action is not Action.SERVE
        case "refused":
            assert any(name in complaint and "this version runs no" in complaint for complaint in parsed.complaints)
        case "without effect":
            assert any(name in notice for notice in warned)
        case "passed on":
            assert any(argument.startswith(f"--{name}=") for argument in config.embedded.extra_args)
        case _:
            assert here in in_force


@pytest.mark.parametrize(("name", "value", "here"), FLAGS)
@pytest.mark.parametrize("dashes", ["-", "--"])
def test_flag_is_followed_passed_on_refused_or_warned_of(dashes, name, value, here):
    key = name if here in ("refused", "without effect", "passed on") else ""
    check(parse([f"{dashes}{name}={value}"]), key, here)


@pytest.mark.parametrize(("block", "name", "value", "here"), ENTRIES)
def test_entry_of_a_file_is_followed_refused_or_warned_of(block, name, value, here):
    text = "\nstreaming { " + BLOCKS[block] % f"{name}: {value}" + " }"
    parsed = parse(["-sc", FILE], lambda _: parse_conf(text.encode(), FILE))
    check(parsed, f"{name} ({FILE}:2)", here)


def said(*command: str, cwd: Path) -> str:
    """Both outputs of a program that ends by itself."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout + done.stderr


@needs_original
@pytest.mark.parametrize(("name", "value", "here"), FLAGS)
def test_original_knows_the_flag(tmp_path, name, value, here):
    del here
    text = said(ORIGINAL, f"-{name}={value}", "-v", cwd=tmp_path)
    assert re.search(r"version 0\.25\.6|^Usage: ", text, re.MULTILINE)
    assert "not defined" not in text


@needs_original
@pytest.mark.parametrize(("block", "name", "value", "here"), ENTRIES)
def test_original_knows_the_entry_of_a_file(tmp_path, block, name, value, here):
    del value, here
    (tmp_path / FILE).write_text("streaming { " + BLOCKS[block] % f"{name}: {{}}" + " }")
    assert f'parameter "{name}" value is expected to be' in said(ORIGINAL, "-sc", FILE, cwd=tmp_path)
