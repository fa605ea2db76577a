"""The configuration language as nats-server itself reads it: what it can read we can read, and as the same values."""

import hashlib
import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stan.edge.nats.nats_process import find_binary
from stan.settings.nats_conf import ConfError, ConfNode, parse

UNREADABLE = re.compile(
    r"Parse error on line|config is invalid|variable reference for|out of the range|error parsing include|no such file"
)
DIGEST = re.compile(r"is valid \((sha256:\w+)\)")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conf") / "nats.conf"


def told(file: Path, text: str) -> tuple[bool, str]:
    """Whether nats-server can read *text*, and the digest of its values, "" if they make no configuration."""
    file.write_bytes(text.encode())
    done = subprocess.run([find_binary(), "-t", "-c", file], capture_output=True, text=True, check=False, timeout=60)
    said = done.stdout + done.stderr
    found = DIGEST.search(said)
    return UNREADABLE.search(said) is None, found[1] if found else ""


def digest(data: object) -> str:
    """The digest that nats-server tells of values."""
    text = json.dumps(data, default=plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return "sha256:" + hashlib.sha256(f"{text}\n".encode()).hexdigest()


def plain(node: object) -> object:
    assert isinstance(node, ConfNode)
    return node.data


def agrees(file: Path, text: str) -> None:
    readable, theirs = told(file, text)
    ours, problem = "", None
    try:
        ours = digest(parse(text.encode(), str(file)))
    except ConfError as error:
        problem = error
    assert problem is None or not readable, problem
    assert problem or not theirs or ours == theirs


# --- files that say something, in many layouts ---------------------------------------------------------------------------

word = st.from_regex(r"\A[a-z][a-z0-9._-]{0,6}\Z").filter(
    lambda text: text not in {"true", "false", "yes", "no", "on", "off"}
)
string = (
    word
    | word.map(lambda text: f'"{text} {text}"')
    | word.map(lambda text: f"'{text} # {text}'")
    | st.just('"\\x41\\t"')
)
size = st.tuples(st.integers(1, 9000), st.sampled_from(["", "k", "K", "kb", "KiB", "m", "MB"])).map(
    lambda pair: f"{pair[0]}{pair[1]}"
)
switch = st.sampled_from(["true", "TRUE", "yes", "on", "false", "No", "off"])
line_end = st.sampled_from(["\n", "\n\n", "\r\n", " # a } comment {\n", "\n// another\n"])
between = line_end | st.sampled_from([", ", ";", ",\n"])
blank = st.sampled_from(["", " ", "\t", "  "])
spread = blank | st.sampled_from(["\n", " \n ", "\n\n\t"])


def separator(space: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(spread, st.sampled_from([":", "="]), space).map("".join) | st.just(" ")


def array(element: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(element, max_size=3).flatmap(
        lambda values: st.sampled_from([",", ", ", "\n", ",\n "]).map(lambda comma: f"[{comma.join(values)} ]")
    )


def entries(
    kinds: dict[str, st.SearchStrategy[str]], space: st.SearchStrategy[str], fewest: int = 0
) -> st.SearchStrategy[str]:
    """Some of *kinds*, each with its value."""
    each = st.sampled_from(sorted(kinds)).flatmap(
        lambda key: st.tuples(st.sampled_from([key, f'"{key}"', f"'{key}'"]), separator(space), kinds[key], between)
    )
    return st.lists(each.map("".join), min_size=fewest, max_size=4).map("".join)


def block(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.just("{"), spread, inside, spread, st.just("}")).map("".join)


TAGS = block(entries(dict.fromkeys("abcd", string), spread))
CLUSTER = {
    "name": word,
    "pool_size": st.sampled_from(["3", "5"]),
    "no_advertise": switch,
    "compression": block(st.just("mode: off\n")),
}
TOP = {
    "server_name": word,
    "max_connections": size,
    "max_payload": size,
    "debug": switch,
    "server_tags": array(string),
    "server_metadata": TAGS,
    "cluster": block(entries(CLUSTER, spread)),
    "max_traced_msg_len": size,
}
top = entries(TOP, blank)
files = st.tuples(st.sampled_from(["", "\n", "# begin\n"]), top, st.sampled_from(["", "}", " }\n# end"])).map(
    "".join
) | block(top)


@settings(max_examples=40, deadline=None)
@example("cluster\n:\n{ name: a }")
@example("cluster {\n name:\n a\n}")
@example("server_metadata {\n a:\n b\n c\n=\n\n 'd'\n}")
@example("cluster { name: a }}")
@example("{cluster { name: a }}}")
@example("{cluster { name: a }} debug: on\n}")
@example("server_name: ")
@example("server_tags: [a, b\n c]; server_metadata { a: b, c: d; e f }")
@example("x: 5\nmax_connections: $x\nserver_metadata { y: z, w: $y }")
@given(files)
def test_files_in_any_layout_have_the_values_that_nats_server_reads(file, text):
    agrees(file, text)


@settings(max_examples=40, deadline=None)
@example("x { a: } y: 1", 0, "\n")
@example("x: }", 0, " ")
@example("x { y: 1 }\n", 1, "}")
@given(files, st.integers(0, 200), st.sampled_from(["\n", " ", "\t", "}"]))
def test_what_nats_server_can_read_behind_a_slip_can_be_read(file, text, place, slip):
    place = len(text) if slip == "}" else place
    agrees(file, text[:place] + slip + text[place:])
