"""The configuration language of NATS: read, refused with file and line, and written again."""

import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stan.settings import nats_conf
from stan.settings.nats_conf import ConfError, ConfNode, Moment, load, parse
from stan.settings.nats_conf_writer import render


def plain(data):
    """Values without their places; numbers and switches keep their type."""
    if isinstance(data, ConfNode):
        data = data.data
    if isinstance(data, dict):
        return {key: plain(node) for key, node in data.items()}
    if isinstance(data, list):
        return [plain(node) for node in data]
    return type(data).__name__, data


def read(text, **environ):
    return plain(parse(text.encode(), "f", environ))


def value(text, **environ):
    return read(f"a: {text}", **environ)["a"]


def refusal(text, **environ):
    with pytest.raises(ConfError) as caught:
        read(text, **environ)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: x\nb: y",
        "a = x; b = y",
        "a x, b y",
        "a:x\r\nb=y\r\n",
        "{a: x, b: y}",
        '{"a": "x", "b": "y"}\n',
        "'a' 'x' # text {\n// more }\n b\n:\ty // end",
    ],
)
def test_entries_are_written_in_many_ways(text):
    assert read(text) == {"a": ("str", "x"), "b": ("str", "y")}


@pytest.mark.parametrize(
    "text",
    [
        "b { a:\nx }",
        "b {\n a\n:\n\n x\n}",
        "b:{\n a =\n\n x\n}",
        "b {a: x}}",
        "b { a: x } }\n}\n # } \n",
        "{b {a: x}} }",
        "{b {\na:\nx}\n}\n",
        "{b {a:\nx}} b {a: x}",
    ],
)
def test_values_may_begin_on_a_later_line_inside_blocks_and_braces_may_be_too_many(text):
    assert read(text) == {"b": {"a": ("str", "x")}}


def test_nested_values_may_begin_on_a_later_line_inside_blocks():
    assert read("b {\n a:\n{\n c:\n[\n 1 ] } }") == {"b": {"a": {"c": [("int", 1)]}}}


@pytest.mark.parametrize("text", ["b { a: }", "b { c: 1, a:\n}", "{ b { a:\n\n} }", "b { a: } }"])
def test_value_that_is_missing_at_the_end_of_a_block_is_empty(text):
    assert read(text)["b"]["a"] == ("str", "")


def test_value_that_is_missing_at_the_end_of_the_text_is_empty():
    assert read("b: 1\na: ") == {"b": ("int", 1), "a": ("str", "")}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("x#y", "x#y"),
        ("nats://host:4222", "nats://host:4222"),
        ("127.0.0.1:4222", "127.0.0.1:4222"),
        ("1h30m", "1h30m"),
        ("-x", "-x"),
        ("a.*.>", "a.*.>"),
        (r'"a\tb\n\"\\\x41\xc3\xa9"', 'a\tb\n"\\Aé'),
        (r"a\x20b", "a b"),
        (r"'a\tb'", r"a\tb"),
        ("'two\nlines'", "two\nlines"),
        ("(\n raw { \"'\n)\nb: 1", "\n raw { \"'\n"),
        ("$2a$11$abc.def", "$2a$11$abc.def"),
    ],
)
def test_strings(text, data):
    assert value(text) == ("str", data)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("7", 7),
        ("-7", -7),
        ("1k", 1000),
        ("1KB", 1024),
        ("2mib", 2 * 1024**2),
        ("1g", 10**9),
        ("30m", 30_000_000),  # as there: a duration needs quotes
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_integers_take_suffixes(text, data):
    assert value(text) == ("int", data)


@pytest.mark.parametrize(("text", "data"), [("TRUE", True), ("yes", True), ("on", True), ("No", False), ("off", False)])
def test_switches(text, data):
    assert value(text) == ("bool", data)
    assert value(f"'{text}'") == ("str", text)


def test_other_scalars():
    assert value("-1.5") == ("float", -1.5)
    assert value("2026-01-31T12:00:00Z") == ("Moment", Moment("2026-01-31T12:00:00Z"))


def test_arrays_and_blocks_nest_and_end_lines_in_many_ways():
    text = "a [\n x, 'y' # one\n {b: 1; c {d: e}}\n]\nf {\n}\ng: [[1], []]"
    assert read(text) == {
        "a": [("str", "x"), ("str", "y"), {"b": ("int", 1), "c": {"d": ("str", "e")}}],
        "f": {},
        "g": [[("int", 1)], []],
    }


def test_later_entry_replaces_earlier_one_of_exactly_that_name():
    assert read("a: 1\nA: 2\na: 3") == {"a": ("int", 3), "A": ("int", 2)}


def test_entry_that_is_replaced_counts_where_it_was_replaced():
    assert list(parse(b"a: 1\nb: 2\na: 3", "f")) == ["b", "a"]


def test_lines_are_those_of_the_keys():
    assert parse(b"\na\n\n: 1", "f")["a"].line == 2
    document = parse(b"a: 1\n\nb {\n # x\n c:\t2\n\n d: 'x\ny'\n e: [\n  1,\n  2]\n}\n", "f")
    block = document["b"].data
    assert [document["a"].place, document["b"].place] == ["f:1", "f:3"]
    assert {key: node.line for key, node in block.items()} == {"c": 5, "d": 7, "e": 9}
    assert [node.line for node in block["e"].data] == [10, 11]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: 1\nb: {\n c: 2\n", "f:4: the end was reached, `}` is missing"),
        ("a: [1", "f:1: the end was reached, `]` is missing"),
        ("\na: b c\n", 'f:2: the value must end the line, but "c" follows'),
        (": x", 'f:1: a key was expected, not ":"'),
        ("a:\nb", "f:1: a value was expected"),
        ("a", "f:1: a value was expected"),
        ("a: 'x", "f:1: the string has no end"),
        ('a: "x', "f:1: the string has no end"),
        ("a: (x", "f:1: the block has no `)` on a line by itself"),
        (r'a: "\q"', 'f:1: "\\\\q" is no escape; there are \\xXX, \\t, \\n, \\r, \\" and \\\\'),
        ("a{ b: 1 }", 'f:1: a space is missing before the brace of "a{"'),
        ("a: 9223372036854775808", "f:1: the number 9223372036854775808 is out of range"),
        ("\n\na: 99e", "f:3: the number 99e is out of range"),
        ("a: $b", "f:1: variable reference for 'b' can not be found"),
        ("include x", "f:1: x is one file too many to include"),
        ("{a: 1} b", "f:1: a value was expected"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text, complaint):
    assert refusal(text) == complaint


def test_variable_is_what_the_innermost_block_has_said_before():
    text = "x: 1\na { x: 2, b { y: $x }, z: $x }\nc: $x\nx: 3\nd: [$x]"
    found = read(text, x="4")
    assert found["a"] == {"x": ("int", 2), "b": {"y": ("int", 2)}, "z": ("int", 2)}
    assert (found["c"], found["d"]) == (("int", 1), [("int", 3)])


def test_variable_of_the_environment_is_read_as_a_value():
    assert value("$E", E="5k") == ("int", 5000)
    assert value("$E", E="{b: [on]}") == {"b": [("bool", True)]}
    assert value("$E", E="$F", F="'x y'") == ("str", "x y")
    assert value("'$E'", E="x") == ("str", "$E")


def test_variable_of_the_environment_that_needs_itself_or_is_no_value_is_refused():
    assert "needs itself" in refusal("a: $E", E="$F", F="$E")
    assert refusal("\na: $E", E="x y").startswith("f:2: the variable E of the environment: $E:1: ")


def test_referenced_entries_are_known():
    document = parse(b"x: 1\ny: 2\na: $x", "f")
    assert [name for name, node in document.items() if node.referenced] == ["x"]


def test_included_files_are_found_beside_the_including_one(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.conf").write_text("x: 1\ninclude 'sub/b.conf'\nz { include ./sub/c.conf; v: 5 }\nq: $y")
    (tmp_path / "sub/b.conf").write_text('y: 2\n\ninclude "c.conf" # and more\n')
    (tmp_path / "sub/c.conf").write_text("w: 3\n")
    document = load(tmp_path / "a.conf")
    assert plain(document) == {
        "x": ("int", 1),
        "y": ("int", 2),
        "w": ("int", 3),
        "z": {"w": ("int", 3), "v": ("int", 5)},
        "q": ("int", 2),
    }
    assert document["y"].place == f"{tmp_path}/sub/b.conf:1"


def test_including_in_a_circle_is_refused(tmp_path):
    (tmp_path / "a.conf").write_text("\ninclude b.conf")
    (tmp_path / "b.conf").symlink_to("c.conf")
    (tmp_path / "c.conf").write_text("include a.conf")
    with pytest.raises(ConfError) as caught:
        load(tmp_path / "a.conf")
    assert str(caught.value) == f"{tmp_path}/b.conf:1: {tmp_path}/a.conf includes itself"


def test_including_without_end_is_refused(tmp_path):
    for number in range(70):
        (tmp_path / f"{number}.conf").write_text(f"include {number + 1}.conf\n")
    for number in range(10):
        (tmp_path / f"w{number}.conf").write_text(f"include w{number + 1}.conf\n" * 2)
    (tmp_path / "w10.conf").write_text("a: 1")
    for name in ("0.conf", "w0.conf"):
        with pytest.raises(ConfError, match="one file too many to include"):
            load(tmp_path / name)


def test_missing_file_is_told_where_it_is_included(tmp_path):
    (tmp_path / "a.conf").write_text("a: 1\ninclude none.conf")
    with pytest.raises(ConfError) as caught:
        load(tmp_path / "a.conf")
    assert str(caught.value) == f"{tmp_path}/a.conf:2: open {tmp_path}/none.conf: no such file or directory"
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.conf")


def test_depth_size_and_number_of_values_are_bounded(tmp_path):
    assert "more than 64 blocks" in refusal("a: " + "[" * 1000)
    assert "more than 64 blocks" in refusal("a { " * 1000)
    laughs = "a0: [1,2,3,4,5,6,7,8,9,0]\n" + "".join(f"a{n}: [{f'$a{n - 1}, ' * 10}]\n" for n in range(1, 9))
    assert refusal(laughs) == "f:5: more than 100000 values"
    assert "more than 100000 values" in refusal(f"a: [{'1, ' * 60_000}]\nb: $a")
    (tmp_path / "a").write_bytes(b"#" * (nats_conf.FILE_BYTES_MAX + 1))
    with pytest.raises(ConfError, match="is larger than"):
        load(tmp_path / "a")


PIECES = [
    "a",
    "b ",
    "{",
    "}",
    "[",
    "]",
    "\n",
    " ",
    ":",
    "=",
    ",",
    ";",
    "#",
    "//",
    '"',
    "'",
    "(",
    "\n)\n",
    "\\",
    "$a",
    "$E",
]
PIECES += [
    "1",
    "k",
    "-",
    ".",
    "include ",
    "include f\n",
    "\N{NO-BREAK SPACE}",
    "\0",
    "true",
    "a: 1\n",
    "2026-01-31T12:00:00Z",
]


@given(st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map("".join).map(str.encode)))
@example(b"a: " + b"\\" * 1001)
@example(b"a: 1" + b"1" * 10_000)
@example(b"a: 1" + b"1" * 10_000 + b".5")
def test_any_bytes_are_read_or_refused_and_what_is_read_can_be_written(data):
    try:
        document = parse(data, "f", {"E": "$a", "a": "[x]"}, lambda _file: data)
    except ConfError:
        return
    text = render(document).text
    assert plain(parse(text, "g")) == plain(document)


KEYS = st.text(min_size=1, max_size=5).filter(lambda key: not {'"', "'"} <= set(key))
SCALARS = st.one_of(
    st.text(max_size=20),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(-1e18, 1e18),
    st.just(Moment("2026-01-31T12:00:00Z")),
)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def nodes(data, line=1):
    if isinstance(data, dict):
        data = {key: nodes(each, line + place) for place, (key, each) in enumerate(data.items())}
    elif isinstance(data, list):
        data = [nodes(each, line) for each in data]
    return ConfNode(data, "f", line)


@given(st.dictionaries(KEYS, DATA, max_size=5))
def test_what_is_written_is_read_back(data):
    document = nodes(data).data
    text, places, _ = render(document)
    assert plain(parse(text, "f")) == plain(document)
    assert len(places) == text.count(b"\n")


def test_what_is_written_keeps_variables_and_knows_where_each_line_stood():
    text = b"x: 'a'\n\nb {\n  c: $x\n  d: [$x, 2]\n}\ne: 5, f: $E\ninclude part\n"
    document = parse(text, "f", {"E": "on"}, lambda _file: b"\ng: 1")
    again, places, used = render(document)
    assert again == b'"x": "a"\n"b": {\n"c": $x\n"d": [\n$x\n2 ] }\n"e": 5\n"f": true\n"g": 1\n'
    assert places == ("f:1", "f:3", "f:4", "f:5", "f:5", "f:5", "f:7", "f:7", "part:2")
    assert used == {id(document["x"])}
    document["x"] = ConfNode("other", "f", 1)
    assert b'"c": "a"' in render(document).text
    del document["x"]
    assert b'"c": "a"' in render(document).text


def test_bytes_that_are_not_utf8_are_kept():
    document = parse(b"a: 'b\xffc'", "f")
    assert os.fsencode(document["a"].data) == b"b\xffc"
    assert render(document).text == b'"a": "b\xffc"\n'
